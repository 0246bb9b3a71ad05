//! The memory that this process can still get.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of memory that this process can still get without the system swapping; `None` where it does not tell. What is
/// kept of files counts as free, since the system drops it when memory is wanted.
pub fn available_memory() -> Option<u64> {
    let of_system = kibibytes("/proc/meminfo", "MemAvailable:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = [of_group(&groups, Path::new("/sys/fs/cgroup")), of_process()];
    Some(limits.into_iter().flatten().fold(of_system, u64::min))
}

/// A number of such a line of a file of `/proc`.
fn kibibytes(file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What the limits of this process (`ulimit -v`, `ulimit -d`) still allow.
fn of_process() -> Option<u64> {
    let left = |resource, used: &str| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the struct is writable.
        let known = unsafe { libc::getrlimit(resource, &mut limit) } == 0;
        if !known || limit.rlim_cur == libc::RLIM_INFINITY {
            return None;
        }
        Some(limit.rlim_cur.saturating_sub(kibibytes("/proc/self/status", used)?))
    };
    let limits = [left(libc::RLIMIT_AS, "VmSize:"), left(libc::RLIMIT_DATA, "VmData:")];
    limits.into_iter().flatten().min()
}

/// What the control groups below `root` still allow a process that is in `groups`.
fn of_group(groups: &str, root: &Path) -> Option<u64> {
    let second =
        Files { limit: "memory.max", used: "memory.current", cached: ["inactive_file", "active_file"] };
    let first = Files {
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        cached: ["total_inactive_file", "total_active_file"],
    };
    let lines = groups.lines().filter_map(|line| line.split_once(':').map(|(_, rest)| rest));
    let found = lines.filter_map(|line| {
        let (controllers, path) = line.split_once(":/")?;
        match controllers {
            "" => second.left(root, path),
            // A process in a container sees the path that its group has outside.
            "memory" => first.left(&root.join("memory"), path),
            _ => None,
        }
    });
    found.min()
}

/// The files of a control group, and the lines of its `memory.stat` for what is kept of files.
struct Files {
    limit: &'static str,
    used: &'static str,
    cached: [&'static str; 2],
}

impl Files {
    /// The least that a group or one that it is in still allows.
    fn left(&self, root: &Path, path: &str) -> Option<u64> {
        let folders: Vec<PathBuf> = root.join(path).ancestors().map(Path::to_owned).collect();
        folders.iter().take_while(|folder| folder.starts_with(root)).filter_map(|one| self.left_in(one)).min()
    }

    fn left_in(&self, folder: &Path) -> Option<u64> {
        let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
        let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
        let stat = read("memory.stat").unwrap_or_default();
        let cached = |key: &&str| {
            let line = stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            line.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let cached = self.cached.iter().map(cached).fold(0, u64::saturating_add);
        Some(number(self.limit)?.saturating_sub(number(self.used)?.saturating_sub(cached)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(folder: &Path, files: [(&str, &str); 3]) {
        fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn what_is_kept_of_files_is_free_in_a_group() {
        let root = tempfile::tempdir().unwrap();
        let stat = "anon 300\ninactive_file 500\nactive_file 100\n";
        let files = [("memory.max", "1000\n"), ("memory.current", "900\n"), ("memory.stat", stat)];
        group(&root.path().join("a/b"), files);
        assert_eq!(of_group("0::/a/b\n", root.path()), Some(700));
        let files = [("memory.max", "max\n"), ("memory.current", "900\n"), ("memory.stat", stat)];
        group(&root.path().join("a/b/c"), files);
        assert_eq!(of_group("0::/a/b/c\n", root.path()), Some(700), "the limit of the group above");
        assert_eq!(of_group("0::/x\n", root.path()), None);
        assert_eq!(of_group("", root.path()), None);
    }

    #[test]
    fn groups_of_version_1_have_limits_too() {
        let root = tempfile::tempdir().unwrap();
        let stat = "cache 1\ntotal_inactive_file 50\ntotal_active_file 5\n";
        let files =
            [("memory.limit_in_bytes", "1000\n"), ("memory.usage_in_bytes", "400\n"), ("memory.stat", stat)];
        group(&root.path().join("memory"), files);
        assert_eq!(of_group("5:cpu:/\n4:memory:/docker/x\n", root.path()), Some(655));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_can_get_some_memory() {
        let total = kibibytes("/proc/meminfo", "MemTotal:").unwrap();
        assert!((1..=total).contains(&available_memory().unwrap()));
    }
}
