//! A few rounds of chaos and a few restarts, on shared memory: the same programs as `make chaos`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

#[path = "end_to_end/programs.rs"]
#[expect(dead_code, reason = "here one program starts all the others")]
mod programs;

use programs::{folder, programs, run, stderr};

/// Plays with 16 subscribers; nothing may be wrong.
fn play(arguments: &[&str]) -> String {
    let mut all = arguments.to_vec();
    all.extend(["--subscribers", "16"]);
    let output = run("tapecast-chaos", &all);
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn harm_to_some_of_16_subscribers_is_not_felt_by_the_others_and_all_accounts_balance() {
    // A seed that does everything at least once.
    let said = play(&["--rounds", "4", "--seed", "1"]);
    assert!(said.contains("rounds 4") && said.contains("failures 0"), "{said}");
    for nothing in ["kills 0", "stops 0", "joins 0", "leaves 0", "conflated 0"] {
        assert!(!said.contains(&format!(" {nothing},")), "{said}");
    }
}

#[test]
fn harm_that_nobody_knows_beforehand_is_not_felt_either() {
    let said = play(&["--rounds", "2"]);
    assert!(said.contains("failures 0"), "{said}");
}

#[test]
fn after_each_kill_9_of_the_publisher_16_subscribers_are_back_and_complete() {
    let said = play(&["restarts", "--rounds", "10"]);
    assert!(said.contains("restarts 10") && said.contains("failures 0"), "{said}");
}

#[test]
fn ctrl_c_in_the_middle_of_a_round_leaves_no_process_and_no_file() {
    let folder = folder();
    let mut command = Command::new(programs().join("tapecast-chaos"));
    command.args(["--rounds", "1000", "--subscribers", "16"]).env("TMPDIR", folder.path());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("a process");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let is_round = |line: &String| line.starts_with("round 0");
    let first = lines.by_ref().map_while(Result::ok).find(is_round);
    // A round has ended, so another one has begun.
    kill_process(Pid::from_child(&child), Signal::INT).expect("a living process");
    let rest: Vec<_> = lines.map_while(Result::ok).collect();
    let status = child.wait().expect("an end");
    assert_eq!(status.code(), Some(130), "{first:?} {rest:?}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    assert_eq!(processes_with(folder.path()), Vec::<String>::new());
}

/// Processes that were given a path below this folder.
fn processes_with(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|words| String::from_utf8_lossy(&words).replace('\0', " "));
    lines.filter(|line| line.contains(&folder)).collect()
}
