//! The table at the end.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Cell, CellAlignment, Row, Table};
use tapecast_telemetry::{HumanNanos, LatencyFigures};

use super::Account;

const COLUMNS: [&str; 11] = [
    "subscriber",
    "published",
    "delivered",
    "conflated",
    "gaps",
    "p50",
    "p99",
    "p99.9",
    "max",
    "p99−p50",
    "RFC 3550",
];

/// The table of all subscribers, the line for all together, and what to read from it.
#[must_use]
pub fn render(account: &Account) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header(COLUMNS.map(right));
    for summary in &account.subscribers {
        let figures = &summary.statistics;
        let counts = [figures.published, figures.delivered, figures.conflated, figures.lost];
        let jitter = figures.jitter;
        table.add_row(row(
            &summary.name,
            counts,
            &figures.latency,
            [jitter.p99_minus_p50_ns, jitter.rfc3550_ns],
        ));
    }
    let sum = |count: fn(&tapecast_subscriber::Statistics) -> u64| {
        account.subscribers.iter().map(|summary| count(&summary.statistics)).sum()
    };
    let counts =
        [sum(|s| s.published), sum(|s| s.delivered), sum(|s| s.conflated), sum(|s| s.lost)];
    let spread = account.latency.p99_ns.saturating_sub(account.latency.p50_ns);
    let mean = sum(|s| s.jitter.rfc3550_ns) / account.subscribers.len().max(1) as u64;
    table.add_row(row("all", counts, &account.latency, [spread, mean]));
    format!("{table}\n{}\n{}", skew_line(account), verdict(account))
}

fn right(text: &str) -> Cell {
    let is_name = text == "subscriber";
    Cell::new(text).set_alignment(if is_name { CellAlignment::Left } else { CellAlignment::Right })
}

fn row(name: &str, counts: [u64; 4], latency: &LatencyFigures, jitter: [u64; 2]) -> Row {
    let times = [latency.p50_ns, latency.p99_ns, latency.p99_9_ns, latency.max_ns];
    let mut cells = vec![Cell::new(name)];
    cells.extend(counts.iter().map(|count| right(&count.to_string())));
    let times = times.iter().chain(&jitter);
    cells.extend(times.map(|ns| right(&HumanNanos(*ns).to_string())));
    Row::from(cells)
}

fn skew_line(account: &Account) -> String {
    let skew = &account.skew;
    let (figures, over) = if skew.complete.count > 0 {
        (skew.complete, "snapshots that every subscriber received directly")
    } else {
        (skew.at_least_two, "snapshots that at least two subscribers received directly")
    };
    format!(
        "skew between first and last subscriber: p50 {}, p99 {}, max {} (over {} sampled {over})",
        HumanNanos(figures.p50_ns),
        HumanNanos(figures.p99_ns),
        HumanNanos(figures.max_ns),
        figures.count,
    )
}

fn verdict(account: &Account) -> String {
    if account.imbalances.is_empty() {
        return format!(
            "published = delivered + conflated for every one of {} subscribers and every \
             instrument ({} snapshots each).",
            account.subscribers.len(),
            account.published
        );
    }
    let mut text = String::from("published ≠ delivered + conflated:\n");
    for imbalance in account.imbalances.iter().take(20) {
        text += &format!(
            "  {} {}: published {}, delivered {}, conflated {}\n",
            imbalance.subscriber,
            imbalance.symbol,
            imbalance.published,
            imbalance.delivered,
            imbalance.conflated
        );
    }
    text + &format!("{} in all; this is a bug.", account.imbalances.len())
}
