//! Everything that is worked out from one set of inputs.

use serde::Serialize;

use super::advice::{self, Advice};
use super::congestion::{self, Congestion};
use super::dcqcn::{ReactionPoint, SharedBuffer};
use super::demand::Demand;
use super::fan_out::{Arrivals, BaseLatency, Costs, Scenario, Step};
use super::sizing::{self, Load, Sizing, slot_bytes};
use super::target::{self, Verdict};
use super::wire::{ACKNOWLEDGEMENT_BYTES, device_mtu, packets};

/// What stands above every output.
pub const MODEL_NOTE: &str = "a model: everything here is computed, nothing was measured";

/// Lanes that are compared.
const LANES: [u32; 5] = [1, 2, 4, 8, 16];

/// PCIe between memory and device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pcie {
    /// Generation, 3 to 5.
    pub generation: u32,
    /// Lanes.
    pub lanes: u32,
}

impl Pcie {
    /// What a device can fetch, in bytes per nanosecond: usual figures, below the nominal ones.
    #[must_use]
    pub fn bytes_per_ns(self) -> f64 {
        let sixteen_lanes = match self.generation {
            ..=3 => 12.5,
            4 => 25.0,
            _ => 50.0,
        };
        sixteen_lanes * f64::from(self.lanes) / 16.0
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inputs {
    /// The fan-out. Its PCIe rate follows from `pcie`.
    pub demand: Demand,
    /// The bus.
    pub pcie: Pcie,
    /// Pause of a subscriber that must cost it nothing, in milliseconds.
    pub pause_ms: f64,
    /// The switch.
    pub buffer: SharedBuffer,
    /// Another train of notifications to show, in microseconds.
    pub train_us: Option<f64>,
    /// How the queue pairs react to it.
    pub reaction: ReactionPoint,
}

/// The plan. Its form is the JSON output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Always true.
    pub model: bool,
    /// The same in words.
    pub note: &'static str,
    /// What was asked for.
    pub asked: Asked,
    /// One copy on the wire.
    pub wire: Wire,
    /// Latency and skew.
    pub latency: Latency,
    /// What holds it back.
    pub bottleneck: Bottleneck,
    /// How much goes through.
    pub rate: Rate,
    /// Depths and sizes.
    pub sizing: Sizing,
    /// The headline figure.
    pub target: Verdict,
    /// ECN, PFC and DCQCN.
    pub congestion: Congestion,
    /// What to do.
    pub advice: Vec<Advice>,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Asked {
    /// Rate of the publisher's port, in Gb/s.
    pub line_gbps: f64,
    /// Largest payload of one packet, in bytes.
    pub path_mtu_bytes: u32,
    /// Subscribers.
    pub subscribers: u32,
    /// Bytes of a snapshot.
    pub payload_bytes: u32,
    /// Snapshots per second to each subscriber.
    pub snapshots_per_s: f64,
    /// Threads that post.
    pub lanes: u32,
    /// Cost of posting a work request, in nanoseconds.
    pub post_ns: f64,
    /// The bus.
    pub pcie: Pcie,
    /// The way of a single copy.
    pub base: BaseLatency,
}

/// One copy on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wire {
    /// Bytes that it takes.
    pub wire_bytes: u32,
    /// Packets.
    pub packets: u32,
    /// Share of the wire that is payload.
    pub payload_share: f64,
    /// Time on the wire, in nanoseconds.
    pub copy_ns: f64,
    /// The same for all subscribers.
    pub burst_ns: f64,
    /// Bytes of the acknowledgement, the other way.
    pub acknowledgement_bytes: u32,
    /// MTU that the network interface needs, in bytes.
    pub device_mtu_bytes: u32,
}

/// Latency after publishing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Of a single copy, before its time on the wire, in nanoseconds.
    pub base_ns: f64,
    /// Were posting free.
    pub floor: Arrivals,
    /// As asked for.
    pub publish: Arrivals,
    /// The same, each copy timed from its own posting.
    pub per_request: Arrivals,
    /// With other numbers of lanes.
    pub by_lanes: Vec<LaneRow>,
}

/// Latency with a number of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LaneRow {
    /// Lanes.
    pub lanes: u32,
    /// Latency after publishing.
    pub publish: Arrivals,
    /// What holds it back.
    pub bottleneck: Step,
    /// Snapshots per second to all subscribers, one in each work request.
    pub snapshots_per_s: f64,
}

/// What holds the fan-out back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The dearest step.
    pub step: Step,
    /// The time between two copies, which it sets, in nanoseconds.
    pub spacing_ns: f64,
    /// All of them.
    pub costs: Costs,
}

/// How much goes through.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Snapshots per second asked for.
    pub asked_per_s: f64,
    /// Most, with one snapshot in each work request.
    pub single_per_s: f64,
    /// Snapshots that one work request gathers at most.
    pub gather: u32,
    /// Most, with so many in each work request.
    pub gathered_per_s: f64,
    /// Share of the line that is taken.
    pub line_share: f64,
    /// Share of each lane's time that goes into posting, one snapshot in each work request.
    pub posting_share: f64,
}

impl Plan {
    /// Works everything out.
    #[must_use]
    pub fn of(inputs: &Inputs) -> Self {
        let scenario = &inputs.demand.scenario;
        let sizing = sizing::size(&Load {
            subscribers: scenario.subscribers,
            payload_bytes: scenario.payload_bytes,
            snapshots_per_s: inputs.demand.snapshots_per_s,
            pause_ms: inputs.pause_ms,
        });
        let mut plan = Self {
            model: true,
            note: MODEL_NOTE,
            asked: asked(inputs),
            wire: wire(scenario),
            latency: latency(scenario),
            bottleneck: bottleneck(scenario),
            rate: rate(inputs, &sizing),
            sizing,
            target: target::judge(&inputs.demand),
            congestion: congestion::of(inputs),
            advice: Vec::new(),
        };
        plan.advice = advice::advise(&plan);
        plan
    }
}

const fn asked(inputs: &Inputs) -> Asked {
    let scenario = &inputs.demand.scenario;
    Asked {
        line_gbps: scenario.line_gbps,
        path_mtu_bytes: scenario.path_mtu.bytes(),
        subscribers: scenario.subscribers,
        payload_bytes: scenario.payload_bytes,
        snapshots_per_s: inputs.demand.snapshots_per_s,
        lanes: scenario.lanes,
        post_ns: scenario.post_ns,
        pcie: inputs.pcie,
        base: scenario.base,
    }
}

fn wire(scenario: &Scenario) -> Wire {
    Wire {
        wire_bytes: scenario.wire_bytes(),
        packets: packets(scenario.payload_bytes, scenario.path_mtu),
        payload_share: f64::from(scenario.payload_bytes) / f64::from(scenario.wire_bytes()),
        copy_ns: scenario.wire_ns(),
        burst_ns: scenario.wire_ns() * f64::from(scenario.subscribers),
        acknowledgement_bytes: ACKNOWLEDGEMENT_BYTES,
        device_mtu_bytes: device_mtu(scenario.path_mtu),
    }
}

fn latency(scenario: &Scenario) -> Latency {
    let mut lanes: Vec<u32> =
        LANES.into_iter().filter(|lanes| *lanes <= scenario.subscribers).collect();
    lanes.push(scenario.lanes);
    lanes.sort_unstable();
    lanes.dedup();
    Latency {
        base_ns: scenario.base.of(scenario.payload_bytes),
        floor: scenario.floor().arrivals(),
        publish: scenario.arrivals(),
        per_request: scenario.arrivals_per_request(),
        by_lanes: lanes.into_iter().map(|lanes| lane_row(scenario, lanes)).collect(),
    }
}

fn lane_row(scenario: &Scenario, lanes: u32) -> LaneRow {
    let scenario = Scenario { lanes, ..*scenario };
    LaneRow {
        lanes,
        publish: scenario.arrivals(),
        bottleneck: scenario.costs().bottleneck().0,
        snapshots_per_s: scenario.snapshots_per_s(),
    }
}

fn bottleneck(scenario: &Scenario) -> Bottleneck {
    let costs = scenario.costs();
    let (step, spacing_ns) = costs.bottleneck();
    Bottleneck { step, spacing_ns, costs }
}

fn rate(inputs: &Inputs, sizing: &Sizing) -> Rate {
    let scenario = &inputs.demand.scenario;
    let gather = sizing.send_queue.gather;
    let copies_per_ns = inputs.demand.snapshots_per_s * f64::from(scenario.subscribers) / 1e9;
    Rate {
        asked_per_s: inputs.demand.snapshots_per_s,
        single_per_s: scenario.snapshots_per_s(),
        gather,
        gathered_per_s: scenario.gathered_per_s(gather, slot_bytes(scenario.payload_bytes)),
        line_share: copies_per_ns * scenario.wire_ns(),
        posting_share: copies_per_ns * scenario.costs().posting_ns,
    }
}
