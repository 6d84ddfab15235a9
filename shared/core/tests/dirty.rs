//! The dirty queue, the instrument set, the signal rule and liveness: small machines, small models.

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;
use tapecast_core::{DirtyQueue, InstrumentSet, Interest, Liveness, SignalRule};
use tapecast_wire::{InstrumentId, Nanos};

#[test]
fn an_instrument_keeps_its_place_when_it_becomes_dirty_again() {
    let mut queue = DirtyQueue::new(3);
    for id in [2, 0, 2, 1, 2] {
        queue.mark(InstrumentId(id));
    }
    let order: Vec<_> = core::iter::from_fn(|| queue.pop_oldest()).map(|id| id.0).collect();
    assert_eq!(order, [2, 0, 1]);
    assert!(queue.is_empty());
}

#[test]
fn the_last_instrument_has_a_place_and_the_next_is_never_a_member() {
    let mut queue = DirtyQueue::new(3);
    assert!(queue.mark(InstrumentId(2)));
    assert!(queue.contains(InstrumentId(2)) && !queue.contains(InstrumentId(3)));
}

#[test]
#[should_panic(expected = "index out of bounds")]
fn marking_an_instrument_beyond_the_capacity_is_a_bug_of_the_caller() {
    DirtyQueue::new(3).mark(InstrumentId(3));
}

#[test]
fn a_set_of_all_holds_exactly_the_capacity() {
    for capacity in [0, 1, 63, 64, 65, 200] {
        let set = InstrumentSet::wanted(&Interest::All, capacity);
        assert_eq!(set.iter().count(), capacity);
        assert!(!set.contains(InstrumentId(capacity as u32)));
    }
}

#[test]
fn each_burst_ends_with_a_signaled_request_and_no_run_is_longer_than_the_rule() {
    let mut rule = SignalRule::new(4);
    let burst = |rule: &mut SignalRule, len: u32| -> Vec<_> {
        (1..=len).map(|nth| rule.next(nth == len)).collect()
    };
    assert_eq!(burst(&mut rule, 1), [Some(1)]);
    assert_eq!(burst(&mut rule, 6), [None, None, None, Some(4), None, Some(2)]);
    assert_eq!(burst(&mut rule, 4), [None, None, None, Some(4)]);
    assert_eq!(rule.unsignaled(), 0);
}

#[test]
fn silence_at_the_limit_is_tolerated_and_a_nanosecond_more_is_not() {
    let mut liveness = Liveness::new(Some(Nanos(100)));
    liveness.on_beat(7, Nanos(1_050));
    liveness.on_beat(7, Nanos(1_120));
    assert!(!liveness.is_silent(Nanos(1_150)));
    assert!(liveness.is_silent(Nanos(1_151)));
    liveness.on_beat(3, Nanos(1_151));
    assert!(!liveness.is_silent(Nanos(1_151)));
    assert!(!Liveness::new(None).is_silent(Nanos(u64::MAX)));
}

#[test]
fn a_clock_that_steps_back_is_no_silence() {
    let mut liveness = Liveness::new(Some(Nanos(100)));
    liveness.on_beat(1, Nanos(2_000));
    assert!(!liveness.is_silent(Nanos(500)));
}

proptest! {
    #[test]
    fn the_queue_agrees_with_a_list(
        ops in prop::collection::vec(prop_oneof![
            3 => (0..6_u32).prop_map(Some),
            2 => Just(None),
        ], 1..200),
    ) {
        let mut queue = DirtyQueue::new(6);
        let mut list = VecDeque::new();
        for op in ops {
            if let Some(id) = op {
                let added = !list.contains(&id);
                if added {
                    list.push_back(id);
                }
                prop_assert_eq!(queue.mark(InstrumentId(id)), added);
            } else {
                prop_assert_eq!(queue.pop_oldest().map(|id| id.0), list.pop_front());
            }
            queue.assert_invariants();
            prop_assert_eq!(queue.len(), list.len());
            prop_assert_eq!(queue.oldest().map(|id| id.0), list.front().copied());
            for id in 0..6 {
                prop_assert_eq!(queue.contains(InstrumentId(id)), list.contains(&id));
            }
        }
        queue.clear();
        queue.assert_invariants();
        prop_assert!(queue.is_empty());
    }

    #[test]
    fn the_set_agrees_with_a_tree(
        capacity in 1..150_usize,
        ops in prop::collection::vec((any::<bool>(), 0..160_u32), 1..100),
        from in 0..200_u32,
    ) {
        let mut set = InstrumentSet::new(capacity);
        let mut tree = BTreeSet::new();
        for (insert, id) in ops {
            if insert {
                let fits = (id as usize) < capacity && tree.insert(id);
                prop_assert_eq!(set.insert(InstrumentId(id)), fits);
            } else {
                prop_assert_eq!(set.remove(InstrumentId(id)), tree.remove(&id));
            }
        }
        let members: Vec<_> = set.iter().map(|id| id.0).collect();
        prop_assert_eq!(members, tree.iter().copied().collect::<Vec<_>>());
        let first = set.first_from(InstrumentId(from)).map(|id| id.0);
        prop_assert_eq!(first, tree.range(from..).next().copied());
    }

    #[test]
    fn signals_retire_every_request_once_and_the_unsignaled_never_fill_a_queue(
        every in 1..20_u32,
        bursts in prop::collection::vec(1..50_u32, 1..50),
    ) {
        let mut rule = SignalRule::new(every);
        let mut unretired = 0;
        for len in bursts {
            for nth in 1..=len {
                unretired += 1;
                if let Some(retires) = rule.next(nth == len) {
                    prop_assert_eq!(retires, unretired);
                    unretired = 0;
                }
                prop_assert!(unretired < every);
                prop_assert_eq!(rule.unsignaled(), unretired);
            }
            prop_assert_eq!(unretired, 0);
        }
    }
}
