//! The plan for people: one section after the other, each a small table.

use std::fmt;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use tapecast_wire::limits::record_bytes_max;

use super::dcqcn::Recovery;
use super::fan_out::{Arrivals, Step};
use super::figures::{Bytes, Gbps, Memory, Time, count, counted, percent};
use super::report::{First, Plan, SwitchRow, TrainRow};
use super::target::{Remedies, Smaller};

/// Columns of the output.
const WIDTH: u16 = 100;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tapecast plan, {}\n", self.note)?;
        writeln!(f, "{}", asked(self))?;
        section(f, "WIRE (model)", &wire(self))?;
        figures(f, "LATENCY after publishing (model)", &latency(self), 5)?;
        section(f, "BOTTLENECK, time for each copy (model)", &bottleneck(self))?;
        section(f, "RATE (model)", &rate(self))?;
        section(f, "SIZES (model)", &sizes(self))?;
        section(f, "HEADLINE: 1.8 µs on average, ± 0.5 µs (model)", &target(self))?;
        section(f, "QUEUES IN THE SWITCH at one burst (model)", &queues(self))?;
        figures(f, "ECN OR PFC with the defaults of switches (model)", &switches(self), 4)?;
        figures(f, "AFTER CONGESTION NOTIFICATIONS to one queue pair (model)", &trains(self), 6)?;
        section(f, "ADVICE (from the model)", &advice(self))
    }
}

type Rows = Vec<Vec<String>>;

fn table(rows: &Rows) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(WIDTH).add_rows(rows);
    if let Some(column) = table.column_mut(0) {
        column.set_padding((2, 1));
    }
    table
}

fn section(f: &mut fmt::Formatter<'_>, title: &str, rows: &Rows) -> fmt::Result {
    writeln!(f, "\n{title}\n{}", table(rows).trim_fmt())
}

/// A section whose columns from the second on, so many of them, are numbers.
fn figures(f: &mut fmt::Formatter<'_>, title: &str, rows: &Rows, numbers: usize) -> fmt::Result {
    let mut table = table(rows);
    for column in table.column_iter_mut().skip(1).take(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    writeln!(f, "\n{title}\n{}", table.trim_fmt())
}

fn row<const N: usize>(cells: [&dyn fmt::Display; N]) -> Vec<String> {
    cells.map(ToString::to_string).to_vec()
}

fn asked(plan: &Plan) -> String {
    let asked = &plan.asked;
    format!(
        "{}, {} B a snapshot, {} a second; {}, path MTU {}; {} at {} a work\nrequest; PCIe \
         generation {} x{}; base latency {}{}",
        counted(asked.subscribers, "subscriber"),
        asked.payload_bytes,
        count(asked.snapshots_per_s),
        Gbps(asked.line_gbps),
        asked.path_mtu_bytes,
        counted(asked.lanes, "lane"),
        Time(asked.post_ns),
        asked.pcie.generation,
        asked.pcie.lanes,
        Time(plan.latency.base_ns),
        if asked.payload_bytes <= asked.base.inline_max_bytes {
            ", payload inline"
        } else {
            ", payload fetched by the device"
        }
    )
}

fn wire(plan: &Plan) -> Rows {
    let wire = &plan.wire;
    let copy = format!(
        "{} B in {}, {} of it payload",
        wire.wire_bytes,
        counted(wire.packets, "packet"),
        percent(wire.payload_share)
    );
    let all = counted(plan.asked.subscribers, "copy").replace("copys", "copies");
    let time = format!("{} a copy, {} for {all}", Time(wire.copy_ns), Time(wire.burst_ns));
    let back = format!("{} B, the other way", wire.acknowledgement_bytes);
    let mtu = format!("{} or more", wire.device_mtu_bytes);
    vec![
        row([&"one copy", &copy]),
        row([&"time on the wire", &time]),
        row([&"acknowledgement", &back]),
        row([&"interface MTU", &mtu]),
    ]
}

fn latency(plan: &Plan) -> Rows {
    let latency = &plan.latency;
    let heading = row([&"", &"first", &"mean", &"last", &"skew", &"most per s", &"held back by"]);
    let line = |name: String, arrivals: &Arrivals, most: String, by: &str| {
        let Arrivals { first_ns, mean_ns, last_ns, skew_ns } = *arrivals;
        let (first, mean, last) = (Time(first_ns), Time(mean_ns), Time(last_ns));
        row([&name, &first, &mean, &last, &Time(skew_ns), &most, &by])
    };
    let floor = line("posting free".to_owned(), &latency.floor, String::new(), "");
    let lanes = latency.by_lanes.iter().map(|lanes| {
        let mark = if lanes.lanes == plan.asked.lanes { "  ◄" } else { "" };
        let name = format!("{}{mark}", counted(lanes.lanes, "lane"));
        line(name, &lanes.publish, count(lanes.snapshots_per_s), step(lanes.bottleneck))
    });
    let own = line(
        "from its own posting".to_owned(),
        &latency.per_request,
        String::new(),
        "(leaves out waiting for its turn)",
    );
    [heading, floor].into_iter().chain(lanes).chain([own]).collect()
}

const fn step(step: Step) -> &'static str {
    match step {
        Step::Posting => "posting",
        Step::Pcie => "PCIe",
        Step::Device => "device",
        Step::Wire => "wire",
    }
}

fn bottleneck(plan: &Plan) -> Rows {
    let bottleneck = &plan.bottleneck;
    let mut steps = bottleneck.costs.steps();
    steps.sort_by(|a, b| b.1.total_cmp(&a.1));
    let line = |(name, cost_ns): (Step, f64)| {
        let mark =
            if name == bottleneck.step { "◄ sets the time between two copies" } else { "" };
        row([&step(name), &Time(cost_ns), &mark])
    };
    steps.into_iter().map(line).collect()
}

fn rate(plan: &Plan) -> Rows {
    let rate = &plan.rate;
    let asked = format!(
        "{} a second to each: {} of the line, {} of each lane's time in posting",
        count(rate.asked_per_s),
        percent(rate.line_share),
        percent(rate.posting_share)
    );
    let single = format!("{} a second, one in each work request", count(rate.single_per_s));
    let gathered = format!("{} a second, {} in each", count(rate.gathered_per_s), rate.gather);
    vec![
        row([&"asked", &asked]),
        row([&"sustainable", &single]),
        row([&"when gathered", &gathered]),
    ]
}

fn sizes(plan: &Plan) -> Rows {
    let sizing = &plan.sizing;
    let (completions, sends) = (&sizing.completion_queue, &sizing.send_queue);
    let (pool, ring, memory) = (&sizing.pool, &sizing.ring, &sizing.memory);
    let subscribers = plan.asked.subscribers;
    let cq = format!(
        "{subscribers} × {} = {} can complete at once, when every queue pair fails; {} in health",
        sends.depth, completions.needed, completions.in_health
    );
    let sq = format!(
        "at most {} each with this completion queue; bridges {} of silence; signaled each {}th",
        sends.depth_max,
        Time(sends.bridges_ms * 1e6),
        sends.signal_every
    );
    let pages = format!("{} × {} B", pool.pages, pool.page_bytes);
    let pool_why = format!(
        "{} needed; a host that does not answer holds {}; lasts {} when nothing completes",
        pool.needed,
        pool.held_by_one,
        Time(pool.lasts_ms * 1e6)
    );
    let default = format!("{}, {} receives", Memory(ring.default_bytes), ring.default_receives);
    let bridges = format!(
        "{} B a snapshot; a subscriber may pause {} before it conflates",
        ring.slot_bytes,
        Time(ring.bridges_ms * 1e6)
    );
    let bytes = ring.bytes.map_or("none".to_owned(), |bytes| Memory(bytes).to_string());
    let receives = ring.receives.map_or("none".to_owned(), |count| count.to_string());
    let asked = format!("{bytes}, {receives} receives");
    let pause = format!("bridges a pause of {}", Time(ring.pause_ms * 1e6));
    let locked = Memory(memory.publisher_bytes);
    let queues =
        format!("pool and cells; and about {} of queues", Memory(memory.publisher_queues_bytes));
    let each = Memory(memory.subscriber_bytes);
    vec![
        row([&"completion queue", &completions.depth, &cq]),
        row([&"send queue", &sends.depth, &sq]),
        row([&"page pool", &pages, &pool_why]),
        row([&"ring, default", &default, &bridges]),
        row([&"ring, needed", &asked, &pause]),
        row([&"publisher locks", &locked, &queues]),
        row([&"subscriber locks", &each, &"each: the larger of these rings, control block, cell"]),
    ]
}

fn target(plan: &Plan) -> Rows {
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
        let changes = remedies(plan, &target.remedies);
        let first = "what would do it";
        let name = |index| if index == 0 { first } else { "" };
        rows.extend(changes.iter().enumerate().map(|(index, text)| row([&name(index), text])));
    }
    rows
}

/// Everything that would make it hold. What would not is said where people would try it first.
fn remedies(plan: &Plan, remedies: &Remedies) -> Vec<String> {
    let lanes = remedies.lanes.map_or_else(
        || "more lanes alone: no number of them".to_owned(),
        |lanes| format!("{} or more", counted(lanes, "lane")),
    );
    let smaller = |how: &str, smaller: Option<Smaller>| match smaller {
        None => format!("smaller snapshots, {how}: none is small enough at this rate"),
        Some(Smaller { payload_bytes, lanes }) => format!(
            "snapshots of at most {payload_bytes} B, {how}, and {} or more",
            counted(lanes, "lane")
        ),
    };
    let fetched = smaller("fetched as now", remedies.smaller);
    let inline = smaller("inline (tapecast fetches them)", remedies.smaller_inline);
    let port = remedies.port_gbps.map(|gbps| format!("a port of {} with lanes enough", Gbps(gbps)));
    let port_inline = remedies.port_inline_gbps.filter(|_| port.is_none());
    let port_inline =
        port_inline.map(|gbps| format!("a port of {}, inline, with lanes enough", Gbps(gbps)));
    let base = remedies.base_ns.map(|ns| format!("a base latency of {} or less", Time(ns)));
    let few = remedies.subscribers.map(|most| format!("{} or fewer", counted(most, "subscriber")));
    let format = (plan.target.remedies.smaller_inline)
        .filter(|smaller| (smaller.payload_bytes as usize) < record_bytes_max(1))
        .map(|_| {
            format!(
                "(tapecast's smallest snapshot, one level a side, is {} B)",
                record_bytes_max(1)
            )
        });
    [Some(lanes), Some(fetched), Some(inline), port, port_inline, base, few, format]
        .into_iter()
        .flatten()
        .collect()
}

fn queues(plan: &Plan) -> Rows {
    let congestion = &plan.congestion;
    let who = format!(
        "{} at once, {} behind each port of {}",
        counted(congestion.publishers, "publisher"),
        counted(congestion.behind_port, "subscriber"),
        Gbps(congestion.port_gbps)
    );
    let port = format!("{} at most, which ECN looks at", Bytes(congestion.backlog.port_bytes));
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
        row([&"at one port", &port]),
        row([&"at all ports", &publisher]),
        row([&"PFC pauses", &pause]),
    ]
}

fn switches(plan: &Plan) -> Rows {
    let congestion = &plan.congestion;
    let settled = format!("{} long flows", congestion.flows);
    let heading = row([&"", &"Kmin", &"Kmax", &"Pmax", &settled, &"a burst meets", &"full switch"]);
    let has_point = congestion.fixed_point.is_some();
    let lines = congestion.switches.iter().map(|switch| switch_line(switch, has_point));
    [heading].into_iter().chain(lines).collect()
}

fn switch_line(switch: &SwitchRow, has_point: bool) -> Vec<String> {
    let curve = &switch.curve;
    let pmax = curve.pmax.map_or("not told".to_owned(), percent);
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

fn trains(plan: &Plan) -> Rows {
    let heading = row([
        &"notifications for",
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
    let time = |us: Option<f64>| us.map_or("not soon".to_owned(), |us| Time(us * 1e3).to_string());
    let next = &train.next_snapshots;
    let (first, worst) = (Time(next.first_us * 1e3), Time(next.worst_us * 1e3));
    let (over, back) = (time(next.over_after_us), time(ninety_nine_us));
    row([&length, &rate, &first, &worst, &next.late, &over, &back])
}

fn small_percent(share: f64) -> String {
    if share < 0.001 { "under 0.1 %".to_owned() } else { percent(share) }
}

fn advice(plan: &Plan) -> Rows {
    plan.advice.iter().map(|advice| row([&advice.topic, &advice.text])).collect()
}
