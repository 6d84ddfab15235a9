//! Memory and threads: page pool, the fabric, sender and waker.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use crossbeam_channel::bounded;
use rustix::thread::{CpuSet, sched_setaffinity};
use tapecast_fabric::park::{Bell, IdleStrategy, Parker, Ringer};
use tapecast_fabric::pool::{Pool, PoolConfig};
use tapecast_fabric::shm::{Sealing, Shm, ShmConfig, ShmFabric, ShmHost, Waker, WakerThread};
use tapecast_fabric::{Fabric, Host};
use tapecast_wire::Epoch;
use tracing::{error, warn};

use super::kept_ring::{self, Received};
use crate::config::{Config, Idle, Seal};
use crate::feed::{Directory, QUEUE_ITEMS, QueueLength, SilentSince};
use crate::metrics::Device;
use crate::sender::{
    CommandPort, FeedItem, Sender, SenderFigures, SenderProgress, SenderReport, command_ports,
};

/// How long the sender's thread is given to end after the channel was closed.
const SENDER_END_MAX: Duration = Duration::from_secs(2);

/// Both ends of a fabric, at the publisher, before anything runs.
pub(super) struct Made<H, F> {
    pub(super) host: H,
    pub(super) fabric: F,
    /// Wakes sleeping subscribers, where the network does not.
    pub(super) waker: Option<Waker>,
    /// The RDMA device, where there is one.
    pub(super) device: Option<Device>,
}

/// Memory and threads of a publisher.
pub(super) struct Plant<H: Host> {
    pub(super) queue: crossbeam_channel::Sender<FeedItem>,
    /// How much waits in it.
    pub(super) length: QueueLength,
    pub(super) bell: Bell,
    pub(super) host: H,
    pub(super) port: CommandPort<H::Session>,
    pub(super) ringer: Ringer,
    pub(super) progress: Arc<SenderProgress>,
    pub(super) silent_since: SilentSince,
    pub(super) waker: Option<WakerThread>,
    pub(super) sender: JoinHandle<SenderReport>,
}

impl<H: Host> Plant<H> {
    /// Starts the sender, and the waker where there is one.
    pub(super) fn new<F>(
        config: &Config,
        directory: &Directory,
        parker: Parker,
        made: Made<H, F>,
        figures: Option<Arc<SenderFigures>>,
    ) -> Result<Self>
    where
        F: Fabric<Session = H::Session> + Send + 'static,
    {
        let Made { host, mut fabric, waker, .. } = made;
        let ringer = parker.ringer();
        enter_instruments(&mut fabric, directory)?;
        let bell = match &waker {
            Some(waker) => Bell::with_waker(ringer.clone(), waker.ringer()),
            None => Bell::new(ringer.clone()),
        };
        let (queue, items) = bounded(QUEUE_ITEMS);
        let length = QueueLength::of(&items);
        let (port, sender_port) = command_ports();
        let progress = Arc::new(SenderProgress::default());
        let silent_since = SilentSince::default();
        let sender = Sender::new(fabric, items, sender_port, Arc::clone(&progress));
        let sender = sender.with_feed(silent_since.clone()).with_figures(figures);
        let waker = waker.map(Waker::spawn).transpose();
        let waker = waker.context("cannot start the waker's thread")?;
        let sender = spawn_sender(sender, config, parker)?;
        Ok(Self { queue, length, bell, host, port, ringer, progress, silent_since, waker, sender })
    }
}

/// Takes the memory for snapshots on their way to the fabric.
pub(super) fn pool(config: &Config) -> Result<Pool> {
    Pool::new(PoolConfig { huge_pages: config.pool.hugepages.0 }).context("pool.hugepages")
}

/// Makes the shared region, or takes over one of those received. `sender` is the ringer of the
/// sender's parker.
pub(super) fn shared_memory(
    config: &Config,
    epoch: Epoch,
    received: Received,
    sender: &Ringer,
) -> Result<Made<ShmHost, ShmFabric>> {
    let shm = kept_ring::open(&shm_config(config, epoch), received, sender)
        .context("the shared region (shm.ring_bytes, shm.instruments_max)")?;
    let Shm { host, fabric, waker, .. } = shm;
    Ok(Made { host, fabric, waker: Some(waker), device: None })
}

fn shm_config(config: &Config, epoch: Epoch) -> ShmConfig {
    ShmConfig {
        epoch,
        ring_bytes: config.shm.ring_bytes.get(),
        instruments: config.shm.instruments_max.count(),
        levels_per_side: config.book.levels.count(),
        sealing: match config.shm.seal {
            Seal::FutureWrite => Sealing::FutureWrite,
            Seal::Owner => Sealing::Owner,
        },
        allow_lossless: config.access.lossless.0,
        keep: config.shm.keep.0,
    }
}

fn enter_instruments(fabric: &mut impl Fabric, directory: &Directory) -> Result<()> {
    let known = directory.instruments();
    known.iter().try_for_each(|known| fabric.upsert_instrument(&known.to_wire()))?;
    Ok(())
}

fn spawn_sender<F>(
    sender: Sender<F>,
    config: &Config,
    parker: Parker,
) -> Result<JoinHandle<SenderReport>>
where
    F: Fabric<Session: 'static> + Send + 'static,
{
    let idle = match config.sender.idle {
        Idle::Spin => IdleStrategy::Spin,
        Idle::Yield => IdleStrategy::Yield,
        Idle::Block => IdleStrategy::Block,
    };
    let cpu = config.sender.cpu.map(|cpu| cpu.count());
    let thread = std::thread::Builder::new().name("tapecast-sender".to_owned());
    let spawned = thread.spawn(move || {
        if let Some(cpu) = cpu {
            pin(cpu);
        }
        sender.run(idle, parker)
    });
    spawned.context("cannot start the sender's thread")
}

/// Pins this thread to a core that was checked at start.
fn pin(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    if let Err(error) = sched_setaffinity(None, &only) {
        warn!("the sender is not pinned to core {cpu}: {error}");
    }
}

/// Waits for the sender's thread, which was told to close the channel.
///
/// # Errors
/// When it does not end.
pub(super) fn join(sender: JoinHandle<SenderReport>) -> Result<SenderReport> {
    let deadline = Instant::now() + SENDER_END_MAX;
    while !sender.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    if !sender.is_finished() {
        bail!("the sender did not end in time; please report this");
    }
    let defect = |_| anyhow!("the sender ended with a defect; please report this");
    let report = sender.join().map_err(defect)?;
    if let Some(full) = &report.directory_full {
        error!("not everything was published: {full}; please report this");
    }
    Ok(report)
}
