//! Snapshots as aligned lines for people.

use std::io::{self, Write};

use tapecast_subscriber::{BookLevel, Flags, HumanNanos, Snapshot, TradingStatus};

use super::paint::{Paint, Tone};

const NS_PER_DAY: u64 = 86_400_000_000_000;
const TIME_COLUMNS: usize = 15;
const LATENCY_COLUMNS: usize = 9;
const STATUS_COLUMNS: usize = 10;

/// Prints snapshots as lines whose columns stay aligned; a column grows when something wider comes.
#[derive(Debug)]
pub(crate) struct Lines {
    paint: Paint,
    levels: usize,
    widths: Widths,
    /// Print the heading again after so many lines; 0 for once.
    heading_every: usize,
    lines: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Widths {
    symbol: usize,
    size: usize,
    price: usize,
    spread: usize,
}

impl Lines {
    pub(crate) const fn new(paint: Paint, levels: usize, heading_every: usize) -> Self {
        let widths = Widths { symbol: 8, size: 8, price: 10, spread: 7 };
        Self { paint, levels, widths, heading_every, lines: 0 }
    }

    /// Prints one snapshot: a line for the best levels and one for each further level.
    pub(crate) fn snapshot(&mut self, out: &mut impl Write, s: &Snapshot<'_>) -> io::Result<()> {
        self.widths.fit(s, self.levels);
        let due = self.heading_every > 0 && self.lines >= self.heading_every;
        if self.lines == 0 || due {
            self.heading(out)?;
            self.lines = 0;
        }
        self.first_line(out, s)?;
        let depth = self.levels.min(s.bids().len().max(s.asks().len()));
        for level in 1..depth {
            write!(out, "{:TIME_COLUMNS$}  {:2$}", "", "", self.widths.symbol)?;
            self.sides(out, s, level)?;
            writeln!(out)?;
        }
        self.lines += depth.max(1);
        Ok(())
    }

    fn heading(&self, out: &mut impl Write) -> io::Result<()> {
        let Widths { symbol, size, price, spread } = self.widths;
        let text = format!(
            "{:TIME_COLUMNS$}  {:symbol$}  {:>size$} {:>price$}  {:>price$} {:>size$}  \
             {:>spread$}  {:>LATENCY_COLUMNS$}  {:STATUS_COLUMNS$}  FLAGS",
            "EVENT (UTC)",
            "SYMBOL",
            "BID SIZE",
            "BID",
            "ASK",
            "ASK SIZE",
            "SPREAD",
            "LATENCY",
            "STATUS",
        );
        writeln!(out, "{}", self.paint.tint(Tone::Heading, text))
    }

    fn first_line(&self, out: &mut impl Write, s: &Snapshot<'_>) -> io::Result<()> {
        let Widths { symbol, spread, .. } = self.widths;
        let paint = self.paint;
        let time = time_of_day(s.ts_event().get());
        write!(out, "{}  ", paint.tint(Tone::Dim, time))?;
        write!(out, "{:symbol$}", paint.tint(Tone::Symbol, s.symbol()))?;
        self.sides(out, s, 0)?;
        let decimals = decimals(s);
        match s.spread() {
            Some(gap) => {
                let tone = if gap.nanos() > 0 { Tone::Plain } else { Tone::Warning };
                write!(out, "  {:>spread$.decimals$}", paint.tint(tone, gap))?;
            }
            None => write!(out, "  {:>spread$}", "-")?,
        }
        let latency = s.latency_ns().map_or_else(|| "-".into(), |ns| HumanNanos(ns).to_string());
        write!(out, "  {}", paint.tint(Tone::Dim, format!("{latency:>LATENCY_COLUMNS$}")))?;
        let status = s.trading_status();
        let calm = matches!(status, TradingStatus::Trading | TradingStatus::Unknown);
        let tone = if calm { Tone::Dim } else { Tone::Warning };
        write!(out, "  {}", paint.tint(tone, status.name()))?;
        if s.flags() != Flags::NONE {
            write!(out, "{:1$}", "", STATUS_COLUMNS.saturating_sub(status.name().len()))?;
            self.flags(out, s)?;
        }
        writeln!(out)
    }

    fn sides(&self, out: &mut impl Write, s: &Snapshot<'_>, level: usize) -> io::Result<()> {
        let Widths { size, price, .. } = self.widths;
        let (paint, decimals) = (self.paint, decimals(s));
        match s.bids().get(level) {
            Some(BookLevel { price: bid, quantity, .. }) => {
                write!(out, "  {quantity:>size$} ")?;
                write!(out, "{:>price$.decimals$}", paint.tint(Tone::Bid, bid))?;
            }
            None => write!(out, "  {:>size$} {:>price$}", "-", "-")?,
        }
        match s.asks().get(level) {
            Some(BookLevel { price: ask, quantity, .. }) => {
                write!(out, "  {:>price$.decimals$}", paint.tint(Tone::Ask, ask))?;
                write!(out, " {quantity:>size$}")
            }
            None => write!(out, "  {:>price$} {:>size$}", "-", "-"),
        }
    }

    fn flags(&self, out: &mut impl Write, s: &Snapshot<'_>) -> io::Result<()> {
        let paint = self.paint;
        for name in s.flags().names() {
            let tone = match name {
                "initial-image" => Tone::Dim,
                "suspect" => Tone::Bad,
                _ => Tone::Warning,
            };
            write!(out, "  {}", paint.tint(tone, name))?;
            if name == "conflated" {
                write!(out, "{}", paint.tint(tone, format!("×{}", s.conflated_count())))?;
            }
        }
        Ok(())
    }
}

impl Widths {
    fn fit(&mut self, s: &Snapshot<'_>, levels: usize) {
        self.symbol = self.symbol.max(s.symbol().chars().count());
        let decimals = decimals(s);
        for level in s.bids().iter().take(levels).chain(s.asks().iter().take(levels)) {
            self.size = self.size.max(level.quantity.to_string().len());
            self.price = self.price.max(format!("{:.decimals$}", level.price).len());
        }
        if let Some(gap) = s.spread() {
            self.spread = self.spread.max(format!("{gap:.decimals$}").len());
        }
    }
}

/// Decimals that the instrument's tick needs; at least two.
pub(crate) fn decimals(s: &Snapshot<'_>) -> usize {
    let mut step = s.instrument().tick_size;
    if step <= 0 {
        return 2;
    }
    let mut decimals = 9;
    while decimals > 2 && step % 10 == 0 {
        step /= 10;
        decimals -= 1;
    }
    decimals
}

/// `HH:MM:SS.ffffff` of a time in Unix nanoseconds, UTC; dashes when there is none.
pub(crate) fn time_of_day(unix_ns: u64) -> String {
    if unix_ns == 0 {
        return format!("{:TIME_COLUMNS$}", "--:--:--.------");
    }
    let micros = unix_ns % NS_PER_DAY / 1_000;
    let seconds = micros / 1_000_000;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{hour:02}:{minute:02}:{second:02}.{:06}", micros % 1_000_000)
}
