//! `stats`: rates, conflation, gaps and latency, once in each interval.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;
use tapecast_subscriber::{
    AbSideFigures, EndReason, FeedState, HumanNanos, InstrumentAccount, PollError, Statistics,
};

use super::args::{ColorArg, StatsArgs};
use super::failure::Failure;
use super::figures::{bytes, grouped, per_second};
use super::interval::{Interval, Meter};
use super::line::time_of_day;
use super::paint::{Paint, Tone};
use super::sides::write_sides;
use super::stop::Stop;
use super::subscription::Subscription;

/// Longest wait before looking whether a signal has come.
const STOP_CHECK: Duration = Duration::from_millis(200);
/// Lines between two headings on a terminal.
const HEADING_EVERY: u64 = 20;
/// Instruments shown by `--by-instrument` before the rest is only counted.
const ROWS_MAX: usize = 30;
/// Shortest interval.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Runs `stats` to its end.
pub(crate) fn stats(args: &StatsArgs, stop: &Stop) -> Result<(), Failure> {
    let mut subscriber = args.second.connect(&args.session, |builder| builder)?;
    let interval = args.interval.max(INTERVAL_MIN);
    let mut report = Report::new(args);
    let mut meter = Meter::new();
    let mut due = Instant::now() + interval;
    while args.count.is_none_or(|count| report.written < count) && !stop.is_asked() {
        let polled = subscriber.poll(|snapshot| meter.on_snapshot(snapshot));
        subscriber.tell_events(report.paint);
        let (drained, ended) = match polled {
            Ok(count) => (count == 0, None),
            Err(PollError::Ended(reason)) => (true, Some(reason)),
            Err(error) => {
                super::warn(report.paint, &error);
                (false, None)
            }
        };
        let now = Instant::now();
        if now >= due || ended.is_some() {
            let totals = subscriber.statistics();
            let interval_figures = meter.tick(&totals);
            report.write(&subscriber, &interval_figures, &totals)?;
            // An interval that was missed is not made up for.
            due = (due + interval).max(now);
        }
        if let Some(reason) = ended {
            return end(subscriber.lost(), reason);
        }
        if drained {
            subscriber.wait(due.saturating_duration_since(Instant::now()).min(STOP_CHECK))?;
        }
    }
    lossless(subscriber.lost())
}

fn end(lost: u64, reason: EndReason) -> Result<(), Failure> {
    lossless(lost)?;
    match reason {
        EndReason::EndOfSource | EndReason::Closing(_) => Ok(()),
        other => Err(Failure::Ended(other)),
    }
}

const fn lossless(lost: u64) -> Result<(), Failure> {
    if lost > 0 { Err(Failure::Lost(lost)) } else { Ok(()) }
}

/// Writes one report after the other.
struct Report {
    form: Form,
    paint: Paint,
    heading_every: u64,
    written: u64,
    /// Accounts at the last report, by symbol and venue.
    before: HashMap<(String, String), InstrumentAccount>,
}

enum Form {
    Line,
    Table,
    Json,
}

/// One line of `stats --json`.
#[derive(Serialize)]
struct JsonLine<'a> {
    /// Unix nanoseconds, as text.
    time: String,
    state: String,
    /// Left out of two publishers', where each side has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    feed: Option<String>,
    epoch: String,
    session_id: u32,
    interval: &'a Interval,
    totals: &'a Statistics,
    #[serde(skip_serializing_if = "Option::is_none")]
    sides: Option<[AbSideFigures; 2]>,
}

impl Report {
    fn new(args: &StatsArgs) -> Self {
        let form = match (args.json, args.by_instrument) {
            (true, _) => Form::Json,
            (_, true) => Form::Table,
            _ => Form::Line,
        };
        let stdout = io::stdout();
        Self {
            form,
            paint: Paint::choose(ColorArg::Auto, &stdout),
            heading_every: if stdout.is_terminal() { HEADING_EVERY } else { u64::MAX },
            written: 0,
            before: HashMap::new(),
        }
    }

    fn write(
        &mut self,
        subscriber: &Subscription,
        interval: &Interval,
        totals: &Statistics,
    ) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self.form {
            Form::Json => json(&mut out, subscriber, interval, totals)?,
            Form::Line => {
                if self.written.is_multiple_of(self.heading_every) {
                    writeln!(out, "{}", self.paint.tint(Tone::Heading, heading()))?;
                }
                let state = standing(subscriber);
                line(&mut out, self.paint, interval, totals, &state)?;
            }
            Form::Table => self.table(&mut out, subscriber, interval)?,
        }
        if !matches!(self.form, Form::Json)
            && let Some(sides) = subscriber.sides()
        {
            write_sides(&mut out, self.paint, &sides)?;
        }
        self.written += 1;
        out.flush()
    }

    fn table(
        &mut self,
        out: &mut impl Write,
        subscriber: &Subscription,
        interval: &Interval,
    ) -> io::Result<()> {
        let time = Duration::from_secs_f64(interval.seconds);
        let accounts = subscriber.accounts();
        let fresh: Vec<_> = accounts.iter().map(|now| self.since_last(now)).collect();
        let mut order: Vec<_> = (0..accounts.len()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(fresh[*index].0));
        let mut table = Table::new();
        table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header([
            "SYMBOL",
            "VENUE",
            "SNAP/S",
            "CONFL/S",
            "DELIVERED",
            "CONFLATED",
            "LOST",
        ]);
        for index in order.iter().take(ROWS_MAX) {
            let (account, (delivered, conflated)) = (&accounts[*index], fresh[*index]);
            table.add_row([
                account.symbol.clone(),
                account.venue.clone(),
                per_second(delivered, time),
                per_second(conflated, time),
                grouped(account.delivered),
                grouped(account.conflated),
                grouped(account.lost),
            ]);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let title = format!("{} UTC · {}", now_of_day(), standing(subscriber));
        writeln!(out, "{}", self.paint.tint(Tone::Heading, title))?;
        writeln!(out, "{table}")?;
        let hidden = accounts.len().saturating_sub(ROWS_MAX);
        if hidden > 0 {
            writeln!(out, " … and {hidden} more")?;
        }
        writeln!(out)?;
        let named =
            |account: InstrumentAccount| ((account.symbol.clone(), account.venue.clone()), account);
        self.before = accounts.into_iter().map(named).collect();
        Ok(())
    }

    /// Delivered and conflated since the last report.
    fn since_last(&self, now: &InstrumentAccount) -> (u64, u64) {
        let key = (now.symbol.clone(), now.venue.clone());
        let (delivered, conflated) =
            self.before.get(&key).map_or((0, 0), |before| (before.delivered, before.conflated));
        (now.delivered.saturating_sub(delivered), now.conflated.saturating_sub(conflated))
    }
}

fn heading() -> String {
    format!(
        "{:>8}  {:>10} {:>9} {:>6} {:>5} {:>5} {:>10}  {:>8} {:>8} {:>8} {:>8} {:>8}  STATE",
        "UTC",
        "SNAP/S",
        "CONFL/S",
        "LOST",
        "GAPS",
        "LAPS",
        "LAG",
        "P50",
        "P99",
        "P99.9",
        "MAX",
        "JITTER",
    )
}

fn line(
    out: &mut impl Write,
    paint: Paint,
    interval: &Interval,
    totals: &Statistics,
    state: &str,
) -> io::Result<()> {
    let Interval { latency, .. } = interval;
    let time = now_of_day();
    let delivered = grouped(interval.delivered_per_second.round() as u64);
    let conflated = grouped(interval.conflated_per_second.round() as u64);
    let notable = |count: u64, tone| if count > 0 { tone } else { Tone::Plain };
    let conflated_tone = notable(u64::from(conflated != "0"), Tone::Warning);
    write!(
        out,
        "{}  {delivered:>10} {:>9} {:>6} {:>5} {:>5} {:>10}",
        paint.tint(Tone::Dim, time),
        paint.tint(conflated_tone, conflated),
        paint.tint(notable(totals.lost, Tone::Bad), grouped(totals.lost)),
        paint.tint(notable(interval.feed_gaps, Tone::Warning), grouped(interval.feed_gaps)),
        paint.tint(notable(interval.laps, Tone::Warning), grouped(interval.laps)),
        bytes(totals.lag_bytes),
    )?;
    write!(out, " ")?;
    let figures =
        [latency.p50_ns, latency.p99_ns, latency.p99_9_ns, latency.max_ns, interval.jitter_ns];
    for ns in figures {
        match latency.count {
            0 => write!(out, " {:>8}", "-")?,
            _ => write!(out, " {:>8}", HumanNanos(ns))?,
        }
    }
    let tone = match state {
        "live" => Tone::Bid,
        _ if state.starts_with("live") => Tone::Warning,
        _ => Tone::Bad,
    };
    writeln!(out, "  {}", paint.tint(tone, state))
}

/// How the subscription stands, and the feed behind it where that says something.
fn standing(subscriber: &Subscription) -> String {
    match subscriber.feed() {
        None | Some(FeedState::Live) => subscriber.state().to_string(),
        Some(feed) => format!("{}, feed {feed}", subscriber.state()),
    }
}

fn json(
    out: &mut impl Write,
    subscriber: &Subscription,
    interval: &Interval,
    totals: &Statistics,
) -> io::Result<()> {
    let (epoch, session_id) = subscriber.session();
    let line = JsonLine {
        time: unix_ns().to_string(),
        state: subscriber.state().to_string(),
        feed: subscriber.feed().map(|feed| feed.to_string()),
        epoch: epoch.to_string(),
        session_id: session_id.get(),
        interval,
        totals,
        sides: subscriber.sides(),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// `HH:MM:SS`, UTC.
fn now_of_day() -> String {
    let mut text = time_of_day(unix_ns());
    text.truncate("HH:MM:SS".len());
    text
}

#[cfg(test)]
mod tests {
    use tapecast_subscriber::LatencyFigures;

    use super::*;

    fn shown(state: &str, latency: LatencyFigures) -> String {
        let interval = Interval {
            seconds: 1.0,
            delivered_per_second: 123_456.4,
            conflated_per_second: 0.0,
            lost: 0,
            feed_gaps: 2,
            laps: 0,
            latency,
            jitter_ns: 12_000,
        };
        let totals = Statistics { lag_bytes: 4096, ..Default::default() };
        let mut out = Vec::new();
        let plain = Paint::choose(ColorArg::Never, &io::stdout());
        line(&mut out, plain, &interval, &totals, state).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_stands_under_its_heading() {
        let latency = LatencyFigures {
            count: 9,
            p50_ns: 1_840,
            p99_ns: 14_000,
            p99_9_ns: 200_000,
            max_ns: 1_500_000,
            ..Default::default()
        };
        let line = shown("live", latency);
        let expected = "     123,456         0      0     2     0    4.0 KiB   \
                        1.84 µs  14.0 µs   200 µs  1.50 ms  12.0 µs  live\n";
        assert_eq!(&line["HH:MM:SS".len()..], expected);
        // STATE starts in the same column as the state.
        let column = |text: &str, word: &str| text.find(word).map(|at| text[..at].chars().count());
        assert_eq!(column(&heading(), "STATE"), column(&line, "live"));
    }

    #[test]
    fn an_interval_without_snapshots_has_no_latency_rather_than_zero() {
        let line = shown("stale: publisher gone without a word", LatencyFigures::default());
        assert_eq!(line.matches(" -").count(), 5, "{line}");
        assert!(line.ends_with("stale: publisher gone without a word\n"), "{line}");
    }

    #[test]
    fn a_loss_or_a_crash_is_a_failure_and_the_end_of_the_source_is_not() {
        assert!(end(0, EndReason::EndOfSource).is_ok());
        assert!(end(0, EndReason::Crashed).is_err());
        assert!(matches!(end(1, EndReason::EndOfSource), Err(Failure::Lost(1))));
    }
}
