//! What is printed, and the targets.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Cell, CellAlignment, Table};
use serde_json::{Value, json};
use tapecast_tests::bench::{Size, median};

use super::fan_out::Round;
use super::latency;
use super::perftest::Latencies;

/// Which of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// One snapshot for each work request, 16 for each doorbell.
    Plain,
    /// As many as a work request takes.
    Gathered,
}

/// All rounds of one size.
#[derive(Clone, Debug)]
pub(crate) struct FanOut {
    size: Size,
    /// Messages a second of `ib_write_bw`.
    pub(crate) bare: Vec<f64>,
    /// The same with chains of 16.
    pub(crate) chained: Vec<f64>,
    plain: Vec<Round>,
    gathered: Vec<Round>,
}

impl FanOut {
    pub(crate) const fn new(size: Size) -> Self {
        Self {
            size,
            bare: Vec::new(),
            chained: Vec::new(),
            plain: Vec::new(),
            gathered: Vec::new(),
        }
    }

    pub(crate) const fn rounds_of(&mut self, variant: Variant) -> &mut Vec<Round> {
        match variant {
            Variant::Plain => &mut self.plain,
            Variant::Gathered => &mut self.gathered,
        }
    }

    fn variants(&self) -> [(&'static str, &[Round]); 2] {
        [("tapecast, 1 a work request", &self.plain), ("tapecast, gathered", &self.gathered)]
    }
}

/// All rounds of one size.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    size: Size,
    pub(crate) bare: Vec<Latencies>,
    pub(crate) ours: Vec<latency::Round>,
}

impl Latency {
    pub(crate) const fn new(size: Size) -> Self {
        Self { size, bare: Vec::new(), ours: Vec::new() }
    }
}

/// Everything measured.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) rounds: u32,
    pub(crate) cores: usize,
    pub(crate) queue_pairs: u32,
    pub(crate) fan_out: [FanOut; 2],
    pub(crate) latency: [Latency; 2],
}

/// What ought to be.
struct Target {
    name: String,
    ratio: f64,
    wanted: Wanted,
}

enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn is_met(&self) -> bool {
        match self.wanted {
            Wanted::AtLeast(bound) => self.ratio >= bound,
            Wanted::AtMost(bound) => self.ratio <= bound,
        }
    }

    fn bound(&self) -> String {
        match self.wanted {
            Wanted::AtLeast(bound) => format!("≥ {bound}"),
            Wanted::AtMost(bound) => format!("≤ {bound}"),
        }
    }
}

/// Median of what `figure` makes of each.
fn median_of<T>(all: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    median(&all.iter().map(figure).collect::<Vec<_>>())
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header(header.iter().map(|name| right(*name)));
    table
}

fn right(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).set_alignment(CellAlignment::Right)
}

impl Report {
    fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        for figures in &self.fan_out {
            let bare = median(&figures.bare);
            let bytes = figures.size.ring_bytes();
            let (plain, gathered) = match figures.size {
                Size::Small => (0.85, Some(3.0)),
                Size::Large => (0.6, None),
            };
            targets.push(Target {
                name: format!("{bytes} B, 1 a work request / ib_write_bw"),
                ratio: median_of(&figures.plain, Round::per_second) / bare,
                wanted: Wanted::AtLeast(plain),
            });
            if let Some(bound) = gathered {
                targets.push(Target {
                    name: format!("{bytes} B, gathered / ib_write_bw"),
                    ratio: median_of(&figures.gathered, Round::per_second) / bare,
                    wanted: Wanted::AtLeast(bound),
                });
            }
        }
        for figures in &self.latency {
            targets.push(Target {
                name: format!("{} B, p50 / ib_write_lat", figures.size.ring_bytes()),
                ratio: median_of(&figures.ours, |one| one.whole.typical_us)
                    / median_of(&figures.bare, |one| one.typical_us),
                wanted: Wanted::AtMost(1.6),
            });
        }
        targets
    }

    /// All tables.
    pub(crate) fn render(&self) -> String {
        let Self { rounds, cores, queue_pairs, .. } = self;
        let mut text = format!(
            "{cores} cores, medians of {rounds} interleaved rounds; compare within this run only\n\n\
             Fan-out to {queue_pairs} queue pairs, snapshots delivered a second\n{}\n\n\
             For each snapshot delivered (on Soft-RoCE a doorbell is one write(2))\n{}\n\n\
             Where the time goes, in percent of the round\n{}\n\n\
             One-way latency of one session, both ends busy; what reading the clock takes is \
             subtracted\n{}\n\n",
            self.rates(),
            self.costs(),
            self.shares(),
            self.latencies(),
        );
        let mut verdicts = table(&["target", "wanted", "ratio", ""]);
        for target in self.targets() {
            let verdict = if target.is_met() { "met" } else { "MISSED" };
            let ratio = format!("{:.2}", target.ratio);
            verdicts.add_row([target.name.clone(), target.bound(), ratio, verdict.to_owned()]);
        }
        // Writing to a string cannot fail.
        let _written = write!(text, "Targets\n{verdicts}");
        text
    }

    fn rates(&self) -> Table {
        let mut table = table(&["", "size", "median", "/ ib_write_bw", "lowest … highest"]);
        for figures in &self.fan_out {
            let bare = median(&figures.bare);
            let rates = |rounds: &[Round]| rounds.iter().map(Round::per_second).collect();
            let mut rows: Vec<(&str, Vec<f64>)> = vec![
                ("ib_write_bw", figures.bare.clone()),
                ("ib_write_bw -l 16 -Q 16", figures.chained.clone()),
            ];
            rows.extend(figures.variants().map(|(name, rounds)| (name, rates(rounds))));
            for (name, values) in rows {
                let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
                let highest = values.iter().copied().fold(0.0, f64::max);
                let rate = median(&values);
                table.add_row([
                    Cell::new(name),
                    right(format!("{} B", figures.size.ring_bytes())),
                    right(format!("{rate:.0}")),
                    right(format!("{:.2}", rate / bare)),
                    right(format!("{lowest:.0} … {highest:.0}")),
                ]);
            }
        }
        table
    }

    fn costs(&self) -> Table {
        let mut table = table(&[
            "",
            "size",
            "work requests",
            "doorbells",
            "write(2) sender",
            "write(2) readers",
            "bytes written",
            "≈ bytes on the wire",
        ]);
        for figures in &self.fan_out {
            for (name, rounds) in figures.variants() {
                let each = |count: fn(&Round) -> u64| {
                    median_of(rounds, |one| count(one) as f64 / one.deliveries as f64)
                };
                let calls = |count: fn(&Round) -> Option<u64>| {
                    let is_known = rounds.iter().all(|one| count(one).is_some());
                    let calls = |one: &Round| count(one).unwrap_or(0) as f64;
                    let each = median_of(rounds, |one| calls(one) / one.deliveries as f64);
                    if is_known { format!("{each:.3}") } else { "?".to_owned() }
                };
                table.add_row([
                    Cell::new(name),
                    right(format!("{} B", figures.size.ring_bytes())),
                    right(format!("{:.3}", each(|one| one.sent.work_requests))),
                    right(format!("{:.3}", each(|one| one.sent.doorbells))),
                    right(calls(|one| one.sender_calls)),
                    right(calls(|one| one.reader_calls)),
                    right(format!("{:.0}", each(|one| one.sent.bytes))),
                    right(format!("{:.0}", each(|one| one.sent.wire_bytes()))),
                ]);
            }
        }
        table
    }

    fn shares(&self) -> Table {
        let mut table =
            table(&["", "size", "encode", "publish", "flush", "turn", "wait", "readers busy"]);
        for figures in &self.fan_out {
            for (name, rounds) in figures.variants() {
                let share = |time: fn(&Round) -> u64| {
                    let share = |one: &Round| time(one) as f64 / one.elapsed_ns as f64;
                    right(format!("{:.0}", median_of(rounds, share) * 100.0))
                };
                table.add_row([
                    Cell::new(name),
                    right(format!("{} B", figures.size.ring_bytes())),
                    share(|one| one.sender.encode),
                    share(|one| one.sender.publish),
                    share(|one| one.sender.flush),
                    share(|one| one.sender.turn),
                    share(|one| one.sender.wait),
                    share(|one| one.reader_busy_ns),
                ]);
            }
        }
        table
    }

    fn latencies(&self) -> Table {
        let mut table = table(&[
            "",
            "size",
            "p50 µs",
            "p99 µs",
            "p50 / ib_write_lat",
            "staging",
            "way",
            "taking",
            "clock",
        ]);
        for figures in &self.latency {
            let bare = median_of(&figures.bare, |one| one.typical_us);
            let whole: Vec<_> = figures.ours.iter().map(|one| one.whole).collect();
            let part =
                |part: fn(&latency::Round) -> f64| format!("{:.1}", median_of(&figures.ours, part));
            let parts = [
                part(|one| one.staging_us),
                part(|one| one.way_us),
                part(|one| one.taking_us),
                part(|one| one.clock_us),
            ];
            let none = [const { String::new() }; 4];
            let rows = [("ib_write_lat", &figures.bare, none), ("tapecast", &whole, parts)];
            for (name, all, parts) in rows {
                let typical = median_of(all, |one| one.typical_us);
                let mut row = vec![
                    Cell::new(name),
                    right(format!("{} B", figures.size.ring_bytes())),
                    right(format!("{typical:.1}")),
                    right(format!("{:.1}", median_of(all, |one| one.p99_us))),
                    right(format!("{:.2}", typical / bare)),
                ];
                row.extend(parts.map(right));
                table.add_row(row);
            }
        }
        table
    }

    /// Every round, and the verdicts.
    pub(crate) fn to_json(&self) -> Value {
        let latencies = |all: &[Latencies]| -> Vec<Value> {
            all.iter()
                .map(|one| json!({ "p50_us": one.typical_us, "p99_us": one.p99_us }))
                .collect()
        };
        let fan_out = self.fan_out.iter().map(|figures| {
            json!({
                "bytes": figures.size.ring_bytes(),
                "ib_write_bw_per_second": figures.bare,
                "ib_write_bw_chained_per_second": figures.chained,
                "plain": figures.plain,
                "gathered": figures.gathered,
            })
        });
        let latency = self.latency.iter().map(|figures| {
            let ours: Vec<_> = figures.ours.iter().map(latency_json).collect();
            json!({
                "bytes": figures.size.ring_bytes(),
                "ib_write_lat": latencies(&figures.bare),
                "tapecast": ours,
            })
        });
        let targets = self.targets().into_iter().map(|target| {
            json!({
                "name": target.name,
                "wanted": target.bound(),
                "ratio": target.ratio,
                "met": target.is_met(),
            })
        });
        json!({
            "rounds": self.rounds,
            "cores": self.cores,
            "queue_pairs": self.queue_pairs,
            "fan_out": fan_out.collect::<Vec<_>>(),
            "latency": latency.collect::<Vec<_>>(),
            "targets": targets.collect::<Vec<_>>(),
        })
    }
}

fn latency_json(round: &latency::Round) -> Value {
    json!({
        "p50_us": round.whole.typical_us,
        "p99_us": round.whole.p99_us,
        "staging_us": round.staging_us,
        "way_us": round.way_us,
        "taking_us": round.taking_us,
        "clock_us": round.clock_us,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_at_its_bound() {
        let target = |ratio, wanted| Target { name: String::new(), ratio, wanted }.is_met();
        assert!(target(0.85, Wanted::AtLeast(0.85)) && !target(0.84, Wanted::AtLeast(0.85)));
        assert!(target(1.6, Wanted::AtMost(1.6)) && !target(1.61, Wanted::AtMost(1.6)));
    }
}
