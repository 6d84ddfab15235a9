//! Two publishers of one feed.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapecast_subscriber::{
    AbSide, AbSubscriber, AbSummary, EndReason, Event, PollError, Reconnect, StaleCause, State,
    WaitStrategy, Wakeup,
};
use tapecast_wire::Flags;
use tapecast_wire::attach::Farewell;

use crate::command::command;
use crate::stage::{Book, CENT, Setup, Stage};
use crate::{AWHILE, builder, place};

const PRICE: i64 = 100 * CENT;

/// Folders with the sockets of two publishers.
struct Places {
    _folders: [tempfile::TempDir; 2],
    a: PathBuf,
    b: PathBuf,
}

fn places() -> Places {
    let ((folder_a, a), (folder_b, b)) = (place(), place());
    Places { _folders: [folder_a, folder_b], a, b }
}

impl Places {
    fn connect(&self) -> AbSubscriber {
        AbSubscriber::connect(builder(&self.a), builder(&self.b)).expect("a publisher")
    }
}

/// Side A numbers the instruments in one order, side B in the other, with one more before.
fn stages(places: &Places) -> [Stage; 2] {
    let a = Stage::open(&places.a, Setup { epoch: 1, ..Setup::default() }, &["AAPL", "MSFT"]);
    let setup = Setup { epoch: 9, ring_bytes: 1 << 22, ..Setup::default() };
    let b = Stage::open(&places.b, setup, &["IDLE", "MSFT", "AAPL"]);
    [a, b]
}

const AAPL_ON_A: u32 = 0;
const AAPL_ON_B: u32 = 2;

/// The feed's next change of AAPL, as each side sees it.
fn publish_both([a, b]: &[Stage; 2], bid: i64) {
    a.publish(AAPL_ON_A, bid);
    b.publish(AAPL_ON_B, bid);
}

/// (symbol, feed sequence, conflated count) of all that is delivered until `enough`.
fn receive_until(
    subscriber: &mut AbSubscriber,
    mut enough: impl FnMut(&mut AbSubscriber, &[(String, u64, u32)]) -> bool,
) -> Vec<(String, u64, u32)> {
    let mut seen = Vec::new();
    loop {
        let polled = subscriber.poll(|s| {
            seen.push((s.symbol().to_owned(), s.feed_sequence(), s.conflated_count()));
        });
        // A poll that delivers nothing may have taken copies, or moved on to another session.
        if enough(subscriber, &seen) {
            return seen;
        }
        if polled.expect("a subscription that goes on") == 0 {
            assert_ne!(subscriber.wait(AWHILE).expect("a wait"), Wakeup::Ended);
        }
    }
}

/// Feed sequences of AAPL up to and with `last`.
fn up_to(subscriber: &mut AbSubscriber, last: u64) -> Vec<u64> {
    let seen = receive_until(subscriber, |_, seen| seen.iter().any(|s| s.1 == last));
    assert!(seen.iter().all(|s| s.0 == "AAPL" && s.2 == 0), "{seen:?}");
    seen.into_iter().map(|s| s.1).collect()
}

/// Takes what both sides have, until their sessions have handed over so many.
fn until_received(subscriber: &mut AbSubscriber, a: u64, b: u64) -> Vec<u64> {
    let received = |subscriber: &AbSubscriber| {
        AbSide::BOTH.map(|side| subscriber.side_figures(side).counts.received)
    };
    let seen = receive_until(subscriber, |subscriber, _| received(subscriber) == [a, b]);
    seen.into_iter().map(|s| s.1).collect()
}

fn until_event(subscriber: &mut AbSubscriber, side: AbSide, fits: impl Fn(&Event) -> bool) {
    receive_until(subscriber, |subscriber, _| {
        subscriber.events().any(|(of, event)| of == side && fits(&event))
    });
}

#[test]
fn each_snapshot_is_delivered_once_from_the_side_that_brings_it_first() {
    let places = places();
    let stages = stages(&places);
    let mut subscriber = places.connect();
    stages[0].publish(AAPL_ON_A, PRICE);
    assert_eq!(up_to(&mut subscriber, 1), [1]);
    // The feed's second message reaches B first, and both have it in the end.
    stages[1].publish_all(vec![Book::of(AAPL_ON_B, PRICE), Book::of(AAPL_ON_B, PRICE + 1)]);
    assert_eq!(until_received(&mut subscriber, 1, 2), [2]);
    stages[0].publish(AAPL_ON_A, PRICE + 1);
    assert!(until_received(&mut subscriber, 2, 2).is_empty());

    let [a, b] = AbSide::BOTH.map(|side| subscriber.side_figures(side));
    assert_eq!((a.counts.wins, a.counts.late, a.counts.repeated), (1, 1, 0));
    assert_eq!((b.counts.wins, b.counts.late, b.counts.repeated), (1, 0, 1));
    assert_eq!((a.lateness.count, b.lateness.count), (1, 0));
    let statistics = subscriber.statistics();
    assert_eq!((statistics.published, statistics.delivered, statistics.conflated), (2, 2, 0));
    let accounts = subscriber.accounts();
    assert_eq!((accounts.len(), accounts[0].delivered), (1, 2));
    let aapl = subscriber.find("AAPL").expect("an instrument").instrument_id;
    assert!(!subscriber.is_stale(aapl));
    assert!(subscriber.summary().merged.balanced);
}

#[test]
fn the_application_sees_one_id_for_an_instrument_on_both_sides() {
    let places = places();
    let stages = stages(&places);
    stages.iter().zip([AAPL_ON_A, AAPL_ON_B]).for_each(|(stage, id)| stage.publish(id, PRICE));
    let mut subscriber = places.connect();
    let mut ids = Vec::new();
    let mut owned = Vec::new();
    for round in 1..=6 {
        stages[round % 2].publish([AAPL_ON_A, AAPL_ON_B][round % 2], PRICE);
        stages[(round + 1) % 2].publish([AAPL_ON_B, AAPL_ON_A][round % 2], PRICE);
        while ids.len() < round {
            let polled = subscriber.poll(|snapshot| {
                ids.push(snapshot.instrument_id());
                owned.push(snapshot.to_owned());
            });
            if polled.expect("a poll") == 0 {
                subscriber.wait(AWHILE).expect("a wait");
            }
        }
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(subscriber.instrument(ids[0]).expect("an entry").symbol, "AAPL");
    assert!(owned.iter().all(|kept| kept.view().instrument_id() == ids[0]));
    assert!(owned.iter().all(|kept| kept.view().record().instrument_id() == ids[0]));
}

#[test]
fn when_one_side_dies_books_stay_live_without_a_gap_and_it_joins_again_without_a_duplicate() {
    let places = places();
    let [a, b] = stages(&places);
    let mut subscriber = places.connect();
    let both = [a, b];
    (0..5).for_each(|round| publish_both(&both, PRICE + round));
    assert_eq!(until_received(&mut subscriber, 5, 5), [1, 2, 3, 4, 5]);
    let [a, b] = both;
    // Published by A alone, and not polled, when it dies.
    a.publish(AAPL_ON_A, PRICE);
    drop(a);
    until_event_seeing(&mut subscriber, AbSide::A, StaleCause::Crashed, &[6]);
    assert_eq!(subscriber.state(), &State::Live);
    let cause = match subscriber.side(AbSide::A).state() {
        State::Stale { cause, .. } => *cause,
        other => panic!("{other}"),
    };
    assert_eq!(cause, StaleCause::Crashed);
    let aapl = subscriber.find("AAPL").expect("an instrument").instrument_id;
    assert!(!subscriber.is_stale(aapl));
    (0..3).for_each(|_| b.publish(AAPL_ON_B, PRICE));
    assert_eq!(up_to(&mut subscriber, 8), [7, 8]);

    // A comes back, with another order of ids, and has replayed the feed up to here.
    let setup = Setup { epoch: 2, ..Setup::default() };
    let books = vec![Book::of(1, PRICE); 8];
    let a = Stage::open_after(&places.a, setup, &["MSFT", "AAPL"], books);
    until_event(&mut subscriber, AbSide::A, |event| matches!(event, Event::Reattached { .. }));
    a.publish(1, PRICE);
    assert_eq!(up_to(&mut subscriber, 9), [9]);
    b.publish(AAPL_ON_B, PRICE);
    b.publish(AAPL_ON_B, PRICE);
    assert_eq!(up_to(&mut subscriber, 10), [10]);
    let statistics = subscriber.statistics();
    assert_eq!((statistics.delivered, statistics.conflated), (10, 0));
    assert_eq!((statistics.reconnects, statistics.lost), (1, 0));
}

/// Until a side is stale for this cause; meanwhile exactly these feed sequences are delivered.
fn until_event_seeing(
    subscriber: &mut AbSubscriber,
    side: AbSide,
    cause: StaleCause,
    expected: &[u64],
) {
    let mut is_told = false;
    let seen = receive_until(subscriber, |subscriber, seen| {
        is_told |= subscriber.events().any(|told| told == (side, Event::Stale(cause)));
        is_told && seen.len() >= expected.len()
    });
    assert_eq!(seen.into_iter().map(|s| s.1).collect::<Vec<_>>(), expected);
}

#[test]
fn books_are_stale_when_both_sides_are_and_live_with_the_first_that_comes_back() {
    let places = places();
    let [a, b] = stages(&places);
    let mut subscriber = places.connect();
    let both = [a, b];
    publish_both(&both, PRICE);
    until_received(&mut subscriber, 1, 1);
    drop(both);
    receive_until(&mut subscriber, |subscriber, _| *subscriber.state() != State::Live);
    let aapl = subscriber.find("AAPL").expect("an instrument").instrument_id;
    assert!(subscriber.is_stale(aapl));
    let setup = Setup { epoch: 3, ..Setup::default() };
    let books = vec![Book::of(0, PRICE), Book::of(0, PRICE)];
    let _a = Stage::open_after(&places.a, setup, &["AAPL"], books);
    assert_eq!(up_to(&mut subscriber, 2), [2]);
    assert_eq!(subscriber.state(), &State::Live);
}

#[test]
fn the_subscription_ends_when_both_sides_have_ended_and_says_the_better_reason() {
    let places = places();
    let [a, b] = stages(&places);
    let once = |socket| builder(socket).reconnect(Reconnect::Never);
    let mut subscriber = AbSubscriber::connect(once(&places.a), once(&places.b)).unwrap();
    let both = [a, b];
    publish_both(&both, PRICE);
    until_received(&mut subscriber, 1, 1);
    let [a, b] = both;
    a.close(Farewell::EndOfSource, "");
    receive_until(&mut subscriber, |subscriber, _| {
        matches!(subscriber.side(AbSide::A).state(), State::Ended(_))
    });
    assert_eq!(subscriber.state(), &State::Live);
    assert!(!subscriber.source_ended(), "B may have more");
    b.publish(AAPL_ON_B, PRICE);
    assert_eq!(up_to(&mut subscriber, 2), [2]);
    drop(b);
    let reason = loop {
        match subscriber.poll(|_| {}) {
            Ok(_) => drop(subscriber.wait(AWHILE).unwrap()),
            Err(PollError::Ended(reason)) => break reason,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(reason, EndReason::EndOfSource);
    assert!(subscriber.source_ended());
    assert_eq!(subscriber.wait(AWHILE).unwrap(), Wakeup::Ended);
}

#[test]
fn one_publisher_is_enough_to_begin_and_the_other_joins_when_it_comes() {
    let places = places();
    let b = Stage::open(&places.b, Setup::default(), &["IDLE", "MSFT", "AAPL"]);
    let mut subscriber = places.connect();
    b.publish(AAPL_ON_B, PRICE);
    assert_eq!(up_to(&mut subscriber, 1), [1]);
    let a = subscriber.side(AbSide::A).state();
    assert!(matches!(a, State::Stale { cause: StaleCause::Absent, .. }), "{a}");
    assert_eq!(subscriber.state(), &State::Live);
    let a = Stage::open(&places.a, Setup { epoch: 4, ..Setup::default() }, &["AAPL"]);
    until_event(&mut subscriber, AbSide::A, |event| matches!(event, Event::Reattached { .. }));
    a.publish_all(vec![Book::of(0, PRICE), Book::of(0, PRICE)]);
    assert_eq!(up_to(&mut subscriber, 2), [2]);
}

#[test]
fn without_any_publisher_the_error_names_a_path() {
    let places = places();
    let error = AbSubscriber::connect(builder(&places.a), builder(&places.b)).unwrap_err();
    assert!(error.to_string().contains("publisher.sock"), "{error}");
}

#[test]
fn a_gap_on_one_side_is_filled_by_the_other() {
    const CHANGES: u64 = 2_000;
    let places = places();
    let [a, b] = stages(&places);
    let mut subscriber = places.connect();
    a.publish(AAPL_ON_A, PRICE);
    b.publish(AAPL_ON_B, PRICE);
    until_received(&mut subscriber, 1, 1);
    b.publish_all(vec![Book::of(AAPL_ON_B, PRICE); CHANGES as usize]);
    let expected: Vec<_> = (2..=CHANGES + 1).collect();
    assert_eq!(up_to(&mut subscriber, CHANGES + 1), expected);
    // Many times what A's ring holds.
    a.publish_all(vec![Book::of(AAPL_ON_A, PRICE); CHANGES as usize + 1]);
    assert_eq!(up_to(&mut subscriber, CHANGES + 2), [CHANGES + 2]);
    let figures = subscriber.side_figures(AbSide::A);
    assert!(figures.counts.gaps > 0 && figures.session.laps > 0, "{figures:?}");
    assert_eq!(figures.counts.filled, figures.counts.skipped, "{figures:?}");
    let statistics = subscriber.statistics();
    assert_eq!((statistics.delivered, statistics.conflated), (CHANGES + 2, 0));
}

#[test]
fn what_neither_side_delivered_is_what_a_snapshot_stands_for() {
    const CHANGES: u64 = 2_000;
    let places = places();
    let [a, b] = stages(&places);
    let mut subscriber = places.connect();
    a.publish(AAPL_ON_A, PRICE);
    b.publish(AAPL_ON_B, PRICE);
    until_received(&mut subscriber, 1, 1);
    a.publish_all(vec![Book::of(AAPL_ON_A, PRICE); CHANGES as usize]);
    let last = CHANGES + 1;
    let seen = receive_until(&mut subscriber, |_, seen| seen.iter().any(|s| s.1 == last));
    let conflated: u64 = seen.iter().map(|s| u64::from(s.2)).sum();
    assert!(conflated > 0);
    let statistics = subscriber.statistics();
    assert_eq!(statistics.conflated, conflated);
    assert_eq!((statistics.published, statistics.delivered + conflated), (last, last));
}

#[test]
fn a_copy_that_is_not_suspect_repairs_one_that_is() {
    let places = places();
    let [a, b] = stages(&places);
    let mut subscriber = places.connect();
    let suspect = Book { flags: Flags::SUSPECT, ..Book::of(AAPL_ON_A, PRICE) };
    a.publish_all(vec![suspect]);
    assert_eq!(until_received(&mut subscriber, 1, 0), [1]);
    b.publish(AAPL_ON_B, PRICE);
    assert_eq!(until_received(&mut subscriber, 1, 1), [1]);
    assert_eq!(subscriber.side_figures(AbSide::B).counts.repairs, 1);
}

#[test]
fn every_way_of_waiting_hears_both_sides_and_times_out() {
    let places = places();
    let both = stages(&places);
    let mut last = 0;
    for wait in [WaitStrategy::Spin, WaitStrategy::Yield, WaitStrategy::Block, WaitStrategy::Fd] {
        let a = builder(&places.a).wait(wait);
        let mut subscriber = AbSubscriber::connect(a, builder(&places.b)).unwrap();
        assert_eq!(subscriber.as_fd().is_some(), wait == WaitStrategy::Fd);
        while subscriber.poll(|_| {}).unwrap() > 0 || !subscriber.is_drained() {}
        let waited = subscriber.wait(Duration::from_millis(1)).unwrap();
        assert_eq!(waited, Wakeup::TimedOut, "{wait:?}");
        for side in 0..2 {
            both[side].publish([AAPL_ON_A, AAPL_ON_B][side], PRICE);
            assert_eq!(subscriber.wait(AWHILE).unwrap(), Wakeup::Ready, "{wait:?}");
            while subscriber.poll(|_| {}).unwrap() > 0 || !subscriber.is_drained() {}
        }
        last += 1;
        let copies = AbSide::BOTH.map(|side| subscriber.side_figures(side).counts.received);
        assert!(copies.iter().all(|received| *received >= 1), "{copies:?} {last}");
    }
}

#[test]
fn one_descriptor_is_readable_when_either_side_has_something() {
    let places = places();
    let both = stages(&places);
    let a = builder(&places.a).wait(WaitStrategy::Fd);
    let mut subscriber = AbSubscriber::connect(a, builder(&places.b)).unwrap();
    for (stage, id) in [(0, AAPL_ON_A), (1, AAPL_ON_B), (0, AAPL_ON_A), (1, AAPL_ON_B)] {
        while is_readable(&subscriber, Duration::ZERO) {
            subscriber.poll(|_| {}).unwrap();
        }
        let before = received(&subscriber);
        both[stage].publish(id, PRICE);
        while received(&subscriber) == before {
            assert!(is_readable(&subscriber, AWHILE) || received(&subscriber) == before);
            subscriber.poll(|_| {}).unwrap();
        }
    }
}

fn received(subscriber: &AbSubscriber) -> u64 {
    AbSide::BOTH.map(|side| subscriber.side_figures(side).counts.received).iter().sum()
}

fn is_readable(subscriber: &AbSubscriber, timeout: Duration) -> bool {
    let descriptor = subscriber.as_fd().expect("a descriptor");
    let mut awaited = [PollFd::new(&descriptor, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).expect("a timeout");
    poll(&mut awaited, Some(&timeout)).expect("a poll") == 1
}

#[test]
fn tail_takes_two_publishers_and_tells_what_each_contributed() {
    let places = places();
    let [a, b] = stages(&places);
    let file = places.a.with_file_name("summary.json");
    let mut command = command(&places.a, &["tail", "--quiet", "--until-end", "--no-reconnect"]);
    command.arg("--socket-b").arg(&places.b).arg("--summary-json").arg(&file);
    let mut child = command.spawn().expect("the command runs");
    while !(a.is_attended() && b.is_attended()) {
        std::thread::yield_now();
    }
    let both = [a, b];
    (0..20).for_each(|round| publish_both(&both, PRICE + round));
    let [a, b] = both;
    a.close(Farewell::EndOfSource, "");
    b.close(Farewell::EndOfSource, "");
    let status = child.wait().expect("its end");
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(status.success(), "{told}");
    for part in ["side A  wins", "side B  wins", "late", "gaps 0", "the source has ended"] {
        assert!(told.contains(part), "{part:?} is missing: {told}");
    }
    let summary: AbSummary = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let [a, b] = &summary.sides;
    let merged = &summary.merged.statistics;
    assert_eq!(a.counts.wins + b.counts.wins, merged.delivered);
    assert_eq!((a.publisher.as_str(), b.side.as_str()), (places.a.to_str().unwrap(), "B"));
    assert!(summary.merged.balanced && summary.merged.source_ended);
}
