//! The part of a plan that is about other traffic: queues, marks, pauses, and what follows.

use serde::Serialize;

use super::dcqcn::{
    AfterTrain, Backlog, FixedPoint, FluidModel, Lateness, MarkingCurve, Outcome, ReactionPoint,
    SharedBuffer, marking_curves,
};
use super::demand::Demand;
use super::report::Inputs;

/// Trains of notifications that are always shown, in microseconds. The first is one notification.
const TRAINS_US: [f64; 4] = [4.0, 20.0, 40.0, 100.0];

/// Delays of the loop for which it is said whether long transfers oscillate, in microseconds: a
/// round trip within a data centre, and what the authors of DCQCN looked at.
pub(super) const LOOPS_US: [f64; 3] = [4.0, 50.0, 100.0];

/// ECN, PFC and DCQCN.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Congestion {
    /// Subscribers behind one port.
    pub behind_port: u32,
    /// Rate of that port, in Gb/s.
    pub port_gbps: f64,
    /// Publishers at once.
    pub publishers: u32,
    /// The largest queues of one burst.
    pub backlog: Backlog,
    /// What waiting in that queue adds to the latency of the last copy in it, in nanoseconds.
    pub port_delay_ns: f64,
    /// Share of the subscribers' port that all publishers take.
    pub port_share: f64,
    /// The switch.
    pub buffer: SharedBuffer,
    /// Bytes from one publisher at which the switch pauses it in the worst case.
    pub pause_bytes: f64,
    /// Kmin below which ECN always comes before PFC, in bytes.
    pub marks_first_below_bytes: f64,
    /// Defaults of switches.
    pub switches: Vec<SwitchRow>,
    /// Transfers at one port that the fixed point is of.
    pub flows: u32,
    /// Where so many long transfers settle; of one there is no such point.
    pub fixed_point: Option<FixedPoint>,
    /// How a queue pair reacts to notifications.
    pub reaction: ReactionPoint,
    /// After trains of notifications.
    pub trains: Vec<TrainRow>,
}

/// What comes first at a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum First {
    /// Neither.
    Neither,
    /// The switch marks packets.
    Ecn,
    /// The switch pauses the publisher.
    Pfc,
}

/// A switch's defaults, judged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SwitchRow {
    /// Where it marks.
    #[serde(flatten)]
    pub curve: MarkingCurve,
    /// What comes first at a burst.
    pub first: First,
    /// Whether ECN comes before PFC whatever else the switch holds.
    pub always_marks_first: bool,
    /// Queue of long transfers, in bytes; none where it lies beyond the curve or that is unknown.
    pub settled_queue_bytes: Option<f64>,
    /// Whether they stay there, for several delays of the loop; none where there is no such queue.
    pub steadiness: Option<[Steadiness; LOOPS_US.len()]>,
}

/// Whether long transfers stay where they settle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Steadiness {
    /// From a mark to the queue of what it slowed, in microseconds.
    pub loop_us: f64,
    /// Phase margin, in degrees.
    pub phase_margin_deg: f64,
    /// What becomes of them.
    pub outcome: Outcome,
}

/// A train of notifications and what follows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainRow {
    /// The rate.
    #[serde(flatten)]
    pub after: AfterTrain,
    /// Time of a copy on the wire at the lowest rate, were it to last, in microseconds.
    pub copy_at_lowest_us: f64,
    /// The snapshots that follow.
    pub next_snapshots: Lateness,
}

/// Works it out.
pub(super) fn of(inputs: &Inputs) -> Congestion {
    let demand = &inputs.demand;
    let backlog = demand.incast().backlog();
    let flows = demand.flows();
    let fixed_point = (flows > 1).then(|| FluidModel::paper(demand.port_gbps).fixed_point(flows));
    let switches = marking_curves(demand.port_gbps).map(|curve| {
        let row = switch_row(curve, &backlog, &inputs.buffer, fixed_point);
        SwitchRow {
            steadiness: row.settled_queue_bytes.and_then(|_| steadiness(demand, &curve)),
            ..row
        }
    });
    Congestion {
        behind_port: demand.behind_port,
        port_gbps: demand.port_gbps,
        publishers: demand.publishers,
        backlog,
        port_delay_ns: backlog.port_bytes * 8.0 / demand.port_gbps,
        port_share: demand.port_share(),
        buffer: inputs.buffer,
        pause_bytes: inputs.buffer.pause_bytes(),
        marks_first_below_bytes: inputs.buffer.marks_first_below_bytes(),
        switches: switches.to_vec(),
        flows,
        fixed_point,
        reaction: inputs.reaction,
        trains: trains(inputs),
    }
}

fn switch_row(
    curve: MarkingCurve,
    backlog: &Backlog,
    buffer: &SharedBuffer,
    fixed_point: Option<FixedPoint>,
) -> SwitchRow {
    // Both queues grow together, so what is reached at the smaller share of its peak comes first.
    let marks_at = curve.kmin_bytes / backlog.port_bytes;
    let pauses_at = buffer.pause_bytes() / backlog.publisher_bytes;
    let first = match (marks_at < 1.0, pauses_at < 1.0) {
        (false, false) => First::Neither,
        (_, true) if pauses_at < marks_at => First::Pfc,
        _ => First::Ecn,
    };
    SwitchRow {
        curve,
        first,
        always_marks_first: curve.kmin_bytes < buffer.marks_first_below_bytes(),
        settled_queue_bytes: fixed_point.and_then(|point| curve.queue_at(point.marked)),
        steadiness: None,
    }
}

fn steadiness(demand: &Demand, curve: &MarkingCurve) -> Option<[Steadiness; LOOPS_US.len()]> {
    let model = FluidModel::paper(demand.port_gbps);
    let margin = |loop_us: f64| model.phase_margin(demand.flows(), curve, loop_us / 1e6);
    margin(0.0)?;
    Some(LOOPS_US.map(|loop_us| {
        let phase_margin_deg = margin(loop_us).unwrap_or_default();
        Steadiness { loop_us, phase_margin_deg, outcome: Outcome::of(phase_margin_deg) }
    }))
}

fn trains(inputs: &Inputs) -> Vec<TrainRow> {
    let mut trains_us = TRAINS_US.to_vec();
    trains_us.extend(inputs.train_us);
    trains_us.sort_by(f64::total_cmp);
    trains_us.dedup();
    trains_us.into_iter().map(|train_us| train_row(inputs, train_us)).collect()
}

fn train_row(inputs: &Inputs, train_us: f64) -> TrainRow {
    let wire_bytes = inputs.demand.scenario.wire_bytes();
    // What could not be carried without any notification would be late for ever.
    let per_s = inputs.demand.snapshots_per_s.min(inputs.demand.scenario.snapshots_per_s());
    let after = inputs.reaction.after_train(train_us);
    TrainRow {
        copy_at_lowest_us: after.at_lowest_us(wire_bytes),
        next_snapshots: after.lateness(wire_bytes, per_s),
        after,
    }
}
