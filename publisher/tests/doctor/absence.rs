//! What is not there: a setting that the kernel is without, or a file that was not copied.

use tapecast_publisher::doctor::Status;

use crate::support::{doctor, stderr, stdout, troubles};
use crate::trees::{Kind, Tree};

const SLOT: &str = "sys/devices/pci0000:3a/0000:3b:00.0";

#[test]
fn settings_that_a_kernel_is_without_are_ok_even_when_strict() {
    for path in [
        "proc/sys/kernel/numa_balancing",
        "proc/sys/kernel/nmi_watchdog",
        "proc/sys/vm/zone_reclaim_mode",
        "proc/swaps",
        "sys/kernel/mm/ksm",
        "sys/kernel/mm/transparent_hugepage",
        "sys/module/pcie_aspm",
        &format!("{SLOT}/link"),
        &format!("{SLOT}/link/l1_aspm"),
        &format!("{SLOT}/iommu_group"),
        "sys/devices/system/cpu/cpu2/cpufreq/energy_performance_preference",
    ] {
        let tree = Tree::good(Kind::Mlx5);
        tree.set("sys/module/mlx5_core/version", "6.1");
        tree.set("sys/kernel/mm/page_idle/bitmap", "");
        tree.remove(path);
        let output = doctor(&tree, &["--strict"]);
        assert!(output.status.success(), "{path}: {}", stdout(&output));
    }
}

#[test]
fn settings_that_were_not_copied_with_their_folder_or_their_like_are_unknown() {
    let cpu = "sys/devices/system/cpu/cpu2";
    let cases: [(&str, &[&str]); 9] = [
        ("proc/sys/vm", &["vm.stat_interval", "vm.zone_reclaim_mode", "vm.swappiness"]),
        ("sys/kernel/mm", &["memory.thp", "memory.thp_defrag", "memory.ksm"]),
        ("sys/module", &["pcie.aspm"]),
        ("sys/module/pcie_aspm/parameters/policy", &["pcie.aspm"]),
        ("sys/kernel/mm/transparent_hugepage/defrag", &["memory.thp_defrag"]),
        (&format!("{cpu}/cpufreq/scaling_governor"), &["cpu.governor"]),
        (cpu, &["cpu.governor", "cpu.preference", "cpu.c_states"]),
        ("sys/class/infiniband/mlx5_0/ports/1/hw_counters", &["counters.device"]),
        (
            SLOT,
            &[
                "kernel.irq_affinity",
                "pcie.link_speed",
                "pcie.link_width",
                "pcie.l1_aspm",
                "pcie.iommu",
                "pcie.numa",
                "pcie.errors",
                "dcqcn.settings",
            ],
        ),
    ];
    for (path, ids) in cases {
        let tree = Tree::good(Kind::Mlx5);
        tree.remove(path);
        let report = tree.examine("default");
        let found = report.findings.iter().filter(|found| found.status == Status::Unknown);
        let found: Vec<&str> = found.map(|found| found.id.as_str()).collect();
        assert_eq!(found, ids, "without {path}");
    }
}

#[test]
fn a_card_whose_slot_does_not_tell_its_address_keeps_its_lines() {
    let tree = Tree::good(Kind::Mlx5);
    let before = tree.examine("default").findings.len();
    tree.remove(&format!("{SLOT}/uevent"));
    let report = tree.examine("default");
    let ids = |section: &str| {
        report.findings.iter().filter(|found| found.id.starts_with(section)).count()
    };
    assert!(before > 0 && ids("pcie.") == 7 && ids("kernel.irq_affinity") == 1);
    assert_eq!(troubles(&report), ["unknown dcqcn.settings"]);
}

#[test]
fn counters_of_which_none_is_known_are_not_zero() {
    let tree = Tree::good(Kind::Mlx5);
    let home = "sys/class/infiniband/mlx5_0/ports/1";
    tree.remove(&format!("{home}/hw_counters"));
    tree.remove(&format!("{home}/counters"));
    tree.set(&format!("{home}/hw_counters/lifespan"), "10");
    assert_eq!(troubles(&tree.examine("default")), ["unknown counters.device"]);
}

#[test]
fn an_iommu_group_that_leads_nowhere_is_not_off() {
    let tree = Tree::good(Kind::Mlx5);
    tree.remove(&format!("{SLOT}/iommu_group"));
    assert_eq!(troubles(&tree.examine("default")), [""; 0]);
    let link = tree.at(&format!("{SLOT}/iommu_group"));
    std::os::unix::fs::symlink("../../../kernel/iommu_groups/7", link).unwrap();
    assert_eq!(troubles(&tree.examine("default")), ["unknown pcie.iommu"]);
}

#[test]
fn no_device_is_known_only_where_classes_are_shown() {
    let tree = Tree::good(Kind::NoDevice);
    assert_eq!(troubles(&tree.examine("default")), [""; 0]);
    tree.remove("sys/class");
    assert_eq!(troubles(&tree.examine("default")), ["unknown rdma.device"]);
}

#[test]
fn a_folder_without_anything_of_a_kernel_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tapecast-publisher"));
    let output = command.args(["doctor", "--sysroot"]).arg(folder.path()).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("neither sys/ nor proc/"), "{said}");
}
