//! What firmware and drivers are set to, through tools and files that differ by their makers.

use tapecast_publisher::doctor::{Finding, Report, Status};

use crate::mending::commands;
use crate::support::{doctor, stdout, troubles};
use crate::trees::{FIRMWARE, IF, Kind, Tree};

fn find<'a>(report: &'a Report, id: &str) -> &'a Finding {
    report.findings.iter().find(|found| found.id == id).unwrap()
}

/// The steps that are left to a person, of all remedies.
fn by_hand(tree: &Tree) -> Vec<String> {
    let script = stdout(&doctor(tree, &["--fix"]));
    let left = script.lines().skip_while(|line| !line.contains("Left to you"));
    left.filter(|line| line.starts_with("#   ")).map(str::to_owned).collect()
}

/// ConnectX whose settings are seen through the firmware's tool alone.
fn through_firmware() -> Tree {
    let tree = Tree::good(Kind::Mlx5);
    tree.remove("sys/kernel/debug");
    tree
}

#[test]
fn what_is_in_force_is_judged_and_not_what_the_card_starts_with_next() {
    let cases: [(u32, u32, &[&str], &str); 4] = [
        (1700, 1700, &[], "1700"),
        (1, 1, &["FAIL dcqcn.rpg_min_rate"], "1"),
        (1, 1700, &["warn dcqcn.rpg_min_rate"], "1, after a restart 1700"),
        (1700, 1, &["warn dcqcn.rpg_min_rate"], "1700, after a restart 1"),
    ];
    for (now, next, expected, seen) in cases {
        let tree = through_firmware();
        tree.firmware("RPG_MIN_RATE", now, next);
        let report = tree.examine("default");
        assert_eq!(troubles(&report), expected, "{now}, then {next}");
        assert_eq!(find(&report, "dcqcn.rpg_min_rate").seen.as_deref(), Some(seen));
    }
}

#[test]
fn what_is_set_but_not_in_force_takes_a_reset_and_no_setting() {
    let tree = through_firmware();
    tree.firmware("RPG_MIN_RATE", 1, 1700);
    assert_eq!(commands(&tree, "default"), [""; 0]);
    let left = by_hand(&tree);
    assert!(left.len() == 1 && left[0].contains("mlxfwreset -d 0000:3b:00.0 reset"), "{left:?}");
}

#[test]
fn a_tool_that_shows_only_the_next_start_says_nothing_about_what_is_in_force() {
    let tree = through_firmware();
    tree.old_firmware("RPG_MIN_RATE", 1);
    let report = tree.examine("default");
    let rate = find(&report, "dcqcn.rpg_min_rate");
    assert_eq!((rate.status, rate.seen.as_deref()), (Status::Fail, Some("1 after a restart")));
    let other = find(&report, "dcqcn.rpg_gd");
    let reason = other.reason.as_deref().unwrap_or_default();
    assert_eq!(other.status, Status::Unknown);
    assert!(reason.contains("next start") && reason.contains("in force"), "{reason}");
}

#[test]
fn all_settings_of_the_firmware_come_into_force_with_one_reset_by_the_same_makers_tool() {
    for (tool, reset) in [("mlxconfig", "mlxfwreset"), ("mstconfig", "mstfwreset")] {
        let tree = through_firmware();
        tree.firmware("RPG_MIN_RATE", 1, 1);
        let file = format!("tool-output/{FIRMWARE}");
        let text = tree
            .get(&file)
            .replace("RPG_GD_P1          11          11          11", "RPG_GD_P1 11 10 10");
        tree.remove(&file);
        tree.set(&file.replace("mlxconfig", tool), &text);
        let expected = ["RPG_GD_P1=11", "RPG_MIN_RATE_P1=1700"];
        let expected = expected.map(|set| format!("{tool} -y -d 0000:3b:00.0 set {set}"));
        assert_eq!(commands(&tree, "default"), expected);
        let left = by_hand(&tree);
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(left[0].contains(&format!(": {reset} -d 0000:3b:00.0 reset")), "{left:?}");
    }
}

#[test]
fn connectx_7_wants_all_priorities_alike_from_the_firmware_on_that_knows_one_setting() {
    let cases = [
        ("28.45.1020", 255, "ok", ""),
        ("28.45.1020", 8, "warn", "255"),
        ("28.45.1020", 0xf7, "FAIL", "255"),
        ("28.45.1020", 0, "FAIL", "255"),
        ("28.44.1036", 8, "ok", ""),
        ("28.44.1036", 1, "FAIL", "9"),
        ("22.46.1006", 8, "ok", ""),
    ];
    for (version, mask, word, set) in cases {
        let tree = Tree::good(Kind::Mlx5);
        tree.set("sys/class/infiniband/mlx5_0/fw_ver", version);
        tree.firmware("ROCE_CC_PRIO_MASK", mask, mask);
        let report = tree.examine("default");
        let found = find(&report, "dcqcn.priorities");
        assert_eq!(found.status.word(), word, "{version}, {mask}");
        let command = found.fix.first().map_or("", |step| step.command.as_str());
        assert_eq!(
            command.rsplit_once("_P1=").map_or("", |(_, set)| set),
            set,
            "{version}, {mask}"
        );
    }
}

#[test]
fn the_vendors_driver_has_a_file_for_each_priority_and_they_are_set_alike_where_one_counts() {
    let file = |priority: u8| format!("sys/class/net/{IF}/ecn/roce_rp/enable/{priority}");
    for (version, expected) in [("28.45.1020", &["warn dcqcn.reaction"][..]), ("22.45.1020", &[])] {
        let tree = Tree::good(Kind::Mlx5Vendor);
        tree.set("sys/class/infiniband/mlx5_0/fw_ver", version);
        tree.set(&file(4), "0");
        assert_eq!(troubles(&tree.examine("default")), expected, "{version}");
        assert!(doctor(&tree, &["--fix", "--apply"]).status.success());
        let after: Vec<String> = (0..8).map(|priority| tree.get(&file(priority))).collect();
        assert_eq!(after.iter().all(|text| text == "1"), !expected.is_empty(), "{after:?}");
    }
}

#[test]
fn the_vendors_configfs_is_given_numbers_that_are_the_same_in_every_base() {
    let tree = Tree::good(Kind::BnxtRe);
    let home = tree.vendors_bnxt_re("0x0", "0x0");
    assert_eq!(
        commands(&tree, "default"),
        [
            format!("echo 1 > /{home}/ecn_enable; echo 1 > /{home}/apply"),
            format!("echo 0x1a > /{home}/roce_dscp; echo 1 > /{home}/apply"),
        ]
    );
    assert!(doctor(&tree, &["--fix", "--apply"]).status.success());
    assert_eq!(
        ["roce_dscp", "apply"].map(|file| tree.get(&format!("{home}/{file}"))),
        ["0x1a", "1"]
    );
    assert_eq!(troubles(&tree.examine("default")), [""; 0]);
}
