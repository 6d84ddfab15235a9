//! The headline "1.8 µs on average, ± 0.5 µs": whether it can hold, and what would make it so.

use serde::Serialize;
use tapecast_wire::limits::PAGE_BYTES;

use super::demand::Demand;
use super::fan_out::{Arrivals, INLINE_MAX_BYTES, Scenario};

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
    /// Mean after publishing, with the wait at the subscribers' ports, in nanoseconds.
    pub mean_ns: f64,
    /// Most that it may be.
    pub mean_max_ns: f64,
    /// From the first subscriber to the last, in nanoseconds.
    pub skew_ns: f64,
    /// Most that it may be.
    pub skew_max_ns: f64,
    /// What of the mean is the wait at the subscribers' ports, in nanoseconds.
    pub port_mean_ns: f64,
    /// The same of the time from the first to the last.
    pub port_skew_ns: f64,
    /// Why it does not hold: empty where it does.
    pub reasons: Vec<Reason>,
    /// Changes, each of which makes it hold by itself or with what it names.
    pub remedies: Remedies,
}

/// A reason why the headline does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The mean is too large.
    Mean,
    /// The last subscriber is too far from the first.
    Skew,
    /// It would hold, were it not for the queue at a subscribers' port.
    PortQueue,
    /// A subscribers' port is sent more than it carries.
    PortOverloaded,
    /// The publisher does not keep up with one snapshot in each work request.
    NotSustained,
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
    /// Slowest ports in Gb/s for this payload, the publisher's and the subscribers', with as many
    /// lanes as it takes.
    pub port_gbps: Option<f64>,
    /// The same, with the payload in the work request.
    pub port_inline_gbps: Option<f64>,
    /// Most snapshots per second, everything else as it is.
    pub snapshots_per_s: Option<f64>,
    /// Most subscribers behind one port of the switch, everything else as it is.
    pub behind_port: Option<u32>,
    /// Slowest port of the subscribers in Gb/s, everything else as it is.
    pub subscriber_port_gbps: Option<f64>,
    /// Most publishers at once, everything else as it is.
    pub publishers: Option<u32>,
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
pub fn holds(demand: &Demand) -> bool {
    demand.is_sustained() && demand.port_share() <= 1.0 && is_met(&demand.arrivals())
}

fn is_met(arrivals: &Arrivals) -> bool {
    arrivals.mean_ns <= MEAN_NS && arrivals.skew_ns <= 2.0 * SPREAD_NS
}

/// Judges, and looks for what would help.
#[must_use]
pub fn judge(demand: &Demand) -> Verdict {
    let (sent, arrivals) = (demand.scenario.arrivals(), demand.arrivals());
    let holds = holds(demand);
    Verdict {
        holds,
        mean_ns: arrivals.mean_ns,
        mean_max_ns: MEAN_NS,
        skew_ns: arrivals.skew_ns,
        skew_max_ns: 2.0 * SPREAD_NS,
        port_mean_ns: arrivals.mean_ns - sent.mean_ns,
        port_skew_ns: arrivals.skew_ns - sent.skew_ns,
        reasons: reasons(demand, &sent, &arrivals),
        remedies: if holds { Remedies::default() } else { remedies(demand) },
    }
}

fn reasons(demand: &Demand, sent: &Arrivals, arrivals: &Arrivals) -> Vec<Reason> {
    [
        (Reason::Mean, arrivals.mean_ns > MEAN_NS),
        (Reason::Skew, arrivals.skew_ns > 2.0 * SPREAD_NS),
        (Reason::PortQueue, is_met(sent) && !is_met(arrivals)),
        (Reason::PortOverloaded, demand.port_share() > 1.0),
        (Reason::NotSustained, !demand.is_sustained()),
    ]
    .into_iter()
    .filter_map(|(reason, applies)| applies.then_some(reason))
    .collect()
}

fn remedies(demand: &Demand) -> Remedies {
    let inline = inlined(demand);
    Remedies {
        lanes: lanes(demand),
        subscribers: subscribers(demand),
        base_ns: base_ns(demand),
        smaller: smaller(demand),
        smaller_inline: smaller(&inline),
        port_gbps: port_gbps(demand),
        port_inline_gbps: port_gbps(&inline),
        snapshots_per_s: snapshots_per_s(demand),
        behind_port: behind_port(demand),
        subscriber_port_gbps: subscriber_port_gbps(demand),
        publishers: publishers(demand),
    }
}

fn with(demand: &Demand, change: impl FnOnce(&mut Scenario)) -> Demand {
    let mut changed = *demand;
    change(&mut changed.scenario);
    changed
}

fn inlined(demand: &Demand) -> Demand {
    with(demand, |scenario| scenario.base.inline_max_bytes = INLINE_MAX_BYTES)
}

/// A lane for each subscriber.
fn with_lanes_enough(demand: &Demand) -> Demand {
    with(demand, |scenario| scenario.lanes = scenario.subscribers)
}

fn lanes(demand: &Demand) -> Option<u32> {
    (1..=demand.scenario.subscribers)
        .find(|lanes| holds(&with(demand, |scenario| scenario.lanes = *lanes)))
}

fn subscribers(demand: &Demand) -> Option<u32> {
    let few = |count: &u32| holds(&with(demand, |scenario| scenario.subscribers = *count));
    (1..demand.scenario.subscribers).rev().find(few)
}

/// The base latency enters the mean alone, so it helps only where the rest is as it should be.
fn base_ns(demand: &Demand) -> Option<f64> {
    let arrivals = demand.arrivals();
    let now_ns = demand.scenario.base.of(demand.scenario.payload_bytes);
    let most_ns = now_ns - (arrivals.mean_ns - MEAN_NS);
    let is_late = arrivals.mean_ns > MEAN_NS && most_ns > 0.0;
    let rest = demand.is_sustained() && demand.port_share() <= 1.0;
    (is_late && rest && arrivals.skew_ns <= 2.0 * SPREAD_NS).then_some(most_ns)
}

fn smaller(demand: &Demand) -> Option<Smaller> {
    let free = with_lanes_enough(demand);
    let of = |demand, bytes| with(demand, |scenario| scenario.payload_bytes = bytes);
    let payload_bytes = (1..=PAGE_BYTES as u32).rev().find(|bytes| holds(&of(&free, *bytes)))?;
    let lanes = lanes(&of(demand, payload_bytes))?;
    Some(Smaller { payload_bytes, lanes })
}

/// The subscribers' ports become as fast where they are slower: a port is not passed by.
fn port_gbps(demand: &Demand) -> Option<f64> {
    let free = with_lanes_enough(demand);
    let at = |line_gbps: f64| Demand {
        port_gbps: demand.port_gbps.max(line_gbps),
        ..with(&free, |scenario| scenario.line_gbps = line_gbps)
    };
    PORT_RATES_GBPS.into_iter().find(|gbps| holds(&at(*gbps)))
}

/// Only what is sustained and fits the port can hold, so nothing above either has to be tried.
fn snapshots_per_s(demand: &Demand) -> Option<f64> {
    let fits = demand.snapshots_per_s / demand.port_share();
    let most = demand.scenario.snapshots_per_s().min(fits).floor();
    let is_fewer = most >= 1.0 && most < demand.snapshots_per_s;
    (is_fewer && holds(&Demand { snapshots_per_s: most, ..*demand })).then_some(most)
}

fn behind_port(demand: &Demand) -> Option<u32> {
    let few = |count: &u32| holds(&Demand { behind_port: *count, ..*demand });
    (1..demand.behind_port).rev().find(few)
}

fn subscriber_port_gbps(demand: &Demand) -> Option<f64> {
    let fast = |gbps: &f64| holds(&Demand { port_gbps: *gbps, ..*demand });
    PORT_RATES_GBPS.into_iter().filter(|gbps| *gbps > demand.port_gbps).find(fast)
}

fn publishers(demand: &Demand) -> Option<u32> {
    let few = |count: &u32| holds(&Demand { publishers: *count, ..*demand });
    (1..demand.publishers).rev().find(few)
}
