//! The headline "1.8 µs on average, ± 0.5 µs": whether it can hold, and what would make it so.

use serde::Serialize;
use tapecast_wire::limits::PAGE_BYTES;

use super::fan_out::{INLINE_MAX_BYTES, Scenario};

/// The mean that the headline promises, in nanoseconds after publishing.
pub const MEAN_NS: f64 = 1800.0;
/// How far a subscriber may be from the mean, in nanoseconds.
pub const SPREAD_NS: f64 = 500.0;
/// Rates of Ethernet ports, in Gb/s.
const PORT_RATES_GBPS: [f64; 6] = [25.0, 40.0, 50.0, 100.0, 200.0, 400.0];

/// Whether the headline holds, and how far away what was asked for is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Whether it holds.
    pub holds: bool,
    /// Mean after publishing, in nanoseconds.
    pub mean_ns: f64,
    /// Most that it may be.
    pub mean_max_ns: f64,
    /// From the first subscriber to the last, in nanoseconds.
    pub skew_ns: f64,
    /// Most that it may be.
    pub skew_max_ns: f64,
    /// Changes, each of which makes it hold by itself or with what it names.
    pub remedies: Remedies,
}

/// What would make the headline hold. Each is `None` when nothing of its kind would.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Remedies {
    /// Fewest lanes, everything else as it is.
    pub lanes: Option<u32>,
    /// Most subscribers, everything else as it is.
    pub subscribers: Option<u32>,
    /// Largest base latency of one copy in nanoseconds, everything else as it is.
    pub base_ns: Option<f64>,
    /// Payload and lanes at this line rate, fetched or inline as it is now.
    pub smaller: Option<Smaller>,
    /// The same with payloads that stand in the work request, which tapecast does not do.
    pub smaller_inline: Option<Smaller>,
    /// Slowest port in Gb/s for this payload, with as many lanes as it takes.
    pub port_gbps: Option<f64>,
    /// The same, with the payload in the work request.
    pub port_inline_gbps: Option<f64>,
}

/// A payload that is small enough, and the lanes that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Smaller {
    /// Largest payload, in bytes.
    pub payload_bytes: u32,
    /// Fewest lanes with it.
    pub lanes: u32,
}

/// Whether the headline holds.
#[must_use]
pub fn holds(scenario: &Scenario) -> bool {
    let arrivals = scenario.arrivals();
    arrivals.mean_ns <= MEAN_NS && arrivals.skew_ns <= 2.0 * SPREAD_NS
}

/// Judges, and looks for what would help.
#[must_use]
pub fn judge(scenario: &Scenario) -> Verdict {
    let arrivals = scenario.arrivals();
    let holds = holds(scenario);
    Verdict {
        holds,
        mean_ns: arrivals.mean_ns,
        mean_max_ns: MEAN_NS,
        skew_ns: arrivals.skew_ns,
        skew_max_ns: 2.0 * SPREAD_NS,
        remedies: if holds { Remedies::default() } else { remedies(scenario) },
    }
}

fn remedies(scenario: &Scenario) -> Remedies {
    let inline = inlined(scenario);
    Remedies {
        lanes: lanes(scenario),
        subscribers: subscribers(scenario),
        base_ns: base_ns(scenario),
        smaller: smaller(scenario),
        smaller_inline: smaller(&inline),
        port_gbps: port_gbps(scenario),
        port_inline_gbps: port_gbps(&inline),
    }
}

fn inlined(scenario: &Scenario) -> Scenario {
    let mut inline = *scenario;
    inline.base.inline_max_bytes = INLINE_MAX_BYTES;
    inline
}

/// A lane for each subscriber.
const fn with_lanes_enough(scenario: &Scenario) -> Scenario {
    Scenario { lanes: scenario.subscribers, ..*scenario }
}

fn lanes(scenario: &Scenario) -> Option<u32> {
    (1..=scenario.subscribers).find(|lanes| holds(&Scenario { lanes: *lanes, ..*scenario }))
}

fn subscribers(scenario: &Scenario) -> Option<u32> {
    let few = |count: &u32| holds(&Scenario { subscribers: *count, ..*scenario });
    (1..scenario.subscribers).rev().find(few)
}

/// The base latency enters the mean alone, so it helps only where the skew is small enough.
fn base_ns(scenario: &Scenario) -> Option<f64> {
    let arrivals = scenario.arrivals();
    let now_ns = scenario.base.of(scenario.payload_bytes);
    let most_ns = now_ns - (arrivals.mean_ns - MEAN_NS);
    (arrivals.skew_ns <= 2.0 * SPREAD_NS && most_ns > 0.0).then_some(most_ns)
}

fn smaller(scenario: &Scenario) -> Option<Smaller> {
    let free = with_lanes_enough(scenario);
    let fits = |payload_bytes: &u32| holds(&Scenario { payload_bytes: *payload_bytes, ..free });
    let payload_bytes = (1..=PAGE_BYTES as u32).rev().find(fits)?;
    let lanes = lanes(&Scenario { payload_bytes, ..*scenario })?;
    Some(Smaller { payload_bytes, lanes })
}

fn port_gbps(scenario: &Scenario) -> Option<f64> {
    let free = with_lanes_enough(scenario);
    PORT_RATES_GBPS.into_iter().find(|line_gbps| holds(&Scenario { line_gbps: *line_gbps, ..free }))
}
