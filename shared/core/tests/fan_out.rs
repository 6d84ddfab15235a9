//! The fan-out against subscribers that keep their own books, and against simple rules.

#![expect(clippy::unwrap_used, reason = "a failed expectation is what a test is for")]

mod world;

use proptest::prelude::*;
use tapecast_core::Interest;
use tapecast_core::credit::Liar;
use tapecast_core::fan_out::{AttachError, FanOut, Full, Record, Source};
use tapecast_core::session::{Eviction, Session, Terms};
use tapecast_wire::attach::Policy;
use tapecast_wire::limits::MAX_SUBSCRIBERS;
use tapecast_wire::{InstrumentId, Nanos, Position, Sequence, SessionId};
use world::{Op, World, any_op, terms};

const CAPACITY: usize = 4;
const A: InstrumentId = InstrumentId(0);
const B: InstrumentId = InstrumentId(1);

fn boxed(policy: Policy) -> Box<Session> {
    Box::new(Session::new(terms(policy), &Interest::All, CAPACITY))
}

/// A world with instruments A and B announced.
fn world() -> World {
    let mut world = World::new(CAPACITY);
    world.apply(&Op::AddInstrument);
    world.apply(&Op::AddInstrument);
    world
}

fn attach(world: &mut World, policy: Policy) -> SessionId {
    world.attach(policy, &Interest::All).unwrap()
}

#[test]
fn the_64th_session_is_attached_and_the_65th_is_handed_back() {
    let mut fan_out = FanOut::new(CAPACITY);
    for _ in 0..MAX_SUBSCRIBERS {
        fan_out.attach(boxed(Policy::Conflate)).unwrap();
    }
    let refused = fan_out.attach(boxed(Policy::Conflate));
    assert!(matches!(refused, Err(AttachError::Full(_))));
    assert!(fan_out.detach(SessionId(17)).is_some());
    let again = fan_out.attach(boxed(Policy::Conflate)).unwrap();
    assert_eq!(again.session, SessionId(17));
    fan_out.assert_invariants();
}

#[test]
fn a_session_prepared_for_another_directory_is_handed_back() {
    let mut fan_out = FanOut::new(CAPACITY + 1);
    let refused = fan_out.attach(boxed(Policy::Conflate));
    assert!(matches!(refused, Err(AttachError::Capacity(_))));
}

#[test]
fn a_session_that_keeps_up_is_staged_from_the_page_and_owes_nothing() {
    let mut world = world();
    let id = attach(&mut world, Policy::Conflate);
    world.settle();
    for _ in 0..100 {
        world.apply(&Op::Publish { instrument: 0, record_bytes: 576 });
        world.settle();
    }
    let subscriber = world.subscriber(id);
    assert!(subscriber.sources().all(|source| !matches!(source, Source::Latest(_))));
    let totals = world.fan_out.session(id).unwrap().totals();
    assert_eq!((totals.published, totals.sent, totals.conflated), (100, 100, 0));
}

#[test]
fn what_was_under_way_when_its_instrument_was_dropped_makes_no_loss_of_what_came_meanwhile() {
    let mut world = world();
    let id = attach(&mut world, Policy::Lossless);
    world.settle();
    let publish = Op::Publish { instrument: 0, record_bytes: 96 };
    // The first ever, and nothing of the instrument has been received.
    world.apply(&publish);
    world.apply(&Op::Unwatch { subscriber: 0, instrument: 0 });
    world.apply(&publish);
    world.apply(&publish);
    world.apply(&Op::Watch { subscriber: 0, instrument: 0 });
    world.settle();
    assert_eq!(world.subscriber(id).snapshots(), [(A, Sequence(1)), (A, Sequence(3))]);
}

#[test]
fn without_credit_only_the_newest_is_sent_and_it_stands_for_the_others() {
    let mut world = world();
    let id = attach(&mut world, Policy::Conflate);
    world.settle();
    for _ in 0..50 {
        world.apply(&Op::Publish { instrument: 0, record_bytes: 2048 });
    }
    let totals = world.fan_out.instrument_totals(id, A).unwrap();
    assert_eq!((totals.published, totals.sent, totals.pending()), (50, 3, 47));
    assert_eq!(world.fan_out.session(id).unwrap().credit_stalls(), 47);
    world.settle();
    let totals = world.fan_out.instrument_totals(id, A).unwrap();
    assert_eq!((totals.published, totals.sent, totals.conflated), (50, 4, 46));
    assert_eq!(world.subscriber(id).last_of(A), Sequence(50));
}

#[test]
fn the_longest_dirty_instrument_is_sent_first_and_nothing_overtakes_it() {
    let mut world = world();
    let id = attach(&mut world, Policy::Conflate);
    world.settle();
    world.apply(&Op::Publish { instrument: 0, record_bytes: 4096 });
    world.apply(&Op::Publish { instrument: 1, record_bytes: 4096 });
    world.apply(&Op::Publish { instrument: 0, record_bytes: 96 });
    world.apply(&Op::Publish { instrument: 1, record_bytes: 4096 });
    assert_eq!(world.fan_out.session(id).unwrap().dirty_count(), 2);
    world.settle();
    let expected = [(A, Sequence(1)), (B, Sequence(2)), (A, Sequence(2))];
    assert_eq!(world.subscriber(id).snapshots(), expected);
}

#[test]
fn one_session_without_credit_costs_the_others_nothing() {
    let mut world = world();
    let stopped = attach(&mut world, Policy::Conflate);
    let healthy = attach(&mut world, Policy::Conflate);
    world.settle();
    for _ in 0..200 {
        world.apply(&Op::Publish { instrument: 0, record_bytes: 2000 });
        world.settle_only(healthy);
    }
    let totals = world.fan_out.session(healthy).unwrap().totals();
    assert_eq!((totals.sent, totals.conflated), (200, 0));
    assert_eq!(world.fan_out.session(healthy).unwrap().credit_stalls(), 0);
    assert!(world.fan_out.session(stopped).unwrap().credit_stalls() > 150);
    assert!(world.fan_out.instrument_totals(stopped, A).unwrap().pending() > 150);
}

#[test]
fn each_batch_begins_with_the_next_session() {
    let mut fan_out = FanOut::new(CAPACITY);
    fan_out.on_entry(A);
    for _ in 0..3 {
        fan_out.attach(boxed(Policy::Conflate)).unwrap();
    }
    fan_out.pump(8, |_| tapecast_core::fan_out::Staged::Done);
    let mut firsts = Vec::new();
    for sequence in 1..=4 {
        fan_out.flush(|_, _| ());
        let mut order = Vec::new();
        let record = Record { instrument: A, sequence: Sequence(sequence), record_bytes: 96 };
        fan_out.publish(record, |staging| order.push(staging.session.0)).unwrap();
        assert_eq!(order.len(), 3);
        firsts.push(order[0]);
    }
    assert_eq!(firsts, [1, 2, 0, 0], "places without a session take their turn too");
}

#[test]
fn a_lossless_session_without_room_refuses_and_nothing_has_happened() {
    let mut world = world();
    let patient = attach(&mut world, Policy::Conflate);
    let strict = attach(&mut world, Policy::Lossless);
    world.settle();
    let record =
        |sequence| Record { instrument: A, sequence: Sequence(sequence), record_bytes: 4096 };
    world.apply(&Op::Publish { instrument: 0, record_bytes: 4096 });
    let before = world.fan_out.session(patient).unwrap().totals();
    let refused = world.fan_out.publish(record(2), |_| panic!("staged though refused"));
    assert_eq!(refused, Err(Full { session: strict }));
    assert_eq!(world.fan_out.session(patient).unwrap().totals(), before);
    world.settle();
    world.apply(&Op::Publish { instrument: 0, record_bytes: 4096 });
    world.settle();
    let totals = world.fan_out.session(strict).unwrap().totals();
    assert_eq!((totals.sent, totals.conflated), (2, 0));
}

#[test]
fn an_evicted_lossless_session_gates_nobody() {
    let mut world = world();
    let strict = attach(&mut world, Policy::Lossless);
    world.settle();
    world.apply(&Op::Publish { instrument: 0, record_bytes: 4096 });
    let record = Record { instrument: A, sequence: Sequence(2), record_bytes: 4096 };
    assert!(world.fan_out.publish(record, |_| ()).is_err());
    world.fan_out.evict(strict, Eviction::Unreachable);
    assert!(world.fan_out.publish(record, |_| panic!("staged for the evicted")).is_ok());
    world.fan_out.assert_invariants();
}

#[test]
fn a_liar_is_evicted_and_its_first_lie_is_the_reason() {
    let mut world = world();
    let id = attach(&mut world, Policy::Conflate);
    world.settle();
    let tail = world.fan_out.session(id).unwrap().window().sent();
    let said = Position(tail.0 + 64);
    let lie = Liar::ConsumedAhead { sent: tail, said };
    assert_eq!(world.fan_out.on_credit(id, said, 0), Err(lie));
    assert_eq!(world.fan_out.on_credit(id, said, 0), Ok(false));
    world.fan_out.evict(id, Eviction::Unreachable);
    assert_eq!(world.fan_out.session(id).unwrap().eviction(), Some(Eviction::Liar(lie)));
    assert!(!world.fan_out.is_served(id));
    world.fan_out.assert_invariants();
}

#[test]
fn silence_evicts_only_where_the_terms_say_so() {
    let mut fan_out = FanOut::new(CAPACITY);
    let mut strict = terms(Policy::Lossless);
    strict.silence_limit = Some(Nanos(50));
    let strict = Box::new(Session::new(strict, &Interest::All, CAPACITY));
    let strict = fan_out.attach(strict).unwrap().session;
    let patient = fan_out.attach(boxed(Policy::Conflate)).unwrap().session;
    assert!(!fan_out.on_beat(strict, 0, Nanos(1000)));
    assert!(!fan_out.on_beat(strict, 0, Nanos(1050)));
    assert!(fan_out.on_beat(strict, 0, Nanos(1051)));
    assert!(!fan_out.on_beat(strict, 0, Nanos(1052)), "it is evicted once");
    assert!(!fan_out.on_beat(patient, 0, Nanos(u64::MAX)));
    let silent = Eviction::Silent { silent_ns: 51 };
    assert_eq!(fan_out.session(strict).unwrap().eviction(), Some(silent));
}

#[test]
fn the_initial_image_comes_first_and_stands_for_itself() {
    let mut world = world();
    for _ in 0..9 {
        world.apply(&Op::Publish { instrument: 1, record_bytes: 96 });
    }
    let id = attach(&mut world, Policy::Conflate);
    assert_eq!(world.subscriber(id).initial_images(), 1);
    world.apply(&Op::Publish { instrument: 0, record_bytes: 96 });
    world.apply(&Op::Publish { instrument: 1, record_bytes: 96 });
    world.settle();
    let snapshots = world.subscriber(id).snapshots();
    assert_eq!(snapshots, [(B, Sequence(10)), (A, Sequence(1))]);
    let b = world.fan_out.instrument_totals(id, B).unwrap();
    assert_eq!((b.published, b.sent, b.conflated), (1, 1, 0));
}

#[test]
fn an_instrument_that_is_watched_later_is_sent_its_newest_snapshot_at_once() {
    let mut world = world();
    for _ in 0..5 {
        world.apply(&Op::Publish { instrument: 1, record_bytes: 96 });
    }
    let id = world.attach(Policy::Conflate, &Interest::Only(vec![A])).unwrap();
    world.settle();
    assert!(world.subscriber(id).snapshots().is_empty());
    world.watch(id, B);
    assert!(!world.fan_out.watch(id, B));
    world.settle();
    assert_eq!(world.subscriber(id).snapshots(), [(B, Sequence(5))]);
    let b = world.fan_out.instrument_totals(id, B).unwrap();
    assert_eq!((b.published, b.sent, b.conflated), (1, 1, 0));
}

#[test]
fn a_snapshot_that_is_asked_for_again_is_sent_again_and_counts_once_more_on_both_ends() {
    let mut world = world();
    let id = attach(&mut world, Policy::Lossless);
    world.settle();
    world.apply(&Op::Publish { instrument: 0, record_bytes: 96 });
    world.settle();
    world.watch(id, A);
    world.watch(id, A);
    world.settle();
    assert_eq!(world.subscriber(id).snapshots(), [(A, Sequence(1)), (A, Sequence(1))]);
    let totals = world.fan_out.instrument_totals(id, A).unwrap();
    assert_eq!((totals.published, totals.sent, totals.conflated), (2, 2, 0));
    world.watch(id, A);
    world.apply(&Op::Flush);
    world.apply(&Op::Publish { instrument: 0, record_bytes: 96 });
    world.settle();
    world.apply(&Op::Publish { instrument: 0, record_bytes: 96 });
    world.settle();
    assert_eq!(world.subscriber(id).last_of(A), Sequence(2));
    world.check();
    world.check_settled();
}

#[test]
fn an_instrument_that_is_dropped_is_sent_no_more_and_stands_for_itself_when_it_is_watched_again() {
    let mut world = world();
    let id = attach(&mut world, Policy::Conflate);
    world.settle();
    let publish = Op::Publish { instrument: 0, record_bytes: 4096 };
    // The second waits for room when it is dropped.
    world.apply(&publish);
    world.apply(&publish);
    world.unwatch(id, A);
    world.apply(&publish);
    world.settle();
    world.check();
    assert_eq!(world.subscriber(id).snapshots(), []);
    let totals = world.fan_out.session(id).unwrap().totals();
    assert_eq!((totals.published, totals.sent, totals.conflated), (1, 1, 0));
    world.watch(id, A);
    world.settle();
    world.check();
    assert_eq!(world.subscriber(id).snapshots(), [(A, Sequence(3))]);
    let totals = world.fan_out.session(id).unwrap().totals();
    assert_eq!((totals.published, totals.sent, totals.conflated), (2, 2, 0));
}

#[test]
fn a_session_that_will_not_be_conflated_is_evicted_when_it_would_have_to_be() {
    let mut world = world();
    let id = attach(&mut world, Policy::Disconnect);
    let other = attach(&mut world, Policy::Conflate);
    world.settle();
    let publish = |instrument| Op::Publish { instrument, record_bytes: 4096 };
    world.apply(&publish(0));
    world.apply(&publish(1));
    assert_eq!(world.fan_out.take_fallen().count(), 0, "both are sent as soon as there is room");
    world.settle_only(id);
    world.apply(&Op::Pump { limit: 4 });
    world.settle_only(id);
    assert_eq!(world.subscriber(id).snapshots(), [(A, Sequence(1)), (B, Sequence(1))]);
    for instrument in [0, 1, 0, 0] {
        world.apply(&publish(instrument));
    }
    assert_eq!(world.fan_out.session(id).unwrap().eviction(), Some(Eviction::Overrun));
    assert_eq!(world.fan_out.take_fallen().collect::<Vec<_>>(), [id]);
    assert_eq!(world.fan_out.take_fallen().count(), 0, "it falls once");
    world.settle();
    world.check();
    assert_eq!(world.subscriber(other).last_of(A), Sequence(4));
}

#[test]
fn what_is_published_while_it_joins_may_be_conflated_whatever_the_policy() {
    let mut world = world();
    for instrument in [0, 1] {
        world.apply(&Op::Publish { instrument, record_bytes: 4096 });
    }
    let id = attach(&mut world, Policy::Disconnect);
    for instrument in [0, 1, 0, 1, 0, 1] {
        world.apply(&Op::Publish { instrument, record_bytes: 4096 });
    }
    world.settle();
    world.check_settled();
    assert!(world.fan_out.is_served(id));
    assert_eq!(world.subscriber(id).last_of(B), Sequence(4));
}

#[test]
fn between_two_snapshots_of_an_instrument_is_the_time_that_was_asked_for() {
    let mut world = world();
    let slow = Terms { min_interval: Nanos(10), ..terms(Policy::Conflate) };
    let id = world.attach_with(slow, &Interest::All).unwrap();
    let other = attach(&mut world, Policy::Conflate);
    world.settle();
    let mut seen = 0;
    for time in 0..38 {
        world.apply(&Op::Publish { instrument: 0, record_bytes: 96 });
        world.apply(&Op::Pump { limit: 4 });
        world.settle_only(id);
        world.settle_only(other);
        world.check();
        let count = world.subscriber(id).snapshots().len();
        assert_eq!(count > seen, time % 10 == 0, "{count} snapshots at {time}");
        seen = count;
        world.pass(1);
    }
    // An instrument that rests delays no other.
    world.apply(&Op::Publish { instrument: 1, record_bytes: 96 });
    world.settle_only(id);
    assert_eq!(world.subscriber(id).snapshots().last(), Some(&(B, Sequence(1))));
    assert!(world.fan_out.has_resting(), "the newest waits");
    world.settle();
    assert_eq!(world.subscriber(id).last_of(A), Sequence(38));
    assert_eq!(world.subscriber(other).snapshots().len(), 39);
    world.check_settled();
}

#[test]
fn when_the_channel_ends_nothing_rests_any_more() {
    let mut world = world();
    let slow = Terms { min_interval: Nanos(1_000_000), ..terms(Policy::Conflate) };
    let id = world.attach_with(slow, &Interest::All).unwrap();
    world.settle();
    for _ in 0..3 {
        world.apply(&Op::Publish { instrument: 0, record_bytes: 96 });
    }
    world.settle_only(id);
    assert_eq!(world.subscriber(id).last_of(A), Sequence(1));
    world.fan_out.stop_pacing();
    world.settle();
    assert_eq!(world.subscriber(id).last_of(A), Sequence(3));
    world.check_settled();
}

#[test]
fn what_cannot_be_staged_for_want_of_memory_stays_in_the_backlog() {
    use tapecast_core::fan_out::Staged;
    let mut fan_out = FanOut::new(CAPACITY);
    fan_out.on_entry(A);
    let id = fan_out.attach(boxed(Policy::Conflate)).unwrap().session;
    let sent = fan_out.session(id).unwrap().window().sent();
    assert_eq!(fan_out.pump(8, |_| Staged::NoMemory), 0);
    assert_eq!(fan_out.session(id).unwrap().window().sent(), sent);
    assert_eq!(fan_out.pump(8, |_| Staged::Done), 1);
}

#[test]
fn a_changed_entry_is_announced_again_and_before_the_next_snapshot() {
    let mut world = world();
    let id = attach(&mut world, Policy::Conflate);
    world.settle();
    world.fan_out.on_entry(A);
    world.apply(&Op::Publish { instrument: 0, record_bytes: 96 });
    world.settle();
    let sources: Vec<_> = world.subscriber(id).sources().collect();
    let expected = [A, B, A].map(Source::Directory);
    assert_eq!(sources[..3], expected);
    assert_eq!(sources[3], Source::Latest(A));
}

#[test]
#[should_panic(expected = "has no entry")]
fn publishing_an_instrument_without_an_entry_is_a_bug_of_the_caller() {
    let record = Record { instrument: A, sequence: Sequence(1), record_bytes: 96 };
    let _ = FanOut::new(CAPACITY).publish(record, |_| ());
}

#[test]
#[should_panic(expected = "1 after 1")]
fn publishing_a_sequence_twice_is_a_bug_of_the_caller() {
    let mut fan_out = FanOut::new(CAPACITY);
    fan_out.on_entry(A);
    let record = Record { instrument: A, sequence: Sequence(1), record_bytes: 96 };
    let _ = fan_out.publish(record, |_| ());
    let _ = fan_out.publish(record, |_| ());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn every_subscribers_own_books_agree_with_the_publishers(
        ops in prop::collection::vec(any_op(), 1..250),
    ) {
        let mut world = World::new(CAPACITY);
        for op in &ops {
            world.apply(op);
            world.check();
        }
        world.settle();
        world.check_settled();
    }
}
