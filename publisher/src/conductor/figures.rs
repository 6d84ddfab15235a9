//! What the conductor knows, put together for whoever asks: the metrics endpoint.

use tapecast_control::ListenerStats;
use tapecast_core::lag::Lag;
use tapecast_fabric::{CELL_TRANSIT_WORDS, Host, NetworkStats, SessionStats, Timing};
use tapecast_telemetry::{BUCKETS, LatencyBuckets};
use tapecast_wire::attach::Policy;
use tapecast_wire::{Nanos, SessionId};
use tokio::sync::{mpsc, oneshot};

use super::fan_out::FanOutFigures;
use super::{Conductor, Evictions, Refusals, SilenceRecord};

/// A question for the conductor's figures, and where the answer goes.
pub(super) type Question = oneshot::Sender<Box<Figures>>;

/// Asks the conductor, from any thread.
#[derive(Clone, Debug)]
pub struct Asker(mpsc::UnboundedSender<Question>);

/// The conductor's end. Questions are answered between two of its events.
#[derive(Debug)]
pub struct Questions(Option<mpsc::UnboundedReceiver<Question>>);

/// Both ends.
#[must_use]
pub fn questions() -> (Asker, Questions) {
    let (ask, asked) = mpsc::unbounded_channel();
    (Asker(ask), Questions(Some(asked)))
}

impl Asker {
    /// The conductor's figures; `None` when it has ended, or is ending.
    pub async fn ask(&self) -> Option<Box<Figures>> {
        let (answer, answered) = oneshot::channel();
        self.0.send(answer).ok()?;
        answered.await.ok()
    }
}

impl Questions {
    /// Nobody asks.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// Waits for the next question; for ever when nobody can ask. Cancel-safe.
    pub(super) async fn next(&mut self) -> Question {
        match &mut self.0 {
            Some(asked) => match asked.recv().await {
                Some(question) => question,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }
}

/// What the conductor knows.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Whether the source was let go.
    pub started: bool,
    /// Whether it has ended.
    pub feed_ended: bool,
    /// Whether it is connected and silent.
    pub feed_silent: bool,
    /// Times that it was.
    pub silence: SilenceRecord,
    /// Since the feed was last seen to live.
    pub feed_quiet_ns: u64,
    /// Connections.
    pub listener: ListenerStats,
    /// Requests that were not granted.
    pub refusals: Refusals,
    /// Sessions that were taken out.
    pub evictions: Evictions,
    /// Sessions that there may be at once.
    pub sessions_max: usize,
    /// Sessions that are there, and those that left not long ago.
    pub sessions: Vec<SessionFigures>,
    /// All sessions there ever were.
    pub totals: SessionTotals,
    /// How unequally sampled snapshots arrived.
    pub fan_out: FanOutFigures,
    /// What the RDMA network did, where there is one.
    pub network: Option<NetworkStats>,
    /// From doorbell to completion, there.
    pub post_to_completion: LatencyBuckets,
}

/// One session.
#[derive(Clone, Debug)]
pub struct SessionFigures {
    /// Its place.
    pub id: SessionId,
    /// The name that its subscriber gave.
    pub name: String,
    /// What happens when it does not keep up.
    pub policy: Policy,
    /// Least interval between two snapshots of an instrument that it asked for; 0 for none.
    pub min_interval: Nanos,
    /// Whether it is attached; otherwise it has left.
    pub attached: bool,
    /// Its counts.
    pub stats: SessionStats,
    /// Its latencies.
    pub timing: Timing,
    /// How far it is behind, at least.
    pub lag: Lag,
    /// Whether that is too far.
    pub lagging: bool,
    /// Times that it was.
    pub lags: u64,
    /// How long in all.
    pub lagging_ns: u64,
}

/// Sums over all sessions, those that have left included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTotals {
    /// Sessions that attached.
    pub attached: u64,
    /// Sessions that left.
    pub detached: u64,
    /// Snapshots delivered.
    pub delivered: u64,
    /// Snapshots that a newer one replaced.
    pub conflated: u64,
    /// Snapshots that nothing accounts for.
    pub lost: u64,
    /// Times that a session was lapped.
    pub laps: u64,
}

impl SessionTotals {
    /// Adds one session. Its counts are its own word.
    pub(super) fn add(&mut self, stats: &SessionStats) {
        let counts = &stats.counts;
        for (sum, more) in [
            (&mut self.delivered, counts.delivered),
            (&mut self.conflated, counts.conflated),
            (&mut self.lost, counts.lost),
            (&mut self.laps, counts.laps),
        ] {
            *sum = sum.wrapping_add(more);
        }
    }
}

impl SessionFigures {
    /// Whether both are told as the same series: by place and name.
    pub(super) fn is_series_of(&self, other: &Self) -> bool {
        self.id == other.id && self.name == other.name
    }

    /// Latencies from publish to delivery.
    #[must_use]
    pub fn delivery(&self) -> LatencyBuckets {
        buckets_of(&self.timing.transit)
    }

    /// Ages from the feed's receive time to delivery.
    #[must_use]
    pub fn end_to_end(&self) -> LatencyBuckets {
        buckets_of(&self.timing.end_to_end)
    }

    /// Its clock less the time at which it last gave a sign of life; nothing before the first.
    #[must_use]
    pub fn heartbeat_age(&self, now: Nanos) -> Option<Nanos> {
        (self.stats.heartbeat.0 > 0).then(|| now.since(self.stats.heartbeat))
    }
}

/// A distribution as a session's cell has it. Any words will do: the sums over them may wrap.
fn buckets_of(words: &[u64; CELL_TRANSIT_WORDS]) -> LatencyBuckets {
    let mut buckets = LatencyBuckets::new();
    buckets.counts.copy_from_slice(&words[..BUCKETS]);
    buckets.sum_ns = words[BUCKETS];
    buckets
}

impl<H: Host> Conductor<H> {
    pub(super) fn answer(&mut self, question: Question) {
        // Whoever asked may have lost patience.
        let _taken = question.send(Box::new(self.figures()));
    }

    fn figures(&mut self) -> Figures {
        let sessions = self.roster.figures(self.settings.departed);
        let mut totals = self.roster.departed_totals();
        for session in sessions.iter().filter(|session| session.attached) {
            totals.add(&session.stats);
        }
        Figures {
            started: self.gate.is_none(),
            feed_ended: self.feed.is_some(),
            feed_silent: self.silence.is_silent(),
            silence: self.silence.record(),
            feed_quiet_ns: self.silence.quiet_ns(),
            listener: self.listener.stats(),
            refusals: self.refusals,
            evictions: self.evictions,
            sessions_max: self.settings.sessions_max,
            sessions,
            totals,
            fan_out: self.fan_out.figures(),
            network: self.host.network_stats(),
            post_to_completion: self.host.post_to_completion(),
        }
    }
}
