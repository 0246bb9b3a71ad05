//! Which process of which machine a hidden file belongs to.

use std::sync::OnceLock;

/// Letters of the host's name that a hidden name repeats.
const HOST_LETTERS: usize = 24;

/// Letters of the boot's id that a hidden name repeats.
const BOOT_LETTERS: usize = 8;

/// A process, told apart from those of other machines and of earlier boots of this one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Origin {
    /// The name of the machine, in letters, digits and underscores.
    pub(super) host: String,
    /// The boot of that machine.
    pub(super) boot: String,
    /// The process.
    pub(super) pid: u32,
}

impl Origin {
    /// This process.
    pub(super) fn own() -> Self {
        static MACHINE: OnceLock<(String, String)> = OnceLock::new();
        let (host, boot) = MACHINE.get_or_init(|| (plain(&host_name(), HOST_LETTERS), boot_id()));
        Self { host: host.clone(), boot: boot.clone(), pid: std::process::id() }
    }

    /// Reads `HOST-BOOT-PID`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (host, boot, pid) = (parts.next()?, parts.next()?, parts.next()?);
        let is_plain = |text: &str, most: usize| {
            !text.is_empty()
                && text.len() <= most
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        let digits = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
        if parts.next().is_some() || !is_plain(host, HOST_LETTERS) || !is_plain(boot, BOOT_LETTERS) || !digits
        {
            return None;
        }
        Some(Self { host: host.to_owned(), boot: boot.to_owned(), pid: pid.parse().ok()? })
    }

    /// Whether it is a process of this machine, of whatever boot.
    pub(super) fn is_here(&self) -> bool {
        self.host == Self::own().host
    }

    /// Whether it ran before this machine was started: then it is dead for certain.
    pub(super) fn is_before_boot(&self) -> bool {
        let own = Self::own();
        self.host == own.host && self.boot != own.boot && own.boot != NO_BOOT
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.host, self.boot, self.pid)
    }
}

/// Stands for the boot where the system does not tell one.
const NO_BOOT: &str = "0";

/// The first `most` letters of a text, each that could have a meaning in a hidden name replaced.
fn plain(text: &str, most: usize) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let plain: String = text.trim().chars().take(most).map(letter).collect();
    if plain.is_empty() { "_".to_owned() } else { plain }
}

fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let letters: String = id.chars().filter(char::is_ascii_hexdigit).take(BOOT_LETTERS).collect();
    if letters.is_empty() { NO_BOOT.to_owned() } else { letters }
}

fn host_name() -> String {
    let mut name = [0_u8; 256];
    // SAFETY: the buffer is writable and its true length is passed; the last byte stays the NUL that ends it.
    let status = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    if status != 0 {
        return String::new();
    }
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_reads_back() {
        let own = Origin::own();
        assert_eq!(Origin::parse(&own.to_string()), Some(own.clone()));
        assert!(own.is_here() && !own.is_before_boot());
        let other = Origin { host: "another".into(), ..own };
        assert_eq!(Origin::parse(&other.to_string()), Some(other.clone()));
        assert!(!other.is_here());
    }

    #[test]
    fn origin_of_other_texts_is_none() {
        for text in
            ["", "1-2", "a-b", "a-b-", "a--1", "-b-1", "a-b-1-2", "a.c-b-1", "a-b-1x", "a-b-99999999999"]
        {
            assert_eq!(Origin::parse(text), None, "{text}");
        }
    }

    #[test]
    fn names_of_machines_become_plain() {
        assert_eq!(plain("My-Host.example.org", 24), "my_host_example_org");
        assert_eq!(plain("", 24), "_");
        assert_eq!(plain(&"x".repeat(100), 24).len(), 24);
    }
}
