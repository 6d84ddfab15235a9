//! A publisher and its subscribers in one process.
//!
//! Threads, not processes: on Soft-RoCE the whole way of a write runs in the sender's doorbell
//! whoever owns the memory, so that a process would change nothing but the exchange before it.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use tapecast_core::Interest;
use tapecast_fabric::pool::{Pool, PoolConfig};
use tapecast_fabric::verbs::{
    EndpointConfig, Offered, Verbs, VerbsConfig, VerbsEndpoint, VerbsFabric, VerbsHost,
};
use tapecast_fabric::{Fabric, Handover, Host, Receiver, WaitStrategy, Wish};
use tapecast_tests::bench::{Size, unix_now};
use tapecast_wire::attach::Policy;
use tapecast_wire::{Epoch, Instrument, InstrumentId, Nanos};

use super::traffic::Traffic;

const EPOCH: Epoch = Epoch(1);
const INSTRUMENTS: usize = 8;
/// Acknowledgement timeout of 1.07 s: an emulated machine stands still now and then.
const PATIENT: u8 = 18;
/// Longer than any run: nobody reports here.
const SILENCE_LIMIT: Nanos = Nanos(3_600_000_000_000);
/// How long the sender waits for subscribers that do not move.
const STALL_LIMIT: Duration = Duration::from_secs(60);
/// Room for all receives of a session: 256 of the largest snapshots.
const RING_BYTES: u64 = 1 << 20;

/// How a publisher sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Snapshots that one work request carries at most.
    pub(crate) gather: u32,
    /// Snapshots between two doorbells of a session.
    pub(crate) batch: usize,
}

/// Where the sender's time went, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct SenderTime {
    /// Making snapshots.
    pub(crate) encode: u64,
    /// Placing and staging them for all sessions.
    pub(crate) publish: u64,
    /// Posting: the doorbells, and all that Soft-RoCE does in them.
    pub(crate) flush: u64,
    /// Completions, credit and the backlog, once for each batch.
    pub(crate) turn: u64,
    /// The same while a session has no room, or there is nothing more to send.
    pub(crate) wait: u64,
}

/// Adds the time since `from` to `to`, and returns the time now.
fn charge(to: &mut u64, from: Instant) -> Instant {
    let now = Instant::now();
    *to += (now - from).as_nanos() as u64;
    now
}

/// A publisher.
#[derive(Debug)]
pub(crate) struct Stage {
    // Dropped before the host: the sender goes first, as it does in the daemon.
    pub(crate) fabric: VerbsFabric,
    host: VerbsHost,
    pub(crate) traffic: Traffic,
    device: String,
    manner: Manner,
    pub(crate) time: SenderTime,
}

impl Stage {
    /// Opens the device and makes a publisher without subscribers.
    ///
    /// # Errors
    /// When there is no such device or too little memory.
    pub(crate) fn open(device: &str, size: Size, manner: Manner) -> anyhow::Result<Self> {
        let pool = Pool::new(PoolConfig { huge_pages: false })?;
        let mut config = VerbsConfig::new(EPOCH);
        config.instruments = INSTRUMENTS;
        config.levels_per_side = size.levels();
        config.allow_lossless = true;
        config.lossless_silence_limit = SILENCE_LIMIT;
        config.gather = manner.gather;
        config.device.device = Some(device.to_owned());
        config.route.timeout = PATIENT;
        let Verbs { host, mut fabric } = VerbsHost::create(&config, pool.clone())?;
        for index in 0..INSTRUMENTS {
            let symbol = format!("BENCH{index}");
            let instrument = Instrument::new(InstrumentId(index as u32), &symbol, "XTST");
            fabric.upsert_instrument(&instrument.to_wire())?;
        }
        let traffic = Traffic::new(pool, size, INSTRUMENTS, EPOCH);
        let device = device.to_owned();
        Ok(Self { fabric, host, traffic, device, manner, time: SenderTime::default() })
    }

    /// One more subscriber, which gates this publisher and wants everything.
    ///
    /// # Errors
    /// When the device has no room for it.
    pub(crate) fn admit(&mut self) -> anyhow::Result<Receiver<VerbsEndpoint>> {
        let policy = Policy::Lossless;
        let mut config = EndpointConfig::new();
        config.device.device = Some(self.device.clone());
        config.route.timeout = PATIENT;
        config.ring_bytes = RING_BYTES;
        config.policy = policy;
        config.wait = WaitStrategy::Spin;
        let offered = Offered::open(&config)?;
        let wish = Wish {
            policy,
            interest: &Interest::All,
            symbols: None,
            min_interval: Nanos(0),
            offer: Some(&offered.offer()),
        };
        let prepared = self.host.prepare_session(&wish)?;
        let Handover::Connect(answer) = prepared.handover else {
            anyhow::bail!("an RDMA fabric handed descriptors over: a defect of the fabric");
        };
        let connected = offered.connect(&answer)?;
        let id = self.fabric.attach(prepared.session).ok().context("no free place")?;
        let endpoint = connected.start(id, EPOCH)?;
        Ok(Receiver::new(endpoint, &Interest::All))
    }

    /// Publishes `count` snapshots as fast as all sessions take them, as the daemon's sender does:
    /// a batch, its doorbells, a turn.
    ///
    /// # Errors
    /// When a session does not move any more.
    pub(crate) fn publish(&mut self, count: usize) -> anyhow::Result<()> {
        let mut clock = Instant::now();
        for index in 1..=count {
            let mut next = self.make(&mut clock)?;
            let refused_at = clock;
            while let Err(full) = self.fabric.publish(next) {
                next = full.0;
                self.breathe(&mut clock, refused_at)?;
            }
            clock = charge(&mut self.time.publish, clock);
            if index.is_multiple_of(self.manner.batch) || index == count {
                self.fabric.flush(unix_now());
                clock = charge(&mut self.time.flush, clock);
                self.fabric.turn(unix_now());
                clock = charge(&mut self.time.turn, clock);
            }
        }
        Ok(())
    }

    fn make(&mut self, clock: &mut Instant) -> anyhow::Result<tapecast_fabric::pool::Shared> {
        let began = *clock;
        loop {
            if let Some(snapshot) = self.traffic.snapshot() {
                *clock = charge(&mut self.time.encode, *clock);
                return Ok(snapshot);
            }
            self.breathe(clock, began)?;
        }
    }

    /// Turns until `is_over`.
    ///
    /// # Errors
    /// When it never is.
    pub(crate) fn wait_until(&mut self, is_over: impl Fn() -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut clock = began;
        while !is_over() {
            self.breathe(&mut clock, began)?;
        }
        Ok(())
    }

    /// Lets the fabric move, because there is no room or nothing to send.
    fn breathe(&mut self, clock: &mut Instant, since: Instant) -> anyhow::Result<()> {
        if let Some((id, reason)) = self.fabric.evicted().next() {
            anyhow::bail!("session {id} was evicted: {reason}");
        }
        anyhow::ensure!(
            since.elapsed() < STALL_LIMIT,
            "nothing moved for {STALL_LIMIT:?}: the machine is too slow, or the fabric is stuck"
        );
        self.fabric.turn(unix_now());
        std::thread::yield_now();
        *clock = charge(&mut self.time.wait, *clock);
        Ok(())
    }
}
