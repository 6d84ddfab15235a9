//! Publishers that follow each other in one ring.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use tapecast_subscriber::{Event, Policy, Subscriber, WaitStrategy};
use tapecast_wire::attach::Farewell;

use crate::stage::{Book, CENT, Setup, Stage};
use crate::{Seen, assert_balanced, builder, place, receive, receive_until, until_event};

const PRICE: i64 = 100 * CENT;

fn life(epoch: u64) -> Setup {
    Setup { epoch, lossless: true, keep: true, ..Setup::default() }
}

/// Polls until attached again, and returns whether that was in the same ring.
fn until_reattached(subscriber: &mut Subscriber) -> bool {
    let (events, _) = until_event(subscriber, |event| matches!(event, Event::Reattached { .. }));
    match events.last() {
        Some(Event::Reattached { continued, .. }) => *continued,
        other => panic!("{other:?}"),
    }
}

/// Symbol, epoch, sequence, and whether it is an initial image.
fn brief(seen: &[Seen]) -> Vec<(&str, u64, u64, bool)> {
    seen.iter().map(|seen| (&*seen.symbol, seen.epoch, seen.sequence, seen.initial)).collect()
}

#[test]
fn a_subscription_reads_on_behind_the_last_of_the_old_life_with_the_first_of_the_new_one() {
    for strategy in [WaitStrategy::Spin, WaitStrategy::Yield, WaitStrategy::Block, WaitStrategy::Fd]
    {
        let (_folder, socket) = place();
        let first = Stage::open(&socket, life(1), &["AAPL", "MSFT"]);
        let mut subscriber = builder(&socket).wait(strategy).connect().unwrap();
        first.publish_all(vec![Book::of(0, PRICE), Book::of(1, PRICE)]);
        receive(&mut subscriber, 2);
        first.publish_all(vec![Book::of(1, PRICE), Book::of(0, PRICE), Book::of(1, PRICE)]);
        let kept = first.crash();
        // Ids are dealt in another order, and snapshots are there before anybody can attach.
        let books = vec![Book::of(0, PRICE), Book::of(1, PRICE), Book::of(1, PRICE)];
        let second = Stage::take_over(kept, &socket, life(2), &["MSFT", "AAPL"], books);
        let seen = receive(&mut subscriber, 6);
        let expected = [
            ("MSFT", 1, 2, false),
            ("AAPL", 1, 2, false),
            ("MSFT", 1, 3, false),
            ("MSFT", 2, 1, true),
            ("AAPL", 2, 1, true),
            ("AAPL", 2, 2, false),
        ];
        assert_eq!(brief(&seen), expected, "{strategy:?}");
        assert!(until_reattached(&mut subscriber));
        second.publish(0, PRICE);
        assert_eq!(brief(&receive(&mut subscriber, 1)), [("MSFT", 2, 2, false)]);

        // An orderly end keeps it as well.
        let kept = second.close_and_keep(Farewell::Closing, "SIGTERM");
        let books = vec![Book::of(0, PRICE)];
        let _third = Stage::take_over(kept, &socket, life(3), &["AAPL"], books);
        assert_eq!(brief(&receive(&mut subscriber, 1)), [("AAPL", 3, 1, true)]);
        assert!(until_reattached(&mut subscriber));
        let statistics = subscriber.statistics();
        assert_eq!((statistics.delivered, statistics.conflated, statistics.laps), (10, 0, 0));
        assert_eq!((statistics.initial_images, statistics.reconnects), (5, 2));
        assert_balanced(&mut subscriber);
    }
}

#[test]
fn a_new_life_that_has_gone_round_the_ring_is_conflated_and_accounted_for_from_its_first_on() {
    let (_folder, socket) = place();
    let first = Stage::open(&socket, life(1), &["AAPL", "MSFT"]);
    let mut subscriber = builder(&socket).symbols(["MSFT"]).connect().unwrap();
    first.publish_all(vec![Book::of(0, PRICE), Book::of(1, PRICE)]);
    receive(&mut subscriber, 1);
    let books = (0..2000).map(|index| Book::of(index % 2, PRICE)).collect();
    let kept = first.crash();
    let _second = Stage::take_over(kept, &socket, life(2), &["AAPL", "MSFT"], books);
    let seen = receive(&mut subscriber, 1);
    assert_eq!(brief(&seen), [("MSFT", 2, 1000, true)]);
    assert_eq!(seen[0].conflated, 999);
    assert!(until_reattached(&mut subscriber));
    let statistics = subscriber.statistics();
    assert_eq!((statistics.published, statistics.delivered), (1001, 2));
    assert_balanced(&mut subscriber);
}

#[test]
fn a_lossless_subscription_attaches_afresh_and_one_with_another_ring_gets_images() {
    let (_folder, socket) = place();
    let first = Stage::open(&socket, life(1), &["AAPL"]);
    let mut lossless = builder(&socket).policy(Policy::Lossless).connect().unwrap();
    let mut subscriber = builder(&socket).connect().unwrap();
    first.publish(0, PRICE);
    receive(&mut lossless, 1);
    receive(&mut subscriber, 1);
    first.publish(0, PRICE);
    let kept = first.crash();
    let books = vec![Book::of(0, PRICE), Book::of(0, PRICE)];
    let second = Stage::take_over(kept, &socket, life(2), &["AAPL"], books);
    let seen = receive(&mut lossless, 2);
    assert_eq!(brief(&seen), [("AAPL", 1, 2, false), ("AAPL", 2, 2, true)]);
    assert!(!until_reattached(&mut lossless));
    receive(&mut subscriber, 3);
    assert!(until_reattached(&mut subscriber));
    drop(second);
    let books = vec![Book::of(0, PRICE), Book::of(0, PRICE)];
    let _third = Stage::open_after(&socket, life(3), &["AAPL"], books);
    assert_eq!(brief(&receive(&mut subscriber, 1)), [("AAPL", 3, 2, true)]);
    assert!(!until_reattached(&mut subscriber));
    assert_balanced(&mut subscriber);
    assert_balanced(&mut lossless);
}

#[test]
fn a_publisher_that_was_killed_while_it_wrote_a_snapshot_keeps_nobody_from_the_next_one() {
    let (_folder, socket) = place();
    let first = Stage::open(&socket, life(1), &["AAPL", "MSFT"]);
    first.publish_all(vec![Book::of(0, PRICE), Book::of(1, PRICE)]);
    // Its image is still to be polled.
    let mut subscriber = builder(&socket).connect().unwrap();
    let region = first.crash();
    hold_first_slot(&region);
    drop(region);
    let second = Setup { epoch: 2, ..Setup::default() };
    let second = Stage::open_after(&socket, second, &["AAPL"], vec![Book::of(0, 2 * PRICE)]);
    until_reattached(&mut subscriber);
    second.publish(0, 3 * PRICE);
    let seen = receive_until(&mut subscriber, |seen| {
        seen.last().is_some_and(|seen| seen.bid == 3 * PRICE)
    });
    assert!(seen.iter().all(|seen| seen.epoch == 2), "{seen:?}");
    assert_balanced(&mut subscriber);
}

/// Leaves the latest table's first slot as a writer does that is killed in the middle of it: with
/// an odd stamp. Where the table begins is the header's word 7.
fn hold_first_slot(region: &OwnedFd) {
    let region = File::from(region.try_clone().expect("a descriptor"));
    let mut word = [0; 8];
    region.read_exact_at(&mut word, 7 * 8).expect("a header");
    let slot = u64::from_le_bytes(word);
    region.read_exact_at(&mut word, slot).expect("a table");
    let stamp = u64::from_le_bytes(word);
    assert!(stamp > 0 && stamp % 2 == 0, "a slot at rest");
    region.write_all_at(&(stamp + 1).to_le_bytes(), slot).expect("a region that can be written");
}
