//! A sender on shared memory with everything around it, as the daemon puts it together.

use std::sync::Arc;

use crossbeam_channel::bounded;
use tapecast_core::Interest;
use tapecast_fabric::park::{Bell, Parker};
use tapecast_fabric::pool::{Pool, PoolConfig};
use tapecast_fabric::shm::{Shm, ShmConfig, ShmEndpoint, ShmFabric, ShmHost, ShmSession};
use tapecast_fabric::{Receiver, WaitStrategy};
use tapecast_publisher::book::{SnapshotDraft, SnapshotSink};
use tapecast_publisher::feed::{Directory, Encoder, FeedQueue, QUEUE_ITEMS, StopFlag};
use tapecast_publisher::sender::{
    Command, CommandPort, Outcome, Sender, SenderProgress, command_ports,
};
use tapecast_wire::attach::Policy;
use tapecast_wire::{Flags, Instrument, InstrumentId, Level, TradingStatus};

/// Instruments that the feed deals snapshots to, in turn.
pub(crate) const INSTRUMENTS: u32 = 100;

/// A sender and its surroundings.
pub(crate) struct Plant {
    pub(crate) host: ShmHost,
    pub(crate) port: CommandPort<ShmSession>,
    pub(crate) feed: Feed,
    pub(crate) sender: Sender<ShmFabric>,
    pub(crate) progress: Arc<SenderProgress>,
    /// Keeps the pool from being unmapped by whoever drops its last page.
    pub(crate) pool: Pool,
}

impl Plant {
    pub(crate) fn new(config: &ShmConfig) -> Self {
        let sender_bell = Parker::new().ringer();
        let Shm { host, fabric, .. } = ShmHost::create(config, sender_bell.clone()).unwrap();
        let (queue, items) = bounded(QUEUE_ITEMS);
        let (port, sender_port) = command_ports();
        let progress = Arc::new(SenderProgress::default());
        let sender = Sender::new(fabric, items, sender_port, Arc::clone(&progress));
        let queue = FeedQueue::new(queue, Bell::new(sender_bell), StopFlag::default());
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let directory = Arc::new(Directory::new(config.instruments));
        let encoder = Encoder::new(config.epoch, directory, pool.clone(), queue);
        Self { host, port, feed: Feed { encoder }, sender, progress, pool }
    }
}

/// Encodes and queues books of two levels a side, as the feed thread does.
pub(crate) struct Feed {
    encoder: Encoder,
}

impl Feed {
    /// Lists the instruments and queues so many snapshots.
    pub(crate) fn run(mut self, snapshots: u64) {
        for id in 0..INSTRUMENTS {
            let symbol = format!("S{id}");
            self.encoder.on_instrument(&Instrument::new(InstrumentId(id), &symbol, "XTST"));
        }
        let mut levels = [Level::new(1_000_000_000, 100, 1); 2];
        for number in 0..snapshots {
            levels[0].quantity = number;
            let draft = SnapshotDraft {
                instrument: InstrumentId((number % u64::from(INSTRUMENTS)) as u32),
                flags: Flags::NONE,
                status: TradingStatus::Trading,
                feed_sequence: number,
                ts_event: number,
                ts_recv: number,
                last_trade: None,
            };
            self.encoder.on_snapshot(&draft, &levels, &levels);
            self.encoder.ring_if_queued();
        }
        assert_eq!(self.encoder.failure(), None);
    }
}

/// A subscriber in this process.
pub(crate) struct Reader {
    receiver: Receiver<ShmEndpoint>,
}

impl Reader {
    /// Attaches, with the sender's turns made here.
    pub(crate) fn attach(
        host: &ShmHost,
        port: &CommandPort<ShmSession>,
        sender: &mut Sender<ShmFabric>,
        policy: Policy,
    ) -> Self {
        let (session, descriptors) = host.prepare(policy).unwrap();
        port.submit(Command::Attach { ticket: 1, session }).unwrap();
        sender.do_work();
        let Some(Outcome::Attached { result: Ok(_), .. }) = port.poll() else {
            panic!("not attached");
        };
        let endpoint =
            ShmEndpoint::open(descriptors.into_vec(), policy, WaitStrategy::Yield).unwrap();
        Self { receiver: Receiver::new(endpoint, &Interest::All) }
    }

    /// Reads until `is_over` and nothing is left; returns how many snapshots it got.
    pub(crate) fn read_until(mut self, is_over: impl Fn() -> bool) -> u64 {
        loop {
            let over = is_over();
            if self.receiver.poll(256, |_| {}).unwrap() == 0 {
                if over && !self.receiver.is_ready() {
                    return self.receiver.totals().delivered;
                }
                std::thread::yield_now();
            }
        }
    }
}
