//! Files that hold anything at all: never a panic, never a value made up.

use proptest::prelude::*;
use tapecast_publisher::doctor::{Human, Root, Script, Status, perform};

use crate::trees::{Kind, Tree};

/// What files may hold that no kernel would write.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        Just(b"\n".to_vec()),
        Just(b"-1".to_vec()),
        Just(b"99999999999999999999999999".to_vec()),
        Just(b"0-4294967295".to_vec()),
        Just(b"[".to_vec()),
        Just(b"0:0:0:0 prio-pfc 300:on".to_vec()),
        Just(b"$(reboot)\n`reboot`; '\"".to_vec()),
        Just(vec![b'7'; 300_000]),
        proptest::collection::vec(any::<u8>(), 0..200),
        "[ -~\n\t]{0,80}".prop_map(String::into_bytes),
    ]
}

/// Each makes a tree of some two hundred files.
fn few() -> ProptestConfig {
    ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() }
}

fn kinds() -> impl Strategy<Value = Kind> {
    proptest::sample::select(Kind::ALL.to_vec())
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn no_file_can_hold_what_ends_the_program(
        kind in kinds(),
        choice in proptest::collection::vec((any::<proptest::sample::Index>(), garbage()), 1..12),
    ) {
        let tree = Tree::good(kind);
        let files = tree.files();
        for (index, bytes) in &choice {
            tree.set_bytes(&files[index.index(files.len())], bytes);
        }
        let report = tree.examine("default");
        for finding in &report.findings {
            prop_assert_eq!(finding.status == Status::Unknown, finding.seen.is_none());
            prop_assert_eq!(finding.status == Status::Unknown, finding.reason.is_some());
        }
        // Nothing that a terminal or a shell would act on comes through.
        let human = Human { report: &report, colour: false }.to_string();
        let script = Script(&report).to_string();
        prop_assert!(human.chars().all(|c| c == '\n' || !c.is_control()), "{human:?}");
        prop_assert!(script.lines().all(|line| line.starts_with('#') || !line.contains("reboot")));
        // Mending such a machine ends well, too, and makes no files.
        perform(&Root::open(tree.path()).unwrap(), &report, |_, _| {});
        prop_assert_eq!(tree.files(), files);
    }

    #[test]
    fn a_missing_file_is_never_taken_for_a_value(
        kind in kinds(),
        choice in any::<proptest::sample::Index>(),
    ) {
        let tree = Tree::good(kind);
        let files = tree.files();
        let file = &files[choice.index(files.len())];
        tree.remove(file);
        // Wherever the file was a setting of the NIC, its absence is no failure.
        let report = tree.examine("default");
        let setting = ["cc_params", "cc_config", "/ecn/", "tool-output"];
        if setting.iter().any(|part| file.contains(part)) {
            let fails = report.findings.iter().filter(|found| found.status == Status::Fail);
            prop_assert_eq!(fails.count(), 0, "without {}", file);
        }
    }
}

#[test]
fn a_folder_in_place_of_a_file_is_unknown_with_the_reason() {
    let tree = Tree::good(Kind::Mlx5);
    let path = "sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/rp_min_rate";
    tree.remove(path);
    std::fs::create_dir(tree.at(path)).unwrap();
    let report = tree.examine("default");
    let finding = report.findings.iter().find(|found| found.id == "dcqcn.rpg_min_rate").unwrap();
    assert_eq!(finding.status, Status::Unknown);
    assert!(finding.reason.as_ref().unwrap().contains("not a file"), "{finding:?}");
}

#[test]
fn a_link_that_leads_out_of_the_tree_is_not_followed() {
    let tree = Tree::good(Kind::NoDevice);
    let outside = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(outside.path(), "0\n").unwrap();
    let path = "proc/sys/kernel/watchdog";
    tree.remove(path);
    std::os::unix::fs::symlink(outside.path(), tree.at(path)).unwrap();
    let report = tree.examine("default");
    let finding = report.findings.iter().find(|found| found.id == "kernel.watchdog").unwrap();
    assert_eq!(finding.status, Status::Unknown);
    assert!(finding.reason.as_ref().unwrap().contains("leads out"), "{finding:?}");
}
