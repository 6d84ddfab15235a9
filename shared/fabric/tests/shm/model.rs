//! Any order of publishing, attaching, polling and leaving keeps the promises.

use proptest::prelude::*;
use tapecast_core::Interest;
use tapecast_fabric::shm::ShmEndpoint;
use tapecast_fabric::{Fabric, Full, Receiver, WaitStrategy};
use tapecast_wire::attach::Policy;
use tapecast_wire::{InstrumentId, SessionId};

use crate::support::{Publisher, Seen, open, small};

const INSTRUMENTS: u32 = 6;

#[derive(Clone, Debug)]
enum Op {
    /// Stages so many snapshots of an instrument.
    Publish(u32, u16),
    Flush,
    Attach(Policy),
    /// Polls the receiver at this index, modulo their number.
    Poll(usize, usize),
    Detach(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let policy = prop_oneof![Just(Policy::Conflate), Just(Policy::Lossless)];
    prop_oneof![
        4 => (0..INSTRUMENTS, prop_oneof![1..4u16, 100..400u16])
            .prop_map(|(id, n)| Op::Publish(id, n)),
        3 => Just(Op::Flush),
        1 => policy.prop_map(Op::Attach),
        4 => (any::<usize>(), prop_oneof![0..4usize, 50..500usize])
            .prop_map(|(i, n)| Op::Poll(i, n)),
        1 => any::<usize>().prop_map(Op::Detach),
    ]
}

/// A receiver, and what it may and must see.
struct Follower {
    receiver: Receiver<ShmEndpoint>,
    id: SessionId,
    policy: Policy,
    /// Sequence of each instrument's newest snapshot when the session was attached.
    at_attach: Vec<u64>,
    last: Vec<u64>,
}

impl Follower {
    fn attach(publisher: &mut Publisher, policy: Policy) -> Option<Self> {
        let (session, descriptors) = publisher.host.prepare(policy).unwrap();
        let id = publisher.fabric.attach(session).ok()?;
        let receiver = open(descriptors, policy, WaitStrategy::Block, &Interest::All);
        let at_attach: Vec<_> = (0..INSTRUMENTS).map(|id| publisher.source.sequence(id)).collect();
        Some(Self { receiver, id, policy, last: vec![0; at_attach.len()], at_attach })
    }

    fn poll(&mut self, limit: usize) {
        let laps_before = self.receiver.laps();
        let (at_attach, last) = (&self.at_attach, &mut self.last);
        let deliver = |delivery: tapecast_fabric::Delivery<'_>| {
            let seen = Seen::of(&delivery);
            let index = seen.instrument as usize;
            let (last, start) = (&mut last[index], at_attach[index]);
            assert!(seen.sequence > *last && seen.sequence >= start, "{seen:?} after {last}");
            assert_eq!(seen.initial, *last == 0, "{seen:?}");
            if laps_before == 0 && *last > 0 {
                assert_eq!(seen.sequence, *last + 1, "a gap without a lap");
            }
            if laps_before == 0 && seen.initial {
                assert!(seen.sequence <= start + 1, "{seen:?}, but {start} was there at the start");
            }
            *last = seen.sequence;
        };
        let polled = self.receiver.poll(limit, deliver).unwrap();
        assert!(polled <= limit);
        if self.policy == Policy::Lossless {
            assert_eq!(self.receiver.laps(), 0);
        }
    }

    fn check(&mut self, publisher: &Publisher) {
        while self.receiver.is_ready() {
            self.poll(64);
        }
        self.receiver.account().assert_invariants();
        for id in 0..INSTRUMENTS {
            let newest = publisher.source.sequence(id);
            assert_eq!(self.last[id as usize], newest);
            let totals = self.receiver.instrument_totals(InstrumentId(id)).unwrap();
            assert_eq!(totals.last_sequence.0, newest);
            assert_eq!((totals.lost, totals.published), (0, totals.delivered + totals.conflated));
        }
        let stats = publisher.fabric.session_stats(self.id).unwrap();
        assert_eq!((stats.lag_bytes, stats.faults), (0, 0));
        assert_eq!(stats.counts.delivered, self.receiver.totals().delivered);
    }
}

struct World {
    publisher: Publisher,
    followers: Vec<Follower>,
}

impl World {
    fn publish(&mut self, instrument: u32) {
        let mut shared = self.publisher.source.next(instrument).share();
        while let Err(Full(back)) = self.publisher.fabric.publish(shared) {
            shared = back;
            self.publisher.flush();
            let lossless = self.followers.iter_mut().filter(|f| f.policy == Policy::Lossless);
            lossless.for_each(|follower| follower.poll(100));
        }
    }

    fn apply(&mut self, op: &Op) {
        let count = self.followers.len();
        match *op {
            Op::Publish(instrument, n) => (0..n).for_each(|_| self.publish(instrument)),
            Op::Flush => self.publisher.flush(),
            Op::Attach(policy) => {
                self.followers.extend(Follower::attach(&mut self.publisher, policy));
            }
            Op::Poll(index, limit) if count > 0 => self.followers[index % count].poll(limit),
            Op::Detach(index) if count > 0 => {
                let follower = self.followers.swap_remove(index % count);
                assert!(self.publisher.fabric.detach(follower.id).is_some());
            }
            Op::Poll(..) | Op::Detach(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_session_sees_each_snapshot_once_or_counts_it(
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut world = World { publisher: Publisher::new(&small()), followers: Vec::new() };
        ops.iter().for_each(|op| world.apply(op));
        world.publisher.flush();
        for follower in &mut world.followers {
            follower.check(&world.publisher);
        }
    }
}
