//! The program around it: exit status, JSON, what it refuses and how it says so.

use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;
use tapecast_publisher::doctor::{BUILT_IN, Human, Report, SCHEMA};

use crate::support::{doctor, stderr, stdout};
use crate::trees::{IF, Kind, Tree};

fn program(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapecast-publisher"));
    command.arg("doctor").args(arguments).output().unwrap()
}

#[test]
fn the_exit_status_tells_a_failure_from_a_warning() {
    let tree = Tree::good(Kind::Mlx5);
    assert_eq!(doctor(&tree, &["--strict"]).status.code(), Some(0));
    tree.set(&format!("sys/class/net/{IF}/mtu"), "1500");
    assert_eq!(doctor(&tree, &[]).status.code(), Some(0));
    assert_eq!(doctor(&tree, &["--strict"]).status.code(), Some(1));
    tree.set(&format!("sys/class/net/{IF}/operstate"), "down");
    assert_eq!(doctor(&tree, &[]).status.code(), Some(1));
    assert_eq!(doctor(&tree, &["--json"]).status.code(), Some(1));
    assert_eq!(doctor(&tree, &["--fix"]).status.code(), Some(1));
}

#[test]
fn json_reads_back_as_the_report_that_it_was() {
    for kind in Kind::ALL {
        let tree = Tree::good(kind);
        tree.set("proc/sys/kernel/watchdog", "1");
        tree.set("proc/sys/kernel/nmi_watchdog", "no number");
        let text = stdout(&doctor(&tree, &["--json"]));
        let report: Report = serde_json::from_str(&text).unwrap();
        let again = serde_json::to_string_pretty(&report).unwrap();
        assert_eq!(text, format!("{again}\n"), "{kind:?}");
    }
}

#[test]
fn fields_of_the_json_are_those_that_programs_rely_on() {
    let tree = Tree::good(Kind::Mlx5Vendor);
    tree.set(&format!("sys/class/net/{IF}/ecn/roce_rp/rpg_min_rate"), "1");
    let report: Value = serde_json::from_str(&stdout(&doctor(&tree, &["--json"]))).unwrap();
    assert_eq!(report["schema"], SCHEMA);
    assert_eq!(report["schema"], "tapecast-doctor/1");
    assert_eq!(report["profile"], "default");
    assert_eq!(report["device"]["name"], "mlx5_0");
    assert_eq!(report["device"]["driver"], "mlx5-vendor");
    assert_eq!(report["interface"], IF);
    assert_eq!(report["hot_cpus"], "2-5");
    assert_eq!(report["summary"]["fail"], 1);
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|found| found["id"] == "dcqcn.rpg_min_rate").unwrap();
    assert_eq!(found["section"], "dcqcn");
    assert_eq!(found["status"], "fail");
    assert_eq!(found["seen"], "1");
    assert_eq!(found["wanted"], "at least 1700");
    assert_eq!(found["reason"], Value::Null);
    let command = found["fix"][0]["command"].as_str().unwrap();
    assert!(command.starts_with("echo 1700 > /sys/class/net/"), "{command}");
}

#[test]
fn the_report_shows_what_is_wrong_with_its_remedy_and_sums_up() {
    let tree = Tree::good(Kind::Mlx5);
    tree.set(&format!("sys/class/net/{IF}/mtu"), "1500");
    tree.set("sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/rp_min_rate", "1");
    let text = stdout(&doctor(&tree, &[]));
    let heading = "mlx5_0 (mlx5, in-tree driver, firmware 28.45.1020) on enp59s0f0np0, \
                   hot CPUs 2-5, profile default\n\n";
    assert!(text.starts_with(heading), "{text}");
    for line in [
        "  seen                      wanted\n\nCPU\n  ok       isolated CPUs ",
        "  2-5                       2-5\n",
        "warn     MTU ",
        "  1500                      at least 4192\n",
        "fix: ip link set dev enp59s0f0np0 mtu 4200\n",
        "FAIL     rpg_min_rate (Mb/s) ",
        "1 warning and 1 failure, 0 unknown. Fails: rpg_min_rate (Mb/s).\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in: {text}");
    }
    assert!(!text.contains('\x1b'), "colours only on a terminal");
    assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
}

#[test]
fn every_line_shows_what_is_wanted_and_what_is_not_known_says_why_below() {
    let tree = Tree::good(Kind::Mlx5);
    tree.set("proc/sys/kernel/watchdog", "no number");
    // So much that it takes more than a line to sum it up.
    tree.set("sys/class/infiniband/mlx5_0/ports/1/phys_state", "3: Disabled");
    tree.firmware("ROCE_CC_PRIO_MASK", 1, 1);
    tree.pauses("5");
    let report = tree.examine("default");
    assert_eq!(report.summary.fail, 3);
    let text = Human { report: &report, colour: false }.to_string();
    for finding in &report.findings {
        let seen = finding.seen.as_deref().unwrap_or("?");
        let tail = format!("  {seen:<24}  {}", finding.wanted);
        let start = format!("  {:<9}{}", finding.status.word(), finding.title);
        let found = text.lines().any(|line| line.starts_with(&start) && line.ends_with(&tail));
        assert!(found, "{} is not told in full: {text}", finding.id);
    }
    let reason = report.findings.iter().find_map(|finding| finding.reason.as_deref()).unwrap();
    assert!(text.contains(&format!("\n           not known: {reason}\n")), "{text}");
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 120, "{widest} columns: {text}");
}

#[test]
fn a_value_too_long_for_its_line_has_the_wanted_one_below() {
    let tree = Tree::good(Kind::NoDevice);
    tree.set("proc/self/limits", "Max locked memory  8388608  8388608  bytes");
    let text = stdout(&doctor(&tree, &[]));
    let lines = "8192 KiB, of this shell; shared memory is not locked\n           \
                 wanted: unlimited, or 128 MiB\n";
    assert!(text.contains(lines), "{text}");
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 120, "{widest} columns: {text}");
}

/// A process of a user that may read only what all may.
fn as_nobody(tree: &Tree) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapecast-publisher"));
    command.args(["doctor", "--json", "--sysroot"]).arg(tree.path()).current_dir("/");
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    command.output().unwrap()
}

#[test]
fn what_root_alone_may_read_is_unknown_and_not_off() {
    let tree = Tree::good(Kind::Mlx5);
    tree.set("sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/rp_min_rate", "1");
    tree.remove("tool-output/mlxconfig -d 0000:3b:00.0 -e q");
    tree.forbid("sys/kernel/debug");
    tree.forbid("proc/sys/kernel/watchdog");
    let output = as_nobody(&tree);
    let report: Report = serde_json::from_str(&stdout(&output)).unwrap();
    for id in ["dcqcn.settings", "kernel.watchdog"] {
        let found = report.findings.iter().find(|found| found.id == id).unwrap();
        let reason = found.reason.as_ref().unwrap();
        assert!(reason.contains("root alone") && reason.contains("sudo"), "{id}: {reason}");
    }
    assert_eq!(report.summary.fail, 0);
}

#[test]
fn wrong_usage_ends_in_a_sentence_with_status_2() {
    let tree = Tree::good(Kind::Mlx5);
    let root = tree.path().to_str().unwrap();
    let file = tree.at("own.toml");
    std::fs::write(&file, "extends = \"default\"\nmlx5 = { rpg_gd = { is = 12 } }\n").unwrap();
    let file = file.to_str().unwrap();
    let not_toml = tree.at("proc/cpuinfo");
    let cases: [(&[&str], &[&str]); 12] = [
        (&["--sysroot", "/nowhere/at/all"], &["/nowhere/at/all", "No such file", "proc/"]),
        (&["--sysroot", "/dev/null"], &["/dev/null", "Not a directory"]),
        (&["--profile", "lossles"], &["lossles", "lossy"]),
        (&["--profile", file], &["rpg_gd", "10 to 11"]),
        (&["--profile", not_toml.to_str().unwrap()], &["not TOML"]),
        (&["--profile", "/dev/zero"], &["/dev/zero", "no file"]),
        (&["--cpus", "5-2"], &["5-2", "2-5,8"]),
        (&["--cpus", "0-4294967295"], &["no list of CPUs"]),
        (&["--device", "mlx5_7", "--sysroot", root], &["mlx5_7", "mlx5_0"]),
        (&["--interface", "../../etc", "--sysroot", root], &["../../etc", IF]),
        (&["--apply"], &["--fix"]),
        (&["--fix", "--json"], &["--json", "cannot be used with"]),
    ];
    for (arguments, words) in cases {
        let output = program(arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{arguments:?}: {said}");
        assert!(stdout(&output).is_empty(), "{arguments:?}");
    }
}

#[test]
fn several_devices_are_told_apart_by_name_or_interface() {
    let tree = Tree::good(Kind::Mlx5);
    tree.set("sys/class/infiniband/rxe0/parent", "eth1");
    tree.set("sys/class/net/eth1/operstate", "up");
    let output = doctor(&tree, &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(["mlx5_0", "rxe0", "--device"].iter().all(|word| said.contains(word)), "{said}");
    for (choice, heading) in [
        (["--device", "mlx5_0"], "mlx5_0 (mlx5"),
        (["--interface", IF], "mlx5_0 (mlx5"),
        (["--interface", "eth1"], "rxe0 (Soft-RoCE"),
    ] {
        let text = stdout(&doctor(&tree, &choice));
        assert!(text.starts_with(heading), "{choice:?}: {text}");
    }
}

#[test]
fn hot_cpus_are_those_that_are_named() {
    let tree = Tree::good(Kind::Mlx5);
    let report: Report =
        serde_json::from_str(&stdout(&doctor(&tree, &["--json", "--cpus", "6"]))).unwrap();
    let bad: Vec<&str> = report
        .findings
        .iter()
        .filter(|found| found.fix.iter().any(|_| true))
        .map(|found| found.id.as_str())
        .collect();
    let expected = [
        "cpu.isolated",
        "cpu.nohz_full",
        "cpu.rcu_nocbs",
        "kernel.workqueues",
        "kernel.irq_default",
        "kernel.irq_affinity",
    ];
    assert_eq!(bad, expected);
}

#[test]
fn a_profile_of_ones_own_says_only_what_differs() {
    let tree = Tree::good(Kind::Mlx5);
    let file = tree.at("own.toml");
    let text = "extends = \"lossy\"\nname = \"own\"\nbudget = { delay_us = 10 }\n";
    std::fs::write(&file, text).unwrap();
    let arguments = ["--json", "--profile", file.to_str().unwrap()];
    let report: Report = serde_json::from_str(&stdout(&doctor(&tree, &arguments))).unwrap();
    assert_eq!(report.profile, "own");
    let found = report.findings.iter().find(|found| found.id == "dcqcn.rpg_min_rate").unwrap();
    assert_eq!((found.wanted.as_str(), found.seen.as_deref()), ("at least 3400", Some("1700")));
}

#[test]
fn profiles_that_are_built_in_are_the_files_in_the_repository() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/dcqcn");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["default.toml", "lossy.toml", "pfc.toml"]);
    for (name, text) in BUILT_IN {
        let file = std::fs::read_to_string(format!("{folder}/{name}.toml")).unwrap();
        assert_eq!(file, text, "{name}");
    }
}

#[test]
fn the_machine_itself_is_changed_by_root_alone() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapecast-publisher"));
    command.args(["doctor", "--fix", "--apply"]).current_dir("/");
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    // A machine with several RDMA devices asks which is meant before anything else.
    let said = stderr(&output);
    assert!(said.contains("run it as root") || said.contains("--device"), "{said}");
    assert!(stdout(&output).is_empty());
}

#[test]
fn help_documents_the_exit_status() {
    let text = stdout(&program(&["--help"]));
    for words in [
        "Exit status: 0",
        "1 something fails",
        "2 wrong usage",
        "sudo tapecast-publisher",
        "/etc/sysctl.d/90-tapecast.conf",
        "mlxconfig -d BDF -e q",
    ] {
        assert!(text.contains(words), "{words:?} is not in: {text}");
    }
}
