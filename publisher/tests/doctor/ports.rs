//! Which interface a device has, which CPUs are meant: bonds, and what does not go together.

use std::process::Output;

use tapecast_publisher::doctor::Report;

use crate::support::{doctor, stderr, stdout, troubles};
use crate::trees::{IF, Kind, SECOND, Tree};

#[test]
fn a_bond_in_order_is_judged_by_the_ports_that_are_its_members() {
    for kind in [Kind::Mlx5, Kind::Mlx5Vendor] {
        let tree = Tree::good(kind);
        let alone = tree.examine("default");
        tree.bond();
        let report = tree.examine("default");
        assert_eq!(report.interface.as_deref(), Some("bond0"));
        let driver = |report: &Report| report.device.as_ref().unwrap().driver.clone();
        assert_eq!(driver(&report), driver(&alone));
        assert_eq!(troubles(&report), [""; 0], "{kind:?}");
        assert!(
            report.findings.len() > alone.findings.len(),
            "{kind:?}: the second port has lines of its own"
        );
    }
}

#[test]
fn what_is_wrong_on_one_port_of_a_bond_is_mended_there() {
    let tree = Tree::good(Kind::Mlx5Vendor);
    tree.bond();
    let rate = format!("sys/class/net/{SECOND}/ecn/roce_rp/rpg_min_rate");
    tree.set(&rate, "1");
    tree.set(&format!("sys/class/net/{SECOND}/qos/trust"), "pcp");
    let report = tree.examine("default");
    assert_eq!(troubles(&report), ["FAIL qos.trust", "FAIL dcqcn.rpg_min_rate"]);
    let steps = report.steps();
    assert!(
        steps
            .iter()
            .all(|(found, step)| { found.title.contains(SECOND) && step.command.contains(SECOND) })
    );
    assert!(doctor(&tree, &["--fix", "--apply"]).status.success());
    assert_eq!(tree.get(&rate), "1700");
}

/// The steps of a bond's rates are those of one port: no queue pair has the sum.
#[test]
fn the_rate_of_a_bond_is_that_of_one_port() {
    let tree = Tree::good(Kind::Mlx5Vendor);
    tree.bond();
    let report = tree.examine("default");
    let found = report.findings.iter().find(|found| found.id == "dcqcn.rpg_ai_rate").unwrap();
    assert_eq!((found.wanted.as_str(), found.seen.as_deref()), ("20", Some("20")));
}

#[test]
fn what_is_laid_over_a_port_has_the_cards_settings_on_the_port_below() {
    let tree = Tree::good(Kind::Mlx5Vendor);
    for index in 0..4 {
        let gids = "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs";
        tree.set(&format!("{gids}/{index}"), "feed.7");
    }
    tree.set("sys/class/net/feed.7/operstate", "up");
    tree.set("sys/class/net/feed.7/mtu", "4200");
    tree.set(&format!("sys/devices/pci0000:3a/0000:3b:00.0/net/{IF}/mtu"), "4200");
    let report = tree.examine("default");
    assert_eq!(report.interface.as_deref(), Some("feed.7"));
    assert_eq!(troubles(&report), [""; 0]);
    assert!(report.findings.iter().any(|found| found.id == "qos.trust"));
}

fn refused(output: &Output, words: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

#[test]
fn an_interface_that_is_not_the_devices_is_refused_and_a_member_of_its_bond_is_not() {
    let tree = Tree::good(Kind::Mlx5);
    tree.set("sys/class/net/eth9/operstate", "up");
    let with = |interface| ["--device", "mlx5_0", "--interface", interface];
    refused(&doctor(&tree, &with("eth9")), &["mlx5_0 is not on the interface eth9", IF]);
    assert!(doctor(&tree, &with(IF)).status.success());
    tree.bond();
    for interface in ["bond0", IF, SECOND] {
        let output = doctor(&tree, &with(interface));
        assert!(output.status.success(), "{interface}: {}{}", stdout(&output), stderr(&output));
    }
}

#[test]
fn an_interface_without_a_device_says_which_devices_there_are() {
    let tree = Tree::good(Kind::Mlx5);
    tree.set("sys/class/net/eth9/operstate", "up");
    let text = stdout(&doctor(&tree, &["--interface", "eth9"]));
    let line = text.lines().find(|line| line.contains("  RDMA device ")).unwrap();
    assert!(line.trim_start().starts_with("warn"), "{line}");
    assert!(line.contains("none on eth9; there are: mlx5_0"), "{line}");
}

#[test]
fn cpus_that_are_not_online_are_refused() {
    let tree = Tree::good(Kind::Mlx5);
    refused(&doctor(&tree, &["--cpus", "6-9"]), &["no CPU 8-9 online", "0-7"]);
    tree.remove("sys/devices/system/cpu/online");
    assert_eq!(doctor(&tree, &["--cpus", "6-9"]).status.code(), Some(0), "nobody knows");
}

#[test]
fn one_cpu_at_least_is_left_to_the_kernel() {
    let tree = Tree::good(Kind::Mlx5);
    let script = stdout(&doctor(&tree, &["--fix", "--cpus", "0-7"]));
    assert!(script.contains("leave at least one CPU to the kernel"), "{script}");
    for parameter in ["isolcpus=", "nohz_full=", "rcu_nocbs="] {
        assert!(!script.contains(&format!("add {parameter}")), "{script}");
        let some = stdout(&doctor(&tree, &["--fix", "--cpus", "0-6"]));
        assert!(some.contains(&format!("add {parameter}")), "{some}");
    }
}

/// Hardware threads: CPU 2 and 6, 3 and 7 and so on, or as given.
fn threads(tree: &Tree, siblings: [&str; 8]) {
    let home = "sys/devices/system/cpu";
    tree.set(&format!("{home}/smt/active"), "1");
    tree.set(&format!("{home}/smt/control"), "on");
    for (cpu, list) in siblings.into_iter().enumerate() {
        tree.set(&format!("{home}/cpu{cpu}/topology/thread_siblings_list"), list);
    }
}

#[test]
fn hardware_threads_are_never_switched_off_while_the_machine_runs() {
    let across = ["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"];
    let pairs = ["0-1", "0-1", "2-3", "2-3", "4-5", "4-5", "6-7", "6-7"];
    let cases = [
        // The hot ones are 2 to 5: their siblings 0, 1, 6 and 7 are anybody's.
        (across, &["isolate CPUs 0-1,6-7, too"][..], "choose one thread per core"),
        // Each hot one has a hot sibling.
        (pairs, &["choose one thread per core: --cpus 2,4"], "isolate CPUs"),
    ];
    for (siblings, said, not_said) in cases {
        let tree = Tree::good(Kind::NoDevice);
        threads(&tree, siblings);
        assert_eq!(troubles(&tree.examine("default")), ["warn cpu.smt"]);
        let output = doctor(&tree, &["--fix", "--apply"]);
        let text = stdout(&output);
        assert!(said.iter().all(|words| text.contains(&format!("by hand  {words}"))), "{text}");
        assert!(!text.contains(not_said), "{text}");
        assert_eq!(tree.get("sys/devices/system/cpu/smt/control"), "on");
    }
}

#[test]
fn memory_is_put_on_the_cards_node_by_a_policy_with_its_mask() {
    let slot = "sys/devices/pci0000:3a/0000:3b:00.0";
    for (node, expected) in [("1", Some("NUMAPolicy=bind and NUMAMask=1")), ("-1", None)] {
        let tree = Tree::good(Kind::Mlx5);
        tree.set(&format!("{slot}/local_cpulist"), "8-15");
        tree.set(&format!("{slot}/numa_node"), node);
        let script = stdout(&doctor(&tree, &["--fix"]));
        assert!(script.contains("set sender.cpu of the publisher to one of 8-15"), "{script}");
        assert_eq!(script.contains("NUMA"), expected.is_some(), "{script}");
        assert!(script.contains(expected.unwrap_or_default()), "{script}");
    }
    // The drop-in says the same.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/systemd/drop-ins/numa.conf");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("\nNUMAPolicy=bind\nNUMAMask=0\n"), "{text}");
}
