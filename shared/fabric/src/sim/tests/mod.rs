//! The simulated network under the code of the rings, by subject.

mod faults;
mod harm;
mod health;
mod shortage;

use super::*;
use crate::pool::{PageWriter, PoolConfig, Shared};
use crate::{ChannelState, Fabric, LatencyReport, Monitor, PollError, Receiver, SendQueueStats};
use tapecast_core::credit::Liar;
use tapecast_core::session::Eviction;
use tapecast_wire::{
    Flags, Instrument, InstrumentId, Level, Position, Sequence, SessionId, SnapshotFields,
    TradingStatus, encode_snapshot,
};

const A: InstrumentId = InstrumentId(0);
const TURN_NS: u64 = 1_000_000;

/// A network with a publisher of instruments 0 and 1.
struct Network {
    host: SimHost,
    fabric: SimFabric,
    pool: Pool,
    page: Option<PageWriter>,
    newest: [u64; 2],
    channel: u64,
    now: Nanos,
}

/// A subscriber and the switches of its session.
struct Subscriber {
    id: SessionId,
    receiver: Receiver<SimEndpoint>,
    faults: SimFaults,
    seen: Vec<(u32, u64)>,
}

fn config() -> SimConfig {
    let mut config = SimConfig::new(Epoch(5));
    config.instruments = 4;
    config.ring_bytes = 16 << 10;
    config.allow_lossless = true;
    config
}

impl Network {
    fn new(config: &SimConfig) -> Self {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let Sim { host, mut fabric } = SimHost::create(config, pool.clone()).unwrap();
        for id in 0..2 {
            let instrument = Instrument::new(InstrumentId(id), &format!("SYM{id}"), "XTST");
            fabric.upsert_instrument(&instrument.to_wire()).unwrap();
        }
        let now = Nanos(1_000_000_000_000);
        Self { host, fabric, pool, page: None, newest: [0; 2], channel: 0, now }
    }

    fn join(&mut self, policy: Policy) -> Subscriber {
        self.join_as(policy, &Interest::All)
    }

    fn join_for(&mut self, interest: Interest) -> Subscriber {
        self.join_as(Policy::Conflate, &interest)
    }

    fn join_as(&mut self, policy: Policy, interest: &Interest) -> Subscriber {
        let (session, ticket) = self.host.prepare(policy, interest).unwrap();
        let id = self.fabric.attach(session).unwrap();
        let endpoint = SimEndpoint::open(ticket).unwrap();
        let faults = endpoint.faults();
        let receiver = Receiver::new(endpoint, interest);
        Subscriber { id, receiver, faults, seen: Vec::new() }
    }

    fn record(&mut self, id: InstrumentId) -> Shared {
        let fields = SnapshotFields {
            instrument_id: id,
            flags: Flags::NONE,
            trading_status: TradingStatus::Trading,
            epoch: Epoch(5),
            channel_sequence: Sequence(self.channel + 1),
            instrument_sequence: Sequence(self.newest[id.index()] + 1),
            feed_sequence: 0,
            ts_event: 0,
            ts_recv: 0,
            last_trade_price: 0,
            last_trade_quantity: 0,
        };
        let levels = [Level::new(1, 2, 3); 9];
        loop {
            let page = self.page.get_or_insert_with(|| self.pool.loan().unwrap());
            let appended =
                page.append(600, |room| encode_snapshot(room, &fields, &levels, &levels));
            match appended {
                Ok(filled) => return filled.share(),
                Err(_) => self.page = None,
            }
        }
    }

    fn publish(&mut self, id: InstrumentId) -> bool {
        let record = self.record(id);
        let published = self.fabric.publish(record).is_ok();
        if published {
            self.newest[id.index()] += 1;
            self.channel += 1;
        }
        published
    }

    /// Publishes, with turns and polls while the channel is gated.
    fn publish_patiently(&mut self, id: InstrumentId, subscriber: &mut Subscriber) {
        for _ in 0..10_000 {
            if self.publish(id) {
                return;
            }
            self.turn();
            subscriber.poll(self.now).unwrap();
        }
        panic!("the channel stays gated");
    }

    fn turn(&mut self) -> usize {
        self.now.0 += TURN_NS;
        self.fabric.flush(self.now);
        let work = self.fabric.turn(self.now);
        self.fabric.assert_invariants();
        work
    }

    /// Turns and polls until nothing moves.
    fn settle(&mut self, subscribers: &mut [&mut Subscriber]) {
        let mut idle = 0;
        for _ in 0..100_000 {
            let mut work = self.turn();
            for subscriber in subscribers.iter_mut() {
                work += subscriber.poll(self.now).unwrap_or(0);
            }
            idle = if work == 0 { idle + 1 } else { 0 };
            if idle == 3 {
                return;
            }
        }
        panic!("the network does not come to rest");
    }

    fn free_pages_at_rest(&mut self) -> usize {
        self.page = None;
        self.pool.free_pages()
    }
}

impl Subscriber {
    fn poll(&mut self, now: Nanos) -> Result<usize, PollError> {
        let seen = &mut self.seen;
        let polled = self.receiver.poll(64, |delivery| {
            seen.push((delivery.instrument_id().0, delivery.instrument_sequence().0));
        });
        self.receiver.report(now, LatencyReport::default());
        polled
    }

    fn evictions(&self, network: &Network) -> Vec<Eviction> {
        network.fabric.evicted().filter(|(id, _)| *id == self.id).map(|(_, why)| why).collect()
    }
}
