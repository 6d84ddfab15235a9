//! The account of the receiving end: its verdicts, its phases and its one identity.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tapecast_core::Interest;
use tapecast_core::account::{Account, Jump, Totals, Verdict};
use tapecast_wire::limits::MAX_INSTRUMENTS;
use tapecast_wire::{InstrumentId, Sequence};

const A: InstrumentId = InstrumentId(0);
const B: InstrumentId = InstrumentId(1);

fn deliver(initial: bool, conflated: u64, lost: u64) -> Verdict {
    Verdict::Deliver { initial, conflated, lost }
}

fn live(capacity: usize) -> Account {
    let mut account = Account::new(&Interest::All, capacity);
    account.begin_live();
    account
}

#[test]
fn an_initial_image_stands_for_itself_whatever_its_sequence() {
    let mut account = Account::new(&Interest::All, 2);
    assert_eq!(account.on_record(A, Sequence(1000), Jump::Conflated), deliver(true, 0, 0));
    let a = account.instrument(A).unwrap();
    assert_eq!((a.published, a.delivered, a.conflated, a.lost), (1, 1, 0, 0));
    account.assert_invariants();
}

#[test]
fn an_instrument_born_after_the_join_counts_from_its_first_snapshot() {
    let mut account = live(2);
    assert_eq!(account.on_record(A, Sequence(4), Jump::Conflated), deliver(true, 3, 0));
    assert_eq!(account.on_record(B, Sequence(1), Jump::Unexplained), deliver(true, 0, 0));
    assert_eq!(account.totals().published, 5);
    account.assert_invariants();
}

#[test]
fn sequences_are_judged_past_duplicate_next_and_future() {
    let mut account = live(1);
    assert_eq!(account.on_record(A, Sequence(1), Jump::Unexplained), deliver(true, 0, 0));
    assert_eq!(account.on_record(A, Sequence(2), Jump::Unexplained), deliver(false, 0, 0));
    assert_eq!(account.on_record(A, Sequence(2), Jump::Unexplained), Verdict::Stale);
    assert_eq!(account.on_record(A, Sequence(1), Jump::Unexplained), Verdict::Stale);
    assert_eq!(account.on_record(A, Sequence(0), Jump::Unexplained), Verdict::Stale);
    assert_eq!(account.on_record(A, Sequence(5), Jump::Conflated), deliver(false, 2, 0));
    assert_eq!(account.on_record(A, Sequence(7), Jump::Unexplained), deliver(false, 0, 1));
    let expected = Totals { published: 7, delivered: 4, conflated: 2, lost: 1, initial_images: 1 };
    assert_eq!(account.totals(), expected);
    account.assert_invariants();
}

#[test]
fn what_would_be_delivered_is_what_is_delivered() {
    let mut account = Account::new(&Interest::Only(vec![A]), 2);
    assert!(account.would_deliver(A, Sequence(3)));
    assert!(!account.would_deliver(B, Sequence(3)));
    assert!(!account.would_deliver(InstrumentId(2), Sequence(3)));
    account.on_record(A, Sequence(3), Jump::Conflated);
    assert!(!account.would_deliver(A, Sequence(3)));
    assert!(account.would_deliver(A, Sequence(4)));
}

#[test]
fn the_last_instrument_within_capacity_is_known_and_the_next_is_not() {
    let mut account = live(3);
    assert_eq!(
        account.on_record(InstrumentId(2), Sequence(1), Jump::Conflated),
        deliver(true, 0, 0)
    );
    assert_eq!(account.on_record(InstrumentId(3), Sequence(1), Jump::Conflated), Verdict::Unknown);
    account.reserve(4);
    assert_eq!(
        account.on_record(InstrumentId(3), Sequence(1), Jump::Conflated),
        deliver(true, 0, 0)
    );
    account.reserve(1);
    assert_eq!(account.capacity(), 4);
}

#[test]
fn a_named_instrument_beyond_the_capacity_makes_room_and_an_impossible_one_does_not() {
    let impossible = InstrumentId(MAX_INSTRUMENTS as u32);
    let mut account = Account::new(&Interest::Only(vec![InstrumentId(9), impossible]), 2);
    assert_eq!(account.capacity(), 10);
    assert!(account.wants(InstrumentId(9)) && !account.wants(impossible));
    assert!(!account.watch(impossible));
    assert!(account.watch(InstrumentId(MAX_INSTRUMENTS as u32 - 1)));
    assert_eq!(account.capacity(), MAX_INSTRUMENTS);
}

#[test]
fn only_the_named_instruments_are_wanted_also_when_room_is_added_later() {
    let mut only = Account::new(&Interest::Only(vec![B]), 2);
    assert!(!only.wants(A) && only.wants(B));
    assert_eq!(only.on_record(A, Sequence(1), Jump::Conflated), Verdict::Unwanted);
    only.reserve(8);
    assert!(!only.wants(InstrumentId(7)));
    let mut all = Account::new(&Interest::All, 2);
    all.reserve(8);
    assert!(all.wants(InstrumentId(7)));
}

#[test]
fn what_was_published_while_unwatched_is_nobodys_loss() {
    let mut account = live(1);
    account.on_record(A, Sequence(1), Jump::Unexplained);
    assert!(account.unwatch(A) && !account.unwatch(A));
    assert_eq!(account.on_record(A, Sequence(2), Jump::Unexplained), Verdict::Unwanted);
    assert!(account.watch(A) && !account.watch(A));
    assert_eq!(account.on_record(A, Sequence(9), Jump::Unexplained), deliver(true, 0, 0));
    assert_eq!(account.on_record(A, Sequence(9), Jump::Unexplained), Verdict::Stale);
    let a = account.instrument(A).unwrap();
    assert_eq!((a.published, a.delivered, a.last_sequence), (2, 2, Sequence(9)));
    account.assert_invariants();
}

#[test]
fn a_new_epoch_deals_instruments_anew_and_totals_go_on() {
    let mut account = live(2);
    account.on_record(A, Sequence(7), Jump::Conflated);
    account.begin_epoch(&Interest::Only(vec![B]));
    assert!(account.is_joining());
    assert_eq!(account.instrument(A).unwrap().published, 0);
    assert_eq!(account.on_record(B, Sequence(3), Jump::Unexplained), deliver(true, 0, 0));
    let expected = Totals { published: 8, delivered: 2, conflated: 6, lost: 0, initial_images: 2 };
    assert_eq!(account.totals(), expected);
    account.assert_invariants();
}

#[test]
fn absurd_sequences_in_many_epochs_never_stop_the_process() {
    let mut account = live(1);
    for _ in 0..4 {
        account.on_record(A, Sequence(u64::MAX - 1), Jump::Conflated);
        account.on_record(A, Sequence(u64::MAX), Jump::Unexplained);
        assert_eq!(account.on_record(A, Sequence(0), Jump::Unexplained), Verdict::Stale);
        account.assert_invariants();
        account.begin_epoch(&Interest::All);
        account.begin_live();
    }
}

#[derive(Clone, Debug)]
enum Op {
    Record { id: u32, sequence: u64, jump: Jump },
    Answer { id: u32, sequence: u64, jump: Jump },
    BeginLive,
    BeginEpoch,
    Watch(u32),
    Unwatch(u32),
}

fn any_op() -> impl Strategy<Value = Op> {
    let jump = prop_oneof![Just(Jump::Conflated), Just(Jump::Unexplained)];
    prop_oneof![
        20 => (0..4_u32, 0..24_u64, jump.clone())
            .prop_map(|(id, sequence, jump)| Op::Record { id, sequence, jump }),
        4 => (0..4_u32, 0..24_u64, jump)
            .prop_map(|(id, sequence, jump)| Op::Answer { id, sequence, jump }),
        1 => Just(Op::BeginLive),
        1 => Just(Op::BeginEpoch),
        2 => (0..4_u32).prop_map(Op::Watch),
        2 => (0..4_u32).prop_map(Op::Unwatch),
    ]
}

/// What became of one sequence number, in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Nobody asked for it, or it was before the join.
    Uncounted,
    Delivered,
    Conflated,
    Lost,
}

/// The model writes down the fate of every single sequence number and counts them one by one.
#[derive(Debug, Default)]
struct Model {
    fates: BTreeMap<u32, Vec<Fate>>,
    fresh: BTreeMap<u32, bool>,
    unwanted: BTreeMap<u32, bool>,
    rewatched: BTreeMap<u32, bool>,
    /// Holes behind a drop that may still come.
    resumed: BTreeMap<u32, u32>,
    /// Watched again after a drop: a hole cannot be told from what was read meanwhile.
    trails: BTreeMap<u32, bool>,
    /// Deliveries of what was delivered before.
    again: BTreeMap<u32, u64>,
    is_live: bool,
    past: [u64; 3],
}

impl Model {
    fn count(&self, id: u32, fate: Fate) -> u64 {
        self.fates.get(&id).map_or(0, |all| all.iter().filter(|each| **each == fate).count() as u64)
    }

    fn record(&mut self, id: u32, sequence: u64, jump: Jump) -> Verdict {
        let fates = self.fates.entry(id).or_default();
        if self.unwanted.get(&id) == Some(&true) {
            return Verdict::Unwanted;
        }
        if sequence <= fates.len() as u64 {
            return Verdict::Stale;
        }
        let initial = *self.fresh.get(&id).unwrap_or(&true);
        let holes = sequence - fates.len() as u64 - 1;
        let resumed = self.resumed.entry(id).or_default();
        let joins = initial && !self.is_live;
        let is_behind_a_drop = !joins && holes > 0 && *resumed > 0;
        *resumed -= u32::from(is_behind_a_drop);
        let stands_alone = !self.is_live || self.rewatched.get(&id).copied().unwrap_or(false);
        let is_untellable =
            self.trails.get(&id) == Some(&true) && matches!(jump, Jump::Unexplained);
        let own_only = is_behind_a_drop || is_untellable || (initial && stands_alone);
        let fate = match (own_only, jump) {
            (true, _) => Fate::Uncounted,
            (false, Jump::Conflated) => Fate::Conflated,
            (false, Jump::Unexplained) => Fate::Lost,
        };
        fates.resize(sequence as usize - 1, fate);
        fates.push(Fate::Delivered);
        self.fresh.insert(id, false);
        self.rewatched.insert(id, false);
        deliver(
            initial,
            if fate == Fate::Conflated { holes } else { 0 },
            if fate == Fate::Lost { holes } else { 0 },
        )
    }

    fn answer(&mut self, id: u32, sequence: u64, jump: Jump) -> Verdict {
        let last = self.fates.get(&id).map_or(0, |fates| fates.len() as u64);
        if self.unwanted.get(&id) == Some(&true) || last == 0 || sequence != last {
            return self.record(id, sequence, jump);
        }
        *self.again.entry(id).or_default() += 1;
        let resumed = self.resumed.entry(id).or_default();
        *resumed = resumed.saturating_sub(1);
        self.fresh.insert(id, false);
        self.rewatched.insert(id, false);
        deliver(true, 0, 0)
    }

    fn apply(&mut self, op: &Op, account: &mut Account) {
        match *op {
            Op::Record { id, sequence, jump } => {
                let verdict = account.on_record(InstrumentId(id), Sequence(sequence), jump);
                assert_eq!(verdict, self.record(id, sequence, jump));
            }
            Op::Answer { id, sequence, jump } => {
                let verdict = account.on_answer(InstrumentId(id), Sequence(sequence), jump);
                assert_eq!(verdict, self.answer(id, sequence, jump));
            }
            Op::BeginLive => {
                account.begin_live();
                self.is_live = true;
            }
            Op::BeginEpoch => {
                account.begin_epoch(&Interest::All);
                let past = self.totals();
                *self = Self { past, ..Self::default() };
            }
            Op::Watch(id) => {
                let changed = self.unwanted.insert(id, false) == Some(true);
                assert_eq!(account.watch(InstrumentId(id)), changed);
                if changed {
                    account.expect_trail(InstrumentId(id));
                    self.fresh.insert(id, true);
                    self.rewatched.insert(id, true);
                    *self.resumed.entry(id).or_default() += 1;
                    self.trails.insert(id, true);
                }
            }
            Op::Unwatch(id) => {
                let changed = self.unwanted.insert(id, true) != Some(true);
                assert_eq!(account.unwatch(InstrumentId(id)), changed);
            }
        }
    }

    fn totals(&self) -> [u64; 3] {
        let kinds = [Fate::Delivered, Fate::Conflated, Fate::Lost];
        let mut totals = self.past;
        totals[0] += self.again.values().sum::<u64>();
        for (total, kind) in totals.iter_mut().zip(kinds) {
            *total += self.fates.keys().map(|id| self.count(*id, kind)).sum::<u64>();
        }
        totals
    }
}

proptest! {
    #[test]
    fn the_account_agrees_with_a_list_of_every_sequence_and_its_fate(
        ops in prop::collection::vec(any_op(), 1..200),
    ) {
        let mut account = Account::new(&Interest::All, 4);
        let mut model = Model::default();
        for op in &ops {
            model.apply(op, &mut account);
            account.assert_invariants();
            let totals = account.totals();
            prop_assert_eq!([totals.delivered, totals.conflated, totals.lost], model.totals());
            for id in 0..4 {
                let instrument = account.instrument(InstrumentId(id)).unwrap();
                let again = model.again.get(&id).copied().unwrap_or(0);
                let delivered = model.count(id, Fate::Delivered) + again;
                prop_assert_eq!(instrument.delivered, delivered);
                prop_assert_eq!(instrument.conflated, model.count(id, Fate::Conflated));
                prop_assert_eq!(instrument.lost, model.count(id, Fate::Lost));
            }
        }
    }
}
