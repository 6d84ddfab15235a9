//! With the idle strategy `spin` the sender makes no system call once it runs.
//!
//! The proof: a child process puts a filter on its sender's thread, with which the kernel kills the
//! process at the first system call whatever it is, and publishes a million snapshots. That the
//! filter does kill is shown with a sender that yields.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod sender_support;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use sender_support::{Plant, Reader};
use tapecast_fabric::park::{IdleStrategy, Parker};
use tapecast_fabric::shm::{ShmConfig, ShmFabric};
use tapecast_publisher::clock::unix_now;
use tapecast_publisher::sender::Sender;
use tapecast_wire::Epoch;
use tapecast_wire::attach::Policy;

const SNAPSHOTS: u64 = 1_000_000;
/// Tells the child which idle strategy it shall have.
const IDLE: &str = "SENDER_SYSCALLS_IDLE";
/// Number of SIGSYS: what the filter kills with.
const SIGSYS: i32 = 31;

#[test]
fn a_spinning_sender_publishes_a_million_snapshots_without_a_system_call() {
    let status = child("spin");
    assert_eq!((status.code(), status.signal()), (Some(0), None));
}

#[test]
fn the_filter_kills_at_the_first_system_call() {
    assert_eq!(child("yield").signal(), Some(SIGSYS));
}

fn child(idle: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "in_a_child_process", "--nocapture"]).env(IDLE, idle);
    command.status().unwrap()
}

/// Does nothing in the test run itself: it is what the children run.
#[test]
fn in_a_child_process() {
    let idle = match std::env::var(IDLE) {
        Ok(word) if word == "spin" => IdleStrategy::Spin,
        Ok(word) if word == "yield" => IdleStrategy::Yield,
        _ => return,
    };
    let mut config = ShmConfig::new(Epoch(1));
    (config.ring_bytes, config.allow_lossless) = (1 << 18, true);
    let Plant { host, mut sender, port, feed, progress, pool: _pool } = Plant::new(&config);
    let readers = [Policy::Lossless, Policy::Conflate]
        .map(|policy| Reader::attach(&host, &port, &mut sender, policy));
    let is_over = || progress.load().published == SNAPSHOTS;
    // What is done once, at the first use, is no part of the loop: the address of the clock in the
    // vDSO.
    std::hint::black_box(unix_now());
    let filtered = Arc::new(AtomicBool::new(false));
    let delivered = std::thread::scope(|scope| {
        let readers = readers.map(|reader| scope.spawn(move || reader.read_until(is_over)));
        let about_to_run = Arc::clone(&filtered);
        // A thread of its own, and not of this scope: it never ends, because ending is a call.
        std::thread::spawn(move || run_filtered(sender, idle, &about_to_run));
        while !filtered.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        feed.run(SNAPSHOTS);
        readers.map(|reader| reader.join().unwrap())
    });
    assert_eq!(delivered[0], SNAPSHOTS);
    // Not by returning, which would wait for nothing but might run what other threads still use.
    std::process::exit(0);
}

fn run_filtered(sender: Sender<ShmFabric>, idle: IdleStrategy, about_to_run: &AtomicBool) {
    let filter = nothing_is_allowed();
    let parker = Parker::new();
    about_to_run.store(true, Ordering::Release);
    apply_filter(&filter).unwrap();
    sender.run(idle, parker);
}

/// A filter without a single rule: every call is a mismatch.
fn nothing_is_allowed() -> BpfProgram {
    let rules = BTreeMap::new();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let (otherwise, on_match) = (SeccompAction::KillProcess, SeccompAction::Allow);
    SeccompFilter::new(rules, otherwise, on_match, arch).unwrap().try_into().unwrap()
}
