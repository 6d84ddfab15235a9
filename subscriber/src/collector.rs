//! A subscription's figures as a collector for the `prometheus` crate (feature `prometheus`).
//!
//! A [`Subscriber`] belongs to the thread that polls it, and Prometheus asks from another one. So
//! the polling thread shows its figures now and then, and the collector tells what was shown last.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use tapecast_telemetry::families::{Families, Named, flag, seconds};

use crate::Subscriber;
use crate::statistics::{LatencyCounts, Statistics};

/// Figures of one subscription for a `prometheus::Registry`. Clones are the same collector:
/// register one, and keep another to [`show`](Self::show) with.
///
/// ```no_run
/// use tapecast_subscriber::{Subscriber, SubscriberCollector};
///
/// let mut subscriber = Subscriber::builder().connect()?;
/// let collector = SubscriberCollector::new("risk-1");
/// prometheus::default_registry().register(Box::new(collector.clone()))?;
/// loop {
///     subscriber.wait(std::time::Duration::from_secs(1))?;
///     subscriber.poll(|_snapshot| {})?;
///     collector.show(&subscriber); // once a second is enough
/// #   break;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SubscriberCollector {
    name: Arc<str>,
    shown: Arc<Mutex<Shown>>,
}

#[derive(Debug, Default)]
struct Shown {
    statistics: Statistics,
    latency: LatencyCounts,
    end_to_end: LatencyCounts,
}

impl SubscriberCollector {
    /// A collector whose series have the label `subscriber` with this name. Nothing is shown yet:
    /// all is 0.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), shown: Arc::default() }
    }

    /// Shows the figures as they are now. Walks the latency histogram, some tens of microseconds:
    /// not for every snapshot. Never waits for a scrape: when one is going on, the next call shows
    /// more.
    pub fn show(&self, subscriber: &Subscriber) {
        self.put(Shown {
            statistics: subscriber.statistics(),
            latency: subscriber.latency_counts(),
            end_to_end: subscriber.end_to_end_counts(),
        });
    }

    fn put(&self, fresh: Shown) {
        if let Ok(mut shown) = self.shown.try_lock() {
            *shown = fresh;
        }
    }
}

impl Collector for SubscriberCollector {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let Shown { statistics, latency, end_to_end } = &*shown;
        let labels = [("subscriber", &*self.name)];
        let mut out = Families::default();
        for (name, help, count) in counters(statistics) {
            out.counter_of(Named(name, help), &labels, count as f64);
        }
        for (name, help, value) in gauges(statistics) {
            if let Some(value) = value {
                out.gauge_of(Named(name, help), &labels, value);
            }
        }
        out.latencies_of(DELIVERY, &labels, latency);
        out.latencies_of(END_TO_END, &labels, end_to_end);
        out.into_inner()
    }
}

const DELIVERY: Named = Named(
    "tapecast_sdk_delivery_seconds",
    "From publishing to being handed to the application, initial images left out. Two clocks: see \
     tapecast_sdk_clock_error_seconds. What by them came before it was published is not here but \
     in tapecast_sdk_negative_deliveries_total.",
);

const END_TO_END: Named = Named(
    "tapecast_sdk_end_to_end_seconds",
    "From the feed's receive time (ts_recv) to being handed to the application, initial images \
     left out. Counted from 0 to 60 s: not without a trustworthy ts_recv, not when it is later, \
     not when it is older as in replayed or simulated days (unless the publisher's \
     source.receive_time is host). Clocks of feed and subscriber, nothing corrected.",
);

type Told<T> = (&'static str, &'static str, T);

fn counters(statistics: &Statistics) -> [Told<u64>; 10] {
    [
        (
            "tapecast_sdk_published_snapshots_total",
            "Snapshots that the publisher made for this subscription.",
            statistics.published,
        ),
        (
            "tapecast_sdk_delivered_snapshots_total",
            "Snapshots handed to the application.",
            statistics.delivered,
        ),
        (
            "tapecast_sdk_conflated_snapshots_total",
            "Snapshots that a newer one replaced because this subscriber did not keep up, or has \
             asked for a least interval.",
            statistics.conflated,
        ),
        (
            "tapecast_sdk_lost_snapshots_total",
            "Snapshots that nothing accounts for. Stays 0; anything else is a defect.",
            statistics.lost,
        ),
        (
            "tapecast_sdk_initial_images_total",
            "Delivered snapshots that were the first of their instrument in a session.",
            statistics.initial_images,
        ),
        (
            "tapecast_sdk_suspect_snapshots_total",
            "Delivered snapshots whose book is suspect because the feed lost messages.",
            statistics.suspect,
        ),
        ("tapecast_sdk_feed_gaps_total", "Times that a book became suspect.", statistics.feed_gaps),
        ("tapecast_sdk_laps_total", "Times that the ring lapped this subscriber.", statistics.laps),
        (
            "tapecast_sdk_reconnects_total",
            "Times that this subscription attached again.",
            statistics.reconnects,
        ),
        (
            "tapecast_sdk_negative_deliveries_total",
            "Deliveries that by the two clocks came before they were published, not in the \
             delivery distribution: this host's clock is behind the publisher's.",
            statistics.negative_deliveries,
        ),
    ]
}

/// A value that nobody has measured is not told: 0 would look like the best there is.
fn gauges(statistics: &Statistics) -> [Told<Option<f64>>; 10] {
    let clock = &statistics.clock;
    let measured = clock.round_trip_ns > 0;
    let known = clock.one_host || measured;
    [
        (
            "tapecast_sdk_lag_bytes",
            "Bytes in the ring that are still to be looked at.",
            Some(statistics.lag_bytes as f64),
        ),
        (
            "tapecast_sdk_lag_seconds",
            "How long ago the oldest of them was published, by the clocks of both hosts. Of a \
             subscriber that was lapped, the age of what it delivered last: at most this long.",
            Some(seconds(statistics.lag_ns)),
        ),
        (
            "tapecast_sdk_lag_snapshots",
            "Snapshots of the channel since the one that this subscriber took last, while it has \
             bytes to look at; with a choice of symbols, those of others are among them. Not there \
             over RDMA, where the publisher knows.",
            statistics.lag_snapshots.map(|snapshots| snapshots as f64),
        ),
        (
            "tapecast_sdk_delivery_max_seconds",
            "Longest time from publishing to being handed to the application in the delivery \
             distribution, since the subscriber started.",
            Some(seconds(statistics.latency.max_ns)),
        ),
        (
            "tapecast_sdk_latency_spread_seconds",
            "Jitter as the spread of the delivery distribution: 99th percentile less median. An \
             offset between clocks cancels to about a thousandth of itself, unless it makes \
             deliveries negative: those are left out, and with nothing left this is 0.",
            Some(seconds(statistics.jitter.p99_minus_p50_ns)),
        ),
        (
            "tapecast_sdk_interarrival_jitter_seconds",
            "Jitter as RFC 3550 section 6.4.1 defines it. Offsets between clocks cancel, also \
             where they make transit times negative.",
            Some(seconds(statistics.jitter.rfc3550_ns)),
        ),
        (
            "tapecast_sdk_clock_offset_seconds",
            "This host's clock less the publisher's; 0 on one host. Not there before anything is \
             known.",
            known.then_some(clock.offset_ns as f64 / 1e9),
        ),
        (
            "tapecast_sdk_clock_error_seconds",
            "How wrong the clock offset may be; 0 on one host. Not there before anything is known.",
            known.then_some(seconds(clock.error_ns)),
        ),
        (
            "tapecast_sdk_round_trip_seconds",
            "Round trip to the publisher over the control plane. Not there on one host, and before \
             anything is known.",
            measured.then_some(seconds(clock.round_trip_ns)),
        ),
        (
            "tapecast_sdk_one_way_reliable",
            "Whether latencies from the publisher can be relied on: one host, or a known clock \
             offset and error of at most 50 us.",
            Some(flag(clock.one_way_reliable)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use prometheus::{Encoder, Registry, TextEncoder};
    use tapecast_fabric::ClockReport;

    use super::*;
    use crate::statistics::ClockFigures;

    #[test]
    fn what_is_shown_is_told_in_prometheus_own_words() {
        let collector = SubscriberCollector::new("risk \"1\"");
        let registry = Registry::new();
        registry.register(Box::new(collector.clone())).unwrap();
        let mut latency = LatencyCounts::default();
        [400, 4_900, 70_000_000_000].into_iter().for_each(|ns| latency.record(ns));
        let statistics =
            Statistics { delivered: 7, conflated: 2, lag_ns: 1_500_000_000, ..Default::default() };
        let mut end_to_end = LatencyCounts::default();
        end_to_end.record(59_000);
        *collector.shown.lock().unwrap() = Shown { statistics, latency, end_to_end };
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for line in [
            r#"tapecast_sdk_delivered_snapshots_total{subscriber="risk \"1\""} 7"#,
            r#"tapecast_sdk_lag_seconds{subscriber="risk \"1\""} 1.5"#,
            r#"tapecast_sdk_delivery_seconds_bucket{subscriber="risk \"1\"",le="0.0000005"} 1"#,
            r#"tapecast_sdk_delivery_seconds_bucket{subscriber="risk \"1\"",le="0.000005"} 2"#,
            r#"tapecast_sdk_delivery_seconds_bucket{subscriber="risk \"1\"",le="1"} 2"#,
            r#"tapecast_sdk_delivery_seconds_count{subscriber="risk \"1\""} 3"#,
            r#"tapecast_sdk_end_to_end_seconds_bucket{subscriber="risk \"1\"",le="0.00005"} 0"#,
            r#"tapecast_sdk_end_to_end_seconds_bucket{subscriber="risk \"1\"",le="0.00007"} 1"#,
            r#"tapecast_sdk_end_to_end_seconds_count{subscriber="risk \"1\""} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn what_nobody_has_measured_of_the_clocks_is_not_told() {
        let told = |clock| {
            let statistics = Statistics { clock, ..Default::default() };
            let told = gauges(&statistics).into_iter().filter(|(_, _, value)| value.is_some());
            told.map(|(name, ..)| name.replace("tapecast_sdk_", "")).collect::<Vec<_>>()
        };
        let measured = ClockReport { offset_ns: -5, error_ns: 6, round_trip_ns: 7 };
        for (clock, offset, round_trip) in [
            (ClockFigures::of(ClockReport::default(), false), false, false),
            (ClockFigures::of(ClockReport::default(), true), true, false),
            (ClockFigures::of(measured, false), true, true),
        ] {
            let told = told(clock);
            let has = |name: &str| told.iter().any(|known| known == name);
            assert_eq!(has("clock_offset_seconds"), offset, "{clock:?}");
            assert_eq!(has("clock_error_seconds"), offset, "{clock:?}");
            assert_eq!(has("round_trip_seconds"), round_trip, "{clock:?}");
            assert!(has("one_way_reliable"), "{clock:?}");
            assert_eq!(clock.one_way_reliable, offset, "{clock:?}");
        }
    }

    #[test]
    fn a_scrape_never_holds_the_polling_thread_up_and_the_next_call_shows_more() {
        let collector = SubscriberCollector::new("x");
        let with = |delivered| Shown {
            statistics: Statistics { delivered, ..Default::default() },
            ..Default::default()
        };
        let scrape = collector.shown.lock().unwrap();
        collector.put(with(1)); // would hang here
        assert_eq!(scrape.statistics.delivered, 0);
        drop(scrape);
        collector.put(with(2));
        assert_eq!(collector.shown.lock().unwrap().statistics.delivered, 2);
    }
}
