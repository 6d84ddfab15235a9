//! A publisher with a fan-out and subscribers that consume honestly, each with its own ring, its
//! own receive queue and its own account. Everything is checked where it arrives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use tapecast_core::account::{Account, Jump, Verdict};
use tapecast_core::credit::WindowSize;
use tapecast_core::fan_out::{FanOut, Record, Source, Staged, Staging};
use tapecast_core::session::{Eviction, Session, Terms};
use tapecast_core::{Interest, fan_out};
use tapecast_wire::attach::Policy;
use tapecast_wire::{InstrumentId, Nanos, Position, Sequence, SessionId};

const RING: u64 = WindowSize::MIN_RING_BYTES;
const RECEIVES: u32 = 8;
const SENDS: u32 = 9;
const GATHER: u32 = 3;
/// Least time between two snapshots, where a session asks for one, and what an [`Op::Time`] is.
const MIN_INTERVAL: u64 = 10;
const TICK: u64 = 3;

pub(crate) fn terms(policy: Policy) -> Terms {
    let window = WindowSize::new(RING, RECEIVES, SENDS, GATHER).unwrap();
    Terms { policy, window, silence_limit: None, min_interval: Nanos(0) }
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    AddInstrument,
    ChangeEntry(u32),
    Attach { policy: Policy, only: Option<Vec<u32>>, min_interval: u64 },
    Detach(usize),
    Evict(usize),
    Watch { subscriber: usize, instrument: u32 },
    Unwatch { subscriber: usize, instrument: u32 },
    Time,
    Publish { instrument: u32, record_bytes: usize },
    Flush,
    Pump { limit: usize },
    Retire(usize),
    Consume(usize),
}

pub(crate) fn any_op() -> impl Strategy<Value = Op> {
    let policy = prop_oneof![
        3 => Just((Policy::Conflate, 0)),
        2 => Just((Policy::Conflate, MIN_INTERVAL)),
        1 => Just((Policy::Lossless, 0)),
        2 => Just((Policy::Disconnect, 0)),
    ];
    let only = prop::option::of(prop::collection::vec(0..4_u32, 0..3));
    let record_bytes = prop_oneof![3 => 96..600_usize, 1 => 96..=4096_usize];
    prop_oneof![
        2 => Just(Op::AddInstrument),
        1 => (0..4_u32).prop_map(Op::ChangeEntry),
        3 => (policy, only).prop_map(|((policy, min_interval), only)| Op::Attach {
            policy,
            only,
            min_interval,
        }),
        4 => Just(Op::Time),
        1 => (0..4_usize).prop_map(Op::Detach),
        1 => (0..4_usize).prop_map(Op::Evict),
        2 => (0..4_usize, 0..4_u32)
            .prop_map(|(subscriber, instrument)| Op::Watch { subscriber, instrument }),
        1 => (0..4_usize, 0..4_u32)
            .prop_map(|(subscriber, instrument)| Op::Unwatch { subscriber, instrument }),
        24 => (0..4_u32, record_bytes)
            .prop_map(|(instrument, record_bytes)| Op::Publish { instrument, record_bytes }),
        10 => Just(Op::Flush),
        6 => (0..6_usize).prop_map(|limit| Op::Pump { limit }),
        8 => (0..4_usize).prop_map(Op::Retire),
        8 => (0..4_usize).prop_map(Op::Consume),
    ]
}

/// One record in a subscriber's ring.
#[derive(Clone, Copy, Debug)]
struct Piece {
    source: Source,
    /// The instrument's sequence; 0 for a directory record.
    sequence: Sequence,
    instrument: InstrumentId,
    start: u64,
    end: u64,
    opens: bool,
}

/// The receiving end: takes records in the order of its ring and keeps its own account.
#[derive(Debug)]
pub(crate) struct Subscriber {
    policy: Policy,
    initial_images: u64,
    images_left: u64,
    account: Account,
    ring: VecDeque<Piece>,
    flushed: usize,
    tail: u64,
    consumed: u64,
    posted: u64,
    free_receives: u32,
    unretired: u32,
    entries: BTreeMap<InstrumentId, u32>,
    sources: Vec<Source>,
    snapshots: Vec<(InstrumentId, Sequence)>,
    /// Instruments that it has dropped at some time: the ends may count these differently.
    dropped: BTreeSet<InstrumentId>,
}

impl Subscriber {
    pub(crate) const fn initial_images(&self) -> u64 {
        self.initial_images
    }

    pub(crate) fn sources(&self) -> impl Iterator<Item = Source> {
        self.sources.iter().copied()
    }

    pub(crate) fn snapshots(&self) -> &[(InstrumentId, Sequence)] {
        &self.snapshots
    }

    pub(crate) fn last_of(&self, instrument: InstrumentId) -> Sequence {
        self.account.instrument(instrument).unwrap().last_sequence
    }

    /// A staged record: it must lie behind the one before, on no byte that is still in use.
    fn on_staged(&mut self, staging: &Staging, instrument: InstrumentId, sequence: Sequence) {
        let placement = staging.placement;
        let start = placement.position.0;
        if let Some(padding) = placement.padding {
            assert_eq!(padding.position.0, self.tail);
            assert_eq!((padding.position.0 + padding.bytes) % RING, 0);
            self.tail += padding.bytes;
            self.unretired += 1;
        }
        assert_eq!(start, self.tail);
        let end = placement.end().0;
        assert!(start / RING == (end - 1) / RING, "a record spans the ring's end");
        assert!(end - self.consumed <= RING, "unread bytes are overwritten");
        if placement.opens {
            assert!(self.free_receives > 0, "no receive is posted: RNR");
            self.free_receives -= 1;
            self.unretired += 1;
        }
        assert!(self.unretired <= SENDS, "the send queue overflows");
        self.tail = end;
        let opens = placement.opens;
        let source = staging.source;
        self.ring.push_back(Piece { source, sequence, instrument, start, end, opens });
    }

    /// Takes the oldest record out of the ring. Returns whether there was one.
    fn consume(&mut self) -> bool {
        if self.flushed == 0 {
            return false;
        }
        self.flushed -= 1;
        let piece = self.ring.pop_front().unwrap();
        assert!(piece.start >= self.consumed);
        self.consumed = piece.end;
        if piece.opens {
            self.posted += 1;
            self.free_receives += 1;
        }
        self.sources.push(piece.source);
        if let Source::Directory(id) = piece.source {
            *self.entries.entry(id).or_default() += 1;
        } else {
            self.on_snapshot(piece);
        }
        true
    }

    fn on_snapshot(&mut self, piece: Piece) {
        let Piece { instrument, sequence, .. } = piece;
        assert!(self.entries.contains_key(&instrument), "snapshot before directory entry");
        let jump = match self.policy {
            Policy::Conflate | Policy::Disconnect => Jump::Conflated,
            Policy::Lossless => Jump::Unexplained,
        };
        if !self.account.wants(instrument) {
            assert!(self.dropped.contains(&instrument), "{piece:?} was never asked for");
            return self.on_image();
        }
        self.snapshots.push((instrument, sequence));
        let verdict = self.account.on_answer(instrument, sequence, jump);
        let Verdict::Deliver { initial, lost: 0, .. } = verdict else {
            panic!("{piece:?}: {verdict:?}");
        };
        let is_image = initial || self.dropped.contains(&instrument);
        assert!(is_image || self.images_left == 0, "{piece:?} came before the image was complete");
        self.on_image();
    }

    fn on_image(&mut self) {
        self.images_left = self.images_left.saturating_sub(1);
        if self.images_left == 0 {
            self.account.begin_live();
        }
    }
}

pub(crate) struct World {
    pub(crate) fan_out: FanOut,
    subscribers: BTreeMap<SessionId, Subscriber>,
    published: Vec<Sequence>,
    instruments: u32,
    now: u64,
}

impl World {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            fan_out: FanOut::new(capacity),
            subscribers: BTreeMap::new(),
            published: vec![Sequence(0); capacity],
            instruments: 0,
            now: 1_000,
        }
    }

    pub(crate) fn subscriber(&self, id: SessionId) -> &Subscriber {
        &self.subscribers[&id]
    }

    fn nth(&self, index: usize) -> Option<SessionId> {
        self.subscribers.keys().nth(index).copied()
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        match op {
            Op::AddInstrument if (self.instruments as usize) < self.fan_out.capacity() => {
                self.fan_out.on_entry(InstrumentId(self.instruments));
                self.instruments += 1;
            }
            Op::ChangeEntry(id) if *id < self.instruments => {
                self.fan_out.on_entry(InstrumentId(*id));
            }
            Op::Attach { policy, only, min_interval } if self.subscribers.len() < 4 => {
                let interest = only.as_ref().map_or(Interest::All, |ids| {
                    Interest::Only(ids.iter().copied().map(InstrumentId).collect())
                });
                let min_interval = Nanos(*min_interval);
                self.attach_with(Terms { min_interval, ..terms(*policy) }, &interest);
            }
            Op::Detach(index) => {
                if let Some(id) = self.nth(*index) {
                    assert!(self.fan_out.detach(id).is_some());
                    assert!(self.fan_out.detach(id).is_none());
                    self.subscribers.remove(&id);
                }
            }
            Op::Evict(index) => {
                if let Some(id) = self.nth(*index) {
                    self.fan_out.evict(id, Eviction::Unreachable);
                }
            }
            Op::Watch { subscriber, instrument } => {
                if let Some(id) = self.nth(*subscriber) {
                    self.watch(id, InstrumentId(*instrument));
                }
            }
            Op::Unwatch { subscriber, instrument } => {
                if let Some(id) = self.nth(*subscriber) {
                    self.unwatch(id, InstrumentId(*instrument));
                }
            }
            Op::Time => self.pass(TICK),
            Op::Publish { instrument, record_bytes } if *instrument < self.instruments => {
                self.publish(InstrumentId(*instrument), *record_bytes);
            }
            Op::Flush => self.flush(),
            Op::Pump { limit } => self.pump(*limit),
            Op::Retire(index) => {
                if let Some(id) = self.nth(*index) {
                    self.retire(id);
                }
            }
            Op::Consume(index) => {
                if let Some(id) = self.nth(*index) {
                    self.consume(id);
                }
            }
            Op::AddInstrument | Op::ChangeEntry(_) | Op::Attach { .. } | Op::Publish { .. } => {}
        }
    }

    pub(crate) fn attach(&mut self, policy: Policy, interest: &Interest) -> Option<SessionId> {
        self.attach_with(terms(policy), interest)
    }

    pub(crate) fn attach_with(&mut self, terms: Terms, interest: &Interest) -> Option<SessionId> {
        let (capacity, policy) = (self.fan_out.capacity(), terms.policy);
        let session = Box::new(Session::new(terms, interest, capacity));
        let attached = self.fan_out.attach(session).ok()?;
        let mut account = Account::new(interest, capacity);
        if attached.initial_images == 0 {
            account.begin_live();
        }
        let subscriber = Subscriber {
            policy,
            initial_images: attached.initial_images,
            images_left: attached.initial_images,
            account,
            ring: VecDeque::new(),
            flushed: 0,
            tail: 0,
            consumed: 0,
            posted: u64::from(RECEIVES),
            free_receives: RECEIVES,
            unretired: 0,
            entries: BTreeMap::new(),
            sources: Vec::new(),
            snapshots: Vec::new(),
            dropped: BTreeSet::new(),
        };
        assert!(self.subscribers.insert(attached.session, subscriber).is_none());
        Some(attached.session)
    }

    pub(crate) fn watch(&mut self, id: SessionId, instrument: InstrumentId) {
        if !self.fan_out.is_served(id) {
            return;
        }
        let changed = self.fan_out.watch(id, instrument);
        let account = &mut self.subscribers.get_mut(&id).unwrap().account;
        let is_new = account.watch(instrument);
        if is_new {
            account.expect_trail(instrument);
        }
        assert!(changed || !is_new, "one more instrument is always news");
    }

    /// The subscriber drops an instrument, and its request arrives at once, where it may.
    pub(crate) fn unwatch(&mut self, id: SessionId, instrument: InstrumentId) {
        if !self.fan_out.is_served(id) || self.fan_out.session(id).unwrap().is_joining() {
            return;
        }
        let changed = self.fan_out.unwatch(id, instrument);
        let subscriber = self.subscribers.get_mut(&id).unwrap();
        assert_eq!(subscriber.account.unwatch(instrument), changed);
        if changed {
            subscriber.dropped.insert(instrument);
        }
    }

    pub(crate) fn pass(&mut self, time: u64) {
        self.now += time;
        self.fan_out.on_time(Nanos(self.now));
    }

    fn publish(&mut self, instrument: InstrumentId, record_bytes: usize) {
        let sequence = self.published[instrument.index()].next();
        let record = Record { instrument, sequence, record_bytes };
        let subscribers = &mut self.subscribers;
        let published = self.fan_out.publish(record, |staging| {
            assert_eq!(staging.source, Source::Published);
            let subscriber = subscribers.get_mut(&staging.session).unwrap();
            subscriber.on_staged(staging, instrument, sequence);
        });
        match published {
            Ok(()) => self.published[instrument.index()] = sequence,
            Err(fan_out::Full { session }) => {
                let subscriber = &self.subscribers[&session];
                assert_eq!(subscriber.policy, Policy::Lossless);
                assert!(subscriber.account.wants(instrument));
            }
        }
    }

    fn flush(&mut self) {
        let subscribers = &mut self.subscribers;
        self.fan_out.flush(|id, tail| {
            let subscriber = subscribers.get_mut(&id).unwrap();
            assert_eq!(tail, Position(subscriber.tail));
            subscriber.flushed = subscriber.ring.len();
        });
    }

    fn pump(&mut self, limit: usize) {
        let (subscribers, published) = (&mut self.subscribers, &self.published);
        self.fan_out.pump(limit, |staging| {
            let (instrument, sequence) = match staging.source {
                Source::Published => panic!("the backlog has no page"),
                Source::Directory(id) => (id, Sequence(0)),
                Source::Latest(id) => (id, published[id.index()]),
            };
            let subscriber = subscribers.get_mut(&staging.session).unwrap();
            subscriber.on_staged(staging, instrument, sequence);
            Staged::Done
        });
    }

    fn retire(&mut self, id: SessionId) {
        let subscriber = self.subscribers.get_mut(&id).unwrap();
        if subscriber.unretired > 0 {
            subscriber.unretired -= 1;
            self.fan_out.on_retired(id, 1);
        }
    }

    fn consume(&mut self, id: SessionId) -> bool {
        let subscriber = self.subscribers.get_mut(&id).unwrap();
        if !subscriber.consume() {
            return false;
        }
        let claim = (Position(subscriber.consumed), subscriber.posted);
        self.fan_out.on_credit(id, claim.0, claim.1).unwrap();
        true
    }

    /// Lets one session's network and subscriber do all they can.
    pub(crate) fn settle_only(&mut self, id: SessionId) {
        self.flush();
        while self.subscribers[&id].unretired > 0 {
            self.retire(id);
        }
        while self.consume(id) {}
    }

    /// Lets everything come to rest.
    pub(crate) fn settle(&mut self) {
        let ids: Vec<_> = self.subscribers.keys().copied().collect();
        loop {
            let before: Vec<_> = self.subscribers.values().map(|each| each.tail).collect();
            for id in &ids {
                self.settle_only(*id);
            }
            self.pump(4);
            let is_idle = before.iter().eq(self.subscribers.values().map(|each| &each.tail));
            if is_idle && !self.fan_out.has_resting() {
                break;
            }
            self.pass(TICK);
        }
    }

    pub(crate) fn check(&self) {
        self.fan_out.assert_invariants();
        for (id, subscriber) in &self.subscribers {
            subscriber.account.assert_invariants();
            let unretired = self.fan_out.session(*id).unwrap().window().outstanding();
            assert_eq!(unretired, subscriber.unretired);
        }
    }

    /// At rest, both ends' books are the same and nothing is owed.
    pub(crate) fn check_settled(&self) {
        for (id, subscriber) in &self.subscribers {
            if !self.fan_out.is_served(*id) {
                continue;
            }
            assert_eq!(subscriber.images_left, 0);
            assert_eq!(subscriber.entries.len(), self.instruments as usize);
            for index in 0..self.instruments {
                let instrument = InstrumentId(index);
                let sent = self.fan_out.instrument_totals(*id, instrument).unwrap();
                let received = subscriber.account.instrument(instrument).unwrap();
                assert_eq!(sent.pending(), 0, "{instrument}");
                if subscriber.dropped.contains(&instrument) {
                    continue;
                }
                assert_eq!(
                    (sent.published, sent.sent, sent.conflated),
                    (received.published, received.delivered, received.conflated),
                    "session {id}, instrument {instrument}",
                );
                if subscriber.account.wants(instrument) {
                    assert_eq!(received.last_sequence, self.published[instrument.index()]);
                }
                if subscriber.policy == Policy::Lossless {
                    assert_eq!((received.conflated, received.lost), (0, 0));
                }
            }
        }
    }
}
