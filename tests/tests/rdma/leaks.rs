//! Attaching and leaving again and again leaves nothing behind.

use std::fs;

use rustix::process::Signal;

use super::device::{device, resources};
use super::programs::{run, stderr, wait_until};
use super::stage::{Stage, assert_pool_whole};

const ROUNDS: usize = 200;

#[test]
fn after_200_rounds_of_attaching_and_leaving_no_queue_pair_region_or_descriptor_is_left() {
    if device().is_none() {
        return;
    }
    let mut stage = Stage::new();
    let publisher = stage.publish(&["--seconds", "3600", "--instruments", "4"]);
    stage.await_publisher();
    let pid = stage.processes.pid(publisher);
    let descriptors =
        || fs::read_dir(format!("/proc/{pid}/fd")).expect("a living publisher").count();
    let round = || {
        let arguments = ["tail", "--connect", &*stage.address, "--count", "1", "--json"];
        let output = run("tapecast-subscriber", &arguments);
        assert!(output.status.success(), "{}", stderr(&output));
    };
    round();
    wait_until("the first to be gone", || resources()["qp"] == 0);
    let (before, opened) = (resources(), descriptors());
    for _ in 0..ROUNDS {
        round();
    }
    wait_until("everybody to be gone", || resources() == before && descriptors() <= opened);
    stage.processes.signal(publisher, Signal::TERM);
    assert_pool_whole(&stage.report());
    wait_until("the publisher's own to be gone", || resources().values().all(|count| *count == 0));
}
