//! The verdict on the headline figure.

use tapecast_wire::limits::record_bytes_max;

use super::{Rows, row};
use crate::plan::figures::{Gbps, Time, count, counted, percent};
use crate::plan::report::Plan;
use crate::plan::target::{Reason, Remedies, Smaller};

pub(super) fn target(plan: &Plan) -> Rows {
    let target = &plan.target;
    let verdict = if target.holds { "possible" } else { "NOT POSSIBLE as asked for" };
    let mut rows = vec![row([&"verdict", &verdict])];
    let limits = [
        ("mean", target.mean_ns, target.port_mean_ns, target.mean_max_ns),
        ("first to last", target.skew_ns, target.port_skew_ns, target.skew_max_ns),
    ];
    rows.extend(limits.map(|(name, ns, port_ns, most_ns)| {
        let than = if ns <= most_ns { "within" } else { "beyond" };
        row([&name, &format!("{}{}, {than} {}", Time(ns), at_port(port_ns), Time(most_ns))])
    }));
    rows.extend(listed("because", because(plan)));
    if !target.holds {
        let (would, would_not) = remedies(plan, &target.remedies);
        rows.extend(listed("what would do it", would));
        rows.extend(listed("what would not", would_not));
    }
    rows
}

/// The wait at a port, where there is one that shows.
fn at_port(ns: f64) -> String {
    if ns < 0.5 { String::new() } else { format!(", {} of it at a subscribers' port", Time(ns)) }
}

/// Reasons that mean and skew do not show.
fn because(plan: &Plan) -> Vec<String> {
    let (rate, congestion) = (&plan.rate, &plan.congestion);
    let of = |reason: &Reason| match reason {
        Reason::Mean | Reason::Skew => None,
        Reason::PortQueue => Some("copies queue at a subscribers' port".to_owned()),
        Reason::PortOverloaded => Some(format!(
            "a subscribers' port of {} is sent {} of what it carries",
            Gbps(congestion.port_gbps),
            percent(congestion.port_share)
        )),
        Reason::NotSustained => Some(format!(
            "not sustainable at {} a second: at most {}, one a work request",
            count(rate.asked_per_s),
            count(rate.single_per_s)
        )),
    };
    plan.target.reasons.iter().filter_map(of).collect()
}

/// A list under one name.
fn listed(name: &str, items: Vec<String>) -> impl Iterator<Item = Vec<String>> {
    let name_of = move |index| if index == 0 { name.to_owned() } else { String::new() };
    items.into_iter().enumerate().map(move |(index, item)| vec![name_of(index), item])
}

/// Everything that would make it hold, and what people would try first and would not.
fn remedies(plan: &Plan, remedies: &Remedies) -> (Vec<String>, Vec<String>) {
    let mut would = Vec::new();
    let mut would_not = Vec::new();
    match remedies.lanes {
        Some(lanes) => would.push(format!("{} or more", counted(lanes, "lane"))),
        None if plan.asked.subscribers > 1 => would_not.push("more lanes alone".to_owned()),
        None => {}
    }
    let smaller = |how: &str, Smaller { payload_bytes, lanes }| {
        let lanes = counted(lanes, "lane");
        format!("snapshots of at most {payload_bytes} B, {how}, and {lanes} or more")
    };
    match (remedies.smaller, remedies.smaller_inline) {
        (None, None) => would_not.push("smaller snapshots at this rate, even inline".to_owned()),
        (None, Some(_)) => would_not.push("smaller snapshots that the device fetches".to_owned()),
        (Some(fits), _) => would.push(smaller("sent as now", fits)),
    }
    let inline = remedies.smaller_inline.filter(|inline| Some(*inline) != remedies.smaller);
    would.extend(inline.map(|fits| smaller("inline, which tapecast does not do", fits)));
    match faster_ports(remedies) {
        Some(ports) => would.push(ports),
        None => would_not.push("faster ports, up to 400 Gb/s".to_owned()),
    }
    would.extend(less(remedies));
    would.extend(remedies.base_ns.map(|ns| format!("a base latency of {} or less", Time(ns))));
    let few = remedies.subscribers;
    would.extend(few.map(|most| format!("{} or fewer", counted(most, "subscriber"))));
    let smallest = record_bytes_max(1);
    if remedies.smaller_inline.is_some_and(|fits| (fits.payload_bytes as usize) < smallest) {
        would_not
            .push(format!("tapecast's own snapshots: one level a side is {smallest} B already"));
    }
    let first_ns = plan.latency.publish.first_ns;
    if first_ns > plan.target.mean_max_ns && plan.asked.subscribers > 1 {
        would_not.push(format!("fewer subscribers: a single copy takes {}", Time(first_ns)));
    }
    (would, would_not)
}

/// The one way with faster ports that changes least.
fn faster_ports(remedies: &Remedies) -> Option<String> {
    let subscribers = |gbps| format!("subscribers' ports of {}", Gbps(gbps));
    let all = |gbps| format!("ports of {} on both sides, and lanes enough", Gbps(gbps));
    let inline = |gbps| format!("ports of {}, payloads inline, and lanes enough", Gbps(gbps));
    let ways = [
        remedies.subscriber_port_gbps.map(subscribers),
        remedies.port_gbps.map(all),
        remedies.port_inline_gbps.map(inline),
    ];
    ways.into_iter().flatten().next()
}

/// Asking for less.
fn less(remedies: &Remedies) -> impl Iterator<Item = String> {
    let ways = [
        remedies.snapshots_per_s.map(|most| format!("{} a second or fewer", count(most))),
        remedies
            .behind_port
            .map(|most| format!("{} a port, or fewer", counted(most, "subscriber"))),
        remedies.publishers.map(|most| format!("{} or fewer at once", counted(most, "publisher"))),
    ];
    ways.into_iter().flatten()
}
