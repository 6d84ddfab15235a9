//! kill -9 at any time, and start again.

use std::path::Path;

use rustix::process::Signal;

use super::programs::{Lines, Processes, folder, json, stderr, wait_until};

#[test]
fn after_kill_9_a_new_publisher_takes_the_socket_over_and_subscribers_attach_by_themselves() {
    let folder = folder();
    let socket = folder.path().join("s").display().to_string();
    let summary = folder.path().join("summary.json");
    let mut processes = Processes::default();
    let arguments =
        ["run", "--socket", &socket, "--seconds", "600", "--no-progress", "--log-level", "warn"];
    let first = processes.start("tapecast-publisher", &arguments);
    let path = summary.display().to_string();
    let tail = processes.start(
        "tapecast-subscriber",
        &[
            "tail",
            "--json",
            "--levels",
            "1",
            "--socket",
            &socket,
            "--wait-for-publisher",
            "30",
            "--summary-json",
            &path,
        ],
    );
    let mut lines = Lines::of(&mut processes, tail);
    let before = epoch(&lines.next());

    processes.signal(first, Signal::KILL);
    // At once: the first may still be on its way out, and holds the lock as long as it is.
    let second = processes.start("tapecast-publisher", &arguments);
    processes.finish(first);
    let mut after = before.clone();
    while after == before {
        after = epoch(&lines.next());
    }

    processes.signal(second, Signal::TERM);
    lines.discard();
    let output = processes.finish(second);
    assert!(output.status.success(), "{}", stderr(&output));
    processes.signal(tail, Signal::TERM);
    let output = processes.finish(tail);
    assert!(output.status.success(), "{}", stderr(&output));
    let summary = json(&summary);
    assert_eq!(summary["balanced"], true, "{summary}");
    assert_eq!(summary["statistics"]["lost"], 0, "{summary}");
    assert!(summary["statistics"]["reconnects"].as_u64() >= Some(1), "{summary}");
    wait_until("the socket to be gone", || !Path::new(&socket).exists());
}

fn epoch(line: &str) -> String {
    let line: serde_json::Value =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let epoch = &line["epoch"];
    assert!(!epoch.is_null(), "{line}");
    epoch.to_string()
}

#[test]
fn a_stop_that_is_signalled_twice_is_one_stop_and_leaves_nothing() {
    let folder = folder();
    let socket = folder.path().join("s").display().to_string();
    let mut processes = Processes::default();
    let arguments = ["run", "--socket", &socket, "--no-progress", "--log-level", "warn"];
    let publisher = processes.start("tapecast-publisher", &arguments);
    wait_until("the socket", || Path::new(&socket).exists());
    processes.signal(publisher, Signal::TERM);
    processes.signal(publisher, Signal::INT);
    let output = processes.finish(publisher);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn a_day_that_is_stopped_while_it_is_written_leaves_nothing_and_says_so() {
    let folder = folder();
    let file = folder.path().join("day.itch50").display().to_string();
    let mut processes = Processes::default();
    let arguments = ["generate", "--out", &file, "--seconds", "21600", "--no-progress"];
    let generate = processes.start("tapecast-publisher", &arguments);
    let entries = || std::fs::read_dir(folder.path()).expect("a folder").count();
    wait_until("the first bytes", || entries() > 0);
    processes.signal(generate, Signal::TERM);
    let output = processes.finish(generate);
    assert!(!output.status.success());
    let said = stderr(&output);
    assert!(said.contains("nothing was left behind"), "{said}");
    assert_eq!(entries(), 0);
}
