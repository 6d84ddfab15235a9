//! Subscribers that lie or break, on a real device or Soft-RoCE: nobody else may notice.

use tapecast_core::Interest;
use tapecast_core::credit::Liar;
use tapecast_core::session::Eviction;
use tapecast_ring::cell::Request;
use tapecast_wire::attach::Policy;
use tapecast_wire::rdma::RdmaOffer;
use tapecast_wire::{
    Epoch, Flags, Instrument, InstrumentId, Level, Nanos, Position, Sequence, SessionId,
    SnapshotFields, TradingStatus, encode_snapshot,
};

use super::tests::port;
use super::{
    Connected, EndpointConfig, Offered, Verbs, VerbsConfig, VerbsEndpoint, VerbsFabric, VerbsHost,
    VerbsMonitor,
};
use crate::pool::{PageWriter, Pool, PoolConfig, Shared};
use crate::rings::{Inlet, News};
use crate::{Fabric, Handover, Host, LatencyReport, Monitor, Prepared, Receiver, Wish};

const EPOCH: Epoch = Epoch(5);
const A: InstrumentId = InstrumentId(0);
/// Turns after which something that should come is taken not to.
const TURNS_MAX: usize = 2_000_000;

/// A publisher of one instrument.
struct Publisher {
    fabric: VerbsFabric,
    host: VerbsHost,
    pool: Pool,
    page: Option<PageWriter>,
    newest: u64,
    now: Nanos,
}

struct Subscriber {
    id: SessionId,
    receiver: Receiver<VerbsEndpoint>,
    monitor: VerbsMonitor,
    seen: Vec<u64>,
}

fn config() -> VerbsConfig {
    let mut config = VerbsConfig::new(EPOCH);
    config.instruments = 4;
    config.allow_lossless = true;
    // A peer that does not answer is found out after 31 ms.
    (config.route.timeout, config.route.retry_count, config.route.rnr_retry) = (10, 3, 0);
    config
}

impl Publisher {
    fn new(config: &VerbsConfig) -> Self {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let Verbs { host, mut fabric } = VerbsHost::create(config, pool.clone()).unwrap();
        let instrument = Instrument::new(A, "SYM", "XTST");
        fabric.upsert_instrument(&instrument.to_wire()).unwrap();
        let now = Nanos(1_000_000_000_000);
        Self { fabric, host, pool, page: None, newest: 0, now }
    }

    /// Attaches a subscriber that offers what `change` makes of the truth.
    fn join(&mut self, policy: Policy, change: impl FnOnce(&mut RdmaOffer)) -> Subscriber {
        let mut config = EndpointConfig::new();
        (config.policy, config.ring_bytes, config.receive_depth) = (policy, 64 << 10, 32);
        config.route.timeout = 10;
        let offered = Offered::open(&config).unwrap();
        let mut offer = offered.offer();
        change(&mut offer);
        let wish = Wish {
            policy,
            interest: &Interest::All,
            symbols: None,
            min_interval: Nanos(0),
            offer: Some(&offer),
        };
        let Prepared { session, monitor, handover } = self.host.prepare_session(&wish).unwrap();
        let Handover::Connect(answer) = handover else { panic!("{handover:?}") };
        let connected: Connected = offered.connect(&answer).unwrap();
        let id = self.fabric.attach(session).unwrap();
        let endpoint = connected.start(id, EPOCH).unwrap();
        let receiver = Receiver::new(endpoint, &Interest::All);
        Subscriber { id, receiver, monitor, seen: Vec::new() }
    }

    fn record(&mut self) -> Shared {
        let fields = SnapshotFields {
            instrument_id: A,
            flags: Flags::NONE,
            trading_status: TradingStatus::Trading,
            epoch: EPOCH,
            channel_sequence: Sequence(self.newest + 1),
            instrument_sequence: Sequence(self.newest + 1),
            feed_sequence: 0,
            ts_event: 0,
            ts_recv: 0,
            last_trade_price: 0,
            last_trade_quantity: 0,
        };
        let levels = [Level::new(1, 2, 3); 5];
        loop {
            let page = self.page.get_or_insert_with(|| self.pool.loan().unwrap());
            match page.append(400, |room| encode_snapshot(room, &fields, &levels, &levels)) {
                Ok(filled) => return filled.share(),
                Err(_) => self.page = None,
            }
        }
    }

    /// Publishes the next snapshot as a batch of its own. Returns whether there was room.
    fn publish(&mut self) -> bool {
        let record = self.record();
        let published = self.fabric.publish(record).is_ok();
        self.newest += u64::from(published);
        self.fabric.flush(self.now);
        published
    }

    fn turn(&mut self) -> usize {
        self.now.0 += 1_000;
        self.fabric.turn(self.now)
    }

    /// Turns and polls until `is_true`.
    fn until(
        &mut self,
        subscribers: &mut [&mut Subscriber],
        mut is_true: impl FnMut(&mut Self, &mut [&mut Subscriber]) -> bool,
    ) {
        for _ in 0..TURNS_MAX {
            self.turn();
            for subscriber in subscribers.iter_mut() {
                subscriber.poll(self.now);
            }
            if is_true(self, subscribers) {
                return;
            }
        }
        panic!("it does not come: {:?}", self.fabric);
    }

    fn publish_to(&mut self, count: u64, subscribers: &mut [&mut Subscriber]) {
        for _ in 0..count {
            self.publish();
            self.turn();
            for subscriber in subscribers.iter_mut() {
                subscriber.poll(self.now);
            }
        }
        let newest = self.newest;
        self.until(subscribers, |_, all| all.iter().all(|each| each.seen.last() == Some(&newest)));
    }

    /// Everything has been sent and acknowledged: no page is out.
    fn assert_whole(&mut self) {
        self.page = None;
        self.until(&mut [], |this, _| this.fabric.outstanding() == 0);
        assert_eq!(self.pool.free_pages(), self.pool.pages());
    }

    fn eviction(&self, subscriber: &Subscriber) -> Option<Eviction> {
        let all: Vec<_> = self.fabric.evicted().collect();
        all.into_iter().find(|(id, _)| *id == subscriber.id).map(|(_, reason)| reason)
    }
}

impl Subscriber {
    fn poll(&mut self, now: Nanos) {
        let seen = &mut self.seen;
        let polled = self.receiver.poll(64, |delivery| {
            seen.push(delivery.instrument_sequence().0);
        });
        assert!(polled.is_ok(), "an honest subscriber is served: {polled:?}");
        self.receiver.report(now, LatencyReport::default());
    }

    fn assert_saw_everything(&self, newest: u64) {
        assert_eq!(self.seen, (1..=newest).collect::<Vec<_>>());
    }
}

/// A hostile session is evicted for `reason`, an honest one beside it sees everything, and all
/// pages come back.
fn harms_nobody(
    change: impl FnOnce(&mut RdmaOffer),
    lie: impl FnOnce(&mut Subscriber),
    is_reason: impl Fn(Eviction) -> bool,
) {
    if port().is_none() {
        return;
    }
    let mut publisher = Publisher::new(&config());
    let mut honest = publisher.join(Policy::Conflate, |_| {});
    let mut hostile = publisher.join(Policy::Lossless, change);
    lie(&mut hostile);
    publisher.publish();
    publisher.until(&mut [&mut honest], |this, _| this.eviction(&hostile).is_some());
    let reason = publisher.eviction(&hostile).unwrap();
    assert!(is_reason(reason), "{reason:?}");
    assert_eq!(hostile.monitor.evicted(), Some(reason));
    publisher.publish_to(100, &mut [&mut honest]);
    honest.assert_saw_everything(101);
    publisher.assert_whole();
    assert!(publisher.fabric.detach(hostile.id).is_some());
    publisher.publish_to(10, &mut [&mut honest]);
    honest.assert_saw_everything(111);
    assert_eq!(publisher.fabric.receiver_not_ready(), 0);
}

#[test]
fn a_subscriber_whose_key_is_wrong_is_evicted_and_harms_nobody() {
    let wrong = |offer: &mut RdmaOffer| offer.ring.key = offer.ring.key.wrapping_add(0x0100_0000);
    harms_nobody(wrong, |_| {}, |reason| reason == Eviction::Unreachable);
}

#[test]
fn a_ring_beyond_the_registered_memory_is_found_out_and_harms_nobody() {
    let beyond = |offer: &mut RdmaOffer| offer.ring.address += 1 << 30;
    harms_nobody(beyond, |_| {}, |reason| reason == Eviction::Unreachable);
}

#[test]
fn a_control_block_that_may_not_be_written_is_found_out_and_harms_nobody() {
    let wrong = |offer: &mut RdmaOffer| offer.control.key ^= 0x0100_0000;
    harms_nobody(wrong, |_| {}, |reason| reason == Eviction::Unreachable);
}

#[test]
fn a_subscriber_that_claims_to_have_read_what_was_never_sent_is_evicted_and_harms_nobody() {
    let lie = |hostile: &mut Subscriber| {
        let endpoint = hostile.receiver.endpoint_mut();
        endpoint.cell().set_consumed(Position(1 << 40), Sequence(0));
        endpoint.cell().seal_credit();
        endpoint.inlet.push(News { credit: true, ..News::default() });
    };
    let ahead = |reason| matches!(reason, Eviction::Liar(Liar::ConsumedAhead { .. }));
    harms_nobody(|_| {}, lie, ahead);
}

#[test]
fn a_subscriber_that_claims_receives_it_cannot_have_is_evicted_and_harms_nobody() {
    let lie = |hostile: &mut Subscriber| {
        let endpoint = hostile.receiver.endpoint_mut();
        endpoint.cell().set_receives(1 << 40);
        endpoint.cell().seal_credit();
        endpoint.inlet.push(News { credit: true, ..News::default() });
    };
    let ahead = |reason| matches!(reason, Eviction::Liar(Liar::ReceivesAhead { .. }));
    harms_nobody(|_| {}, lie, ahead);
}

#[test]
fn requests_that_cannot_be_are_counted_and_change_nothing() {
    if port().is_none() {
        return;
    }
    let mut publisher = Publisher::new(&config());
    let mut subscriber = publisher.join(Policy::Conflate, |_| {});
    publisher.publish_to(3, &mut [&mut subscriber]);
    let endpoint = subscriber.receiver.endpoint_mut();
    endpoint.cell().set_request(999, Request::Image(InstrumentId(u32::MAX)));
    endpoint.inlet.push(News { requests: true, ..News::default() });
    publisher.until(&mut [&mut subscriber], |_, all| all[0].monitor.stats().faults == 1);
    publisher.publish_to(3, &mut [&mut subscriber]);
    subscriber.assert_saw_everything(6);
}

#[test]
fn a_subscriber_that_is_gone_is_evicted_and_its_pages_come_back() {
    if port().is_none() {
        return;
    }
    let mut publisher = Publisher::new(&config());
    let mut honest = publisher.join(Policy::Conflate, |_| {});
    let gone = publisher.join(Policy::Conflate, |_| {});
    let (id, monitor) = (gone.id, gone.monitor.clone());
    // Its queue pair and its memory are destroyed; nobody tells the publisher.
    drop(gone);
    publisher.publish();
    publisher.until(&mut [&mut honest], |_, _| monitor.evicted().is_some());
    publisher.publish_to(50, &mut [&mut honest]);
    honest.assert_saw_everything(51);
    publisher.assert_whole();
    assert!(publisher.fabric.detach(id).is_some());
}

#[test]
fn one_that_is_broken_off_from_another_thread_lets_go_of_everything_at_once() {
    if port().is_none() {
        return;
    }
    // With this patience a peer that is gone would not be found out here.
    let mut config = config();
    (config.route.timeout, config.route.retry_count) = (20, 6);
    let mut publisher = Publisher::new(&config);
    let gone = publisher.join(Policy::Conflate, |_| {});
    let monitor = gone.monitor.clone();
    drop(gone);
    for _ in 0..20 {
        publisher.publish();
    }
    assert!(publisher.fabric.outstanding() > 0);
    std::thread::scope(|scope| scope.spawn(|| monitor.quench()).join()).unwrap();
    publisher.assert_whole();
}

#[test]
fn when_every_send_queue_is_full_and_all_are_flushed_at_once_the_completion_queue_holds_them() {
    if port().is_none() {
        return;
    }
    let mut config = config();
    // Each snapshot is a work request, and none is found out to be unanswered before the end.
    (config.route.timeout, config.route.retry_count) = (20, 6);
    (config.signal_every, config.gather) = (32, 1);
    let mut publisher = Publisher::new(&config);
    let sessions: Vec<_> = (0..64)
        .map(|_| {
            let mut subscriber = publisher.join(Policy::Conflate, |offer| {
                // A ring that is never full, of which only the first bytes exist.
                (offer.ring_bytes, offer.receive_depth) = (1 << 20, 4096);
            });
            // Nobody is there any more to acknowledge anything.
            subscriber.receiver.endpoint_mut().inlet.fall_silent();
            subscriber
        })
        .collect();
    let mut full = 0;
    for _ in 0..200 {
        publisher.publish();
        full = publisher.fabric.outstanding();
    }
    assert_eq!(full, 4096, "64 queue pairs of 64");
    std::thread::scope(|scope| {
        for session in &sessions {
            let monitor = session.monitor.clone();
            scope.spawn(move || monitor.quench());
        }
    });
    publisher.assert_whole();
    let counts = publisher.fabric.network().counts();
    // A device may hold more than was asked for, so that it reports no overrun says little: what it
    // ever had to hold is what counts.
    assert_eq!(counts.completions, 4096, "{counts:?}");
    assert!(counts.completions_high_water <= 4096, "{counts:?}");
    assert!(!counts.lost, "{counts:?}");
    assert_eq!(publisher.host.take_events(), Vec::<String>::new(), "no overrun was reported");
}
