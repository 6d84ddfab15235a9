use std::sync::Arc;

use crossbeam_channel::{Sender as QueueEnd, bounded};
use tapecast_core::Interest;
use tapecast_fabric::park::{IdleStrategy, Parker};
use tapecast_fabric::pool::{Pool, PoolConfig, Shared};
use tapecast_fabric::sim::{Sim, SimConfig, SimEndpoint, SimFabric, SimHost};
use tapecast_fabric::{
    AttachError, ChannelState, DirectoryFull, Fabric, Full, Receiver, SessionStats,
};
use tapecast_wire::attach::{Farewell, Policy};
use tapecast_wire::{
    Epoch, Flags, Instrument, InstrumentEntry, InstrumentId, Nanos, Sequence, SessionId, Snapshot,
    SnapshotFields, TradingStatus, UNDEFINED_PRICE, encode_snapshot,
};

use super::*;

/// A fabric that writes down what happens to it, with room for `room` snapshots before a turn.
#[derive(Debug, Default)]
struct Recorder {
    room: Option<usize>,
    sessions: Vec<Option<u32>>,
    directory: Vec<InstrumentEntry>,
    published: Vec<(Sequence, Nanos)>,
    visible: usize,
    turns: usize,
    feed_silent_since: Nanos,
    farewell: Option<Farewell>,
}

impl Fabric for Recorder {
    type Session = u32;

    fn attach(&mut self, session: u32) -> Result<SessionId, AttachError<u32>> {
        if self.sessions.len() == 2 {
            return Err(AttachError::Full(session));
        }
        self.sessions.push(Some(session));
        Ok(SessionId(self.sessions.len() as u32 - 1))
    }

    fn detach(&mut self, id: SessionId) -> Option<u32> {
        self.sessions.get_mut(id.index())?.take()
    }

    fn upsert_instrument(&mut self, entry: &InstrumentEntry) -> Result<(), DirectoryFull> {
        if entry.instrument_id == 9 {
            return Err(DirectoryFull { instrument_id: 9, count: 0, capacity: 9 });
        }
        self.directory.push(*entry);
        Ok(())
    }

    fn publish(&mut self, snapshot: Shared) -> Result<(), Full> {
        if self.room == Some(0) {
            return Err(Full(snapshot));
        }
        self.room = self.room.map(|room| room - 1);
        let parsed = Snapshot::parse(snapshot.bytes()).unwrap();
        self.published.push((parsed.channel_sequence(), parsed.ts_publish()));
        Ok(())
    }

    fn flush(&mut self, _now: Nanos) {
        self.visible = self.published.len();
    }

    fn turn(&mut self, _now: Nanos) -> usize {
        assert_eq!(self.visible, self.published.len(), "a turn before the flush");
        self.turns += 1;
        0
    }

    fn show_feed(&mut self, silent_since: Nanos) {
        self.feed_silent_since = silent_since;
    }

    fn session_stats(&self, id: SessionId) -> Option<SessionStats> {
        (*self.sessions.get(id.index())?).map(|_| SessionStats::default())
    }

    fn close(&mut self, _now: Nanos, farewell: Farewell) {
        self.farewell = Some(farewell);
    }
}

struct Bench<F: Fabric = Recorder> {
    queue: QueueEnd<FeedItem>,
    port: CommandPort<F::Session>,
    sender: Sender<F>,
    progress: Arc<SenderProgress>,
    pool: Pool,
    sequence: u64,
}

fn bench(fabric: Recorder) -> Bench {
    bench_with(fabric, Pool::new(PoolConfig::default()).unwrap())
}

fn bench_with<F: Fabric>(fabric: F, pool: Pool) -> Bench<F> {
    let (queue, items) = bounded(2000);
    let (port, sender_port) = command_ports();
    let progress = Arc::new(SenderProgress::default());
    let sender = Sender::new(fabric, items, sender_port, Arc::clone(&progress));
    Bench { queue, port, sender, progress, pool, sequence: 0 }
}

impl<F: Fabric> Bench<F> {
    fn queue(&mut self, count: usize) {
        for _ in 0..count {
            self.sequence += 1;
            let fields = SnapshotFields {
                instrument_id: InstrumentId(self.sequence as u32 % 3),
                flags: Flags::NONE,
                trading_status: TradingStatus::Trading,
                epoch: Epoch(1),
                channel_sequence: Sequence(self.sequence),
                instrument_sequence: Sequence(self.sequence.div_ceil(3)),
                feed_sequence: 0,
                ts_event: 0,
                ts_recv: 0,
                last_trade_price: UNDEFINED_PRICE,
                last_trade_quantity: 0,
            };
            let mut page = self.pool.loan().unwrap();
            let filled = page.append(96, |out| encode_snapshot(out, &fields, &[], &[])).unwrap();
            self.queue.send(FeedItem::Snapshot(filled)).unwrap();
        }
    }

    /// Works until nothing can be done; what stops it.
    fn work(&mut self) -> Work {
        loop {
            match self.sender.do_work() {
                Work::Done => {}
                other => return other,
            }
        }
    }
}

impl Bench {
    fn sequences(&self) -> Vec<u64> {
        self.sender.fabric().published.iter().map(|(sequence, _)| sequence.0).collect()
    }

    fn outcome(&mut self, command: Command<u32>) -> Outcome<u32> {
        self.port.submit(command).unwrap();
        self.sender.do_work();
        self.port.poll().unwrap()
    }
}

#[test]
fn what_is_queued_goes_out_in_order_as_one_batch() {
    let mut bench = bench(Recorder::default());
    bench.queue(5);
    assert_eq!(bench.sender.do_work(), Work::Done);
    assert_eq!(bench.sequences(), [1, 2, 3, 4, 5]);
    assert_eq!(bench.sender.fabric().visible, 5);
    let progress = bench.progress.load();
    assert_eq!((progress.published, progress.batches, progress.bytes), (5, 1, 5 * 96));
    assert_eq!(bench.sender.do_work(), Work::Idle);
}

#[test]
fn a_batch_is_bounded() {
    let mut bench = bench(Recorder::default());
    bench.pool = Pool::new(PoolConfig::default()).unwrap();
    bench.queue(BATCH_MAX + 1);
    assert_eq!(bench.sender.do_work(), Work::Done);
    assert_eq!(bench.sequences().len(), BATCH_MAX);
    assert_eq!(bench.sender.do_work(), Work::Done);
    assert_eq!(bench.sequences().len(), BATCH_MAX + 1);
    assert_eq!(bench.progress.load().batches, 2);
}

#[test]
fn what_the_conductor_says_of_the_feed_is_shown_by_the_fabric_with_the_next_turn() {
    let bench = bench(Recorder::default());
    let feed = SilentSince::default();
    let mut sender = bench.sender.with_feed(feed.clone());
    for since in [Nanos(5), Nanos(0), Nanos(9)] {
        feed.set(since);
        assert_eq!(sender.do_work(), Work::Idle);
        assert_eq!(sender.fabric().feed_silent_since, since);
    }
}

#[test]
fn the_publish_time_is_stamped_and_never_runs_backwards() {
    let mut bench = bench(Recorder::default());
    let before = unix_now();
    bench.queue(10);
    bench.sender.do_work();
    let times: Vec<Nanos> = bench.sender.fabric().published.iter().map(|(_, time)| *time).collect();
    assert!(times.is_sorted() && times[0] >= before && times[9] <= unix_now());
}

#[test]
fn a_snapshot_without_room_is_kept_and_goes_first_when_there_is_room_again() {
    let mut bench = bench(Recorder { room: Some(3), ..Recorder::default() });
    bench.queue(6);
    assert_eq!(bench.sender.do_work(), Work::Done);
    assert_eq!(bench.sequences(), [1, 2, 3]);
    assert_eq!(bench.sender.fabric().visible, 3, "what went out must be visible to be read");
    assert_eq!(bench.sender.do_work(), Work::Gated);
    assert!(bench.progress.load().gated);
    bench.sender.fabric.room = Some(1);
    assert_eq!(bench.sender.do_work(), Work::Done);
    assert_eq!(bench.sender.do_work(), Work::Gated);
    bench.sender.fabric.room = None;
    assert_eq!(bench.sender.do_work(), Work::Done);
    assert_eq!(bench.sequences(), [1, 2, 3, 4, 5, 6]);
    let progress = bench.progress.load();
    assert_eq!((progress.published, progress.gate_stalls, progress.gated), (6, 1, false));
}

#[test]
fn a_cycle_that_only_waits_for_room_is_no_batch_in_the_figures() {
    let mut bench = bench(Recorder { room: Some(3), ..Recorder::default() });
    let figures = Arc::new(SenderFigures::default());
    bench.sender = bench.sender.with_figures(Some(Arc::clone(&figures)));
    bench.queue(6);
    assert_eq!(bench.sender.do_work(), Work::Done);
    for _ in 0..100 {
        assert_eq!(bench.sender.do_work(), Work::Gated);
    }
    assert_eq!(figures.read(unix_now()).publish_to_post.count(), 1, "one batch was posted");
}

#[test]
fn the_time_that_a_lossless_session_holds_the_sender_back_counts_while_it_lasts_and_not_after() {
    let mut bench = bench(Recorder { room: Some(3), ..Recorder::default() });
    let figures = Arc::new(SenderFigures::default());
    bench.sender = bench.sender.with_figures(Some(Arc::clone(&figures)));
    bench.queue(3);
    assert_eq!(bench.sender.do_work(), Work::Done);
    let later = |ns: u64| Nanos(unix_now().0 + ns);
    assert_eq!(figures.read(later(1_000_000_000)).gated_ns, 0);

    bench.queue(1);
    assert_eq!(bench.sender.do_work(), Work::Gated);
    assert_eq!(bench.sender.do_work(), Work::Gated);
    let hour_ns = 3_600_000_000_000;
    assert!(figures.read(later(hour_ns)).gated_ns >= hour_ns, "it lasts");

    bench.sender.fabric.room = None;
    assert_eq!(bench.sender.do_work(), Work::Done);
    let held_ns = figures.read(unix_now()).gated_ns;
    assert!((1..hour_ns).contains(&held_ns), "{held_ns}");
    assert_eq!(figures.read(later(hour_ns)).gated_ns, held_ns, "it is over");
}

#[test]
fn directory_entries_keep_their_place_among_the_snapshots() {
    let mut bench = bench(Recorder::default());
    let entry = Instrument::new(InstrumentId(0), "AAPL", "XNAS").to_wire();
    bench.queue.send(FeedItem::Instrument(entry)).unwrap();
    bench.queue(1);
    bench.sender.do_work();
    assert_eq!(bench.sender.fabric().directory, [entry]);
    assert_eq!(bench.sequences(), [1]);
    let nine = Instrument::new(InstrumentId(9), "X", "XNAS").to_wire();
    bench.queue.send(FeedItem::Instrument(nine)).unwrap();
    bench.sender.do_work();
    assert_eq!(bench.sender.into_report().directory_full.unwrap().instrument_id, 9);
}

#[test]
fn every_command_has_one_outcome() {
    let mut bench = bench(Recorder::default());
    let attach = |ticket, session| Command::Attach { ticket, session };
    for (ticket, session, id) in [(7, 70, 0), (8, 80, 1)] {
        let Outcome::Attached { ticket: told, result: Ok(place) } =
            bench.outcome(attach(ticket, session))
        else {
            panic!("not attached");
        };
        assert_eq!((told, place), (ticket, SessionId(id)));
    }
    let Outcome::Attached { ticket: 9, result: Err(AttachError::Full(90)) } =
        bench.outcome(attach(9, 90))
    else {
        panic!("the session of a refused attach must come back");
    };
    let detach = |bench: &mut Bench| bench.outcome(Command::Detach { id: SessionId(0) });
    let Outcome::Detached { id: SessionId(0), session: Some(70) } = detach(&mut bench) else {
        panic!("not detached");
    };
    let Outcome::Detached { session: None, .. } = detach(&mut bench) else {
        panic!("detached twice");
    };
    assert!(bench.port.poll().is_none());
}

#[test]
fn commands_are_bounded_in_each_cycle_and_none_is_taken_that_could_not_be_answered() {
    let mut bench = bench(Recorder::default());
    let detach = || Command::Detach { id: SessionId(5) };
    while bench.port.submit(detach()).is_ok() {}
    bench.sender.do_work();
    let answered = std::iter::from_fn(|| bench.port.poll()).count();
    assert_eq!(answered, COMMANDS_MAX);
    (0..answered).for_each(|_| bench.port.submit(detach()).unwrap());
    (0..100).for_each(|_| {
        bench.sender.do_work();
    });
    while bench.port.submit(detach()).is_ok() {}
    bench.sender.do_work();
    assert!(bench.port.submit(detach()).is_err(), "the sender took a command it cannot answer");
}

#[test]
fn the_end_of_the_feed_is_seen_when_all_is_published() {
    let mut bench = bench(Recorder { room: Some(1), ..Recorder::default() });
    bench.queue(2);
    let (other, _items) = bounded(1);
    drop(std::mem::replace(&mut bench.queue, other));
    bench.sender.do_work();
    bench.sender.do_work();
    assert!(!bench.progress.load().drained, "one snapshot is still held");
    bench.sender.fabric.room = None;
    bench.sender.do_work();
    assert!(bench.progress.load().drained);
    assert_eq!(bench.progress.load().published, 2);
}

#[test]
fn closing_drops_what_is_queued_and_says_whose_it_was() {
    let mut bench = bench(Recorder { room: Some(1), ..Recorder::default() });
    bench.queue(4);
    bench.sender.do_work();
    bench.port.submit(Command::Close { farewell: Farewell::Closing }).unwrap();
    assert_eq!(bench.sender.do_work(), Work::Closed);
    assert!(matches!(bench.port.poll(), Some(Outcome::Closed)));
    assert_eq!(bench.sender.fabric().farewell, Some(Farewell::Closing));
    let report = bench.sender.into_report();
    assert_eq!(report.discarded, [2, 0, 1].map(InstrumentId));
    assert_eq!((report.progress.published, report.cost.count()), (1, 1));
}

#[test]
fn every_idle_strategy_works_until_the_channel_is_closed() {
    for idle in [IdleStrategy::Spin, IdleStrategy::Yield, IdleStrategy::Block] {
        let mut bench = bench(Recorder::default());
        bench.queue(50);
        let Bench { queue, port, sender, progress, .. } = bench;
        let parker = Parker::new();
        let ringer = parker.ringer();
        let thread = std::thread::spawn(move || sender.run(idle, parker));
        drop(queue);
        while !progress.load().drained {
            ringer.ring();
            std::thread::yield_now();
        }
        port.submit(Command::Close { farewell: Farewell::EndOfSource }).unwrap();
        ringer.ring();
        assert_eq!(thread.join().unwrap().progress.published, 50, "{idle:?}");
    }
}

#[test]
fn the_system_calls_of_an_idle_sender_are_those_of_its_idle_strategy() {
    for idle in [IdleStrategy::Spin, IdleStrategy::Yield, IdleStrategy::Block] {
        let Bench { queue: _queue, port, sender, .. } = bench(Recorder::default());
        let figures = Arc::new(SenderFigures::default());
        let sender = sender.with_figures(Some(Arc::clone(&figures)));
        let parker = Parker::new();
        let ringer = parker.ringer();
        let thread = std::thread::spawn(move || sender.run(idle, parker));
        // The calls of a duty cycle are counted when the next begins.
        while figures.read(unix_now()).idle < 4 {
            std::thread::yield_now();
        }
        let SenderReading { waits, yields, .. } = figures.read(unix_now());
        let expected = (idle == IdleStrategy::Block, idle == IdleStrategy::Yield);
        assert_eq!((waits >= 3, yields >= 3), expected, "{idle:?}: {waits} {yields}");
        assert!(waits == 0 || yields == 0, "{idle:?}: {waits} {yields}");
        port.submit(Command::Close { farewell: Farewell::Closing }).unwrap();
        ringer.ring();
        thread.join().unwrap();
    }
}

/// A simulated RDMA network of three instruments, with one subscriber whose ring is small.
fn simulated() -> (Bench<SimFabric>, Receiver<SimEndpoint>) {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let config = SimConfig { ring_bytes: 8 << 10, instruments: 3, ..SimConfig::new(Epoch(1)) };
    let Sim { host, mut fabric } = SimHost::create(&config, pool.clone()).unwrap();
    for id in 0..3 {
        let entry = Instrument::new(InstrumentId(id), "SYM", "XTST").to_wire();
        fabric.upsert_instrument(&entry).unwrap();
    }
    let (session, ticket) = host.prepare(Policy::Conflate, &Interest::All).unwrap();
    fabric.attach(session).unwrap();
    let receiver = Receiver::new(SimEndpoint::open(ticket).unwrap(), &Interest::All);
    (bench_with(fabric, pool), receiver)
}

#[test]
fn a_subscriber_without_room_is_looked_after_without_being_rung_for() {
    let (mut bench, mut receiver) = simulated();
    assert_eq!(bench.work(), Work::Idle);
    bench.queue(1000);
    assert_eq!(bench.work(), Work::Gated, "what waits for room needs further turns");
    assert!(!bench.progress.load().gated, "a conflating subscriber stops nobody");
    let mut ends = Vec::new();
    for _ in 0..100 {
        receiver.poll(1000, |_| {}).unwrap();
        ends.push(bench.work());
    }
    assert_eq!(ends.last(), Some(&Work::Idle), "it has room for everything now");
    let totals = receiver.totals();
    assert_eq!((totals.delivered + totals.conflated, totals.lost), (1000, 0));
}

#[test]
fn a_closed_channel_is_said_to_be_closed_when_everything_has_arrived() {
    let (mut bench, mut receiver) = simulated();
    bench.queue(20);
    bench.sender.do_work();
    bench.port.submit(Command::Close { farewell: Farewell::EndOfSource }).unwrap();
    assert_ne!(bench.sender.do_work(), Work::Closed, "writes are still on their way");
    assert!(bench.port.poll().is_none());
    assert_eq!(bench.work(), Work::Closed);
    assert!(matches!(bench.port.poll(), Some(Outcome::Closed)));
    assert_eq!(bench.work(), Work::Closed);
    assert!(bench.port.poll().is_none(), "it is said once");
    receiver.poll(1000, |_| {}).unwrap();
    assert_eq!((receiver.totals().delivered, receiver.state()), (20, ChannelState::Closed));
}

#[test]
fn a_subscriber_that_reads_nothing_does_not_keep_the_channel_from_closing() {
    let (mut bench, _receiver) = simulated();
    bench.queue(1000);
    assert_eq!(bench.work(), Work::Gated);
    bench.port.submit(Command::Close { farewell: Farewell::Closing }).unwrap();
    assert_eq!(bench.work(), Work::Gated);
    while bench.work() != Work::Closed {
        std::thread::yield_now();
    }
    assert!(matches!(bench.port.poll(), Some(Outcome::Closed)));
}
