//! What a session may count on: complete in lossless mode, exactly accounted for otherwise.

use std::path::Path;

use tapecast_tests::bench::resident_bytes_of;
use tapecast_tests::demo::{Account, Fleet, FleetPlan, Link, join};

use super::programs::{Processes, folder, programs, wait_until};

/// Runs a synthetic day with so many subscriber processes and joins both ends' accounts.
fn run(folder: &Path, subscribers: usize, source: &[&str], tail: &[&str]) -> Account {
    let plan = FleetPlan {
        programs: programs().to_owned(),
        folder: folder.to_owned(),
        source: source.iter().map(|word| (*word).to_owned()).collect(),
        subscribers,
        tail: tail.iter().map(|word| (*word).to_owned()).collect(),
        progress: false,
        link: Link::SharedMemory,
    };
    let plan = Fleet::start(plan).expect("processes").wait(|| {}).expect("a run to its end");
    join(&plan.read_report().expect("a report"), plan.read_summaries().expect("summaries"))
        .expect("samples of one run")
}

#[test]
fn lossless_sessions_receive_every_snapshot_at_full_speed() {
    let folder = folder();
    let source = ["--source", "synthetic", "--seconds", "1", "--pace", "max", "--lossless"];
    let account = run(folder.path(), 64, &source, &["--policy", "lossless"]);
    assert_eq!(account.imbalances, []);
    assert!(account.published > 10_000, "only {} snapshots", account.published);
    for summary in &account.subscribers {
        assert_eq!(summary.statistics.delivered, account.published, "{}", summary.name);
        assert_eq!(summary.statistics.conflated, 0, "{}", summary.name);
    }
}

#[test]
fn an_overloaded_machine_conflates_and_accounts_for_every_snapshot() {
    let folder = folder();
    // The smallest ring laps readers that share two cores with 63 others.
    let source = [
        "--source",
        "synthetic",
        "--seconds",
        "2",
        "--pace",
        "max",
        "--ring-bytes",
        "64KiB",
        "--seed",
        "7",
    ];
    let account = run(folder.path(), 64, &source, &["--policy", "conflate"]);
    assert_eq!(account.imbalances, []);
    let conflated: u64 = account.subscribers.iter().map(|s| s.statistics.conflated).sum();
    assert!(conflated > 0, "nothing was conflated, so nothing was shown");
    for summary in &account.subscribers {
        assert!(summary.balanced && summary.statistics.lost == 0, "{}", summary.name);
    }
}

#[test]
fn a_daemon_with_100_instruments_stays_within_64_mb() {
    let folder = folder();
    let socket = folder.path().join("s").display().to_string();
    let report = folder.path().join("report.json");
    let mut processes = Processes::default();
    let report_argument = report.display().to_string();
    let publisher = processes.start(
        "tapecast-publisher",
        &[
            "run",
            "--socket",
            &socket,
            "--seconds",
            "3",
            "--pace",
            "max",
            "--no-progress",
            "--report",
            &report_argument,
        ],
    );
    let tail = processes.start(
        "tapecast-subscriber",
        &["tail", "--quiet", "--socket", &socket, "--wait-for-publisher", "30", "-n", "20000"],
    );
    assert!(processes.finish(tail).status.success());
    let resident = resident_bytes_of(processes.pid(publisher)).expect("a running daemon");
    assert!(resident <= 64_000_000, "{resident} bytes are resident");
    processes.signal(publisher, rustix::process::Signal::TERM);
    assert!(processes.finish(publisher).status.success());
    wait_until("the report", || report.exists());
}
