//! The memory of this process.

use std::fs;

/// The most memory that this process had since it began, or since [`forget_peak_memory`]; `None` where the system does
/// not tell.
pub fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Lets [`peak_memory`] begin again, where the system can.
pub fn forget_peak_memory() {
    // 5 resets the high-water mark: `clear_refs` in the kernel's `Documentation/filesystems/proc.rst`.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn peak_memory_grows_with_what_is_touched() {
        let before = peak_memory().unwrap();
        let touched = vec![1_u8; 64 << 20];
        assert!(std::hint::black_box(&touched).iter().all(|&byte| byte == 1));
        assert!(peak_memory().unwrap() >= before + (16 << 20) || before > (128 << 20));
    }
}
