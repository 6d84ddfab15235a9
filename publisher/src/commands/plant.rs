//! Memory and threads: page pool, shared region, sender and waker.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use crossbeam_channel::bounded;
use rustix::thread::{CpuSet, sched_setaffinity};
use tapecast_fabric::Fabric;
use tapecast_fabric::park::{Bell, IdleStrategy, Parker, Ringer};
use tapecast_fabric::pool::{Pool, PoolConfig};
use tapecast_fabric::shm::{Sealing, Shm, ShmConfig, ShmFabric, ShmHost, ShmSession, WakerThread};
use tapecast_wire::Epoch;
use tracing::{error, warn};

use crate::config::{Config, Idle, Seal};
use crate::feed::{Directory, QUEUE_ITEMS};
use crate::sender::{CommandPort, FeedItem, Sender, SenderProgress, SenderReport, command_ports};

/// How long the sender's thread is given to end after the channel was closed.
const SENDER_END_MAX: Duration = Duration::from_secs(2);

/// Memory and threads of a publisher.
pub(super) struct Plant {
    pub(super) queue: crossbeam_channel::Sender<FeedItem>,
    pub(super) bell: Bell,
    pub(super) pool: Pool,
    pub(super) host: ShmHost,
    pub(super) port: CommandPort<ShmSession>,
    pub(super) ringer: Ringer,
    pub(super) progress: Arc<SenderProgress>,
    pub(super) waker: WakerThread,
    pub(super) sender: JoinHandle<SenderReport>,
}

impl Plant {
    /// Takes the memory and starts the sender and the waker.
    pub(super) fn new(config: &Config, epoch: Epoch, directory: &Directory) -> Result<Self> {
        let pool = Pool::new(PoolConfig { huge_pages: config.pool.hugepages.0 })
            .context("pool.hugepages")?;
        let parker = Parker::new();
        let ringer = parker.ringer();
        let Shm { host, mut fabric, waker } =
            ShmHost::create(&shm_config(config, epoch), ringer.clone())
                .context("the shared region (shm.ring_bytes, shm.instruments_max)")?;
        enter_instruments(&mut fabric, directory)?;
        let bell = Bell::with_waker(ringer.clone(), waker.ringer());
        let (queue, items) = bounded(QUEUE_ITEMS);
        let (port, sender_port) = command_ports();
        let progress = Arc::new(SenderProgress::default());
        let sender = Sender::new(fabric, items, sender_port, Arc::clone(&progress));
        let waker = waker.spawn().context("cannot start the waker's thread")?;
        let sender = spawn_sender(sender, config, parker)?;
        Ok(Self { queue, bell, pool, host, port, ringer, progress, waker, sender })
    }
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
    }
}

fn enter_instruments(fabric: &mut ShmFabric, directory: &Directory) -> Result<()> {
    let known = directory.instruments();
    known.iter().try_for_each(|known| fabric.upsert_instrument(&known.to_wire()))?;
    Ok(())
}

fn spawn_sender(
    sender: Sender<ShmFabric>,
    config: &Config,
    parker: Parker,
) -> Result<JoinHandle<SenderReport>> {
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
