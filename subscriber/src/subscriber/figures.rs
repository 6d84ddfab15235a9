//! What a subscription has seen, in figures.

use crate::clock;
use crate::statistics::{ClockFigures, InstrumentAccount, LatencyCounts, Statistics, Summary};

use super::{Phase, Subscriber};

impl Subscriber {
    /// Figures over all sessions. Walks the latency histogram, some tens of microseconds: not for
    /// every snapshot.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let totals = self.receiver.totals();
        let lag_bytes = match self.phase {
            Phase::Dry => 0,
            Phase::Attached | Phase::Draining => self.receiver.endpoint().lag_bytes(),
        };
        let mut figures = Statistics {
            published: totals.published,
            delivered: totals.delivered,
            conflated: totals.conflated,
            lost: totals.lost,
            initial_images: totals.initial_images,
            laps: self.laps_before + self.receiver.laps(),
            reconnects: self.reconnects,
            lag_bytes,
            lag_ns: if lag_bytes == 0 { 0 } else { self.lag_ns() },
            lag_snapshots: self.lag_snapshots(lag_bytes),
            clock: ClockFigures::of(self.keeper.clock(), self.choices.target().is_local()),
            ..Statistics::default()
        };
        self.recorder.fill(&mut figures);
        figures
    }

    /// How long ago the oldest record that is not read was published. Where the writer has got
    /// there first, what was delivered last is the oldest that is known.
    fn lag_ns(&self) -> u64 {
        let known = (self.receiver.totals().delivered > 0).then(|| self.recorder.last_publish());
        let since = self.receiver.endpoint().unread_since().or(known);
        since.map_or(0, |since| clock::unix_now().since(since).get())
    }

    fn lag_snapshots(&self, lag_bytes: u64) -> Option<u64> {
        if lag_bytes == 0 {
            return self.choices.target().is_local().then_some(0);
        }
        self.receiver.endpoint().unread_snapshots()
    }

    /// Latencies from publish to delivery by bucket, over all sessions: what can be summed over
    /// subscribers and time, e.g. by a monitoring system. All zero when the builder was told not to
    /// measure latency.
    #[must_use]
    pub fn latency_counts(&self) -> LatencyCounts {
        self.recorder.latency_counts()
    }

    /// Ages of snapshots end to end by bucket, over all sessions: from when the feed message was
    /// received ([`Snapshot::ts_recv`](crate::Snapshot::ts_recv)) to delivery to this subscriber,
    /// initial images left out.
    ///
    /// Counted from 0 to 60 s, both inclusive. Not counted: a receive time that is 0 or flagged
    /// with [`Flags::BAD_TS_RECV`](crate::Flags::BAD_TS_RECV), one that is later than the delivery,
    /// and one that is more than 60 s ago, as in history that is replayed. So a recorded or
    /// simulated day has none of them, unless the publisher stamps it itself
    /// (`source.receive_time = "host"`); a feed that is stamped as it comes in has all. Between
    /// hosts two clocks are compared and nothing is corrected, as in [`Self::latency_counts`].
    ///
    /// All zero when the builder was told not to measure latency.
    #[must_use]
    pub fn end_to_end_counts(&self) -> LatencyCounts {
        self.recorder.end_to_end_counts()
    }

    /// What became of each instrument's snapshots over all sessions, sorted by symbol. Allocates.
    #[must_use]
    pub fn accounts(&self) -> Vec<InstrumentAccount> {
        self.ledger.accounts(&self.receiver, &self.directory)
    }

    /// The account up to now, for a file or for comparison with other subscribers.
    pub fn summary(&mut self) -> Summary {
        let instruments = self.accounts();
        let statistics = self.statistics();
        let epoch = self.receiver.epoch();
        let adds_up = |published, delivered: u64, conflated: u64| {
            delivered.checked_add(conflated) == Some(published)
        };
        let balanced = instruments.iter().all(|i| adds_up(i.published, i.delivered, i.conflated))
            && adds_up(statistics.published, statistics.delivered, statistics.conflated);
        Summary {
            name: self.choices.name.clone(),
            session_id: self.session.get(),
            epoch: epoch.get(),
            state: self.standing.state().to_string(),
            source_ended: self.source_ended,
            elapsed_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            balanced,
            statistics,
            latency: self.recorder.latency(),
            skew: self.recorder.take_skew(epoch),
            instruments,
        }
    }
}
