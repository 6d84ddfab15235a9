//! What each of two sides has contributed, for people.

use std::io::{self, Write};

use tapecast_subscriber::{AbSideFigures, HumanNanos};

use super::figures::grouped;
use super::paint::{Paint, Tone};

/// Writes a line for each side; none for a single publisher.
pub(crate) fn write_sides(
    out: &mut impl Write,
    paint: Paint,
    sides: &[AbSideFigures],
) -> io::Result<()> {
    let wins: u64 = sides.iter().map(|side| side.counts.wins).sum();
    sides.iter().try_for_each(|side| write_side(out, paint, side, wins))
}

fn write_side(
    out: &mut impl Write,
    paint: Paint,
    figures: &AbSideFigures,
    all_wins: u64,
) -> io::Result<()> {
    let AbSideFigures { side, publisher, state, feed, counts, lateness, .. } = figures;
    let share = 100.0 * counts.wins as f64 / all_wins.max(1) as f64;
    let tone = if counts.gaps > 0 { Tone::Warning } else { Tone::Plain };
    let gaps = format!(
        "gaps {} (skipped {}, of these filled {})",
        grouped(counts.gaps),
        grouped(counts.skipped),
        grouped(counts.filled)
    );
    let live = if state == "live" { Tone::Bid } else { Tone::Bad };
    write!(
        out,
        "  side {side}  wins {} ({share:.1} %) · late {} · {}",
        grouped(counts.wins),
        grouped(counts.late),
        paint.tint(tone, gaps),
    )?;
    if counts.repairs > 0 {
        write!(out, " · repairs {}", grouped(counts.repairs))?;
    }
    if lateness.count > 0 {
        let (p50, p99) = (HumanNanos(lateness.p50_ns), HumanNanos(lateness.p99_ns));
        write!(out, " · lateness p50 {p50} · p99 {p99} · max {}", HumanNanos(lateness.max_ns))?;
    }
    write!(out, " · {}", paint.tint(live, state))?;
    if feed.starts_with("silent") {
        write!(out, ", {}", paint.tint(Tone::Warning, format!("feed {feed}")))?;
    }
    writeln!(out, " · {}", paint.tint(Tone::Dim, publisher))
}

#[cfg(test)]
mod tests {
    use tapecast_subscriber::{AbSideCounts, LatencyFigures};

    use super::*;
    use crate::cli::args::ColorArg;

    #[test]
    fn each_side_says_its_wins_gaps_and_lateness() {
        let counts = AbSideCounts {
            received: 1_300,
            wins: 1_000,
            late: 300,
            gaps: 2,
            skipped: 7,
            filled: 6,
            ..AbSideCounts::default()
        };
        let lateness = LatencyFigures {
            count: 290,
            p50_ns: 1_840,
            p99_ns: 14_000,
            max_ns: 1_500_000,
            ..LatencyFigures::default()
        };
        let a = AbSideFigures {
            side: "A".into(),
            publisher: "/run/a.sock".into(),
            state: "live".into(),
            feed: "live".into(),
            counts,
            lateness,
            ..AbSideFigures::default()
        };
        let b = AbSideFigures {
            side: "B".into(),
            feed: "silent since 14:30:00 UTC".into(),
            counts: AbSideCounts { wins: 3_000, ..counts },
            lateness: LatencyFigures::default(),
            ..a.clone()
        };
        let mut out = Vec::new();
        write_sides(&mut out, Paint::choose(ColorArg::Never, &io::stdout()), &[a, b]).unwrap();
        let expected = "  side A  wins 1,000 (25.0 %) · late 300 · gaps 2 (skipped 7, of these \
                        filled 6) · lateness p50 1.84 µs · p99 14.0 µs · max 1.50 ms · live · \
                        /run/a.sock\n  side B  wins 3,000 (75.0 %) · late 300 · gaps 2 (skipped 7, \
                        of these filled 6) · live, feed silent since 14:30:00 UTC · /run/a.sock\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
