//! Another choice of instruments while attached, and sessions with terms of their own.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapecast_subscriber::{
    Event, Policy, PollError, Reconnect, StaleCause, Subscriber, WaitStrategy, WatchError,
};
use tapecast_wire::attach::Farewell;

use crate::stage::{Book, CENT, Setup, Stage};
use crate::{assert_balanced, builder, place, receive, receive_until, until_event};

const PRICE: i64 = 100 * CENT;

fn publish_each(stage: &Stage, price: i64) {
    stage.publish_all((0..3).map(|id| Book::of(id, price)).collect());
}

#[test]
fn instruments_are_taken_up_and_dropped_and_the_next_session_knows() {
    let (_folder, socket) = place();
    let setup = |epoch| Setup { epoch, ..Setup::default() };
    let first = Stage::open(&socket, setup(1), &["AAPL", "MSFT", "NVDA"]);
    let mut subscriber = builder(&socket).symbols(["AAPL"]).connect().unwrap();
    publish_each(&first, PRICE);
    assert_eq!(receive(&mut subscriber, 1)[0].symbol, "AAPL");

    subscriber.watch(["MSFT"]).unwrap();
    let image = receive(&mut subscriber, 1);
    assert_eq!((image[0].symbol.as_str(), image[0].initial), ("MSFT", true));
    subscriber.watch(["MSFT"]).unwrap();
    subscriber.unwatch(["AAPL"]).unwrap();
    publish_each(&first, PRICE + CENT);
    let live = receive(&mut subscriber, 1);
    assert_eq!((live[0].symbol.as_str(), live[0].initial), ("MSFT", false));

    let unknown = WatchError::Unknown { symbol: "MSTF".into() };
    assert_eq!(subscriber.watch(["AAPL", "MSTF"]), Err(unknown));
    assert_eq!(subscriber.unwatch(["MSFT"]), Err(WatchError::NothingLeft));
    assert!(subscriber.unwatch(["MSTF"]).is_err());
    publish_each(&first, PRICE + 2 * CENT);
    assert_eq!(receive(&mut subscriber, 1)[0].symbol, "MSFT", "a wrong choice changes nothing");

    drop(first);
    let books = (0..3).map(|id| Book::of(id, 2 * PRICE)).collect();
    let second = Stage::open_after(&socket, setup(2), &["NVDA", "MSFT", "AAPL"], books);
    until_event(&mut subscriber, |event| matches!(event, Event::Reattached { .. }));
    publish_each(&second, 3 * PRICE);
    let seen = receive_until(&mut subscriber, |seen| {
        seen.last().is_some_and(|seen| seen.bid == 3 * PRICE)
    });
    assert!(seen.iter().all(|seen| seen.symbol == "MSFT"), "{seen:?}");
    assert_balanced(&mut subscriber);
}

#[test]
fn of_all_instruments_some_can_be_left_out_and_taken_up_again() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL", "MSFT", "NVDA"]);
    let mut subscriber = builder(&socket).connect().unwrap();
    subscriber.unwatch(["MSFT", "NVDA"]).unwrap();
    publish_each(&stage, PRICE);
    assert_eq!(receive(&mut subscriber, 1)[0].symbol, "AAPL");
    subscriber.watch(["NVDA"]).unwrap();
    assert_eq!(receive(&mut subscriber, 1)[0].symbol, "NVDA");
    let id = stage.list("IPO");
    stage.publish(id, PRICE);
    assert_eq!(receive(&mut subscriber, 1)[0].symbol, "IPO", "it asked for all");
    assert_balanced(&mut subscriber);
}

#[test]
fn a_book_that_was_delivered_can_be_asked_for_again() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL", "MSFT", "NVDA"]);
    let mut subscriber = builder(&socket).symbols(["AAPL", "MSFT"]).connect().unwrap();
    publish_each(&stage, PRICE);
    receive(&mut subscriber, 2);
    subscriber.refresh("MSFT").unwrap();
    let again = receive(&mut subscriber, 1);
    assert_eq!((again[0].symbol.as_str(), again[0].sequence), ("MSFT", 1));
    assert!(again[0].initial && again[0].conflated == 0);
    subscriber.refresh_all();
    assert_eq!(receive(&mut subscriber, 2).len(), 2);
    assert!(subscriber.refresh("NVDA").is_err(), "it is not received");
    assert_eq!(subscriber.statistics().published, 5);
    assert_balanced(&mut subscriber);
}

#[test]
fn with_a_least_interval_the_newest_state_comes_in_time_and_stands_for_the_others() {
    for wait in [WaitStrategy::Block, WaitStrategy::Fd, WaitStrategy::Yield] {
        let (_folder, socket) = place();
        let stage = Stage::open(&socket, Setup::default(), &["AAPL", "MSFT"]);
        let interval = Duration::from_millis(40);
        let calm = builder(&socket).min_interval(interval).wait(wait);
        let mut subscriber = calm.connect().unwrap();
        for step in 0..100 {
            stage.publish(0, PRICE + step * CENT);
        }
        stage.publish(1, PRICE);
        // Nothing is published any more: what has rested comes by itself.
        let newest = PRICE + 99 * CENT;
        let has_both = |symbol: &str| symbol == "MSFT";
        let seen = receive_until(&mut subscriber, |seen| {
            seen.iter().any(|seen| seen.bid == newest)
                && seen.iter().any(|seen| has_both(&seen.symbol))
        });
        let stands_for: u64 = seen.iter().map(|seen| u64::from(seen.conflated) + 1).sum();
        assert_eq!(stands_for, 101, "{wait:?}: {seen:?}");
        assert_balanced(&mut subscriber);
    }
}

#[test]
fn one_that_will_not_be_conflated_is_told_so_and_begins_again_with_an_image() {
    let (_folder, socket) = place();
    let setup = Setup { ring_bytes: 64 << 10, ..Setup::default() };
    let stage = Stage::open(&socket, setup, &["AAPL"]);
    let mut subscriber = builder(&socket).policy(Policy::Disconnect).connect().unwrap();
    stage.publish(0, PRICE);
    receive(&mut subscriber, 1);
    for step in 0..2000 {
        stage.publish(0, PRICE + step * CENT);
    }
    let error = subscriber.poll(|_| {}).unwrap_err();
    assert!(matches!(error, PollError::Session(_)), "{error:?}");
    assert!(error.to_string().contains("policy disconnect"), "{error}");
    let (events, _) =
        until_event(&mut subscriber, |event| matches!(event, Event::Reattached { .. }));
    assert!(events.contains(&Event::Stale(StaleCause::Evicted)), "{events:?}");
    stage.publish(0, 2 * PRICE);
    let seen = receive_until(&mut subscriber, |seen| {
        seen.last().is_some_and(|seen| seen.bid == 2 * PRICE)
    });
    assert!(seen.iter().all(|seen| seen.conflated == 0), "{seen:?}");
    assert_balanced(&mut subscriber);
}

#[test]
fn what_is_conflated_after_an_instrument_was_dropped_and_taken_up_again_is_counted() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL", "MSFT"]);
    let mut subscriber = builder(&socket).connect().unwrap();
    stage.publish_all(vec![Book::of(0, PRICE), Book::of(1, PRICE)]);
    receive(&mut subscriber, 2);
    for _ in 0..20 {
        subscriber.unwatch(["AAPL"]).unwrap();
        subscriber.watch(["AAPL"]).unwrap();
        receive(&mut subscriber, 1);
    }
    // Far more than the ring holds.
    let last = PRICE + 1999 * CENT;
    for step in 0..2000 {
        stage.publish_all(vec![Book::of(0, PRICE + step * CENT), Book::of(1, PRICE + step * CENT)]);
    }
    receive_until(&mut subscriber, |seen| {
        let is_there = |symbol| seen.iter().any(|seen| seen.symbol == symbol && seen.bid == last);
        is_there("AAPL") && is_there("MSFT")
    });
    let accounts = subscriber.accounts();
    assert!(accounts.iter().all(|account| account.conflated > 1000), "{accounts:?}");
    assert_eq!(accounts[0].published, accounts[1].published + 20);
    assert_balanced(&mut subscriber);
}

#[test]
fn the_descriptor_is_readable_as_soon_as_something_was_asked_for() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL", "MSFT"]);
    let calm = builder(&socket).symbols(["AAPL"]).wait(WaitStrategy::Fd);
    let mut subscriber = calm.connect().unwrap();
    stage.publish_all(vec![Book::of(0, PRICE), Book::of(1, PRICE)]);
    receive(&mut subscriber, 1);
    let is_readable = |subscriber: &Subscriber| {
        let descriptor = subscriber.as_fd().unwrap();
        let mut awaited = [PollFd::new(&descriptor, PollFlags::IN)];
        poll(&mut awaited, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    };
    while subscriber.poll(|_| {}).unwrap() > 0 || is_readable(&subscriber) {}
    subscriber.refresh("AAPL").unwrap();
    assert!(is_readable(&subscriber));
    receive(&mut subscriber, 1);
    while subscriber.poll(|_| {}).unwrap() > 0 || is_readable(&subscriber) {}
    subscriber.watch(["MSFT"]).unwrap();
    assert!(is_readable(&subscriber));
    assert_eq!(receive(&mut subscriber, 1)[0].symbol, "MSFT");
}

#[test]
fn what_rests_when_the_publisher_goes_is_delivered_whether_it_said_goodbye_or_not() {
    for says_goodbye in [true, false] {
        let (_folder, socket) = place();
        let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
        let calm = builder(&socket).min_interval(Duration::from_secs(86_400));
        let mut subscriber = calm.reconnect(Reconnect::Never).connect().unwrap();
        for step in 0..10 {
            stage.publish(0, PRICE + step * CENT);
        }
        let first = receive(&mut subscriber, 1);
        if says_goodbye {
            stage.close(Farewell::Closing, "SIGTERM");
        } else {
            drop(stage);
        }
        let (_, delivered) =
            until_event(&mut subscriber, |event| matches!(event, Event::Ended { .. }));
        assert_eq!(delivered, usize::from(first[0].sequence < 10));
        let statistics = subscriber.statistics();
        assert_eq!((statistics.published, statistics.lost), (10, 0), "{statistics:?}");
        assert_balanced(&mut subscriber);
    }
}
