//! Ages from the feed's receive time on: the publisher is told what the SDK counts.

use std::time::Duration;

use tapecast_subscriber::{Flags, LATENCY_BOUNDS_NS, LatencyCounts, Nanos, Subscriber, Wakeup};

use crate::stage::{Book, CENT, Setup, Stage, unix_now};
use crate::{builder, place, receive};

const PRICE: i64 = 100 * CENT;
const SECOND_NS: u64 = 1_000_000_000;
/// Between two looks at what the publisher was told; no test depends on its length.
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn received_at(ts_recv: u64) -> Book {
    Book { ts_recv: Some(Nanos(ts_recv)), ..Book::of(0, PRICE) }
}

/// Polls until so many are delivered, and notes of each when it was received and the feed's time.
fn times(subscriber: &mut Subscriber, count: usize) -> Vec<(u64, u64, Flags)> {
    let mut seen = Vec::new();
    while seen.len() < count {
        subscriber
            .poll(|snapshot| {
                let received = snapshot.ts_delivered().expect("a time");
                seen.push((received.get(), snapshot.ts_recv().get(), snapshot.flags()));
            })
            .expect("a subscription that goes on");
        assert_ne!(subscriber.wait(LOOK_EVERY).expect("a wait"), Wakeup::Ended);
    }
    seen
}

/// What is to be counted of these, however long their delivery took.
fn expected(seen: &[(u64, u64, Flags)]) -> LatencyCounts {
    let mut counts = LatencyCounts::default();
    for (received, ts_recv, flags) in seen {
        let in_bounds = ts_recv <= received && received - ts_recv <= 60 * SECOND_NS;
        if in_bounds && !flags.contains(Flags::BAD_TS_RECV) {
            counts.record(received - ts_recv);
        }
    }
    counts
}

#[test]
fn the_publisher_is_told_the_ages_that_the_subscriber_counts() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    stage.publish_all(vec![received_at(unix_now().get())]);
    let mut subscriber = builder(&socket).connect().unwrap();
    receive(&mut subscriber, 1);
    assert_eq!(subscriber.end_to_end_counts().count(), 0, "an initial image has no age");

    let now = unix_now().get();
    let fresh = [0, 40_000, 3_000_000, SECOND_NS].map(|age_ns| received_at(now - age_ns));
    let others = [
        received_at(now - 3_600 * SECOND_NS),
        received_at(now + 3_600 * SECOND_NS),
        received_at(0),
        Book { flags: Flags::BAD_TS_RECV, ..received_at(now) },
        Book::of(0, PRICE),
    ];
    stage.publish_all(fresh.into_iter().chain(others).collect());
    let seen = times(&mut subscriber, 9);
    let counted = subscriber.end_to_end_counts();
    assert_eq!(counted, expected(&seen));
    assert_eq!(subscriber.latency_counts().count(), 9);

    // A report goes out once a second, from whatever the application calls.
    let words = |counts: &LatencyCounts| {
        let mut words = counts.counts.to_vec();
        words.push(counts.sum_ns);
        words
    };
    while stage.told().transit[..] != words(&subscriber.latency_counts()) {
        subscriber.poll(|_| {}).unwrap();
        subscriber.wait(LOOK_EVERY).unwrap();
    }
    assert_eq!(stage.told().end_to_end[..], words(&counted));
    assert_eq!(counted.counts.len(), LATENCY_BOUNDS_NS.len() + 1);
}
