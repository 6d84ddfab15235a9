use super::*;
use crate::pool::{PageWriter, PoolConfig, Shared};
use crate::{ChannelState, Fabric, LatencyReport, Monitor, PollError, Receiver, SendQueueStats};
use proptest::prelude::*;
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

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let trace = |seed| {
        let mut config = config();
        config.seed = seed;
        config.execute_ticks_max = 9;
        let mut network = Network::new(&config);
        let mut subscriber = network.join(Policy::Conflate);
        let mut trace = Vec::new();
        for nth in 0..200 {
            network.publish(InstrumentId(nth % 2));
            network.turn();
            trace.push(subscriber.poll(network.now).unwrap());
        }
        trace
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

#[test]
fn numbers_that_make_no_network_are_refused() {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let refused = |change: fn(&mut SimConfig)| {
        let mut config = config();
        change(&mut config);
        SimHost::create(&config, pool.clone()).unwrap_err()
    };
    assert!(matches!(refused(|c| c.ring_bytes = 4096), SimError::Window(_)));
    assert!(matches!(refused(|c| c.gather = MAX_GATHER as u32 + 1), SimError::Gather { .. }));
    assert!(matches!(refused(|c| c.signal_every = c.send_depth / 2 + 1), SimError::Signal { .. }));
    assert!(matches!(refused(|c| c.signal_every = 0), SimError::Signal { .. }));
    let many = |c: &mut SimConfig| c.instruments = MAX_INSTRUMENTS + 1;
    assert!(matches!(refused(many), SimError::Shape { .. }));
}

#[test]
fn a_ticket_that_was_not_attached_opens_nothing() {
    let network = Network::new(&config());
    let (_session, ticket) = network.host.prepare(Policy::Conflate, &Interest::All).unwrap();
    assert!(SimEndpoint::open(ticket).is_err());
}

#[test]
fn a_page_stays_out_until_a_completion_is_polled_and_then_returns() {
    let mut network = Network::new(&config());
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    subscriber.faults.delay_completions(50);
    network.publish(A);
    network.page = None;
    for _ in 0..10 {
        network.turn();
        subscriber.poll(network.now).unwrap();
    }
    assert_eq!(subscriber.seen, [(0, 1)], "it has arrived");
    assert_eq!(network.pool.free_pages(), network.pool.pages() - 1, "and is not retired");
    for _ in 0..50 {
        network.turn();
    }
    assert_eq!(network.free_pages_at_rest(), network.pool.pages());
}

#[test]
fn late_completions_cost_send_queue_places_and_nothing_else() {
    let mut config = config();
    (config.send_depth, config.signal_every) = (4, 2);
    let mut network = Network::new(&config);
    let mut slow = network.join(Policy::Conflate);
    let mut quick = network.join(Policy::Conflate);
    network.settle(&mut [&mut slow, &mut quick]);
    slow.faults.delay_completions(40);
    for _ in 0..100 {
        network.publish(A);
        network.turn();
        slow.poll(network.now).unwrap();
        quick.poll(network.now).unwrap();
    }
    slow.faults.delay_completions(0);
    network.settle(&mut [&mut slow, &mut quick]);
    assert_eq!(quick.receiver.totals().delivered, 100);
    let totals = slow.receiver.totals();
    assert!(totals.conflated > 0, "{totals:?}");
    assert_eq!(totals.published, 100);
    assert_eq!(slow.seen.last(), Some(&(0, 100)));
    assert_eq!(network.fabric.sent(slow.id, A).unwrap().conflated, totals.conflated);
}

#[test]
fn each_session_shows_how_full_its_own_send_queue_is_and_was() {
    let mut config = config();
    (config.send_depth, config.signal_every) = (4, 2);
    let mut network = Network::new(&config);
    let (session, ticket) = network.host.prepare(Policy::Conflate, &Interest::All).unwrap();
    let monitor = session.monitor();
    let id = network.fabric.attach(session).unwrap();
    let endpoint = SimEndpoint::open(ticket).unwrap();
    let faults = endpoint.faults();
    let receiver = Receiver::new(endpoint, &Interest::All);
    let mut slow = Subscriber { id, receiver, faults, seen: Vec::new() };
    let mut quick = network.join(Policy::Conflate);
    network.settle(&mut [&mut slow, &mut quick]);
    slow.faults.delay_completions(1_000);
    for _ in 0..20 {
        network.publish(A);
        network.turn();
        slow.poll(network.now).unwrap();
        quick.poll(network.now).unwrap();
    }
    let full = SendQueueStats { outstanding: 4, high_water: 4 };
    assert_eq!(monitor.stats().send_queue, Some(full));
    let other = network.fabric.session_stats(quick.id).unwrap().send_queue.unwrap();
    assert!(other.outstanding < 4, "nothing holds this one up: {other:?}");
    slow.faults.delay_completions(0);
    network.settle(&mut [&mut slow, &mut quick]);
    let rested = monitor.stats().send_queue.unwrap();
    assert!(rested.outstanding < 4, "{rested:?}");
    assert_eq!(rested.high_water, 4, "it stays");
}

#[test]
fn a_paused_subscriber_takes_writes_and_goes_on_where_it_was() {
    let mut network = Network::new(&config());
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    subscriber.faults.pause();
    for _ in 0..500 {
        network.publish(A);
        network.turn();
        assert_eq!(subscriber.poll(network.now), Ok(0));
    }
    network.settle(&mut []);
    assert_eq!(network.free_pages_at_rest(), network.pool.pages(), "writes complete all the same");
    subscriber.faults.resume();
    network.settle(&mut [&mut subscriber]);
    assert_eq!(subscriber.seen.first(), Some(&(0, 1)));
    assert_eq!(subscriber.seen.last(), Some(&(0, 500)));
    assert_eq!(subscriber.receiver.totals().published, 500);
}

#[test]
fn a_killed_subscriber_is_evicted_flushed_and_harms_nobody() {
    let mut network = Network::new(&config());
    let mut dead = network.join(Policy::Lossless);
    let mut alive = network.join(Policy::Lossless);
    network.settle(&mut [&mut dead, &mut alive]);
    dead.faults.kill();
    for _ in 0..50 {
        network.publish_patiently(A, &mut alive);
    }
    network.settle(&mut [&mut alive]);
    assert_eq!(dead.evictions(&network), [Eviction::Unreachable]);
    assert_eq!(alive.receiver.totals().delivered, 50);
    assert_eq!(network.fabric.outstanding(), 0);
    assert_eq!(network.free_pages_at_rest(), network.pool.pages());
    assert!(network.fabric.detach(dead.id).is_some());
}

#[test]
fn a_failed_write_flushes_every_outstanding_one_and_the_subscriber_is_told() {
    let mut network = Network::new(&config());
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    network.publish(A);
    network.settle(&mut [&mut subscriber]);
    subscriber.faults.delay_completions(1000);
    for _ in 0..12 {
        network.publish(A);
        network.turn();
    }
    subscriber.faults.fail_next_write();
    network.publish(A);
    for _ in 0..10 {
        network.turn();
    }
    assert_eq!(subscriber.evictions(&network), [Eviction::Unreachable]);
    assert_eq!(network.fabric.outstanding(), 0);
    assert_eq!(network.free_pages_at_rest(), network.pool.pages());
    let polled = core::iter::repeat_with(|| subscriber.poll(network.now));
    let end = polled.take(64).find(Result::is_err);
    assert!(matches!(end, Some(Err(PollError::Evicted { .. }))), "{end:?}");
    assert_eq!(subscriber.seen.len(), 13, "what had arrived is delivered before");
}

#[test]
fn a_lying_cursor_evicts_the_liar_and_nobody_else() {
    let mut network = Network::new(&config());
    let mut honest = network.join(Policy::Conflate);
    let mut liar = network.join(Policy::Lossless);
    network.settle(&mut [&mut honest, &mut liar]);
    let (sent, said) = (network.fabric.session_stats(liar.id).unwrap().consumed, Position(1 << 40));
    liar.faults.claim_consumed(said);
    network.turn();
    let lie = Liar::ConsumedAhead { sent, said };
    assert_eq!(liar.evictions(&network), [Eviction::Liar(lie)]);
    assert_eq!(network.fabric.session_stats(liar.id).unwrap().faults, 1);
    for _ in 0..200 {
        assert!(network.publish(A), "a liar gates nobody");
        network.turn();
        honest.poll(network.now).unwrap();
    }
    network.settle(&mut [&mut honest]);
    assert_eq!(honest.receiver.totals().delivered, 200);
    assert_eq!(network.fabric.session_stats(honest.id).unwrap().faults, 0);
}

#[test]
fn a_cursor_that_goes_back_evicts() {
    let mut network = Network::new(&config());
    let mut liar = network.join(Policy::Conflate);
    network.publish(A);
    network.settle(&mut [&mut liar]);
    liar.faults.claim_consumed(Position(0));
    network.turn();
    let evictions = liar.evictions(&network);
    let is_backwards = |why: &Eviction| {
        matches!(why, Eviction::Liar(Liar::ConsumedBackwards { said: Position(0), .. }))
    };
    assert!(evictions.iter().all(is_backwards) && evictions.len() == 1, "{evictions:?}");
}

#[test]
fn receives_that_were_never_posted_evict_the_one_who_claims_them() {
    let mut config = config();
    config.receive_depth = 2;
    let mut network = Network::new(&config);
    let mut liar = network.join(Policy::Conflate);
    network.settle(&mut [&mut liar]);
    liar.faults.pause();
    // Within what its queue could hold, so it is believed, and found out when a write arrives.
    for extra in 1..8 {
        let posted = network.fabric.session_stats(liar.id).map(|_| extra);
        liar.faults.claim_receives(posted.unwrap() + 4);
        network.publish(A);
        network.turn();
    }
    network.settle(&mut []);
    let evictions = liar.evictions(&network);
    assert_eq!(evictions.len(), 1, "{evictions:?}");
    assert_eq!(network.fabric.outstanding(), 0);
    assert_eq!(network.free_pages_at_rest(), network.pool.pages());
}

#[test]
fn in_health_no_immediate_ever_finds_an_empty_receive_queue() {
    let mut config = config();
    (config.receive_depth, config.gather) = (3, 1);
    let mut network = Network::new(&config);
    let mut subscriber = network.join(Policy::Lossless);
    for nth in 0..2000_u32 {
        network.publish_patiently(InstrumentId(nth % 2), &mut subscriber);
    }
    network.settle(&mut [&mut subscriber]);
    assert_eq!(network.fabric.receiver_not_ready(), 0);
    assert_eq!(subscriber.receiver.totals().delivered, 2000);
}

#[test]
fn a_silent_lossless_subscriber_is_evicted_and_a_conflating_one_is_not() {
    let mut network = Network::new(&config());
    let mut strict = network.join(Policy::Lossless);
    let mut patient = network.join(Policy::Conflate);
    network.settle(&mut [&mut strict, &mut patient]);
    strict.faults.pause();
    patient.faults.pause();
    network.turn();
    network.now.0 += config().lossless_silence_limit.0 - TURN_NS;
    network.turn();
    assert!(strict.evictions(&network).is_empty(), "silent for just as long as it may be");
    network.turn();
    assert!(matches!(strict.evictions(&network)[..], [Eviction::Silent { .. }]));
    assert!(patient.evictions(&network).is_empty());
    assert!(network.publish(A));
}

#[test]
fn without_a_free_page_the_backlog_waits_and_nothing_is_lost() {
    let mut network = Network::new(&config());
    network.publish(A);
    network.settle(&mut []);
    network.page = None;
    let hoard: Vec<_> = core::iter::from_fn(|| network.pool.loan()).collect();
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    assert!(subscriber.seen.is_empty(), "its image needs a page");
    assert_eq!(subscriber.receiver.instrument_count(), 0, "and so does the directory");
    drop(hoard);
    network.settle(&mut [&mut subscriber]);
    assert_eq!(subscriber.seen, [(0, 1)]);
}

#[test]
fn peers_that_do_not_acknowledge_leave_a_quarter_of_the_pool_to_the_feed() {
    let mut network = Network::new(&config());
    let mut healthy = network.join(Policy::Conflate);
    // Each wants another instrument, so that between them no page is shared.
    let mut silent = [0, 1].map(|id| network.join_for(Interest::Only(vec![InstrumentId(id)])));
    let [first, second] = &mut silent;
    network.settle(&mut [&mut healthy, first, second]);
    first.faults.delay_completions(1_000_000);
    second.faults.delay_completions(1_000_000);
    let mut fewest = network.pool.pages();
    for nth in 0..300 * 16 {
        network.publish(InstrumentId(nth % 2));
        // Every record in a page of its own: the worst there can be.
        network.page = None;
        fewest = fewest.min(network.pool.free_pages());
        if nth % 16 == 15 {
            network.turn();
            for subscriber in [&mut healthy, first, second] {
                subscriber.poll(network.now).unwrap();
            }
        }
    }
    assert!(fewest >= network.pool.pages() / 4, "{fewest} free");
    assert!(fewest < network.pool.pages() / 2, "{fewest} free: the pool was never short");
    first.faults.delay_completions(0);
    second.faults.delay_completions(0);
    network.settle(&mut [&mut healthy, first, second]);
    assert_eq!(network.free_pages_at_rest(), network.pool.pages());
    let totals = healthy.receiver.totals();
    assert_eq!((totals.published, totals.lost), (4800, 0));
    for subscriber in [first, second] {
        let totals = subscriber.receiver.totals();
        assert_eq!((totals.published, totals.lost), (2400, 0));
        assert_eq!(subscriber.seen.last().map(|seen| seen.1), Some(2400));
    }
}

#[test]
fn a_feed_that_queues_much_does_not_make_those_conflate_who_keep_up() {
    let mut config = config();
    config.ring_bytes = 256 << 10;
    let mut network = Network::new(&config);
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    let queued: Vec<_> = (0..600).map(|_| network.pool.loan().unwrap()).collect();
    for nth in 0..300 * 16 {
        assert!(network.publish(InstrumentId(nth % 2)));
        if nth % 16 == 15 {
            network.turn();
            subscriber.poll(network.now).unwrap();
        }
    }
    network.settle(&mut [&mut subscriber]);
    let totals = subscriber.receiver.totals();
    assert_eq!((totals.delivered, totals.conflated), (4800, 0));
    drop(queued);
}

#[test]
fn one_that_was_idle_since_pages_were_short_before_is_not_taken_for_gone() {
    let mut config = config();
    config.ring_bytes = 256 << 10;
    (config.execute_ticks_max, config.complete_ticks_max) = (0, 0);
    let mut network = Network::new(&config);
    let mut subscriber = network.join(Policy::Conflate);
    let hoard =
        |network: &Network| -> Vec<_> { (0..600).map(|_| network.pool.loan().unwrap()).collect() };
    let queued = hoard(&network);
    network.settle(&mut [&mut subscriber]);
    drop(queued);
    network.settle(&mut [&mut subscriber]);
    network.now.0 += 1_000_000_000;
    // Less than what counts as standing still, and more than one look.
    subscriber.faults.delay_completions(3);
    let queued = hoard(&network);
    for _ in 0..10 {
        (0..16).for_each(|_| assert!(network.publish(A)));
        network.turn();
    }
    drop(queued);
    network.settle(&mut [&mut subscriber]);
    let totals = subscriber.receiver.totals();
    assert_eq!((totals.delivered, totals.conflated), (160, 0));
}

#[test]
fn a_subscriber_is_never_sent_what_it_was_not_granted_whatever_it_asks_for_later() {
    let mut network = Network::new(&config());
    let symbols = ["SYM0".to_owned()];
    let only = Interest::Only(vec![A]);
    let wish = Wish {
        policy: Policy::Conflate,
        interest: &only,
        symbols: Some(&symbols),
        min_interval: Nanos(0),
        offer: None,
    };
    let prepared = network.host.prepare_for(&wish);
    let (session, ticket) = prepared.unwrap();
    let id = network.fabric.attach(session).unwrap();
    let endpoint = SimEndpoint::open(ticket).unwrap();
    let faults = endpoint.faults();
    let receiver = Receiver::new(endpoint, &only);
    let mut subscriber = Subscriber { id, receiver, faults, seen: Vec::new() };
    network.publish(InstrumentId(1));
    network.settle(&mut [&mut subscriber]);
    assert!(subscriber.receiver.watch(InstrumentId(1)));
    network.settle(&mut [&mut subscriber]);
    network.publish(InstrumentId(1));
    network.publish(A);
    network.settle(&mut [&mut subscriber]);
    assert_eq!(subscriber.seen, [(0, 1)]);
    assert_eq!(network.fabric.session_stats(id).unwrap().faults, 1);
}

#[test]
fn a_lagging_session_is_told_of_the_end_after_its_last_snapshot() {
    let mut network = Network::new(&config());
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    subscriber.faults.pause();
    for nth in 0..200 {
        network.publish(InstrumentId(nth % 2));
        network.turn();
    }
    network.fabric.close(network.now, tapecast_wire::attach::Farewell::Closing);
    network.settle(&mut []);
    assert_eq!(subscriber.receiver.state(), ChannelState::Closing);
    subscriber.faults.resume();
    network.settle(&mut [&mut subscriber]);
    assert_eq!(subscriber.receiver.state(), ChannelState::Closed);
    assert_eq!(subscriber.seen.iter().filter(|seen| seen.1 == 100).count(), 2);
}

#[test]
fn a_connection_that_breaks_after_the_end_was_told_is_no_failure() {
    let mut network = Network::new(&config());
    let mut subscriber = network.join(Policy::Conflate);
    network.publish(A);
    network.fabric.close(network.now, tapecast_wire::attach::Farewell::Closing);
    network.settle(&mut [&mut subscriber]);
    assert_eq!(subscriber.receiver.state(), ChannelState::Closed);
    assert!(network.fabric.detach(subscriber.id).is_some(), "this breaks it off");
    assert_eq!(subscriber.poll(network.now), Ok(0));
    assert!(!subscriber.receiver.is_ready());
    assert_eq!(subscriber.seen, [(0, 1)]);
}

/// One step of a run with faults. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Publish(u32, usize),
    Turn,
    Join(bool),
    Detach(usize),
    Pause(usize),
    Resume(usize),
    Kill(usize),
    FailNextWrite(usize),
    DelayCompletions(usize, u32),
    ClaimConsumed(usize, u64),
    ClaimReceives(usize, u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let who = || 0..5_usize;
    prop_oneof![
        12 => (0..2_u32, 1..40_usize).prop_map(|(id, count)| Step::Publish(id, count)),
        12 => Just(Step::Turn),
        4 => prop::bool::weighted(0.3).prop_map(Step::Join),
        1 => who().prop_map(Step::Detach),
        2 => who().prop_map(Step::Pause),
        3 => who().prop_map(Step::Resume),
        1 => who().prop_map(Step::Kill),
        1 => who().prop_map(Step::FailNextWrite),
        2 => (who(), 0..60_u32).prop_map(|(who, ticks)| Step::DelayCompletions(who, ticks)),
        1 => (who(), 0..30_000_u64).prop_map(|(who, at)| Step::ClaimConsumed(who, at)),
        1 => (who(), 0..600_u64).prop_map(|(who, posted)| Step::ClaimReceives(who, posted)),
    ]
}

/// A run with faults: which subscribers were harmed on purpose is remembered, the others must not
/// notice.
struct Run {
    network: Network,
    subscribers: Vec<(Subscriber, bool)>,
}

impl Run {
    fn play(&mut self, step: &Step) {
        match *step {
            Step::Publish(id, count) => {
                for _ in 0..count {
                    self.network.publish(InstrumentId(id));
                }
            }
            Step::Turn => self.turn(),
            Step::Join(lossless) if self.subscribers.len() < 5 => {
                let policy = if lossless { Policy::Lossless } else { Policy::Conflate };
                let subscriber = self.network.join(policy);
                self.subscribers.push((subscriber, false));
            }
            Step::Detach(who) if !self.subscribers.is_empty() => {
                let (subscriber, _) = self.subscribers.remove(who % self.subscribers.len());
                assert!(self.network.fabric.detach(subscriber.id).is_some());
            }
            Step::Pause(who) => self.with(who, false, |faults| faults.pause()),
            Step::Resume(who) => self.with(who, false, |faults| faults.resume()),
            Step::DelayCompletions(who, ticks) => {
                self.with(who, false, |faults| faults.delay_completions(ticks));
            }
            Step::Kill(who) => self.with(who, true, |faults| faults.kill()),
            Step::FailNextWrite(who) => self.with(who, true, |faults| faults.fail_next_write()),
            Step::ClaimConsumed(who, at) => {
                self.with(who, true, |faults| faults.claim_consumed(Position(at)));
            }
            Step::ClaimReceives(who, posted) => {
                self.with(who, true, |faults| faults.claim_receives(posted));
            }
            Step::Join(_) | Step::Detach(_) => {}
        }
    }

    fn with(&mut self, who: usize, harms: bool, act: impl FnOnce(&SimFaults)) {
        if self.subscribers.is_empty() {
            return;
        }
        let count = self.subscribers.len();
        let (subscriber, harmed) = &mut self.subscribers[who % count];
        act(&subscriber.faults);
        *harmed |= harms;
    }

    fn turn(&mut self) {
        self.network.turn();
        for (subscriber, harmed) in &mut self.subscribers {
            let polled = subscriber.poll(self.network.now);
            assert!(polled.is_ok() || *harmed, "{polled:?}");
        }
    }

    /// The safety phase is over: everybody who can goes on, and all must come to rest.
    fn heal_and_check(mut self) {
        for (subscriber, _) in &self.subscribers {
            subscriber.faults.resume();
            subscriber.faults.delay_completions(0);
        }
        let mut all: Vec<_> = self.subscribers.iter_mut().map(|(each, _)| each).collect();
        self.network.settle(&mut all);
        for (subscriber, _) in self.subscribers.iter().filter(|(_, harmed)| !harmed) {
            self.check(subscriber);
        }
        assert_eq!(self.network.fabric.outstanding(), 0);
        assert_eq!(self.network.free_pages_at_rest(), self.network.pool.pages());
    }

    fn check(&self, subscriber: &Subscriber) {
        assert!(subscriber.evictions(&self.network).is_empty());
        let totals = subscriber.receiver.totals();
        assert_eq!((totals.published, totals.lost), (totals.delivered + totals.conflated, 0));
        for (index, newest) in self.network.newest.iter().enumerate() {
            let id = InstrumentId(index as u32);
            let mine: Vec<_> = subscriber.seen.iter().filter(|seen| seen.0 == id.0).collect();
            assert_eq!(mine.last().map_or(0, |seen| seen.1), *newest);
            assert!(mine.windows(2).all(|pair| pair[0].1 < pair[1].1));
            let received = subscriber.receiver.instrument_totals(id).unwrap();
            let sent = self.network.fabric.sent(subscriber.id, id).unwrap();
            assert_eq!(
                (sent.published, sent.sent, sent.conflated),
                (received.published, received.delivered, received.conflated),
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn faults_of_some_sessions_are_not_noticed_by_the_others(
        seed in any::<u64>(),
        steps in prop::collection::vec(any_step(), 1..150),
    ) {
        let mut config = config();
        config.seed = seed;
        (config.receive_depth, config.send_depth, config.signal_every) = (16, 12, 4);
        let mut run = Run { network: Network::new(&config), subscribers: Vec::new() };
        for step in &steps {
            run.play(step);
        }
        run.heal_and_check();
    }
}

#[test]
fn credit_that_is_late_costs_room_and_nothing_else() {
    let mut network = Network::new(&config());
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    subscriber.faults.delay_credit(30);
    for _ in 0..200 {
        network.publish(A);
        network.turn();
        subscriber.poll(network.now).unwrap();
    }
    let late = subscriber.receiver.totals();
    assert!(late.conflated > 0, "{late:?}");
    subscriber.faults.delay_credit(0);
    network.settle(&mut [&mut subscriber]);
    let totals = subscriber.receiver.totals();
    assert_eq!((totals.published, totals.lost), (200, 0));
    assert_eq!(subscriber.seen.last(), Some(&(0, 200)));
    let stats = network.fabric.session_stats(subscriber.id).unwrap();
    assert_eq!((stats.lag_bytes, stats.faults), (0, 0));
}
