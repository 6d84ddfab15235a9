//! What happened between two ticks.

use std::time::{Duration, Instant};

use serde::Serialize;
use tapecast_subscriber::{LatencyFigures, LatencySummary, Snapshot, Statistics};

use super::figures::rate;

/// Latencies and counts since the last tick.
#[derive(Debug)]
pub(crate) struct Meter {
    latency: LatencySummary,
    before: Statistics,
    since: Instant,
}

/// What happened between two ticks.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Interval {
    /// Length of the interval.
    pub seconds: f64,
    /// Snapshots delivered per second.
    pub delivered_per_second: f64,
    /// Snapshots replaced by newer ones per second.
    pub conflated_per_second: f64,
    /// Snapshots that nothing accounts for.
    pub lost: u64,
    /// Books that became suspect.
    pub feed_gaps: u64,
    /// Times that the ring lapped this subscriber.
    pub laps: u64,
    /// Latency of this interval's snapshots.
    pub latency: LatencyFigures,
    /// 99th percentile minus median, in nanoseconds.
    pub jitter_ns: u64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            latency: LatencySummary::new(),
            before: Statistics::default(),
            since: Instant::now(),
        }
    }

    pub(crate) fn on_snapshot(&mut self, snapshot: &Snapshot<'_>) {
        if let Some(latency_ns) = snapshot.latency_ns() {
            self.latency.record(latency_ns);
        }
    }

    /// Ends the interval, at which these are the totals, and begins the next.
    pub(crate) fn tick(&mut self, after: &Statistics) -> Interval {
        let now = Instant::now();
        let interval = between(&self.before, after, now - self.since, self.latency.figures());
        self.latency.clear();
        self.before.clone_from(after);
        self.since = now;
        interval
    }
}

fn between(
    before: &Statistics,
    after: &Statistics,
    time: Duration,
    latency: LatencyFigures,
) -> Interval {
    Interval {
        seconds: time.as_secs_f64(),
        delivered_per_second: rate(after.delivered.saturating_sub(before.delivered), time),
        conflated_per_second: rate(after.conflated.saturating_sub(before.conflated), time),
        lost: after.lost.saturating_sub(before.lost),
        feed_gaps: after.feed_gaps.saturating_sub(before.feed_gaps),
        laps: after.laps.saturating_sub(before.laps),
        latency,
        jitter_ns: latency.p99_ns.saturating_sub(latency.p50_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_the_difference_of_two_totals() {
        let before =
            Statistics { delivered: 100, conflated: 5, feed_gaps: 1, ..Default::default() };
        let after =
            Statistics { delivered: 300, conflated: 15, feed_gaps: 1, ..Default::default() };
        let latency = LatencyFigures { p50_ns: 10, p99_ns: 25, ..Default::default() };
        let interval = between(&before, &after, Duration::from_secs(2), latency);
        assert_eq!(interval.delivered_per_second, 100.0);
        assert_eq!(interval.conflated_per_second, 5.0);
        assert_eq!((interval.feed_gaps, interval.jitter_ns), (0, 15));
    }
}
