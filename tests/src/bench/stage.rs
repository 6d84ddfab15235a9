//! A publisher inside the benchmark: the shipped fabric, pool, waker and handshake, with the
//! benchmark's own loop in place of a feed.

use std::path::Path;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use tapecast_control::{Access, Lifeline, Listener, ListenerOptions};
use tapecast_fabric::Fabric;
use tapecast_fabric::park::{Parker, Ringer};
use tapecast_fabric::pool::{PageWriter, Pool, PoolConfig, Shared};
use tapecast_fabric::shm::{ShmConfig, ShmFabric, ShmHost, ShmSession, WakerThread};
use tapecast_wire::attach::{Accepted, Farewell, Policy};
use tapecast_wire::limits::{MAX_LEVELS_PER_SIDE, record_bytes_max};
use tapecast_wire::{
    Epoch, Flags, Instrument, InstrumentId, Level, Nanos, Sequence, SessionId, SnapshotFields,
    TradingStatus, UNDEFINED_PRICE, encode_snapshot,
};
use tokio::sync::oneshot;

/// Class of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Three levels a side: 240 bytes, 256 in a ring.
    Small,
    /// 83 levels a side: 4,080 bytes, 4,096 in a ring.
    Large,
}

impl Size {
    /// Levels per side.
    #[must_use]
    pub const fn levels(self) -> usize {
        match self {
            Self::Small => 3,
            Self::Large => MAX_LEVELS_PER_SIDE,
        }
    }

    /// Bytes of a snapshot.
    #[must_use]
    pub const fn payload_bytes(self) -> usize {
        record_bytes_max(self.levels())
    }

    /// Bytes that a snapshot takes in a ring.
    #[must_use]
    pub const fn ring_bytes(self) -> usize {
        match self {
            Self::Small => 256,
            Self::Large => 4096,
        }
    }
}

/// Makes snapshots of one instrument after the other, as a feed thread would.
#[derive(Debug)]
pub struct Traffic {
    pool: Pool,
    page: PageWriter,
    levels: Vec<Level>,
    instrument_sequences: Vec<u64>,
    channel_sequence: u64,
    epoch: Epoch,
}

impl Traffic {
    /// The next snapshot, encoded and stamped.
    pub fn snapshot(&mut self) -> Shared {
        let index = self.channel_sequence as usize % self.instrument_sequences.len();
        self.channel_sequence += 1;
        self.instrument_sequences[index] += 1;
        let fields = SnapshotFields {
            instrument_id: InstrumentId(index as u32),
            flags: Flags::NONE,
            trading_status: TradingStatus::Trading,
            epoch: self.epoch,
            channel_sequence: Sequence(self.channel_sequence),
            instrument_sequence: Sequence(self.instrument_sequences[index]),
            feed_sequence: self.channel_sequence,
            ts_event: self.channel_sequence,
            ts_recv: self.channel_sequence,
            last_trade_price: UNDEFINED_PRICE,
            last_trade_quantity: 0,
        };
        let levels = &self.levels;
        let bytes = record_bytes_max(levels.len());
        if self.page.room() < bytes {
            self.page = loan(&self.pool);
        }
        let encode = |out: &mut [u8]| encode_snapshot(out, &fields, levels, levels);
        let mut filled = self.page.append(bytes, encode).expect("room was looked for");
        filled.stamp_publish(unix_now());
        filled.share()
    }
}

/// The publisher.
/// Dropping it closes the socket and ends every session.
#[derive(Debug)]
pub struct Stage {
    /// Fabric under test.
    pub fabric: ShmFabric,
    /// What a feed thread rings.
    pub waker: Ringer,
    epoch: Epoch,
    requests: Receiver<Request>,
    closing: Option<oneshot::Sender<()>>,
    conductor: Option<JoinHandle<()>>,
    // Kept for the waker, which asks whether the sender sleeps. It never does here.
    _sender: Parker,
    _waker: WakerThread,
}

#[derive(Debug)]
struct Request {
    session: ShmSession,
    answer: oneshot::Sender<SessionId>,
}

impl Stage {
    /// A publisher on `socket` with room for `slots` snapshots of one size in its ring.
    ///
    /// # Errors
    /// When memory, threads or the socket cannot be had.
    pub fn open(
        socket: &Path,
        size: Size,
        slots: usize,
        instruments: usize,
    ) -> anyhow::Result<Self> {
        let epoch = Epoch(unix_now().0);
        let config = ShmConfig {
            ring_bytes: (slots * size.ring_bytes()) as u64,
            instruments,
            levels_per_side: size.levels(),
            allow_lossless: true,
            ..ShmConfig::new(epoch)
        };
        let sender = Parker::new();
        let shm = ShmHost::create(&config, sender.ringer())?;
        let waker = shm.waker.spawn()?;
        let mut fabric = shm.fabric;
        for index in 0..instruments {
            let symbol = format!("BENCH{index}");
            let instrument = Instrument::new(InstrumentId(index as u32), &symbol, "XTST");
            fabric.upsert_instrument(&instrument.to_wire())?;
        }
        let (request_sender, requests) = unbounded();
        let (closing, closed) = oneshot::channel();
        let (ready, is_ready) = bounded(1);
        let options = ListenerOptions::new(socket, Access::own());
        let host = shm.host;
        let conductor =
            std::thread::Builder::new().name("bench-conductor".into()).spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.expect("a runtime");
                runtime.block_on(async {
                    let bound = Listener::bind(options);
                    let mut listener = bound
                        .inspect(|_| ready.send(()).expect("the opener waits"))
                        .expect("the folder is fresh");
                    conduct(&host, &mut listener, epoch, &request_sender, closed).await;
                });
            })?;
        is_ready.recv().context("the listener did not open")?;
        let ringer = waker.ringer();
        Ok(Self {
            fabric,
            waker: ringer,
            epoch,
            requests,
            closing: Some(closing),
            conductor: Some(conductor),
            _sender: sender,
            _waker: waker,
        })
    }

    /// Attaches subscribers until there are `count` more.
    pub fn admit(&mut self, count: usize) {
        for _ in 0..count {
            let request = self.requests.recv().expect("the conductor runs");
            let id = self.fabric.attach(request.session).map_err(|_| ()).expect("a free place");
            request.answer.send(id).expect("the conductor waits");
        }
    }

    /// A feed over `instruments` instruments for this stage.
    ///
    /// # Errors
    /// When the pool cannot be had.
    pub fn traffic(&self, size: Size, instruments: usize) -> anyhow::Result<Traffic> {
        let pool = Pool::new(PoolConfig { huge_pages: false })?;
        let levels: Vec<_> = (0..size.levels() as i64)
            .map(|depth| Level::new(1_000_000_000_000 - depth * 10_000_000, 100, 1))
            .collect();
        Ok(Traffic {
            page: loan(&pool),
            pool,
            levels,
            instrument_sequences: vec![0; instruments],
            channel_sequence: 0,
            epoch: self.epoch,
        })
    }

    /// Publishes one snapshot and waits for room when a lossless session has none.
    pub fn publish_or_wait(&mut self, mut snapshot: Shared) {
        while let Err(full) = self.fabric.publish(snapshot) {
            snapshot = full.0;
            let now = unix_now();
            self.fabric.flush(now);
            self.waker.ring();
            self.fabric.turn(now);
            std::thread::yield_now();
        }
    }

    /// Tells subscribers that nothing follows.
    pub fn close(&mut self) {
        self.fabric.close(unix_now(), Farewell::EndOfSource);
        self.waker.ring();
        self.end_conductor();
    }

    fn end_conductor(&mut self) {
        drop(self.closing.take());
        if let Some(conductor) = self.conductor.take() {
            // Its panic was printed when it happened.
            let _ = conductor.join();
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.end_conductor();
    }
}

async fn conduct(
    host: &ShmHost,
    listener: &mut Listener,
    epoch: Epoch,
    requests: &Sender<Request>,
    mut closed: oneshot::Receiver<()>,
) {
    let mut lifelines: Vec<Lifeline> = Vec::new();
    loop {
        let pending = tokio::select! {
            pending = listener.accept() => pending,
            _ = &mut closed => break,
        };
        let policy: Policy = pending.request().policy;
        let (session, descriptors) = host.prepare(policy).expect("memory for a session");
        let (answer, attached) = oneshot::channel();
        if requests.send(Request { session, answer }).is_err() {
            break;
        }
        let Ok(session_id) = attached.await else { break };
        let accepted = Accepted { session_id, epoch, instruments: Vec::new() };
        if let Ok(lifeline) = pending.accept(&accepted, &descriptors.as_fds()).await {
            lifelines.push(lifeline);
        }
    }
    for lifeline in lifelines {
        lifeline.farewell(Farewell::EndOfSource, "the benchmark is over");
    }
}

fn loan(pool: &Pool) -> PageWriter {
    loop {
        match pool.loan() {
            Some(page) => return page,
            None => std::thread::yield_now(),
        }
    }
}

/// The time of day in Unix nanoseconds.
#[must_use]
pub fn unix_now() -> Nanos {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(now.as_nanos() as u64)
}
