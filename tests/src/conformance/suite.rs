//! The promises, one function each.

use std::time::Duration;

use tapecast_core::Interest;
use tapecast_core::session::Eviction;
use tapecast_fabric::{AttachError, ChannelState, PollError, Wish};
use tapecast_wire::attach::Policy;
use tapecast_wire::limits::MAX_SUBSCRIBERS;
use tapecast_wire::{InstrumentId, Nanos, Position, Sequence};

use super::market::wish;
use super::{Harness, Market, Settings};

const A: InstrumentId = InstrumentId(0);
const B: InstrumentId = InstrumentId(1);
const C: InstrumentId = InstrumentId(2);

/// Snapshots that overrun every ring of the default settings several times.
const MANY: u64 = 3_000;

fn only(ids: &[InstrumentId]) -> Interest {
    Interest::Only(ids.to_vec())
}

/// Publishes `count` snapshots over all instruments in turn, a turn after each few.
fn run<H: Harness>(market: &mut Market<H>, count: u64) {
    let ids: Vec<_> = market.instruments().collect();
    for nth in 0..count {
        market.publish_patiently(ids[nth as usize % ids.len()]);
        if nth % 5 == 4 {
            market.turn();
        }
    }
}

/// A late joiner sees the newest of each instrument and then everything.
pub fn a_late_joiner_sees_the_newest_of_each_instrument_and_then_everything<H: Harness>() {
    let mut market = Market::<H>::with_instruments(3);
    for _ in 0..7 {
        market.publish(A);
    }
    market.publish(B);
    market.settle();
    let index = market.join();
    market.settle();
    let seen: Vec<_> = market.subscribers[index].seen().to_vec();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.iter().all(|each| each.initial && each.conflated == 0));
    assert_eq!(market.subscribers[index].sequences(A), [7]);
    assert_eq!(market.subscribers[index].sequences(B), [1]);
    run(&mut market, 30);
    market.settle();
    market.subscribers[index].check_run(A, 7, 17);
    market.subscribers[index].check_run(B, 1, 11);
    market.subscribers[index].check_run(C, 1, 10);
    let totals = market.subscribers[index].receiver().totals();
    assert_eq!((totals.initial_images, totals.conflated), (3, 0));
    market.check_books();
}

/// Joining between any two snapshots leaves no gap and no duplicate.
pub fn joining_between_any_two_snapshots_leaves_no_gap_and_no_duplicate<H: Harness>() {
    let mut market = Market::<H>::with_instruments(3);
    for nth in 0..30 {
        market.publish([A, B, A, C][nth % 4]);
        if nth % 3 == 0 {
            market.join();
        }
        if nth % 7 == 0 {
            market.turn();
        }
    }
    market.settle();
    for id in [A, B, C] {
        let newest = market.newest(id).0;
        for subscriber in &market.subscribers {
            // Its newest snapshot may have been replaced before it could be looked at; then what
            // replaced it comes first. What was published after the attach is there in any case.
            let first = subscriber.sequences(id)[0];
            match subscriber.joined_at.get(&id) {
                Some(at) => assert!(first == at.0 || first == at.0 + 1, "{id}: {first}, not {at}"),
                None => assert_eq!(first, 1, "{id}"),
            }
            subscriber.check_run(id, first, newest);
        }
    }
    market.check_books();
}

/// An empty channel has no initial image.
pub fn an_empty_channel_has_no_initial_image<H: Harness>() {
    let mut market = Market::<H>::with_instruments(0);
    let index = market.join();
    market.settle();
    assert!(market.subscribers[index].seen().is_empty());
    market.announce();
    market.settle();
    assert!(market.subscribers[index].seen().is_empty());
    market.publish(A);
    market.settle();
    assert_eq!(market.subscribers[index].sequences(A), [1]);
    market.check_books();
}

/// A subscriber that keeps up sees the channel in order.
pub fn a_subscriber_that_keeps_up_sees_the_channel_in_order<H: Harness>() {
    let mut market = Market::<H>::with_instruments(5);
    let index = market.join();
    run(&mut market, MANY);
    market.settle();
    market.subscribers[index].check_channel(1, MANY);
    market.check_books();
}

/// Nothing is seen before the flush.
pub fn nothing_is_seen_before_the_flush<H: Harness>() {
    let mut market = Market::<H>::with_instruments(2);
    let index = market.join();
    market.settle();
    market.publish(A);
    market.publish(B);
    let now = market.now();
    let subscriber = &mut market.subscribers[index];
    assert_eq!(subscriber.poll(16, now), Ok(0));
    assert!(!subscriber.receiver().is_ready());
    market.settle();
    assert_eq!(market.subscribers[index].seen().len(), 2);
}

/// Only what was asked for is delivered.
pub fn only_what_was_asked_for_is_delivered<H: Harness>() {
    let mut market = Market::<H>::with_instruments(3);
    run(&mut market, 9);
    market.settle();
    let some = market.attach(Policy::Conflate, &only(&[A, C]));
    let none = market.attach(Policy::Conflate, &only(&[]));
    let strict = market.attach(Policy::Lossless, &only(&[B]));
    market.settle();
    run(&mut market, 300);
    market.settle();
    let newest = market.newest(A).0;
    market.subscribers[some].check_run(A, 3, newest);
    market.subscribers[some].check_run(C, 3, newest);
    assert!(market.subscribers[some].sequences(B).is_empty());
    assert!(market.subscribers[none].seen().is_empty());
    market.subscribers[strict].check_run(B, 3, newest);
    assert_eq!(market.subscribers[strict].seen().len(), newest as usize - 2);
    market.check_books();
}

/// An instrument that is watched later begins with its newest snapshot.
pub fn an_instrument_that_is_watched_later_begins_with_its_newest_snapshot<H: Harness>() {
    let mut market = Market::<H>::with_instruments(2);
    let index = market.attach(Policy::Conflate, &only(&[A]));
    run(&mut market, 20);
    market.settle();
    assert!(market.subscribers[index].receiver().watch(B));
    market.settle();
    assert_eq!(market.subscribers[index].sequences(B), [10]);
    assert!(market.subscribers[index].of(B).all(|seen| seen.initial && seen.conflated == 0));
    run(&mut market, 20);
    market.settle();
    market.subscribers[index].check_run(B, 10, 20);
    assert!(market.subscribers[index].receiver().unwatch(B));
    run(&mut market, 20);
    market.settle();
    assert_eq!(market.subscribers[index].sequences(B).len(), 11);
    market.subscribers[index].check_run(A, 1, 30);
}

/// An instrument that is dropped and watched again begins with its newest snapshot, also when that
/// is one that was delivered before.
pub fn a_dropped_instrument_begins_again_with_its_newest_snapshot<H: Harness>() {
    let mut market = Market::<H>::with_instruments(2);
    for policy in [Policy::Conflate, Policy::Lossless, Policy::Disconnect] {
        let index = market.attach(policy, &Interest::All);
        market.settle();
        run(&mut market, 20);
        market.settle();
        let (count, newest) = (market.subscribers[index].of(B).count(), market.newest(B).0);
        let receiver = market.subscribers[index].receiver();
        assert!(receiver.unwatch(B) && receiver.watch(B));
        market.settle();
        let subscriber = &market.subscribers[index];
        assert_eq!(subscriber.sequences(B)[count - 1..], [newest, newest], "{policy:?}");
        assert!(subscriber.of(B).last().unwrap().initial);
        assert!(market.subscribers[index].receiver().unwatch(B));
        market.settle();
        run(&mut market, 20);
        market.settle();
        assert!(market.subscribers[index].receiver().watch(B));
        market.settle();
        assert_eq!(market.subscribers[index].sequences(B)[count + 1..], [newest + 10]);
        let totals = market.subscribers[index].receiver().totals();
        assert_eq!((totals.conflated, totals.lost), (0, 0), "{policy:?}");
        assert_eq!(totals.published, totals.delivered);
        run(&mut market, 20);
        market.settle();
        assert_eq!(market.subscribers[index].of(B).count(), count + 12);
        market.detach(index);
    }
}

/// A snapshot that is asked for again comes again, and counts once more as published and delivered.
pub fn a_snapshot_that_is_asked_for_again_comes_again_and_counts_once_more<H: Harness>() {
    let mut market = Market::<H>::with_instruments(3);
    let index = market.attach(Policy::Conflate, &only(&[A, B]));
    run(&mut market, 30);
    market.settle();
    let before = market.subscribers[index].receiver().totals();
    let receiver = market.subscribers[index].receiver();
    assert!(receiver.refresh(A) && receiver.refresh(B));
    assert!(!receiver.refresh(InstrumentId(2)), "it was not asked for");
    market.settle();
    let subscriber = &mut market.subscribers[index];
    for id in [A, B] {
        assert_eq!(subscriber.sequences(id)[8..], [9, 10, 10]);
        assert!(subscriber.of(id).nth(10).unwrap().initial);
    }
    let totals = subscriber.receiver().totals();
    assert_eq!(totals.published, before.published + 2);
    assert_eq!(totals.delivered, before.delivered + 2);
    assert_eq!((totals.conflated, totals.lost), (0, 0));
    assert_eq!(totals.initial_images, before.initial_images + 2);
    // What is published after the request needs no second answer.
    run(&mut market, 30);
    market.settle();
    assert_eq!(market.subscribers[index].sequences(A)[10..].len(), 11);
}

/// A subscriber that will not be conflated ends when it would have to be, and has been handed
/// nothing in place of anything else.
pub fn a_subscriber_that_will_not_be_conflated_ends_when_it_would_have_to_be<H: Harness>() {
    let mut market = Market::<H>::with_instruments(4);
    let (index, other) = (market.attach(Policy::Disconnect, &Interest::All), market.join());
    market.settle();
    run(&mut market, 40);
    market.settle();
    market.check_books();
    market.subscribers[index].stopped = true;
    run(&mut market, MANY);
    let (now, session) = (market.now(), market.subscribers[index].session);
    let ended = (0..MANY).find_map(|_| {
        market.turn_without_polls();
        match market.subscribers[index].poll(256, now) {
            Err(error) => Some(error),
            // What had arrived is read to its end.
            Ok(count) => match market.harness.eviction(session) {
                Some(Eviction::Overrun) if count == 0 => {
                    Some(PollError::Evicted { position: Position(0) })
                }
                Some(Eviction::Overrun) | None => None,
                Some(other) => panic!("evicted because {other}"),
            },
        }
    });
    let ended = ended.expect("it was to end");
    assert!(
        matches!(ended, PollError::Evicted { .. } | PollError::Overrun { .. }),
        "it ended with {ended}"
    );
    let mut last = 0;
    for seen in market.subscribers[index].seen() {
        assert_eq!((seen.channel_sequence.0, seen.conflated), (last + 1, 0));
        last += 1;
    }
    assert!((40..MANY + 40).contains(&last), "{last}");
    market.settle();
    market.subscribers[other].check_channel(1, MANY + 40);
}

/// Between two snapshots of one instrument a session may ask for a least time. No other instrument
/// is held up, and the newest comes at last.
pub fn between_two_snapshots_an_instrument_rests_and_the_newest_comes_at_last<H: Harness>() {
    let mut market = Market::<H>::with_instruments(2);
    market.turn();
    // So long that no test sees the end of it.
    let min_interval = Nanos(365 * 86_400 * 1_000_000_000);
    let index =
        market.attach_with(&Wish { min_interval, ..wish(Policy::Conflate, &Interest::All) });
    let other = market.join();
    market.settle();
    for _ in 0..20 {
        market.publish(A);
        market.turn();
    }
    market.publish(B);
    // On a fabric that has a clock of its own, something that rests never comes to rest.
    for _ in 0..100 {
        market.turn();
    }
    assert_eq!(market.subscribers[index].sequences(A), [1]);
    assert_eq!(market.subscribers[index].sequences(B), [1]);
    assert!(market.subscribers[index].receiver().refresh(A), "what is asked for comes at once");
    for _ in 0..100 {
        market.turn();
    }
    assert_eq!(market.subscribers[index].sequences(A), [1, 20]);
    market.publish(A);
    market.publish(B);
    market.turn();
    market.close();
    market.settle();
    assert_eq!(market.subscribers[index].sequences(A), [1, 20, 21]);
    assert_eq!(market.subscribers[index].sequences(B), [1, 2]);
    let totals = market.subscribers[index].receiver().totals();
    assert_eq!((totals.published, totals.conflated, totals.lost), (23, 18, 0));
    market.subscribers[other].check_channel(1, 23);
}

/// A subscriber that lags is conflated to the newest state, and every snapshot is counted.
pub fn a_subscriber_that_lags_is_conflated_to_the_newest_state_and_every_snapshot_counted<
    H: Harness,
>() {
    let mut market = Market::<H>::with_instruments(4);
    run(&mut market, 40);
    let index = market.join();
    market.settle();
    market.subscribers[index].stopped = true;
    run(&mut market, MANY);
    market.subscribers[index].stopped = false;
    market.settle();
    let totals = market.subscribers[index].receiver().totals();
    assert!(totals.conflated > 0, "it was to lag");
    assert_eq!(totals.published, MANY + 4);
    for id in market.instruments() {
        let last = market.subscribers[index].of(id).last().map(|seen| seen.sequence);
        assert_eq!(last, Some(market.newest(id)));
    }
    market.check_books();
}

/// A subscriber that lags again and again always catches up.
pub fn a_subscriber_that_lags_again_and_again_always_catches_up<H: Harness>() {
    let mut market = Market::<H>::with_instruments(7);
    let index = market.join();
    for round in 0..12 {
        market.subscribers[index].stopped = round % 2 == 0;
        run(&mut market, 400 + round * 37);
        if round == 5 {
            market.announce();
        }
        market.subscribers[index].stopped = false;
        if round % 3 == 0 {
            market.settle();
        }
    }
    market.settle();
    assert!(market.subscribers[index].receiver().totals().conflated > 0);
    market.check_books();
}

/// A lossless subscriber sees everything in order, and the publisher waits.
pub fn a_lossless_subscriber_sees_everything_in_order_and_the_publisher_waits<H: Harness>() {
    let mut market = Market::<H>::with_instruments(3);
    run(&mut market, 9);
    market.settle();
    let strict = market.attach(Policy::Lossless, &Interest::All);
    let patient = market.join();
    market.settle();
    market.subscribers[strict].stopped = true;
    let mut published = 0;
    while market.try_publish(A).is_ok() {
        published += 1;
        market.turn();
        assert!(published < MANY, "nothing makes the publisher wait");
    }
    assert!(published > 0, "a lossless session has some room");
    assert!(market.try_publish(A).is_err(), "it waits until there is room");
    market.subscribers[strict].stopped = false;
    run(&mut market, MANY);
    market.settle();
    for index in [strict, patient] {
        let seen = market.subscribers[index].seen();
        let live: Vec<_> = seen.iter().skip(3).map(|each| each.channel_sequence.0).collect();
        assert_eq!(live, (10..=9 + published + MANY).collect::<Vec<_>>());
    }
    market.check_books();
}

/// A lossless subscriber that leaves lets the publisher go on.
pub fn a_lossless_subscriber_that_leaves_lets_the_publisher_go_on<H: Harness>() {
    let mut market = Market::<H>::with_instruments(2);
    let patient = market.join();
    let strict = market.attach(Policy::Lossless, &Interest::All);
    market.settle();
    market.subscribers[strict].stopped = true;
    let gated = (0..MANY).any(|_| {
        market.turn();
        market.try_publish(A).is_err()
    });
    assert!(gated, "nothing makes the publisher wait");
    market.detach(strict);
    run(&mut market, MANY);
    market.settle();
    assert_eq!(market.subscribers[patient].receiver().totals().conflated, 0);
    market.check_books();
}

/// One stopped subscriber costs the others nothing.
pub fn one_stopped_subscriber_costs_the_others_nothing<H: Harness>() {
    let mut market = Market::<H>::with_instruments(3);
    let stopped = market.join();
    let (first, second) = (market.join(), market.attach(Policy::Lossless, &only(&[A, B])));
    market.settle();
    market.subscribers[stopped].stopped = true;
    run(&mut market, MANY);
    market.settle();
    assert!(market.subscribers[stopped].seen().is_empty());
    market.subscribers[first].check_channel(1, MANY);
    assert_eq!(market.subscribers[second].seen().len() as u64, MANY / 3 * 2);
    market.check_books();
}

/// Sixty-four sessions are served and the next is refused.
pub fn sixty_four_sessions_are_served_and_the_next_is_refused<H: Harness>() {
    let mut market = Market::<H>::with_instruments(2);
    for _ in 0..MAX_SUBSCRIBERS {
        market.join();
    }
    let refused = market.try_attach(Policy::Conflate, &Interest::All);
    assert!(matches!(refused, Err(AttachError::Full(_))), "a 65th session was attached");
    run(&mut market, 200);
    market.settle();
    for subscriber in &market.subscribers {
        assert_eq!(subscriber.seen().len(), 200);
    }
    market.check_books();
    let freed = market.detach(20);
    let index = market.join();
    assert_eq!(market.subscribers[index].session, freed);
    run(&mut market, 20);
    market.settle();
    market.check_books();
}

/// A place is used again, and the new session starts afresh.
pub fn a_place_is_used_again_and_the_new_session_starts_afresh<H: Harness>() {
    let mut market = Market::<H>::with_instruments(3);
    let stays = market.join();
    for round in 0..100 {
        let guest = market.join();
        run(&mut market, 1 + round % 11);
        if round % 2 == 0 {
            market.settle();
            market.check_books();
        }
        run(&mut market, round % 5);
        assert_eq!(market.detach(guest).0, 1);
    }
    market.settle();
    let totals = market.subscribers[stays].receiver().totals();
    assert_eq!(totals.conflated, 0);
    market.check_books();
    let session = market.subscribers[stays].session;
    market.detach(stays);
    assert!(tapecast_fabric::Fabric::detach(market.harness.fabric_mut(), session).is_none());
}

/// A farewell is seen after everything that was published.
pub fn a_farewell_is_seen_after_everything_that_was_published<H: Harness>() {
    let mut market = Market::<H>::with_instruments(3);
    let (prompt, late) = (market.join(), market.join());
    market.settle();
    assert_eq!(market.subscribers[prompt].receiver().state(), ChannelState::Running);
    market.subscribers[late].stopped = true;
    run(&mut market, MANY);
    market.close();
    let refused = market.try_attach(Policy::Conflate, &Interest::All);
    assert!(matches!(refused, Err(AttachError::Closing(_))), "attached to a closed channel");
    market.settle();
    market.subscribers[late].stopped = false;
    market.settle();
    for index in [prompt, late] {
        assert_eq!(market.subscribers[index].receiver().state(), ChannelState::Closed);
    }
    assert_eq!(market.subscribers[prompt].seen().len() as u64, MANY);
    market.check_books();
}

/// An instrument is known before its first snapshot.
pub fn an_instrument_is_known_before_its_first_snapshot<H: Harness>() {
    let mut market = Market::<H>::with_instruments(4);
    run(&mut market, 8);
    let index = market.join();
    let announced = market.announce();
    market.publish(announced);
    // Each poll checks the directory against what it has just delivered.
    let now = market.now();
    for _ in 0..100 {
        market.turn_without_polls();
        market.subscribers[index].poll(1, now).unwrap();
    }
    market.settle();
    assert_eq!(market.subscribers[index].seen().len(), 5);
    assert_eq!(market.subscribers[index].receiver().instrument_count(), 5);
    let unknown = market.subscribers[index].receiver().instrument(InstrumentId(5));
    assert_eq!(unknown, None);
}

/// A directory entry that changes is seen.
pub fn a_directory_entry_that_changes_is_seen<H: Harness>() {
    let mut market = Market::<H>::with_instruments(2);
    let index = market.join();
    market.settle();
    let lot = |market: &mut Market<H>| {
        market.subscribers[index].receiver().instrument(A).unwrap().lot_size
    };
    assert_eq!(lot(&mut market), 0);
    market.try_announce(A, 25).unwrap();
    market.publish(A);
    market.settle();
    assert_eq!(lot(&mut market), 25);
    market.check_books();
}

/// An instrument beyond the directory is refused.
pub fn an_instrument_beyond_the_directory_is_refused<H: Harness>() {
    let settings = Settings { instruments: 2, ..Settings::default() };
    let mut market = Market::<H>::start(&settings);
    assert!(market.try_announce(B, 0).is_err(), "ids are dense");
    market.announce();
    market.announce();
    let full = market.try_announce(C, 0).unwrap_err();
    assert_eq!((full.instrument_id, full.count, full.capacity), (2, 2, 2));
    assert!(market.try_announce(B, 1).is_ok());
}

/// An instrument that appears later is counted from its first snapshot.
pub fn an_instrument_that_appears_later_is_counted_from_its_first_snapshot<H: Harness>() {
    let mut market = Market::<H>::with_instruments(1);
    run(&mut market, 10);
    let (prompt, late) = (market.join(), market.join());
    market.settle();
    market.subscribers[late].stopped = true;
    let born = market.announce();
    run(&mut market, MANY);
    market.subscribers[late].stopped = false;
    market.settle();
    let newest = market.newest(born);
    market.subscribers[prompt].check_run(born, 1, newest.0);
    let totals = market.subscribers[late].receiver().instrument_totals(born).unwrap();
    assert_eq!(Sequence(totals.published), newest);
    assert!(totals.conflated > 0, "it was to lag");
    market.check_books();
}

/// Records of every size survive the ring's end.
pub fn records_of_every_size_survive_the_rings_end<H: Harness>() {
    // The levels of a snapshot follow from instrument and sequence, so lengths run through all
    // combinations of 0 to 10 levels a side while the ring wraps dozens of times.
    let mut market = Market::<H>::with_instruments(11);
    let index = market.attach(Policy::Lossless, &Interest::All);
    run(&mut market, 11 * 11 * 60);
    market.settle();
    assert_eq!(market.subscribers[index].seen().len(), 11 * 11 * 60);
    market.check_books();
}

/// A poll delivers no more than its limit.
pub fn a_poll_delivers_no_more_than_its_limit<H: Harness>() {
    let mut market = Market::<H>::with_instruments(3);
    run(&mut market, 6);
    let index = market.join();
    market.subscribers[index].stopped = true;
    run(&mut market, 30);
    market.settle();
    let now = market.now();
    let mut polled = Vec::new();
    for limit in [0, 1, 2, 3, 64] {
        // The subscriber itself checks that the limit holds.
        polled.push(market.subscribers[index].poll(limit, now).unwrap());
    }
    assert_eq!(polled[0], 0);
    assert!(polled[4] > 3, "{polled:?}");
    market.subscribers[index].stopped = false;
    market.settle();
    market.check_books();
}

/// All pages return when everything is at rest.
pub fn all_pages_return_when_everything_is_at_rest<H: Harness>() {
    let mut market = Market::<H>::with_instruments(6);
    let (_, stopped) = (market.join(), market.join());
    market.attach(Policy::Lossless, &only(&[A, C]));
    market.settle();
    market.subscribers[stopped].stopped = true;
    run(&mut market, MANY);
    market.settle();
    market.drop_page();
    assert_eq!(market.pool.free_pages(), market.pool.pages(), "with a stopped subscriber");
    run(&mut market, 3);
    market.detach(stopped);
    market.drop_page();
    market.settle();
    assert_eq!(market.pool.free_pages(), market.pool.pages(), "after a detach in mid-batch");
}

/// Both ends count the same.
pub fn both_ends_count_the_same<H: Harness>() {
    let mut market = Market::<H>::with_instruments(5);
    run(&mut market, 13);
    for nth in 0..9 {
        let policy = if nth % 4 == 3 { Policy::Lossless } else { Policy::Conflate };
        let interest = if nth % 3 == 2 { only(&[B, C]) } else { Interest::All };
        market.attach(policy, &interest);
        run(&mut market, 50);
    }
    for round in 0..10 {
        for (nth, subscriber) in market.subscribers.iter_mut().enumerate() {
            let may_lag = subscriber.policy == Policy::Conflate;
            subscriber.stopped = may_lag && (nth + round) % 3 == 0;
        }
        run(&mut market, 333);
    }
    for subscriber in &mut market.subscribers {
        subscriber.stopped = false;
    }
    market.settle();
    // What each end counted, and that published = delivered + conflated for each instrument.
    market.check_books();
    let conflated = |index: usize, market: &mut Market<H>| {
        market.subscribers[index].receiver().totals().conflated
    };
    assert!(conflated(0, &mut market) > 0 && conflated(3, &mut market) == 0);
}

/// The publisher shows life while nothing is published.
pub fn the_publisher_shows_life_while_nothing_is_published<H: Harness>() {
    let mut market = Market::<H>::with_instruments(1);
    let index = market.join();
    market.settle();
    let mut last = market.subscribers[index].receiver().heartbeat();
    for _ in 0..5 {
        for _ in 0..100 {
            market.turn();
        }
        let heartbeat = market.subscribers[index].receiver().heartbeat();
        assert!(heartbeat > last);
        assert!(market.now().since(heartbeat).0 <= 100_000_000);
        last = heartbeat;
    }
}

/// A silent feed is shown to all, and to those that come later, until it is heard again.
pub fn a_silent_feed_is_shown_to_all_and_to_those_that_come_later_until_it_is_heard_again<
    H: Harness,
>() {
    let mut market = Market::<H>::with_instruments(2);
    let shown = |market: &mut Market<H>| -> Vec<Option<Nanos>> {
        market.settle();
        let ends = market.subscribers.iter_mut();
        ends.map(|subscriber| subscriber.receiver().feed_silent_since()).collect()
    };
    let early = market.join();
    market.attach(Policy::Lossless, &only(&[A]));
    run(&mut market, 10);
    assert_eq!(shown(&mut market), [None, None]);
    let since = market.now();
    market.show_feed(since);
    assert_eq!(shown(&mut market), [Some(since); 2]);
    market.join();
    assert_eq!(shown(&mut market), [Some(since); 3], "to one that came later");
    // The publisher lives, and what it still has is published.
    run(&mut market, 10);
    assert_eq!(shown(&mut market), [Some(since); 3]);
    assert_eq!(market.subscribers[early].receiver().state(), ChannelState::Running);
    market.show_feed(Nanos(0));
    assert_eq!(shown(&mut market), [None; 3]);
    market.join();
    assert_eq!(shown(&mut market), [None; 4]);
    let again = market.now();
    market.show_feed(again);
    assert_eq!(shown(&mut market), [Some(again); 4], "another time");
    market.subscribers[early].check_channel(1, 20);
    market.check_books();
}

/// A wait ends at once when there is something to poll.
pub fn a_wait_ends_at_once_when_there_is_something_to_poll<H: Harness>() {
    let mut market = Market::<H>::with_instruments(1);
    let index = market.join();
    market.settle();
    let receiver = market.subscribers[index].receiver();
    assert!(!receiver.wait(Duration::ZERO).unwrap());
    market.publish(A);
    for _ in 0..100 {
        market.turn_without_polls();
    }
    let receiver = market.subscribers[index].receiver();
    assert!(receiver.is_ready());
    // So long a wait would never end within a test, if it did not end at once.
    assert!(receiver.wait(Duration::from_secs(3600)).unwrap());
}
