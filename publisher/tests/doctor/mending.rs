//! `--fix` says what to do, `--apply` does it, and a second look finds it done.

use crate::support::{doctor, stderr, stdout, troubles};
use crate::trees::{IF, Kind, Tree};

/// A host with everything wrong that a file can set right.
fn spoil_host(tree: &Tree) {
    for (path, text) in [
        ("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "powersave"),
        ("sys/devices/system/cpu/cpu2/cpufreq/energy_performance_preference", "balance_power"),
        ("sys/devices/system/cpu/cpu3/cpuidle/state2/disable", "0"),
        ("proc/sys/kernel/nmi_watchdog", "1"),
        ("proc/sys/kernel/watchdog", "1"),
        ("proc/sys/kernel/sched_rt_runtime_us", "950000"),
        ("proc/sys/kernel/timer_migration", "1"),
        ("proc/sys/kernel/numa_balancing", "1"),
        ("proc/sys/vm/stat_interval", "1"),
        ("proc/sys/vm/zone_reclaim_mode", "1"),
        ("proc/sys/vm/swappiness", "60"),
        ("sys/devices/virtual/workqueue/cpumask", "ff"),
        ("proc/irq/default_smp_affinity", "ff"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
        ("sys/kernel/mm/transparent_hugepage/defrag", "[always] madvise never"),
        ("sys/kernel/mm/ksm/run", "1"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
    ] {
        tree.set(path, text);
    }
}

/// The card and its settings, as far as files have them.
fn spoil_card(tree: &Tree, kind: Kind) {
    tree.set("proc/irq/64/smp_affinity_list", "0-7");
    tree.set("sys/module/pcie_aspm/parameters/policy", "[default] performance");
    tree.set("sys/devices/pci0000:3a/0000:3b:00.0/link/l1_aspm", "1");
    tree.set(&format!("sys/class/net/{IF}/mtu"), "1500");
    let ecn = format!("sys/class/net/{IF}/ecn");
    let debugfs = "sys/kernel/debug/mlx5/0000:3b:00.0/cc_params";
    match kind {
        Kind::Mlx5Vendor => {
            for (file, text) in [
                ("roce_rp/enable/3", "0"),
                ("roce_np/enable/3", "0"),
                ("roce_rp/rpg_min_rate", "1"),
                ("roce_rp/clamp_tgt_rate", "1"),
                ("roce_rp/rpg_ai_rate", "5"),
                ("roce_np/cnp_802p_prio", "3"),
            ] {
                tree.set(&format!("{ecn}/{file}"), text);
            }
            tree.set("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=104");
            tree.set(&format!("sys/class/net/{IF}/qos/trust"), "pcp");
        }
        Kind::Mlx5 => {
            for (file, text) in [
                ("rp_min_rate", "1"),
                ("rp_clamp_tgt_rate", "1"),
                ("rp_rate_to_set_on_first_cnp", "500"),
                ("rp_hai_rate", "50"),
            ] {
                tree.set(&format!("{debugfs}/{file}"), text);
            }
        }
        Kind::BnxtRe => {
            let home = "sys/kernel/debug/bnxt_re/0000:3b:00.0/cc_config";
            for (file, text) in [("enable_cc", "0"), ("tos_ecn", "0"), ("tos_dscp", "0")] {
                tree.set(&format!("{home}/{file}"), text);
            }
        }
        Kind::Rxe | Kind::NoDevice => {}
    }
}

/// What stays, whatever is written.
fn lasting(kind: Kind) -> Vec<&'static str> {
    match kind {
        Kind::Rxe => vec!["warn clock.ptp_hardware", "warn rdma.device", "warn dcqcn.engine"],
        _ => vec![],
    }
}

#[test]
fn what_files_can_set_right_is_right_at_the_second_look() {
    for kind in Kind::ALL {
        let tree = Tree::good(kind);
        spoil_host(&tree);
        if !matches!(kind, Kind::Rxe | Kind::NoDevice) {
            spoil_card(&tree, kind);
        }
        assert!(troubles(&tree.examine("default")).len() >= 15, "{kind:?}: all was spoiled");
        let output = doctor(&tree, &["--fix", "--apply"]);
        assert!(output.status.success(), "{kind:?}: {}{}", stdout(&output), stderr(&output));
        assert!(!stdout(&output).contains("FAILED"), "{}", stdout(&output));
        assert_eq!(troubles(&tree.examine("default")), lasting(kind), "{kind:?}");

        let before: Vec<_> = tree.files().iter().map(|file| tree.get(file)).collect();
        assert!(doctor(&tree, &["--fix", "--apply"]).status.success());
        let after: Vec<_> = tree.files().iter().map(|file| tree.get(file)).collect();
        assert_eq!(before, after, "{kind:?}: a second time changes nothing");
    }
}

#[test]
fn a_script_changes_nothing_and_is_one_that_a_shell_takes() {
    for kind in Kind::ALL {
        let tree = Tree::good(kind);
        spoil_host(&tree);
        if !matches!(kind, Kind::Rxe | Kind::NoDevice) {
            spoil_card(&tree, kind);
        }
        let before: Vec<_> = tree.files().iter().map(|file| tree.get(file)).collect();
        let script = stdout(&doctor(&tree, &["--fix"]));
        let after: Vec<_> = tree.files().iter().map(|file| tree.get(file)).collect();
        assert_eq!(before, after);
        let file = tree.at("script");
        std::fs::write(&file, &script).unwrap();
        let checked = std::process::Command::new("sh").arg("-n").arg(file).status().unwrap();
        assert!(checked.success(), "{script}");
    }
}

/// The commands of a script without its comments, and without what makes them last.
pub(crate) fn commands(tree: &Tree, profile: &str) -> Vec<String> {
    let script = stdout(&doctor(tree, &["--fix", "--profile", profile]));
    let lines = script.lines().take_while(|line| !line.contains("To make it last"));
    let lines = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[test]
fn a_machine_in_order_needs_no_command() {
    for kind in Kind::ALL {
        assert_eq!(commands(&Tree::good(kind), "default"), [""; 0], "{kind:?}");
    }
}

#[test]
fn the_script_for_a_host_is_in_the_order_of_the_report() {
    let tree = Tree::good(Kind::NoDevice);
    spoil_host(&tree);
    assert_eq!(
        commands(&tree, "default"),
        [
            "cpupower -c 2 frequency-set -g performance",
            "echo performance > /sys/devices/system/cpu/cpu2/cpufreq/energy_performance_preference",
            "cpupower -c 2-5 idle-set -D 3",
            "sysctl -w kernel.nmi_watchdog=0",
            "sysctl -w kernel.watchdog=0",
            "sysctl -w kernel.sched_rt_runtime_us=-1",
            "sysctl -w kernel.timer_migration=0",
            "sysctl -w kernel.numa_balancing=0",
            "sysctl -w vm.stat_interval=60",
            "echo 000000c3 > /sys/devices/virtual/workqueue/cpumask",
            "echo 000000c3 > /proc/irq/default_smp_affinity",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            "echo never > /sys/kernel/mm/transparent_hugepage/defrag",
            "echo 2 > /sys/kernel/mm/ksm/run",
            "sysctl -w vm.zone_reclaim_mode=0",
            "sysctl -w vm.swappiness=10",
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        ]
    );
}

#[test]
fn the_script_speaks_the_language_of_the_driver() {
    let slot = [
        "echo 0-1,6-7 > /proc/irq/64/smp_affinity_list",
        "echo performance > /sys/module/pcie_aspm/parameters/policy",
    ];
    let link = ["ip link set dev enp59s0f0np0 mtu 4200", "ethtool -A enp59s0f0np0 rx off tx off"];
    let priorities = [
        "dcb app replace dev enp59s0f0np0 dscp-prio 26:3 48:6",
        "dcb pfc set dev enp59s0f0np0 prio-pfc all:off 3:on",
    ];
    let own: [(Kind, Vec<&str>, Vec<&str>); 3] = [
        (
            Kind::Mlx5Vendor,
            vec![
                "echo 0 > /sys/class/infiniband/mlx5_0/device/link/l1_aspm",
                "echo 106 > /sys/class/infiniband/mlx5_0/tc/1/traffic_class",
                "echo dscp > /sys/class/net/enp59s0f0np0/qos/trust",
            ],
            vec![
                "for p in 0 1 2 3 4 5 6 7; do echo 1 > /sys/class/net/enp59s0f0np0/ecn/roce_rp/enable/$p; done",
                "for p in 0 1 2 3 4 5 6 7; do echo 1 > /sys/class/net/enp59s0f0np0/ecn/roce_np/enable/$p; done",
                "echo 0 > /sys/class/net/enp59s0f0np0/ecn/roce_rp/clamp_tgt_rate",
                "echo 20 > /sys/class/net/enp59s0f0np0/ecn/roce_rp/rpg_ai_rate",
                "echo 1700 > /sys/class/net/enp59s0f0np0/ecn/roce_rp/rpg_min_rate",
                "echo 6 > /sys/class/net/enp59s0f0np0/ecn/roce_np/cnp_802p_prio",
            ],
        ),
        (
            Kind::Mlx5,
            vec!["echo 0 > /sys/class/infiniband/mlx5_0/device/link/l1_aspm"],
            vec![
                "mlxconfig -y -d 0000:3b:00.0 set ROCE_CC_PRIO_MASK_P1=255",
                "echo 0 > /sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/rp_clamp_tgt_rate",
                "echo 200 > /sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/rp_hai_rate",
                "echo 1700 > /sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/rp_min_rate",
                "echo 0 > /sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/rp_rate_to_set_on_first_cnp",
            ],
        ),
        (
            Kind::BnxtRe,
            vec!["echo 0 > /sys/class/infiniband/bnxt_re0/device/link/l1_aspm"],
            vec![
                "echo 1 > /sys/kernel/debug/bnxt_re/0000:3b:00.0/cc_config/enable_cc",
                "echo 1 > /sys/kernel/debug/bnxt_re/0000:3b:00.0/cc_config/tos_ecn",
                "echo 26 > /sys/kernel/debug/bnxt_re/0000:3b:00.0/cc_config/tos_dscp",
            ],
        ),
    ];
    for (kind, before, after) in own {
        let tree = Tree::good(kind);
        spoil_card(&tree, kind);
        tree.tool(&format!("ethtool -a {IF}"), "RX: on\nTX: on");
        tree.tool(&format!("dcb -N app show dev {IF}"), "");
        tree.pauses("0,5");
        if kind == Kind::Mlx5 {
            tree.firmware("ROCE_CC_PRIO_MASK", 1, 1);
        }
        // The card's own link is in the slot's section, before the interface's.
        let expected = [&slot[..], &before[..1], &link, &before[1..], &priorities, &after].concat();
        assert_eq!(commands(&tree, "pfc"), expected, "{kind:?}");
    }
}

#[test]
fn a_rate_beyond_the_link_is_never_written() {
    let tree = Tree::good(Kind::Mlx5);
    tree.set(&format!("sys/class/net/{IF}/speed"), "1000");
    let rate = "sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/rp_min_rate";
    tree.set(rate, "1");
    let script = stdout(&doctor(&tree, &["--fix"]));
    assert!(
        script.contains("1700 is beyond what a link takes whose rate is 1000 Mb/s"),
        "{script}"
    );
    assert!(!script.contains("echo 1700"), "{script}");
    assert!(!doctor(&tree, &["--fix", "--apply"]).status.success(), "it still fails");
    assert_eq!(tree.get(rate), "1");
}

#[test]
fn tools_are_not_run_for_a_recorded_tree() {
    let tree = Tree::good(Kind::Mlx5);
    tree.pauses("5");
    let output = doctor(&tree, &["--fix", "--apply"]);
    let said = stdout(&output);
    assert!(said.contains("skipped  dcb pfc set dev enp59s0f0np0 prio-pfc all:off"), "{said}");
    assert!(said.contains("not a recorded tree"), "{said}");
    assert_eq!(output.status.code(), Some(1), "what was skipped still fails");
}

#[test]
fn nothing_is_written_through_a_link_that_leads_out_of_the_tree() {
    let tree = Tree::good(Kind::Mlx5);
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("mtu");
    std::fs::write(&victim, "1500\n").unwrap();
    let path = format!("sys/class/net/{IF}/mtu");
    tree.remove(&path);
    std::os::unix::fs::symlink(&victim, tree.at(&path)).unwrap();
    doctor(&tree, &["--fix", "--apply"]);
    assert_eq!(std::fs::read_to_string(victim).unwrap(), "1500\n");
}
