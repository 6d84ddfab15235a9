//! What the kernel says about processes.

use std::fs;
use std::time::Duration;

/// Processor time of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// User and system time together.
    pub total: Duration,
}

/// Processor time that a process has used, all of its threads together. `None` when it is gone.
#[must_use]
pub fn cpu_time_of(pid: u32) -> Option<CpuTime> {
    // /proc/<pid>/schedstat counts in nanoseconds, but for the main thread alone.
    let mut total = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        // A thread may end between the listing and the look at it.
        let Ok(text) = fs::read_to_string(task.ok()?.path().join("schedstat")) else { continue };
        total += Duration::from_nanos(text.split(' ').next()?.parse().ok()?);
    }
    Some(CpuTime { total })
}

/// The most resident memory that a process ever had, in bytes, shared pages included: books are
/// given back when a source has ended. `None` when it is gone.
#[must_use]
pub fn resident_bytes_of(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_time_and_memory() {
        let pid = std::process::id();
        assert!(cpu_time_of(pid).expect("this process runs").total > Duration::ZERO);
        assert!(resident_bytes_of(pid).expect("this process runs") > 100_000);
    }
}
