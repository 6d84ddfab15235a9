//! `diff`: whether two journals say the same.
//!
//! Both are read side by side, one snapshot of each at a time, and paired per instrument. So memory
//! is taken for what one side is ahead of the other, and for no more.

mod compare;
mod content;
mod side;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::args::DiffArgs;
use super::failure::Failure;
use super::figures::{counted, grouped};
use compare::{Comparison, Tally};
use side::{Pairing, Side};

/// Exit status for journals that differ.
const DIFFERENT: u8 = 1;
/// Exit status for an input that cannot be used.
const UNUSABLE: u8 = 2;
/// Instruments shown before the rest is only counted.
const ROWS_MAX: usize = 20;

/// Runs `diff`.
pub(crate) fn diff(args: &DiffArgs) -> Result<ExitCode, Failure> {
    let mut a = Side::open(&args.a)?;
    let mut b = Side::open(&args.b)?;
    let pairing = match a.epoch() == b.epoch() {
        true => Pairing::InstrumentSequence,
        false => Pairing::FeedSequence,
    };
    let comparison = Comparison::run((&mut a, &mut b), pairing, args.exact)?;
    let report = Report::new((&a, &b), &comparison);
    let written = match args.json {
        true => report.write_json(),
        false => report.write_text(),
    };
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other?,
    }
    Ok(match (report.usable, report.same) {
        (false, _) => ExitCode::from(UNUSABLE),
        (true, false) => ExitCode::from(DIFFERENT),
        (true, true) => ExitCode::SUCCESS,
    })
}

/// What comes out. Field order is part of the format.
#[derive(Debug, Serialize)]
struct Report<'a> {
    same: bool,
    /// Whether both could be read as far as they go.
    usable: bool,
    a: Input<'a>,
    b: Input<'a>,
    totals: Tally,
    instruments: Vec<Row<'a>>,
    first_difference: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Input<'a> {
    path: &'a Path,
    origin: &'static str,
    snapshots: u64,
    /// Snapshots that the writer says are missing.
    lost: u64,
    ending: &'static str,
    note: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    symbol: &'a str,
    venue: &'a str,
    #[serde(flatten)]
    tally: Tally,
}

impl<'a> Report<'a> {
    fn new((a, b): (&'a Side, &'a Side), comparison: &'a Comparison) -> Self {
        let mut instruments: Vec<Row<'a>> = comparison
            .tallies()
            .map(|((symbol, venue), tally)| Row { symbol, venue, tally })
            .collect();
        instruments.sort_by_key(|row| (row.symbol, row.venue));
        let totals = comparison.totals();
        Self {
            same: totals.is_same(),
            usable: a.is_usable() && b.is_usable(),
            a: input(a),
            b: input(b),
            totals,
            instruments,
            first_difference: comparison.first_difference(),
        }
    }

    fn write_json(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, self)?;
        out.write_all(b"\n")
    }

    fn write_text(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        for (name, input) in [("A", &self.a), ("B", &self.b)] {
            let snapshots = counted(input.snapshots, "snapshot");
            writeln!(out, "{name}  {}: {snapshots} of a {}", input.path.display(), input.origin)?;
            if input.lost > 0 {
                let lost = counted(input.lost, "snapshot");
                writeln!(out, "   {lost} that it lost while it was written")?;
            }
            if let Some(note) = input.note {
                writeln!(out, "   {note}")?;
            }
        }
        let Tally { identical, different, only_a, only_b } = self.totals;
        let word = if self.same { "the same" } else { "different" };
        writeln!(
            out,
            "{word}: {} identical, {} different, {} only in A, {} only in B",
            grouped(identical),
            grouped(different),
            grouped(only_a),
            grouped(only_b)
        )?;
        if let Some(first) = self.first_difference {
            writeln!(out, "first difference: {first}")?;
        }
        self.write_rows(&mut out)
    }

    /// The instruments that differ.
    fn write_rows(&self, out: &mut impl Write) -> io::Result<()> {
        let differing = || self.instruments.iter().filter(|row| !row.tally.is_same());
        for row in differing().take(ROWS_MAX) {
            let Tally { identical, different, only_a, only_b } = row.tally;
            writeln!(
                out,
                "  {}: {} identical, {} different, {} only in A, {} only in B",
                row.symbol,
                grouped(identical),
                grouped(different),
                grouped(only_a),
                grouped(only_b)
            )?;
        }
        let hidden = differing().count().saturating_sub(ROWS_MAX);
        if hidden > 0 {
            writeln!(out, "  … and {hidden} more; --json writes all of them")?;
        }
        Ok(())
    }
}

fn input(side: &Side) -> Input<'_> {
    Input {
        path: side.path(),
        origin: side.origin(),
        snapshots: side.snapshots(),
        lost: side.lost(),
        ending: side.ending(),
        note: side.note(),
    }
}
