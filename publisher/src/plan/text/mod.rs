//! The plan for people: one section after the other, each a small table.

mod congestion;
mod target;

use std::fmt;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::fan_out::{Arrivals, Step};
use super::figures::{Gbps, Memory, Time, count, counted, percent};
use super::report::{Pcie, Plan};
use congestion::{queues, steady, switches, trains};
use target::target;

/// Columns of the output.
const WIDTH: u16 = 100;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tapecast plan, {}", self.note)?;
        section(f, "ASKED FOR (inputs of the model)", &asked(self))?;
        section(f, "WIRE (model)", &wire(self))?;
        figures(f, "LATENCY after publishing (model)", &latency(self), 5)?;
        section(f, "BOTTLENECK, time for each copy (model)", &bottleneck(self))?;
        section(f, "RATE (model)", &rate(self))?;
        section(f, "SIZES (model)", &sizes(self))?;
        section(f, "HEADLINE: 1.8 µs on average, ± 0.5 µs (model)", &target(self))?;
        section(f, "QUEUES IN THE SWITCH at one burst (model)", &queues(self))?;
        figures(f, "ECN OR PFC with the defaults of switches (model)", &switches(self), 4)?;
        if self.congestion.flows > 1 {
            let title = "DO LONG FLOWS OSCILLATE? Phase margin, DCQCN paper's senders (model)";
            section(f, title, &steady(self))?;
        }
        figures(
            f,
            "AFTER CONGESTION NOTIFICATIONS (CNPs) to one queue pair (model)",
            &trains(self),
            6,
        )?;
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

fn asked(plan: &Plan) -> Rows {
    let asked = &plan.asked;
    let each = format!(
        "{}; each is sent {} a second, of {} B",
        asked.subscribers,
        count(asked.snapshots_per_s),
        asked.payload_bytes
    );
    let Pcie { generation, lanes } = asked.pcie;
    let mtu = asked.path_mtu_bytes;
    let port =
        format!("{}, path MTU {mtu}, PCIe generation {generation} x{lanes}", Gbps(asked.line_gbps));
    let lanes = counted(asked.lanes, "lane");
    let posting = format!("{lanes} at {} a work request", Time(asked.post_ns));
    let is_inline = asked.payload_bytes <= asked.base.inline_max_bytes;
    let how = if is_inline { "payload inline" } else { "payload fetched by the device" };
    let base = Time(plan.latency.base_ns);
    let base = format!("{base}, {how}; measure yours with ib_write_lat");
    vec![
        row([&"subscribers", &each]),
        row([&"port", &port]),
        row([&"posting", &posting]),
        row([&"base latency", &base]),
    ]
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
        "each from its own post".to_owned(),
        &latency.per_request,
        String::new(),
        "(no waiting for a turn)",
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
    [queue_sizes(plan), ring_sizes(plan)].concat()
}

/// What the publisher has.
fn queue_sizes(plan: &Plan) -> Rows {
    let sizing = &plan.sizing;
    let (completions, sends, pool) = (&sizing.completion_queue, &sizing.send_queue, &sizing.pool);
    let at_once = format!(
        "{} × {} = {} can complete at once, when every queue pair fails; {} in health",
        plan.asked.subscribers, sends.depth, completions.needed, completions.in_health
    );
    let most = format!(
        "at most {} each with this completion queue; bridges {} of silence; signaled each {}th",
        sends.depth_max,
        Time(sends.bridges_ms * 1e6),
        sends.signal_every
    );
    let pages = format!("{} × {} B", pool.pages, pool.page_bytes);
    let held = format!(
        "{} pages needed; a host that does not answer holds {}; lasts {} when nothing completes",
        pool.needed,
        pool.held_by_one,
        Time(pool.lasts_ms * 1e6)
    );
    vec![
        row([&"completion queue", &completions.depth, &at_once]),
        row([&"send queue", &sends.depth, &most]),
        row([&"page pool", &pages, &held]),
    ]
}

/// What a subscriber has, and what is locked.
fn ring_sizes(plan: &Plan) -> Rows {
    let (ring, memory) = (&plan.sizing.ring, &plan.sizing.memory);
    let default = format!("{}, {} receives", Memory(ring.default_bytes), ring.default_receives);
    let bridges = format!(
        "{} B a snapshot; a subscriber may pause {} before it conflates",
        ring.slot_bytes,
        Time(ring.bridges_ms * 1e6)
    );
    let bytes = ring.bytes.map_or_else(|| "none".to_owned(), |bytes| Memory(bytes).to_string());
    let receives = ring.receives.map_or_else(|| "too many".to_owned(), |count| count.to_string());
    let needed = format!("{bytes}, {receives} receives");
    let pause = format!("bridges a pause of {}", Time(ring.pause_ms * 1e6));
    let locked = Memory(memory.publisher_bytes);
    let queues = Memory(memory.publisher_queues_bytes);
    let queues = format!("pool and cells; and about {queues} of queues");
    let each = Memory(memory.subscriber_bytes);
    vec![
        row([&"ring, default", &default, &bridges]),
        row([&"ring, needed", &needed, &pause]),
        row([&"publisher locks", &locked, &queues]),
        row([&"subscriber locks", &each, &"each: the larger of these rings, control block, cell"]),
    ]
}

fn advice(plan: &Plan) -> Rows {
    plan.advice.iter().map(|advice| row([&advice.topic, &advice.text])).collect()
}
