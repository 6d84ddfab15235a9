//! The final account, for people.

use std::io::{self, Write};
use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use tapecast_subscriber::{HumanNanos, InstrumentAccount, Statistics, Summary};

use super::figures::{counted, elapsed, grouped, per_second};
use super::paint::{Paint, Tone};
use super::sides::write_sides;
use super::subscription::Account;

/// Instruments shown before the rest is only counted.
const ROWS_MAX: usize = 20;

/// Writes what a session came to.
pub(crate) fn write_account(
    out: &mut impl Write,
    paint: Paint,
    account: &Account,
    ending: &str,
) -> io::Result<()> {
    let summary = account.summary();
    let Summary { statistics, instruments, .. } = summary;
    let time = Duration::from_nanos(summary.elapsed_ns);
    writeln!(
        out,
        "{} of {} in {} ({}/s), {ending}",
        paint.tint(Tone::Heading, counted(statistics.delivered, "snapshot")),
        counted(instruments.len() as u64, "instrument"),
        elapsed(time),
        per_second(statistics.delivered, time),
    )?;
    write_balance(out, paint, statistics)?;
    write_timing(out, statistics)?;
    write_sides(out, paint, account.sides())?;
    if !instruments.is_empty() {
        writeln!(out, "{}", instrument_table(instruments))?;
    }
    let hidden = instruments.len().saturating_sub(ROWS_MAX);
    if hidden > 0 {
        writeln!(out, " … and {hidden} more; --summary-json writes all of them")?;
    }
    Ok(())
}

fn write_balance(out: &mut impl Write, paint: Paint, s: &Statistics) -> io::Result<()> {
    let tone = if s.lost > 0 { Tone::Bad } else { Tone::Plain };
    writeln!(
        out,
        "  published {} = delivered {} + conflated {} + {}",
        grouped(s.published),
        grouped(s.delivered),
        grouped(s.conflated),
        paint.tint(tone, format!("lost {}", grouped(s.lost))),
    )?;
    let tone = if s.feed_gaps > 0 { Tone::Warning } else { Tone::Plain };
    writeln!(
        out,
        "  initial images {} · {} · laps {} · reconnects {}",
        grouped(s.initial_images),
        paint.tint(tone, format!("feed gaps {}", grouped(s.feed_gaps))),
        grouped(s.laps),
        grouped(s.reconnects),
    )
}

fn write_timing(out: &mut impl Write, s: &Statistics) -> io::Result<()> {
    if s.negative_deliveries > 0 {
        let count = grouped(s.negative_deliveries);
        writeln!(
            out,
            "  {count} delivered before they were published, by two clocks: not in latency"
        )?;
    }
    if s.latency.count == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "  latency p50 {} · p99 {} · p99.9 {} · max {} · jitter {} (p99−p50), {} (RFC 3550)",
        HumanNanos(s.latency.p50_ns),
        HumanNanos(s.latency.p99_ns),
        HumanNanos(s.latency.p99_9_ns),
        HumanNanos(s.latency.max_ns),
        HumanNanos(s.jitter.p99_minus_p50_ns),
        HumanNanos(s.jitter.rfc3550_ns),
    )
}

/// The busiest instruments, busiest first.
fn instrument_table(instruments: &[InstrumentAccount]) -> Table {
    let mut busiest: Vec<_> = instruments.iter().collect();
    busiest.sort_by(|a, b| b.published.cmp(&a.published).then_with(|| a.symbol.cmp(&b.symbol)));
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["SYMBOL", "VENUE", "PUBLISHED", "DELIVERED", "CONFLATED", "LOST"]);
    for i in busiest.into_iter().take(ROWS_MAX) {
        table.add_row([
            i.symbol.clone(),
            i.venue.clone(),
            grouped(i.published),
            grouped(i.delivered),
            grouped(i.conflated),
            grouped(i.lost),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
