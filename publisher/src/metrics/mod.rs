//! The metrics endpoint: figures of everything, for Prometheus, and whether the publisher lives.
//!
//! A thread of its own serves HTTP, so that a scrape holds up neither the conductor nor anybody's
//! handshake. What it tells was counted elsewhere with plain stores ([`SenderFigures`],
//! [`FeedFigures`]), or is the conductor's answer to a question; nothing on the path of market data
//! waits for it or allocates for it. Names and meanings stand beside the code that fills them in.

mod certificates;
mod clock;
mod collector;
mod connections;
mod device;
mod feed;
mod journal;
mod network;
mod offset;
mod pauses;
mod sender;
mod server;
mod sessions;
mod starting;
mod threads;

use std::sync::Arc;

use tapecast_fabric::pool::Pool;
use tapecast_telemetry::Highest;
use tapecast_wire::Epoch;

pub use certificates::Certificates;
pub use device::Device;
pub use server::{MetricsError, MetricsServer, MetricsThread};

use crate::conductor::{Asker, ReloadRecord};
use crate::feed::{Directory, FeedFigures, FeedGauges, QueueLength};
use crate::journal::JournalFigures;
use crate::sender::{SenderFigures, SenderProgress};

/// Whose figures they are.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Name of the publisher: the label `channel` of every series.
    pub name: String,
    /// `shm` or `verbs`.
    pub fabric: &'static str,
    /// Life of the publisher.
    pub epoch: Epoch,
    /// Error of a clock offset, in nanoseconds, up to which one-way figures can be relied on.
    pub clock_error_max_ns: u64,
}

/// What was told of times that lasted, so that they never fall.
#[derive(Debug, Default)]
pub struct HighestTold {
    /// How long lossless sessions held the sender back.
    pub(crate) gated_ns: Highest,
    /// How long the feed waited.
    pub(crate) stalled_ns: Highest,
}

/// Where figures come from.
#[derive(Debug)]
pub struct Sources {
    /// Whose they are.
    pub identity: Identity,
    /// The conductor.
    pub asker: Asker,
    /// The sender's counts.
    pub progress: Arc<SenderProgress>,
    /// The sender's latencies and duty cycles.
    pub sender: Arc<SenderFigures>,
    /// The feed.
    pub feed: FeedFigures,
    /// What it shows while it waits, too.
    pub gauges: FeedGauges,
    /// How much waits for the sender.
    pub queue: QueueLength,
    /// What was told of times.
    pub highest: HighestTold,
    /// The page pool.
    pub pool: Pool,
    /// The instruments.
    pub directory: Arc<Directory>,
    /// How the configuration was read again.
    pub reloads: ReloadRecord,
    /// The journal, where there is one.
    pub journal: Option<JournalFigures>,
    /// Certificates, where TLS is on.
    pub certificates: Certificates,
    /// The RDMA device, where there is one.
    pub device: Option<Device>,
}
