//! Series of how each subscriber's clock relates to the publisher's.

use tapecast_fabric::ClockReport;
use tapecast_telemetry::families::{Families, Labels, Named, flag, seconds};

use super::Identity;

const OFFSET: Named = Named(
    "tapecast_subscriber_clock_offset_seconds",
    "The subscriber's clock less the publisher's, from round trips over the control plane; 0 on \
     one host. Not there before anything is known.",
);

const ERROR: Named = Named(
    "tapecast_subscriber_clock_error_seconds",
    "How wrong that offset may be: half the shortest round trip, and what clocks may have drifted \
     since; 0 on one host. Not there before anything is known.",
);

const ROUND_TRIP: Named = Named(
    "tapecast_subscriber_round_trip_seconds",
    "Round trip between subscriber and publisher over the control plane. Needs no common clock. \
     Not there on one host, where nobody asks, and before anything is known.",
);

const RELIABLE: Named = Named(
    "tapecast_subscriber_one_way_reliable",
    "Whether one-way latencies of this subscriber can be relied on: one host, or a known clock \
     offset and error of at most metrics.clock_error_max_us.",
);

/// A 0 that nobody has measured would look like the best clock there is, so it is not told. On one
/// host there is one clock, and nothing to measure.
pub(super) fn collect(
    out: &mut Families,
    clock: &ClockReport,
    labels: Labels<'_>,
    identity: &Identity,
) {
    let (same, known) = (identity.fabric == "shm", clock.round_trip_ns > 0);
    if same || known {
        out.gauge_of(OFFSET, labels, clock.offset_ns as f64 / 1e9);
        out.gauge_of(ERROR, labels, seconds(clock.error_ns));
    }
    if known {
        out.gauge_of(ROUND_TRIP, labels, seconds(clock.round_trip_ns));
    }
    let reliable = same || known && is_within(clock, identity.clock_error_max_ns);
    out.gauge_of(RELIABLE, labels, flag(reliable));
}

const fn is_within(clock: &ClockReport, max_ns: u64) -> bool {
    clock.error_ns <= max_ns && clock.offset_ns.unsigned_abs() <= max_ns
}

#[cfg(test)]
mod tests {
    use tapecast_wire::Epoch;

    use super::*;

    /// What is told, by the end of its name.
    fn told(fabric: &'static str, clock: ClockReport) -> Vec<(String, f64)> {
        let (name, epoch) = ("test".to_owned(), Epoch(1));
        let identity = Identity { name, fabric, epoch, clock_error_max_ns: 50_000 };
        let mut out = Families::default();
        collect(&mut out, &clock, &[("subscriber", "x")], &identity);
        let told = out.into_inner().into_iter().map(|family| {
            let name = family.name().replace("tapecast_subscriber_", "");
            (name, family.get_metric()[0].get_gauge().get_value())
        });
        told.collect()
    }

    fn expected(series: &[(&str, f64)]) -> Vec<(String, f64)> {
        series.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn between_hosts_nothing_is_told_of_clocks_before_anything_is_known() {
        let told = told("verbs", ClockReport::default());
        assert_eq!(told, expected(&[("one_way_reliable", 0.0)]));
    }

    #[test]
    fn between_hosts_what_is_known_is_told_and_judged() {
        for (offset_ns, reliable) in [(-40_000, 1.0), (60_000, 0.0)] {
            let clock = ClockReport { offset_ns, error_ns: 20_000, round_trip_ns: 40_000 };
            let all = [
                ("clock_offset_seconds", offset_ns as f64 / 1e9),
                ("clock_error_seconds", 0.000_02),
                ("round_trip_seconds", 0.000_04),
                ("one_way_reliable", reliable),
            ];
            assert_eq!(told("verbs", clock), expected(&all), "{offset_ns}");
        }
    }

    #[test]
    fn on_one_host_there_is_one_clock_and_no_round_trip() {
        let all = [
            ("clock_offset_seconds", 0.0),
            ("clock_error_seconds", 0.0),
            ("one_way_reliable", 1.0),
        ];
        assert_eq!(told("shm", ClockReport::default()), expected(&all));
    }
}
