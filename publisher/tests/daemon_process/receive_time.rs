//! What snapshots say of when their message was received, by `source.receive_time`.

use std::time::{SystemTime, UNIX_EPOCH};

use tapecast_wire::attach::Policy;

use crate::support::{Bench, Subscriber, request};

/// One delivered snapshot's `ts_event`, `ts_recv` and `ts_publish`.
type Times = (u64, u64, u64);

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Plays a day with these flags to its end.
fn played(flags: &[&str]) -> Vec<Times> {
    let bench = Bench::new();
    let day = bench.generate("day.itch50", 5_000);
    let input = ["--source", "itch", "--file", day.to_str().unwrap(), "--date", "2025-01-02"];
    let whole = ["--wait-for", "1", "--exit-at-end"];
    let flags = input.into_iter().chain(whole).chain(flags.iter().copied());
    let _daemon = bench.start(flags);
    let mut subscriber =
        Subscriber::attach(&bench.socket(), &request("one", Policy::Disconnect, &[])).unwrap();
    let mut times = Vec::new();
    subscriber.read_to_end(|delivery| {
        let header = delivery.header();
        times.push((header.ts_event, header.ts_recv, header.ts_publish));
    });
    assert!(times.len() > 500, "{}", times.len());
    times
}

#[test]
fn by_default_it_is_what_the_feed_says() {
    for (ts_event, ts_recv, ts_publish) in played(&["--pace", "max"]) {
        assert_eq!(ts_recv, ts_event);
        assert!(ts_recv < ts_publish, "that day is past");
    }
}

#[test]
fn a_day_that_is_played_as_if_it_happened_now_is_received_now() {
    for pace in ["max", "100000x"] {
        let began = unix_ns();
        let times = played(&["--pace", pace, "--receive-time", "host"]);
        let ended = unix_ns();
        for (ts_event, ts_recv, _) in &times {
            assert!(*ts_event < began, "the venue's time stays: {ts_event}");
            assert!((began..=ended).contains(ts_recv), "{began} {ts_recv} {ended} at {pace}");
        }
        assert!(times.is_sorted_by_key(|(_, ts_recv, _)| *ts_recv), "at {pace}");
    }
}
