//! What is about other traffic.

use super::{Rows, row};
use crate::plan::congestion::{First, LOOPS_US, Steadiness, SwitchRow, TrainRow};
use crate::plan::dcqcn::{Outcome, Recovery};
use crate::plan::figures::{Bytes, Gbps, Time, count, counted, percent};
use crate::plan::report::Plan;

pub(super) fn queues(plan: &Plan) -> Rows {
    let congestion = &plan.congestion;
    let who = format!(
        "{} at once, {} behind each port of {}",
        counted(congestion.publishers, "publisher"),
        counted(congestion.behind_port, "subscriber"),
        Gbps(congestion.port_gbps)
    );
    let port = format!("{} at most, which ECN looks at", Bytes(congestion.backlog.port_bytes));
    let delay = format!("up to {} to the latencies above", Time(congestion.port_delay_ns));
    let load = format!("{} taken", percent(congestion.port_share));
    let publisher = format!(
        "{} of one publisher's, which PFC looks at",
        Bytes(congestion.backlog.publisher_bytes)
    );
    let pause = format!(
        "from {} of one publisher's on, when all {} ports of the {} switch are as full",
        Bytes(congestion.pause_bytes),
        congestion.buffer.ports,
        Bytes(congestion.buffer.buffer_bytes)
    );
    vec![
        row([&"who sends", &who]),
        row([&"such a port", &load]),
        row([&"at one port", &port]),
        row([&"which adds", &delay]),
        row([&"at all ports", &publisher]),
        row([&"PFC pauses", &pause]),
    ]
}

pub(super) fn switches(plan: &Plan) -> Rows {
    let congestion = &plan.congestion;
    let settled = match congestion.flows {
        1 => "long flows".to_owned(),
        flows => format!("{flows} long flows"),
    };
    let heading =
        row([&"", &"Kmin", &"Kmax", &"Pmax", &settled, &"a burst meets", &"in a full switch"]);
    let has_point = congestion.fixed_point.is_some();
    let lines = congestion.switches.iter().map(|switch| switch_line(switch, has_point));
    [heading].into_iter().chain(lines).collect()
}

/// Phase margins of the long transfers that share a port.
pub(super) fn steady(plan: &Plan) -> Rows {
    let flows = format!("{} at one port", plan.congestion.flows);
    let heading = LOOPS_US.map(|us| format!("loop of {}", Time(us * 1e3)));
    let heading = [flows].into_iter().chain(heading).collect();
    let line = |switch: &SwitchRow| {
        let margin = |steadiness: &Steadiness| {
            let outcome = match steadiness.outcome {
                Outcome::Settles => "settles",
                Outcome::NearEdge => "near the edge",
                Outcome::Oscillates => "oscillates",
            };
            let sign = if steadiness.phase_margin_deg < 0.0 { "−" } else { "" };
            format!("{outcome}, {sign}{:.1}°", steadiness.phase_margin_deg.abs())
        };
        let unknown = match switch.curve.pmax {
            None => "not told",
            Some(_) => "queue hangs about Kmax",
        };
        let cells = switch.steadiness.as_ref().map_or_else(
            || vec![unknown.to_owned()],
            |steadiness| steadiness.iter().map(margin).collect(),
        );
        [switch.curve.name.to_owned()].into_iter().chain(cells).collect()
    };
    [heading].into_iter().chain(plan.congestion.switches.iter().map(line)).collect()
}

fn switch_line(switch: &SwitchRow, has_point: bool) -> Vec<String> {
    let curve = &switch.curve;
    let pmax = curve.pmax.map_or_else(|| "not told".to_owned(), percent);
    let settled = match (switch.settled_queue_bytes, curve.pmax) {
        _ if !has_point => "–".to_owned(),
        (Some(bytes), _) => Bytes(bytes).to_string(),
        (None, None) => "not told".to_owned(),
        (None, Some(_)) => "about Kmax".to_owned(),
    };
    let first = match switch.first {
        First::Neither => "neither",
        First::Ecn => "ECN first",
        First::Pfc => "PFC first",
    };
    let full = if switch.always_marks_first { "ECN first" } else { "PFC may be first" };
    let (kmin, kmax) = (Bytes(curve.kmin_bytes), Bytes(curve.kmax_bytes));
    row([&curve.name, &kmin, &kmax, &pmax, &settled, &first, &full])
}

pub(super) fn trains(plan: &Plan) -> Rows {
    let heading = row([
        &"CNPs for",
        &"rate falls to",
        &"next copy late",
        &"latest",
        &"late ones",
        &"over after",
        &"99 % of rate",
    ]);
    [heading].into_iter().chain(plan.congestion.trains.iter().map(train_line)).collect()
}

fn train_line(train: &TrainRow) -> Vec<String> {
    let after = &train.after;
    let length = match after.notifications {
        1 => "one alone".to_owned(),
        _ => Time(after.train_us * 1e3).to_string(),
    };
    let rate = format!("{} Mb/s, {}", count(after.lowest_mbps), small_percent(after.lowest_share));
    let Recovery { ninety_nine_us, .. } = after.recovery;
    let time =
        |us: Option<f64>| us.map_or_else(|| "not soon".to_owned(), |us| Time(us * 1e3).to_string());
    let next = &train.next_snapshots;
    let (first, worst) = (Time(next.first_us * 1e3), Time(next.worst_us * 1e3));
    let (over, back) = (time(next.over_after_us), time(ninety_nine_us));
    let more = if next.over_after_us.is_none() { "+" } else { "" };
    let late = format!("{}{more}", count(next.late.into()));
    row([&length, &rate, &first, &worst, &late, &over, &back])
}

fn small_percent(share: f64) -> String {
    if share < 0.001 { "under 0.1 %".to_owned() } else { percent(share) }
}
