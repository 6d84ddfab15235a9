//! What `--fix` and `--apply` do so that a restart does not undo it.

use crate::support::{doctor, stdout};
use crate::trees::{IF, Kind, Tree};

const SYSCTL: &str = "etc/sysctl.d/90-tapecast.conf";
const TMPFILES: &str = "etc/tmpfiles.d/90-tapecast.conf";
const MERGING: &str = "sys/kernel/mm/ksm/run";

/// A host that has folders for what is set at each start, with one thing wrong of each class.
fn spoiled() -> Tree {
    let tree = Tree::good(Kind::Mlx5);
    for folder in ["etc/sysctl.d", "etc/tmpfiles.d"] {
        std::fs::create_dir_all(tree.at(folder)).unwrap();
    }
    tree.set("proc/sys/kernel/watchdog", "1");
    tree.set("proc/sys/kernel/sched_rt_runtime_us", "950000");
    tree.set(MERGING, "1");
    tree.set(&format!("sys/class/net/{IF}/mtu"), "1500");
    tree
}

/// The script from where it says how to make it last.
fn last_part(tree: &Tree) -> String {
    let script = stdout(&doctor(tree, &["--fix"]));
    script.split_once("# --- To make it last").map(|(_, part)| part.to_owned()).unwrap_or_default()
}

#[test]
fn the_script_says_for_each_class_of_files_how_they_are_set_at_each_start() {
    let part = last_part(&spoiled());
    for lines in [
        "cat > /etc/sysctl.d/90-tapecast.conf <<'END'\n# Written by tapecast-publisher doctor.\n\
         kernel.watchdog = 0\nkernel.sched_rt_runtime_us = -1\nEND\n",
        "cat > /etc/tmpfiles.d/90-tapecast.conf <<'END'\n# Written by tapecast-publisher doctor.\n\
         w /sys/kernel/mm/ksm/run - - - - 2\nEND\n",
        "let a unit\n# (Type=oneshot, After=network-online.target) run the same command",
    ] {
        assert!(part.contains(lines), "{lines:?} is not in: {part}");
    }
    assert!(!part.contains("/sys/class"), "an interface is not there yet: {part}");
}

#[test]
fn nothing_is_said_of_classes_that_are_in_order() {
    let tree = Tree::good(Kind::Mlx5);
    assert_eq!(last_part(&tree), "");
    tree.set(&format!("sys/class/net/{IF}/mtu"), "1500");
    let part = last_part(&tree);
    assert!(part.contains("a unit") && !part.contains("cat >"), "{part}");
    let tree = Tree::good(Kind::NoDevice);
    tree.set(MERGING, "1");
    let part = last_part(&tree);
    assert!(part.contains("tmpfiles.d") && !part.contains("sysctl.d"), "{part}");
    assert!(!part.contains("a unit"), "{part}");
}

#[test]
fn apply_writes_the_files_and_keeps_what_an_earlier_one_wrote() {
    let tree = spoiled();
    tree.set(SYSCTL, "# by hand\nvm.swappiness = 1\nkernel.watchdog = 1\nEND\nrm -r /");
    let output = doctor(&tree, &["--fix", "--apply"]);
    assert!(output.status.success(), "{}", stdout(&output));
    assert!(stdout(&output).contains("done     write /etc/sysctl.d/90-tapecast.conf"));
    let ours = "# Written by tapecast-publisher doctor.\n";
    assert_eq!(
        tree.get(SYSCTL),
        format!("{ours}vm.swappiness = 1\nkernel.watchdog = 0\nkernel.sched_rt_runtime_us = -1")
    );
    assert_eq!(tree.get(TMPFILES), format!("{ours}w /sys/kernel/mm/ksm/run - - - - 2"));
}

#[test]
fn a_system_without_the_folders_is_told_and_gets_no_files() {
    let tree = spoiled();
    tree.remove("etc");
    let output = doctor(&tree, &["--fix", "--apply"]);
    assert!(output.status.success());
    let said =
        "skipped  write /etc/sysctl.d/90-tapecast.conf\n         there is no /etc/sysctl.d\n";
    assert!(stdout(&output).contains(said), "{}", stdout(&output));
    assert!(!tree.at("etc").exists());
}

#[test]
fn a_link_in_the_place_of_such_a_file_is_not_written_through() {
    let tree = spoiled();
    let outside = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(outside.path(), "precious\n").unwrap();
    std::os::unix::fs::symlink(outside.path(), tree.at(SYSCTL)).unwrap();
    let output = doctor(&tree, &["--fix", "--apply"]);
    assert!(stdout(&output).contains("FAILED   write /etc/sysctl.d"), "{}", stdout(&output));
    assert_eq!(std::fs::read_to_string(outside.path()).unwrap(), "precious\n");
}
