//! The publisher's end of a fabric.

use tapecast_ring::CellReader;
use tapecast_ring::cell::{CellCounters, CellLatency};
use tapecast_wire::attach::{Farewell, Policy};
use tapecast_wire::limits::MAX_SUBSCRIBERS;
use tapecast_wire::{InstrumentEntry, Nanos, Position, Sequence, SessionId};

use crate::pool::Shared;

/// The publisher's end of a fabric, driven by one sender thread.
///
/// A turn of the sender is: `publish` for each snapshot of a batch, one `flush`, one `turn`.
/// Nothing that was published is visible to a subscriber before the `flush` that follows it.
/// `publish`, `flush` and `turn` allocate nothing, and make no system call of their own.
pub trait Fabric {
    /// What the conductor prepares for one subscriber (descriptors, mappings), so that attaching
    /// it allocates nothing.
    type Session: Send;

    /// Gives a session its place. Its subscriber sees everything that is published after this call.
    ///
    /// # Errors
    /// [`AttachError`], which hands the session back.
    fn attach(&mut self, session: Self::Session) -> Result<SessionId, AttachError<Self::Session>>;

    /// Takes a session out and hands it back, for the conductor to drop. `None` when there is no
    /// such session.
    fn detach(&mut self, id: SessionId) -> Option<Self::Session>;

    /// Adds an instrument to the directory, or replaces its entry. Ids are dense: an entry's id is
    /// at most the number of instruments so far.
    ///
    /// # Errors
    /// [`DirectoryFull`] when the id has no place.
    fn upsert_instrument(&mut self, entry: &InstrumentEntry) -> Result<(), DirectoryFull>;

    /// Stages one snapshot for every session. Its instrument is in the directory, and it is one
    /// encoded record that is not larger than configured: anything else is the caller's bug, for
    /// which a fabric may panic.
    ///
    /// # Errors
    /// [`Full`] hands the snapshot back when a lossless session has no room for it. Nothing has
    /// happened: flush, turn, and try again soon. Do not park meanwhile: nobody rings when the
    /// subscriber has made room.
    fn publish(&mut self, snapshot: Shared) -> Result<(), Full>;

    /// Ends a batch: what was published becomes visible to the subscribers.
    fn flush(&mut self, now: Nanos);

    /// Housekeeping with bounded work: completions, session cells, heartbeat. Returns how much
    /// there was to do; zero means idle. To be called at least every 100 ms.
    fn turn(&mut self, now: Nanos) -> usize;

    /// Shows every subscriber, those too that attach later, since when the feed is silent; 0 for
    /// that it is not. To be called before each turn: it costs nothing unless that has changed.
    fn show_feed(&mut self, silent_since: Nanos);

    /// Whether something is awaited that comes without ringing anybody: room that a subscriber
    /// makes, or the completion of what was sent to it. Then do not park for long, and turn again
    /// soon.
    fn awaits_peers(&self) -> bool {
        false
    }

    /// Figures of one session. `None` when there is no such session.
    fn session_stats(&self, id: SessionId) -> Option<SessionStats>;

    /// Ends the channel: flushes, then tells every subscriber that nothing follows.
    fn close(&mut self, now: Nanos, farewell: Farewell);
}

/// A session could not be attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError<S> {
    /// All places are taken.
    #[error("all {MAX_SUBSCRIBERS} sessions are taken: detach a subscriber first")]
    Full(S),
    /// The session is lossless and the publisher's configuration does not allow that.
    #[error("lossless sessions are not allowed: allow them in the publisher's configuration")]
    LosslessNotAllowed(S),
    /// The channel has been closed.
    #[error("the publisher is closing: attach again when it has restarted")]
    Closing(S),
}

impl<S> AttachError<S> {
    /// The session that was not attached.
    pub fn into_session(self) -> S {
        match self {
            Self::Full(session) | Self::LosslessNotAllowed(session) | Self::Closing(session) => {
                session
            }
        }
    }
}

/// An instrument has no place in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "instrument {instrument_id} has no place in the directory: ids are dense, the next one is \
     {count} and there is room for {capacity}; raise the configured number of instruments"
)]
pub struct DirectoryFull {
    /// Id of the refused entry.
    pub instrument_id: u32,
    /// Entries in use.
    pub count: usize,
    /// Entries that there is room for.
    pub capacity: usize,
}

/// A lossless session has no room; the snapshot is handed back and nothing has happened.
#[derive(Debug)]
#[must_use = "the snapshot was not published"]
pub struct Full(
    /// The snapshot, to be published again after the next turn.
    pub Shared,
);

/// What a subscriber says about the latency that it sees: publisher's clock to its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyReport {
    /// Snapshots in the figures.
    pub count: u64,
    /// Median in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile in nanoseconds.
    pub p99_ns: u64,
    /// 99.9th percentile in nanoseconds.
    pub p99_9_ns: u64,
    /// Largest in nanoseconds.
    pub max_ns: u64,
}

/// What a subscriber says it did with what was published for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Channel sequence of the last snapshot that it took.
    pub channel_sequence: Sequence,
    /// Snapshots handed to the application.
    pub delivered: u64,
    /// Snapshots that a newer one replaced.
    pub conflated: u64,
    /// Snapshots that nothing accounts for; 0 in health.
    pub lost: u64,
    /// Delivered snapshots that were the first of their instrument.
    pub initial_images: u64,
    /// Times that it was lapped and recovered from the latest table; 0 where rings are private.
    pub laps: u64,
}

/// Figures of one session, as the publisher sees them. What comes from the subscriber is only
/// reported, never acted on without a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// What happens when it does not keep up.
    pub policy: Policy,
    /// Position up to which it has consumed.
    pub consumed: Position,
    /// Bytes that it has still to consume.
    pub lag_bytes: u64,
    /// Its own counts.
    pub counts: SessionCounts,
    /// The latency that it reports.
    pub latency: LatencyReport,
    /// Its clock when it last reported; 0 before that.
    pub heartbeat: Nanos,
    /// Values in its cell that could not be true and were ignored; 0 in health.
    pub faults: u64,
    /// Snapshots that were not sent when they were published, for want of credit; 0 where readers
    /// share a ring.
    pub credit_stalls: u64,
    /// Its send queue; none where readers share a ring.
    pub send_queue: Option<SendQueueStats>,
}

/// Occupancy of one session's send queue, in work requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendQueueStats {
    /// That have not completed.
    pub outstanding: u64,
    /// The most there ever were of these when the doorbell was rung.
    pub high_water: u64,
}

impl LatencyReport {
    /// What a session's cell says.
    pub(crate) fn of(cell: &CellReader) -> Self {
        let CellLatency { count, p50_ns, p99_ns, p999_ns, max_ns } = cell.latency();
        Self { count, p50_ns, p99_ns, p99_9_ns: p999_ns, max_ns }
    }

    /// As it is written into a cell.
    pub(crate) const fn to_cell(self) -> CellLatency {
        let Self { count, p50_ns, p99_ns, p99_9_ns, max_ns } = self;
        CellLatency { count, p50_ns, p99_ns, p999_ns: p99_9_ns, max_ns }
    }
}

impl SessionCounts {
    /// What a session's cell says.
    pub(crate) fn of(cell: &CellReader) -> Self {
        let CellCounters { delivered, conflated, lost, lapped, initial_images } = cell.counters();
        let channel_sequence = cell.channel_sequence();
        Self { channel_sequence, delivered, conflated, lost, initial_images, laps: lapped }
    }
}
