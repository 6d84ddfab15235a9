//! What to do about a plan, in sentences.

use serde::Serialize;
use tapecast_wire::limits::record_bytes_max;

use super::congestion::First;
use super::fan_out::Step;
use super::figures::{Bytes, Gbps, Time, count, percent};
use super::report::Plan;

/// Time in which a copy should leave even at the lowest rate, in microseconds.
const LEAST_RATE_WITHIN_US: f64 = 20.0;

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What it is about.
    pub topic: &'static str,
    /// What to do, and why.
    pub text: String,
}

/// What follows from a plan.
pub(super) fn advise(plan: &Plan) -> Vec<Advice> {
    let entry = |topic, text: Option<String>| text.map(|text| Advice { topic, text });
    [
        entry("rate", rate(plan)),
        entry("port", port(plan)),
        entry("bottleneck", bottleneck(plan)),
        entry("snapshot", snapshot(plan)),
        entry("credit", credit(plan)),
        entry("MTU", mtu(plan)),
        entry("ECN", ecn(plan)),
        entry("PFC", Some(pfc(plan))),
        entry("DCQCN", Some(dcqcn(plan))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn rate(plan: &Plan) -> Option<String> {
    let rate = &plan.rate;
    if rate.asked_per_s <= rate.single_per_s {
        return None;
    }
    Some(if rate.asked_per_s <= rate.gathered_per_s {
        format!(
            "{} per second go through only because a work request gathers up to {} snapshots: \
             they wait for one another, so latencies are above those of this page.",
            count(rate.asked_per_s),
            rate.gather
        )
    } else {
        format!(
            "{} per second to every subscriber cannot be carried, {} can: subscribers would see \
             the newest state of each instrument, conflated. Send less, or to fewer.",
            count(rate.asked_per_s),
            count(rate.gathered_per_s)
        )
    })
}

fn port(plan: &Plan) -> Option<String> {
    let congestion = &plan.congestion;
    (congestion.port_share > 1.0).then(|| {
        format!(
            "What is sent to the subscribers behind a port of {} is {} of what it carries: its \
             queue grows until packets are marked, paused or lost, whatever stands above. Spread \
             the subscribers over more ports.",
            Gbps(congestion.port_gbps),
            percent(congestion.port_share)
        )
    })
}

fn bottleneck(plan: &Plan) -> Option<String> {
    let costs = plan.bottleneck.costs;
    let lanes = plan.asked.lanes;
    match plan.bottleneck.step {
        Step::Posting => {
            let next_ns = costs.wire_ns.max(costs.pcie_ns).max(costs.device_ns);
            let enough = (costs.posting_ns * f64::from(lanes) / next_ns).ceil();
            let helps = enough.min(f64::from(plan.asked.subscribers));
            Some(format!(
                "Posting holds it back: {} would bring it down to what wire and device take. \
                 tapecast posts from one thread today.",
                lanes_in_words(helps)
            ))
        }
        Step::Pcie => Some(format!(
            "PCIe holds it back at {:.1} GB/s: a generation or width that keeps up with {} \
             is missing; look at current_link_speed and current_link_width of the device.",
            plan.asked.pcie.bytes_per_ns(),
            Gbps(plan.asked.line_gbps)
        )),
        Step::Wire if plan.asked.subscribers > 1 => Some(format!(
            "The wire holds it back: no thread or core makes this faster, only fewer bytes, fewer \
             subscribers, or a port beyond {}.",
            Gbps(plan.asked.line_gbps)
        )),
        Step::Wire | Step::Device => None,
    }
}

fn lanes_in_words(lanes: f64) -> String {
    if lanes > 1.0 { format!("{lanes} lanes") } else { "a cheaper post".to_owned() }
}

fn snapshot(plan: &Plan) -> Option<String> {
    let smallest = record_bytes_max(1) as u32;
    (plan.asked.payload_bytes < smallest).then(|| {
        format!(
            "{} B is less than any snapshot of tapecast: one level a side is {smallest} B, ten \
             are {} B.",
            plan.asked.payload_bytes,
            record_bytes_max(10)
        )
    })
}

fn credit(plan: &Plan) -> Option<String> {
    let ring = &plan.sizing.ring;
    if ring.bridges_ms >= ring.pause_ms {
        return None;
    }
    let Some((bytes, receives)) = ring.bytes.zip(ring.receives) else {
        return Some(format!(
            "No ring and receive queue bridge a pause of {} ms at this rate: such a subscriber \
             skips to the newest state.",
            ring.pause_ms
        ));
    };
    let larger = (bytes > ring.default_bytes).then(|| format!(" --rdma-ring {bytes}"));
    let more = (receives > ring.default_receives).then(|| format!(" --rdma-receives {receives}"));
    Some(format!(
        "To bridge a pause of {} ms, attach with{}{}; by default a subscriber begins to conflate \
         after {:.1} ms.",
        ring.pause_ms,
        larger.unwrap_or_default(),
        more.unwrap_or_default(),
        ring.bridges_ms
    ))
}

fn mtu(plan: &Plan) -> Option<String> {
    let (payload, path) = (plan.asked.payload_bytes, plan.asked.path_mtu_bytes);
    (payload > path).then(|| {
        format!(
            "A snapshot takes {} packets at path MTU {path}; with 4096 it takes one (interface \
             MTU 4192 or more on both hosts and the switches; 4200 is usual).",
            plan.wire.packets
        )
    })
}

fn ecn(plan: &Plan) -> Option<String> {
    let congestion = &plan.congestion;
    if congestion.port_share > 1.0 {
        return None;
    }
    let peak = Bytes(congestion.backlog.port_bytes);
    let marking: Vec<_> = congestion
        .switches
        .iter()
        .filter(|row| row.curve.kmin_bytes < congestion.backlog.port_bytes)
        .map(|row| row.curve.name)
        .collect();
    Some(if marking.is_empty() {
        format!(
            "A burst queues {peak} at a subscriber's port, below every Kmin here: this fan-out \
             alone never makes ECN fire. Bulk traffic or a slow port on the same path does."
        )
    } else {
        // With PFC, Kmin has to stay below this, which the advice on PFC says.
        let most = congestion.marks_first_below_bytes;
        let alone =
            if congestion.backlog.port_bytes < most { "" } else { ", if it runs without PFC," };
        format!(
            "A burst queues {peak} at a subscriber's port and is marked with the settings of: {}. \
             Spread the subscribers over more ports, or give the feed a queue of its own{alone} \
             with Kmin above {peak}; a burst is over before its notifications come back, so \
             marking slows the next snapshots and not this one.",
            marking.join("; ")
        )
    })
}

fn pfc(plan: &Plan) -> String {
    let congestion = &plan.congestion;
    let pauses = congestion.switches.iter().any(|row| row.first == First::Pfc);
    let share = Bytes(congestion.backlog.publisher_bytes);
    let from = Bytes(congestion.pause_bytes);
    let least = Bytes(congestion.marks_first_below_bytes);
    let burst = if pauses {
        format!(
            "A burst holds {share} of the publisher's in the switch, which may pause it from {from} \
             on. "
        )
    } else {
        String::new()
    };
    format!(
        "{burst}With PFC one slow subscriber pauses the publisher's whole priority, and so all \
         others: run the feed lossy, or on a priority of its own, with Kmin below {least} so that \
         ECN comes first however full the switch is."
    )
}

fn dcqcn(plan: &Plan) -> String {
    let bits = f64::from(plan.wire.wire_bytes) * 8.0;
    let reaction = &plan.congestion.reaction;
    let least_mbps = bits / LEAST_RATE_WITHIN_US;
    let least = if reaction.min_mbps < least_mbps {
        format!(
            "Set rpg_min_rate to {} (Mb/s) or more, so that a copy leaves within {} whatever \
             happens: at {} Mb/s it takes {}.",
            (least_mbps / 10.0).ceil() * 10.0,
            Time(LEAST_RATE_WITHIN_US * 1e3),
            reaction.min_mbps,
            Time(bits / reaction.min_mbps * 1e3)
        )
    } else {
        format!(
            "With rpg_min_rate = {} a copy leaves within {} whatever happens.",
            reaction.min_mbps,
            Time(bits / reaction.min_mbps * 1e3)
        )
    };
    let clamp = if reaction.clamps_target {
        "Set clamp_tgt_rate to 0: with 1 a queue pair takes tenths of a second to come back"
    } else {
        "Keep clamp_tgt_rate = 0"
    };
    format!(
        "{least} {clamp}, and give congestion notifications (DSCP 48) a strict priority of their \
         own."
    )
}
