//! The verdict on the headline figure.

use tapecast_wire::limits::record_bytes_max;

use super::{Rows, row};
use crate::plan::figures::{Gbps, Time, counted};
use crate::plan::report::Plan;
use crate::plan::target::{Remedies, Smaller};

pub(super) fn target(plan: &Plan) -> Rows {
    let target = &plan.target;
    let verdict = if target.holds { "possible" } else { "NOT POSSIBLE as asked for" };
    let judged = |value: f64, most: f64| {
        let than = if value <= most { "within" } else { "beyond" };
        format!("{}, {than} {}", Time(value), Time(most))
    };
    let mean = judged(target.mean_ns, target.mean_max_ns);
    let skew = judged(target.skew_ns, target.skew_max_ns);
    let mut rows =
        vec![row([&"verdict", &verdict]), row([&"mean", &mean]), row([&"first to last", &skew])];
    if !target.holds {
        let (would, would_not) = remedies(plan, &target.remedies);
        rows.extend(listed("what would do it", would));
        rows.extend(listed("what would not", would_not));
    }
    rows
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
    if let Some(gbps) = remedies.port_gbps {
        would.push(format!("a port of {} and lanes enough", Gbps(gbps)));
    } else if let Some(gbps) = remedies.port_inline_gbps {
        would.push(format!("a port of {}, payloads inline, and lanes enough", Gbps(gbps)));
    } else {
        would_not.push("a faster port, up to 400 Gb/s".to_owned());
    }
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
