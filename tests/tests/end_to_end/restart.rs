//! kill -9 at any time, and start again.

use std::path::Path;

use rustix::process::Signal;

use super::programs::{Processes, folder, json, run, stderr, wait_until};

#[test]
fn after_kill_9_a_new_publisher_takes_the_socket_over_and_subscribers_attach_by_themselves() {
    let folder = folder();
    let socket = folder.path().join("s").display().to_string();
    let summary = folder.path().join("summary.json");
    let mut processes = Processes::default();
    let arguments =
        ["run", "--socket", &socket, "--seconds", "600", "--no-progress", "--log-level", "warn"];
    let first = processes.start("tapecast-publisher", &arguments);
    wait_until("the socket", || Path::new(&socket).exists());
    let path = summary.display().to_string();
    let tail = processes.start(
        "tapecast-subscriber",
        &["tail", "--quiet", "--socket", &socket, "--wait-for-publisher", "30",
          "--summary-json", &path],
    );
    wait_until("an attached subscriber", || is_attached(&socket));
    processes.signal(first, Signal::KILL);
    processes.finish(first);

    let second = processes.start("tapecast-publisher", &arguments);
    wait_until("a publisher that serves again", || {
        run("tapecast-subscriber", &["tail", "-n", "1", "--socket", &socket]).status.success()
    });
    // The subscriber has had at least one snapshot of the new life when it reports a reconnect.
    std::thread::scope(|_| wait_until("the report of the new publisher", || is_attached(&socket)));
    processes.signal(second, Signal::TERM);
    let output = processes.finish(second);
    assert!(output.status.success(), "{}", stderr(&output));
    processes.signal(tail, Signal::TERM);
    let output = processes.finish(tail);
    assert!(output.status.success(), "{}", stderr(&output));
    let summary = json(&summary);
    assert_eq!(summary["balanced"], true, "{summary}");
    assert!(summary["statistics"]["reconnects"].as_u64() >= Some(1), "{summary}");
    assert!(!Path::new(&socket).exists(), "the socket was left behind");
}

/// Whether somebody can attach and receives something.
fn is_attached(socket: &str) -> bool {
    run("tapecast-subscriber", &["tail", "-n", "1", "--socket", socket, "--no-reconnect"])
        .status
        .success()
}
