//! `tapecast-rdma-bench`: what the RDMA fabric delivers, beside perftest on the same device.

mod counts;
mod fan_out;
mod latency;
mod perftest;
mod report;
mod stage;
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use tapecast_fabric::verbs::MAX_GATHER;
use tapecast_tests::bench::Size;

use perftest::Place;
use report::{FanOut, Latency, Report, Variant};
use stage::Manner;

/// Measures tapecast over RDMA on this machine.
///
/// Publisher and subscribers are two threads of this program; both ends of `ib_write_bw` and
/// `ib_write_lat`, of perftest, are two processes on the same device. Runs of all are interleaved,
/// and every figure is the median of its rounds. Prints which targets are met; exits with 0
/// whether they are or not.
#[derive(Debug, Parser)]
#[command(name = "tapecast-rdma-bench")]
struct Arguments {
    /// Rounds of each variant
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Sessions, and queue pairs of `ib_write_bw`
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=64))]
    queue_pairs: u32,
    /// Snapshots of 256 bytes to each session in a round, a multiple of 64; of 4 KB a third of them
    #[arg(long, default_value_t = 192, value_parser = batches)]
    snapshots: u32,
    /// Samples of latency in a round
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..))]
    samples: u32,
    /// Writes all rounds to this file
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

fn batches(text: &str) -> Result<u32, String> {
    let count: u32 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if count == 0 || !count.is_multiple_of(64) {
        return Err("expected a multiple of 64".to_owned());
    }
    Ok(count)
}

/// Snapshots or messages to one doorbell.
const CHAIN: usize = 16;
/// One snapshot for each work request, as perftest does it.
const PLAIN: Manner = Manner { gather: 1, batch: CHAIN };
/// As the daemon sends when it is busy.
const GATHERED: Manner = Manner { gather: MAX_GATHER, batch: 64 };
const SIZES: [Size; 2] = [Size::Small, Size::Large];

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tapecast-rdma-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut report = Report {
        rounds: arguments.rounds,
        cores,
        queue_pairs: arguments.queue_pairs,
        fan_out: SIZES.map(FanOut::new),
        latency: SIZES.map(Latency::new),
    };
    for round in 1..=arguments.rounds {
        for (index, size) in SIZES.into_iter().enumerate() {
            measure_fan_out(arguments, size, &mut report.fan_out[index])?;
            measure_latency(arguments, size, &mut report.latency[index])?;
        }
        eprintln!("round {round} of {} is done", arguments.rounds);
    }
    println!("{}", report.render());
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report.to_json())?;
        let written = std::fs::write(path, text);
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn measure_fan_out(arguments: &Arguments, size: Size, figures: &mut FanOut) -> anyhow::Result<()> {
    let Arguments { place, queue_pairs, snapshots, .. } = arguments;
    let queue_pairs = *queue_pairs as usize;
    let count = match size {
        Size::Small => *snapshots as usize,
        Size::Large => (*snapshots as usize / 3).next_multiple_of(CHAIN),
    };
    let bytes = size.ring_bytes();
    figures.bare.push(perftest::write_bw(place, queue_pairs, bytes, count, None)?);
    let ours = |count, manner| fan_out::round(&place.device, queue_pairs, size, count, manner);
    figures.rounds_of(Variant::Plain).push(ours(count, PLAIN)?);
    figures.chained.push(perftest::write_bw(place, queue_pairs, bytes, count, Some(CHAIN))?);
    // Gathered snapshots are so much faster that they need more of them to be timed well.
    figures.rounds_of(Variant::Gathered).push(ours(4 * count, GATHERED)?);
    Ok(())
}

fn measure_latency(arguments: &Arguments, size: Size, figures: &mut Latency) -> anyhow::Result<()> {
    let Arguments { place, samples, .. } = arguments;
    let samples = *samples as usize;
    figures.bare.push(perftest::write_lat(place, size.ring_bytes(), samples)?);
    figures.ours.push(latency::round(&place.device, size, samples)?);
    Ok(())
}
