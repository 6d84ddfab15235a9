//! A publisher made of the crate's parts, and snapshots that check themselves.

use std::os::fd::OwnedFd;

use tapecast_core::Interest;
use tapecast_fabric::park::{Bell, Parker};
use tapecast_fabric::pool::{Filled, PageWriter, Pool, PoolConfig};
use tapecast_fabric::shm::{
    ResumeError, SessionDescriptors, Shm, ShmConfig, ShmEndpoint, ShmFabric, ShmHost, Waker,
    WakerThread,
};
use tapecast_fabric::{Delivery, Fabric, Receiver, WaitStrategy};
use tapecast_wire::attach::Policy;
use tapecast_wire::limits::record_bytes_max;
use tapecast_wire::{
    Epoch, Flags, Instrument, InstrumentId, Level, Nanos, Sequence, SessionId, Snapshot,
    SnapshotFields, TradingStatus, UNDEFINED_PRICE, encode_snapshot,
};

pub(crate) const EPOCH: Epoch = Epoch(77);
pub(crate) const LEVELS: usize = 10;

/// A small ring, so that laps are cheap to make.
pub(crate) fn small() -> ShmConfig {
    ShmConfig {
        ring_bytes: 64 * 1024,
        instruments: 64,
        levels_per_side: LEVELS,
        allow_lossless: true,
        ..ShmConfig::new(EPOCH)
    }
}

/// Level `index` of snapshot `sequence` of `instrument`: a different one for each.
fn level(instrument: u32, sequence: u64, index: usize) -> Level {
    let mark =
        sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (u64::from(instrument) << 8) ^ index as u64;
    Level::new((mark >> 1) as i64, mark ^ sequence, sequence as u32)
}

/// Number of levels per side of a snapshot: between one and all, so that lengths differ.
fn depth(instrument: u32, sequence: u64) -> usize {
    1 + (sequence as usize * 7 + instrument as usize) % LEVELS
}

/// Panics unless every word of the snapshot belongs to the instrument and sequence in its header.
pub(crate) fn check(snapshot: &Snapshot<'_>) {
    let (id, sequence) = (snapshot.instrument_id().0, snapshot.instrument_sequence().0);
    let header = snapshot.header();
    assert_eq!(header.feed_sequence, sequence * 3 + u64::from(id), "torn: {header:?}");
    assert_eq!(header.last_trade_quantity, !sequence, "torn: {header:?}");
    let depth = depth(id, sequence);
    assert_eq!((snapshot.bids().len(), snapshot.asks().len()), (depth, depth), "torn: {header:?}");
    for (index, found) in snapshot.bids().iter().chain(snapshot.asks()).enumerate() {
        assert_eq!(*found, level(id, sequence, index), "torn at level {index}: {header:?}");
    }
}

/// Encodes self-checking snapshots.
pub(crate) struct Source {
    pub(crate) pool: Pool,
    page: Option<PageWriter>,
    epoch: Epoch,
    channel: u64,
    sequences: Vec<u64>,
}

impl Source {
    pub(crate) fn new(instruments: usize, epoch: Epoch) -> Self {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        Self { pool, page: None, epoch, channel: 0, sequences: vec![0; instruments] }
    }

    pub(crate) fn next(&mut self, instrument: u32) -> Filled {
        self.channel += 1;
        self.sequences[instrument as usize] += 1;
        let sequence = self.sequences[instrument as usize];
        let fields = SnapshotFields {
            instrument_id: InstrumentId(instrument),
            flags: Flags::NONE,
            trading_status: TradingStatus::Trading,
            epoch: self.epoch,
            channel_sequence: Sequence(self.channel),
            instrument_sequence: Sequence(sequence),
            feed_sequence: sequence * 3 + u64::from(instrument),
            ts_event: 1,
            ts_recv: 2,
            last_trade_price: UNDEFINED_PRICE,
            last_trade_quantity: !sequence,
        };
        let depth = depth(instrument, sequence);
        let levels: [Level; 2 * LEVELS] =
            std::array::from_fn(|index| level(instrument, sequence, index));
        let encode = |out: &mut [u8]| {
            encode_snapshot(out, &fields, &levels[..depth], &levels[depth..2 * depth])
        };
        loop {
            if let Some(page) = &mut self.page
                && let Ok(filled) = page.append(record_bytes_max(LEVELS), encode)
            {
                return filled;
            }
            self.page = self.pool.loan();
            assert!(self.page.is_some(), "the fabric keeps pages");
        }
    }

    /// Sequence of an instrument's newest snapshot.
    pub(crate) fn sequence(&self, instrument: u32) -> u64 {
        self.sequences[instrument as usize]
    }

    pub(crate) fn channel(&self) -> u64 {
        self.channel
    }
}

/// A publisher on one thread.
pub(crate) struct Publisher {
    pub(crate) host: ShmHost,
    pub(crate) fabric: ShmFabric,
    pub(crate) source: Source,
    pub(crate) bell: Bell,
    pub(crate) now: Nanos,
    /// What another publisher can take the region over with.
    pub(crate) kept: Option<OwnedFd>,
    /// Never parks: this thread is the sender.
    _sender: Parker,
    waker: Option<Waker>,
    thread: Option<WakerThread>,
}

impl Publisher {
    pub(crate) fn new(config: &ShmConfig) -> Self {
        let sender = Parker::new();
        let shm = ShmHost::create(config, sender.ringer()).unwrap();
        Self::over(shm, sender, config)
    }

    /// One that takes over the region that another has left.
    pub(crate) fn resume(kept: OwnedFd, config: &ShmConfig) -> Result<Self, ResumeError> {
        let sender = Parker::new();
        let shm = ShmHost::resume(kept, config, sender.ringer())?;
        Ok(Self::over(shm, sender, config))
    }

    fn over(shm: Shm, sender: Parker, config: &ShmConfig) -> Self {
        let Shm { host, mut fabric, waker, kept } = shm;
        for id in 0..config.instruments as u32 {
            let instrument = Instrument::new(InstrumentId(id), &format!("SYM{id}"), "XNAS");
            fabric.upsert_instrument(&instrument.to_wire()).unwrap();
        }
        let bell = Bell::with_waker(sender.ringer(), waker.ringer());
        let source = Source::new(config.instruments, config.epoch);
        let now = Nanos(1_000_000_000);
        let (waker, thread) = (Some(waker), None);
        Self { host, fabric, source, bell, now, kept, _sender: sender, waker, thread }
    }

    /// With a thread that wakes sleeping readers.
    pub(crate) fn with_waker(config: &ShmConfig) -> Self {
        let mut publisher = Self::new(config);
        publisher.thread = publisher.waker.take().map(|waker| waker.spawn().unwrap());
        publisher
    }

    /// Stages the next snapshot of an instrument. There must be room.
    pub(crate) fn stage(&mut self, instrument: u32) {
        let filled = self.source.next(instrument);
        self.fabric.publish(filled.share()).expect("room in the ring");
    }

    pub(crate) fn flush(&mut self) {
        self.fabric.flush(self.now);
        self.fabric.turn(self.now);
        self.bell.ring();
    }

    /// One batch.
    pub(crate) fn publish(&mut self, instruments: impl IntoIterator<Item = u32>) {
        instruments.into_iter().for_each(|instrument| self.stage(instrument));
        self.flush();
    }

    pub(crate) fn attach(&mut self, policy: Policy) -> (SessionId, SessionDescriptors) {
        let (session, descriptors) = self.host.prepare(policy).unwrap();
        (self.fabric.attach(session).unwrap(), descriptors)
    }

    /// A receiver in this process.
    pub(crate) fn receiver(
        &mut self,
        policy: Policy,
        interest: &Interest,
    ) -> Receiver<ShmEndpoint> {
        let (_, descriptors) = self.attach(policy);
        open(descriptors, policy, WaitStrategy::Block, interest)
    }
}

pub(crate) fn open(
    descriptors: SessionDescriptors,
    policy: Policy,
    strategy: WaitStrategy,
    interest: &Interest,
) -> Receiver<ShmEndpoint> {
    let endpoint = ShmEndpoint::open(descriptors.into_vec(), policy, strategy).unwrap();
    Receiver::new(endpoint, interest)
}

/// One delivery, kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) instrument: u32,
    pub(crate) sequence: u64,
    pub(crate) initial: bool,
    pub(crate) conflated: u64,
}

impl Seen {
    pub(crate) fn of(delivery: &Delivery<'_>) -> Self {
        check(delivery);
        assert_eq!(delivery.header().conflated_count as u64, delivery.conflated());
        assert_eq!(delivery.flags().contains(Flags::CONFLATED), delivery.conflated() > 0);
        Self {
            instrument: delivery.instrument_id().0,
            sequence: delivery.instrument_sequence().0,
            initial: delivery.is_initial(),
            conflated: delivery.conflated(),
        }
    }

    pub(crate) fn plain(instrument: u32, sequence: u64) -> Self {
        Self { instrument, sequence, initial: false, conflated: 0 }
    }

    pub(crate) fn initial(instrument: u32, sequence: u64) -> Self {
        Self { instrument, sequence, initial: true, conflated: 0 }
    }

    pub(crate) fn conflated(instrument: u32, sequence: u64, conflated: u64) -> Self {
        Self { instrument, sequence, initial: false, conflated }
    }
}

/// Everything that there is to poll.
pub(crate) fn drain(receiver: &mut Receiver<ShmEndpoint>) -> Vec<Seen> {
    let mut seen = Vec::new();
    while receiver.is_ready() {
        receiver.poll(16, |delivery| seen.push(Seen::of(&delivery))).unwrap();
    }
    seen
}
