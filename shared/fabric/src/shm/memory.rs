//! How much memory there is, asked before any of it is taken.
//!
//! Shared memory that turns out to be missing later does not fail a call: it kills the process
//! with SIGBUS, or the kernel picks a victim. So the need is compared with what the machine and
//! the control groups leave, and then allocated at once.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// There is too little memory for a region.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "shared memory: {needed_bytes} bytes ({needed_mib} MiB) are needed, {available_bytes} \
     ({available_mib} MiB) are available ({limit}): make the ring smaller or provide more memory",
    needed_mib = needed_bytes.div_ceil(1 << 20),
    available_mib = available_bytes >> 20
)]
pub struct MemoryShortage {
    /// Bytes that the region takes.
    pub needed_bytes: u64,
    /// Bytes that can be had.
    pub available_bytes: u64,
    /// What sets the limit.
    pub limit: MemoryLimit,
}

/// What sets the limit on memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// The machine: `MemAvailable` in `/proc/meminfo`.
    Machine,
    /// A control group, version 2: its `memory.max`.
    ControlGroup(PathBuf),
    /// The kernel refused to allocate, although the figures looked sufficient.
    Kernel,
}

impl core::fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Machine => f.write_str("MemAvailable of this machine"),
            Self::ControlGroup(path) => {
                write!(f, "memory.max of the control group {}", path.display())
            }
            Self::Kernel => f.write_str("the kernel refused to allocate"),
        }
    }
}

/// Checks that `needed_bytes` can be had on this machine, in this process's control groups.
///
/// What the system does not tell (no `/proc`, no control groups) limits nothing here; allocating
/// is then the only test.
///
/// # Errors
/// [`MemoryShortage`] with the tightest limit.
pub fn check_memory(needed_bytes: u64) -> Result<(), MemoryShortage> {
    check_memory_under(Path::new("/"), needed_bytes)
}

fn check_memory_under(root: &Path, needed_bytes: u64) -> Result<(), MemoryShortage> {
    let machine = machine_available(root).map(|bytes| (bytes, MemoryLimit::Machine));
    let tightest = machine.into_iter().chain(control_groups(root)).min_by_key(|(bytes, _)| *bytes);
    match tightest {
        Some((available_bytes, limit)) if available_bytes < needed_bytes => {
            Err(MemoryShortage { needed_bytes, available_bytes, limit })
        }
        _ => Ok(()),
    }
}

fn machine_available(root: &Path) -> Option<u64> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// What each control group of this process, from its own up to the root, leaves.
fn control_groups(root: &Path) -> Vec<(u64, MemoryLimit)> {
    let listed = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let Some(own) = listed.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Vec::new();
    };
    // Seen from inside another namespace the path may start with `..`, which leads out of the
    // mount: keep the names only.
    let names = Path::new(own).components().filter(|part| matches!(part, Component::Normal(_)));
    let own: PathBuf = names.collect();
    let mount = root.join("sys/fs/cgroup");
    let left = |group: &Path| {
        let left = group_available(&mount.join(group))?;
        Some((left, MemoryLimit::ControlGroup(Path::new("/").join(group))))
    };
    own.ancestors().filter_map(left).collect()
}

/// Bytes that a control group leaves; `None` when it sets no limit.
fn group_available(group: &Path) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(group.join(name)).ok()?.trim().parse().ok()
    };
    let max = number("memory.max")?;
    let current = number("memory.current").unwrap_or(0);
    // Cached files count as used, but are dropped when memory is needed.
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let field = |name: &str| -> u64 {
        let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    let reclaimable = field("inactive_file").saturating_add(field("active_file"));
    Some(max.saturating_sub(current.saturating_sub(reclaimable)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine made of files.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(available_kib: u64) -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            let meminfo = format!("MemTotal: 999 kB\nMemAvailable:   {available_kib} kB\n");
            machine.write("proc/meminfo", &meminfo);
            machine
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn check(&self, needed_bytes: u64) -> Result<(), MemoryShortage> {
            check_memory_under(self.0.path(), needed_bytes)
        }
    }

    #[test]
    fn what_the_machine_has_available_is_enough_and_one_byte_more_is_not() {
        let machine = Machine::new(10);
        assert_eq!(machine.check(10 * 1024), Ok(()));
        let shortage = machine.check(10 * 1024 + 1).unwrap_err();
        assert_eq!(shortage.limit, MemoryLimit::Machine);
        assert_eq!((shortage.needed_bytes, shortage.available_bytes), (10_241, 10_240));
    }

    #[test]
    fn the_text_names_the_needed_number_the_limit_and_a_remedy() {
        let text = Machine::new(4096).check(5 << 20).unwrap_err().to_string();
        assert!(text.contains("5242880 bytes (5 MiB) are needed"), "{text}");
        assert!(text.contains("4194304 (4 MiB) are available"), "{text}");
        assert!(text.contains("MemAvailable"), "{text}");
        assert!(text.contains("make the ring smaller"), "{text}");
    }

    #[test]
    fn the_tightest_control_group_above_the_process_counts_without_its_file_cache() {
        let machine = Machine::new(1 << 20);
        machine.write("proc/self/cgroup", "1:name=systemd:/x\n0::/slice/unit\n");
        machine.write("sys/fs/cgroup/slice/unit/memory.max", "max\n");
        machine.write("sys/fs/cgroup/slice/memory.max", "10000\n");
        machine.write("sys/fs/cgroup/slice/memory.current", "7000\n");
        machine.write(
            "sys/fs/cgroup/slice/memory.stat",
            "anon 3000\ninactive_file 1500\nactive_file 500\n",
        );
        assert_eq!(machine.check(5000), Ok(()));
        let shortage = machine.check(5001).unwrap_err();
        assert_eq!(shortage.available_bytes, 5000);
        assert_eq!(shortage.limit, MemoryLimit::ControlGroup("/slice".into()));
    }

    #[test]
    fn a_control_group_outside_of_the_namespace_is_read_where_it_is_mounted() {
        let machine = Machine::new(1 << 20);
        machine.write("proc/self/cgroup", "0::/../..\n");
        machine.write("sys/fs/cgroup/memory.max", "4096\n");
        machine.write("sys/fs/cgroup/memory.current", "96\n");
        assert_eq!(machine.check(4001).unwrap_err().available_bytes, 4000);
    }

    #[test]
    fn a_group_that_is_over_its_limit_leaves_nothing() {
        let machine = Machine::new(1 << 20);
        machine.write("proc/self/cgroup", "0::/\n");
        machine.write("sys/fs/cgroup/memory.max", "4096\n");
        machine.write("sys/fs/cgroup/memory.current", "5000\n");
        assert_eq!(machine.check(1).unwrap_err().available_bytes, 0);
    }

    #[test]
    fn a_system_that_tells_nothing_limits_nothing() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(check_memory_under(empty.path(), u64::MAX), Ok(()));
    }

    #[test]
    fn this_machine_has_a_page_but_not_all_memory_there_can_be() {
        assert_eq!(check_memory(4096), Ok(()));
        assert!(check_memory(1 << 60).is_err());
    }
}
