//! Configuration: defaults, then a file, then `TAPECAST_…` variables, then flags.
//!
//! Each value has one type that knows its range, every key is listed in [`KEYS`], and every error
//! names the place (file, variable or flag) and the key. `check-config` prints the result with the
//! origin of each value.

mod check;
mod choice;
mod entitlement;
mod error;
mod file;
mod journal;
mod keys;
mod lag;
mod layers;
mod live;
mod metrics;
mod network;
mod places;
mod printed;
mod value;
mod written;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tapecast_wire::limits::{
    DEFAULT_LEVELS_PER_SIDE, MAX_INSTRUMENTS, MAX_LEVELS_PER_SIDE, MAX_SUBSCRIBERS,
};

use crate::source::pacing::Pace;
pub use choice::{
    EventEnd, FabricKind, Idle, JournalSync, LargestMtu, LogFormat, LogLevel, PolicyWord,
    ReceiveTime, Seal, SourceKind, TlsMode,
};
pub use entitlement::EntitlementConfig;
pub use error::ConfigError;
pub use journal::JournalConfig;
pub(crate) use keys::distance;
pub use lag::LagConfig;

pub use keys::{KEYS, Key};
pub use layers::{Effective, Layers, load};
pub use live::Adopted;
pub use metrics::MetricsConfig;
pub use network::{FabricConfig, ListenConfig, RdmaConfig, TlsConfig};
pub use places::{default_socket, prepare_socket_folder};
pub use value::{Names, Switch, Whole};
pub use written::{FeedDate, PlayPace, RingBytes, SessionSpan, Size};

/// Everything that can be configured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The daemon as a whole.
    pub publisher: PublisherConfig,
    /// Where market data comes from.
    pub source: SourceConfig,
    /// Books.
    pub book: BookConfig,
    /// Memory for snapshots on their way to the fabric.
    pub pool: PoolConfig,
    /// How snapshots reach subscribers.
    pub fabric: FabricConfig,
    /// The shared region that subscribers read.
    pub shm: ShmConfig,
    /// RDMA.
    pub rdma: RdmaConfig,
    /// The sender thread.
    pub sender: SenderConfig,
    /// Where subscribers attach over RDMA.
    pub listen: ListenConfig,
    /// Protection of that.
    pub tls: TlsConfig,
    /// Who may attach, and how.
    pub access: AccessConfig,
    /// From when on a session lags.
    pub lag: LagConfig,
    /// Published snapshots on disk.
    pub journal: JournalConfig,
    /// Figures for monitoring.
    pub metrics: MetricsConfig,
    /// Log lines.
    pub log: LogConfig,
    /// What each client may ask for; empty for no limits.
    pub entitlement: Vec<EntitlementConfig>,
}

/// `[publisher]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublisherConfig {
    /// Name in log lines and reports.
    pub name: String,
    /// Unix socket where subscribers attach.
    pub socket: PathBuf,
}

/// `[source]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// Which source.
    pub kind: SourceKind,
    /// Input of the file sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// How fast a file or the simulated day is played.
    pub pace: PlayPace,
    /// Longest pause of the feed that is waited for, in seconds of its own clock; 0 for any.
    pub gap_max_s: Whole<0, 86_400>,
    /// Seconds without a message after which a connected feed is silent; 0 for never.
    pub silent_after_s: Whole<0, 86_400>,
    /// Start again at the end of the input.
    #[serde(rename = "loop")]
    pub looping: Switch,
    /// Only these symbols; empty for all.
    pub symbols: Names,
    /// Treat an input that ends inside a message as complete.
    pub allow_truncated: Switch,
    /// Day of an ITCH file, which itself only says the time since midnight.
    pub date: FeedDate,
    /// When an event of an ITCH feed is over, and its books may be published.
    pub event_end: EventEnd,
    /// Who says when a message was received.
    pub receive_time: ReceiveTime,
    /// The simulated exchange.
    pub synthetic: SyntheticConfig,
}

/// `[source.synthetic]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyntheticConfig {
    /// Same seed, same day.
    pub seed: Whole<0, { i64::MAX as u64 }>,
    /// Instruments listed.
    pub instruments: Whole<1, 10_000>,
    /// How long it trades.
    pub length: SessionSpan,
    /// Live orders that an instrument tends to.
    pub orders_per_instrument: Whole<8, 2_000>,
    /// Messages per second when the market opens.
    pub burst_rate: Whole<1, 1_000_000_000>,
    /// How long the opening burst lasts, in milliseconds; 0 for none.
    pub burst_ms: Whole<0, 3_600_000>,
    /// Messages per second in calm trading.
    pub steady_rate: Whole<1, 1_000_000_000>,
    /// Mean seconds between halts of single instruments; 0 for none.
    pub halt_every_s: Whole<0, 21_600>,
    /// Mean seconds between quiet spells of the whole market; 0 for none.
    pub quiet_every_s: Whole<0, 21_600>,
}

/// `[book]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BookConfig {
    /// Levels per side in a snapshot.
    pub levels: Whole<1, { MAX_LEVELS_PER_SIDE as u64 }>,
}

/// `[pool]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// Put the pool into huge pages.
    pub hugepages: Switch,
}

/// `[shm]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShmConfig {
    /// Bytes of the broadcast ring.
    pub ring_bytes: RingBytes,
    /// Instruments that the latest table has room for.
    pub instruments_max: Whole<1, { MAX_INSTRUMENTS as u64 }>,
    /// How the region is protected.
    pub seal: Seal,
    /// Have the ring kept by the service manager, for the next publisher.
    pub keep: Switch,
}

/// `[sender]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SenderConfig {
    /// What the sender does when it has nothing to do.
    pub idle: Idle,
    /// Core that the sender thread is pinned to; unset for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Whole<0, 1023>>,
}

/// `[access]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessConfig {
    /// Users that may attach, besides the publisher's own and root.
    pub users: Names,
    /// Groups whose members may attach.
    pub groups: Names,
    /// Whether a subscriber may ask that the publisher waits for it.
    pub lossless: Switch,
    /// Sessions at once.
    pub sessions_max: Whole<1, { MAX_SUBSCRIBERS as u64 }>,
    /// Seconds after which a subscriber that reads nothing is not waited for any longer.
    pub stall_max_s: Whole<1, 3600>,
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// Least severe line that is written.
    pub level: LogLevel,
    /// Form of the lines.
    pub format: LogFormat,
}

impl Default for PublisherConfig {
    fn default() -> Self {
        Self { name: "tapecast".to_owned(), socket: default_socket() }
    }
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self {
            kind: SourceKind::Synthetic,
            file: None,
            pace: PlayPace(Pace::RealTime),
            gap_max_s: Whole::new(0),
            silent_after_s: Whole::new(10),
            looping: Switch(false),
            symbols: Names::default(),
            allow_truncated: Switch(false),
            date: FeedDate::Auto,
            event_end: EventEnd::Timestamp,
            receive_time: ReceiveTime::Feed,
            synthetic: SyntheticConfig::default(),
        }
    }
}

impl Default for SyntheticConfig {
    fn default() -> Self {
        Self {
            seed: Whole::new(1),
            instruments: Whole::new(100),
            length: SessionSpan::Endless,
            orders_per_instrument: Whole::new(100),
            burst_rate: Whole::new(1_000_000),
            burst_ms: Whole::new(100),
            steady_rate: Whole::new(20_000),
            halt_every_s: Whole::new(2),
            quiet_every_s: Whole::new(5),
        }
    }
}

impl Default for BookConfig {
    fn default() -> Self {
        Self { levels: Whole::new(DEFAULT_LEVELS_PER_SIDE as u64) }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { hugepages: Switch(false) }
    }
}

impl Default for ShmConfig {
    fn default() -> Self {
        Self {
            ring_bytes: RingBytes::new(16 << 20),
            instruments_max: Whole::new(16_384),
            seal: Seal::FutureWrite,
            keep: Switch(false),
        }
    }
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self { idle: Idle::Block, cpu: None }
    }
}

impl Default for AccessConfig {
    fn default() -> Self {
        Self {
            users: Names::default(),
            groups: Names::default(),
            lossless: Switch(false),
            sessions_max: Whole::new(MAX_SUBSCRIBERS as u64),
            stall_max_s: Whole::new(10),
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: LogLevel::Info, format: LogFormat::Text }
    }
}
