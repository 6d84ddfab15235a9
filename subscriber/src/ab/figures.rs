//! What a merged subscription has seen, and what each side contributed.

use serde::{Deserialize, Serialize};
use tapecast_telemetry::{Jitter, LatencyFigures};

use crate::statistics::{ClockFigures, InstrumentAccount, Statistics, Summary};

use super::AbSubscriber;
use super::arbiter::AbSideCounts;
use super::side::AbSide;

/// What one side has contributed to a merged subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbSideFigures {
    /// Which side.
    pub side: String,
    /// Its publisher: a socket's path or a network address.
    pub publisher: String,
    /// How it stands: `live`, `stale: …` or `ended: …`.
    pub state: String,
    /// How its publisher's feed is: `live` or `silent since …`.
    #[serde(default)]
    pub feed: String,
    /// What became of its snapshots.
    #[serde(flatten)]
    pub counts: AbSideCounts,
    /// How much later than the other side's first copy its late ones were received, in nanoseconds.
    /// Known for the newest 16 snapshots of each instrument, so its count may be less than
    /// `counts.late`.
    pub lateness: LatencyFigures,
    /// The side's own statistics: everything that its session handed over.
    pub session: Statistics,
}

/// The final account of a merged subscription: what the application got, as of one publisher, and
/// what each side contributed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AbSummary {
    /// What the application got. `published` is what it got and what that stands for; session and
    /// epoch are those that the last snapshot came from. Skew is kept by the sides alone.
    #[serde(flatten)]
    pub merged: Summary,
    /// Side A, then side B.
    pub sides: [AbSideFigures; 2],
}

impl AbSubscriber {
    /// What the application got, over all sessions of both sides: `published` is what was delivered
    /// and what that stands for; laps, reconnects and lost snapshots are both sides' together, the
    /// lag is the longer one. Walks a histogram: not for every snapshot.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let [a, b] = self.sides.each_ref().map(|side| side.statistics());
        self.merged_statistics(&a, &b)
    }

    fn merged_statistics(&self, a: &Statistics, b: &Statistics) -> Statistics {
        let totals = &self.merge.totals;
        let mut figures = Statistics {
            published: totals.delivered.wrapping_add(totals.conflated),
            delivered: totals.delivered,
            conflated: totals.conflated,
            lost: 0,
            initial_images: totals.initial_images,
            suspect: totals.suspect,
            feed_gaps: totals.feed_gaps,
            negative_deliveries: totals.negative_deliveries,
            laps: a.laps + b.laps,
            reconnects: a.reconnects + b.reconnects,
            lag_bytes: a.lag_bytes.max(b.lag_bytes),
            lag_ns: a.lag_ns.max(b.lag_ns),
            lag_snapshots: a.lag_snapshots.max(b.lag_snapshots),
            clock: ClockFigures {
                one_host: a.clock.one_host && b.clock.one_host,
                one_way_reliable: a.clock.one_way_reliable && b.clock.one_way_reliable,
                ..ClockFigures::default()
            },
            ..Statistics::default()
        };
        if let Some(timing) = self.merge.timing.as_deref() {
            figures.latency = timing.latency.figures();
            figures.jitter = Jitter::of(&figures.latency, &timing.jitter);
        }
        figures
    }

    /// What one side has contributed. Walks histograms: not for every snapshot.
    #[must_use]
    pub fn side_figures(&self, side: AbSide) -> AbSideFigures {
        let session = self.side(side);
        let lateness = self.merge.timing.as_deref().map(|t| t.lateness[side.index()].figures());
        AbSideFigures {
            side: side.to_string(),
            publisher: session.choices().target().to_string(),
            state: session.state().to_string(),
            feed: session.feed().to_string(),
            counts: self.merge.arbiter.counts(side),
            lateness: lateness.unwrap_or_default(),
            session: session.statistics(),
        }
    }

    /// What the application got of each instrument, sorted by symbol. Allocates.
    #[must_use]
    pub fn accounts(&self) -> Vec<InstrumentAccount> {
        let account = |listed: &super::merge::Listed| InstrumentAccount {
            symbol: listed.instrument.symbol.clone(),
            venue: listed.instrument.venue.clone(),
            published: listed.delivered.wrapping_add(listed.conflated),
            delivered: listed.delivered,
            conflated: listed.conflated,
            lost: 0,
            last_sequence: listed.last_sequence,
        };
        let got = self.merge.listed.iter().filter(|listed| listed.delivered > 0);
        let mut accounts: Vec<_> = got.map(account).collect();
        accounts.sort_unstable_by(|a, b| (&a.symbol, &a.venue).cmp(&(&b.symbol, &b.venue)));
        accounts
    }

    /// The account up to now. `balanced` says whether both sides' own accounts add up.
    pub fn summary(&mut self) -> AbSummary {
        let own = self.sides.each_mut().map(|side| side.summary());
        let sides = AbSide::BOTH.map(|side| self.side_figures(side));
        let statistics = self.merged_statistics(&sides[0].session, &sides[1].session);
        let last = &own[self.merge.totals.last.unwrap_or(AbSide::A).index()];
        let merged = Summary {
            name: last.name.clone(),
            session_id: last.session_id,
            epoch: last.epoch,
            state: self.state().to_string(),
            source_ended: self.source_ended(),
            elapsed_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            balanced: own.iter().all(|summary| summary.balanced),
            statistics,
            latency: self.merge.timing.as_deref().map(|t| t.latency.clone()).unwrap_or_default(),
            skew: Vec::new(),
            instruments: self.accounts(),
        };
        AbSummary { merged, sides }
    }
}
