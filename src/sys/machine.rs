//! What of the machine this process may use.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Threads to compute with: one a physical core, but no more than affinity and control group allow.
pub fn usable_cores() -> u32 {
    let allowed = allowed_cpus();
    let cores = physical_cores(Path::new("/sys/devices/system/cpu"), &allowed);
    let cores = cores.or_else(|| u32::try_from(allowed.len()).ok()).filter(|&cores| cores > 0);
    // The standard library knows affinity and control groups of both versions.
    let limit = std::thread::available_parallelism().map_or(1, usize::from);
    cores.unwrap_or(u32::MAX).min(u32::try_from(limit).unwrap_or(u32::MAX)).max(1)
}

/// The processors that this process may run on.
fn allowed_cpus() -> Vec<usize> {
    // SAFETY: a plain set of bits, for which all zeros is a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is writable and as large as is said.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: the numbers are below the size of the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// How many cores `cpus` belong to; `None` where the system does not tell.
fn physical_cores(system: &Path, cpus: &[usize]) -> Option<u32> {
    let siblings = |cpu: &usize| {
        let file = system.join(format!("cpu{cpu}/topology/thread_siblings"));
        fs::read_to_string(file).ok()
    };
    let cores = cpus.iter().map(siblings).collect::<Option<BTreeSet<String>>>()?;
    u32::try_from(cores.len()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyperthreads_of_a_core_count_once() {
        let system = tempfile::tempdir().unwrap();
        for (cpu, siblings) in ["5", "a", "5", "a"].iter().enumerate() {
            let folder = system.path().join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("thread_siblings"), siblings).unwrap();
        }
        assert_eq!(physical_cores(system.path(), &[0, 1, 2, 3]), Some(2));
        assert_eq!(physical_cores(system.path(), &[1, 3]), Some(1));
        assert_eq!(physical_cores(system.path(), &[0, 9]), None);
    }

    #[test]
    fn no_more_cores_are_used_than_are_allowed() {
        let allowed = std::thread::available_parallelism().unwrap().get();
        assert!((1..=allowed).contains(&(usable_cores() as usize)));
    }
}
