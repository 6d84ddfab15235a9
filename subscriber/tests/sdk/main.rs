//! The SDK and the command line against a real publisher over shared memory, and what can be told
//! of RDMA without a device.

mod ab;
mod choosing;
mod command;
mod descriptor;
mod end_to_end;
mod feed;
mod kept_ring;
mod loss;
mod remote;
mod session;
mod stage;
#[cfg(feature = "async")]
mod stream;

use std::path::PathBuf;
use std::time::Duration;

use tapecast_subscriber::{Event, PollError, Subscriber, SubscriberBuilder, Wakeup};

/// How long one wait may last before the test looks again; no test depends on its length.
const AWHILE: Duration = Duration::from_secs(10);

/// A folder of its own for each test, removed at its end, with the path of a socket in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("publisher.sock");
    (folder, socket)
}

fn builder(socket: &PathBuf) -> SubscriberBuilder {
    // An overloaded machine must not make a publisher look silent where that is not the point.
    Subscriber::builder().socket(socket).name("test").heartbeat_timeout(Duration::from_secs(600))
}

/// What a test notes of one snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    symbol: String,
    bid: i64,
    sequence: u64,
    epoch: u64,
    initial: bool,
    conflated: u32,
}

/// Polls and waits until `enough` of what has been seen.
fn receive_until(subscriber: &mut Subscriber, enough: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
    let mut seen = Vec::new();
    while !enough(&seen) {
        let polled = subscriber.poll(|snapshot| {
            seen.push(Seen {
                symbol: snapshot.symbol().to_owned(),
                bid: snapshot.best_bid().expect("a bid").price.nanos(),
                sequence: snapshot.instrument_sequence().get(),
                epoch: snapshot.epoch().get(),
                initial: snapshot.is_initial_image(),
                conflated: snapshot.conflated_count(),
            });
        });
        if polled.expect("a subscription that goes on") == 0 {
            assert_ne!(subscriber.wait(AWHILE).expect("a wait"), Wakeup::Ended);
        }
    }
    seen
}

fn receive(subscriber: &mut Subscriber, count: usize) -> Vec<Seen> {
    let seen = receive_until(subscriber, |seen| seen.len() >= count);
    assert_eq!(seen.len(), count, "{seen:?}");
    seen
}

/// Polls and waits until an event fits; returns all events up to it. Snapshots are counted.
fn until_event(subscriber: &mut Subscriber, fits: impl Fn(&Event) -> bool) -> (Vec<Event>, usize) {
    let (mut events, mut delivered) = (Vec::new(), 0);
    loop {
        events.extend(subscriber.events());
        if events.iter().any(&fits) {
            return (events, delivered);
        }
        match subscriber.poll(|_| {}) {
            Ok(0) => drop(subscriber.wait(AWHILE).expect("a wait")),
            Ok(count) => delivered += count,
            // The event says the same.
            Err(PollError::Ended(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Every account adds up and nothing is lost.
fn assert_balanced(subscriber: &mut Subscriber) {
    let summary = subscriber.summary();
    assert!(summary.balanced, "{summary:?}");
    let statistics = &summary.statistics;
    assert_eq!(statistics.lost, 0, "{statistics:?}");
    let sum = |figure: fn(&tapecast_subscriber::InstrumentAccount) -> u64| -> u64 {
        summary.instruments.iter().map(figure).sum()
    };
    assert_eq!(sum(|i| i.published), statistics.published);
    assert_eq!(sum(|i| i.delivered), statistics.delivered);
    assert_eq!(sum(|i| i.conflated), statistics.conflated);
}
