//! `tapecast-bench`: what publishing, waking and reading cost, beside a bare shared ring.

mod daemon;
mod metrics;
mod paced;
mod publish;
mod throughput;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use tapecast_tests::bench::{ChildArguments, run_child};

/// Measures tapecast over shared memory on this machine.
///
/// The yardstick beside it is a bare shared ring: no header, no late join, no conflation, no
/// accounting, one futex broadcast. Rounds of both are interleaved in this one run; every figure is
/// the median of its rounds.
#[derive(Debug, Parser)]
#[command(name = "tapecast-bench")]
struct Arguments {
    /// Only these parts [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Rounds of each variant
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A subscriber process of the benchmark
    #[command(hide = true)]
    Child {
        #[command(subcommand)]
        arguments: ChildArguments,
    },
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Cost of a publish call with 1, 8 and 64 subscribers
    Publish,
    /// Latency at 1,000 snapshots a second with 64 sleeping subscriber processes
    Paced,
    /// The same latency while one of the 64 is stopped, beside the latency when all run
    Stopped,
    /// Deliveries a second to 64 subscriber processes at full speed
    Throughput,
    /// Processor time of an idle daemon with 64 idle subscribers
    Idle,
    /// Resident memory of the daemon
    Memory,
    /// What the metrics endpoint costs the sender, and how long a scrape takes
    Metrics,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Some(Command::Child { arguments }) => run_child(&arguments),
        None => run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tapecast-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let wanted = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let rounds = arguments.rounds as usize;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores, median of {rounds} interleaved rounds");
    if wanted(Part::Publish) {
        publish::run(rounds)?;
    }
    if wanted(Part::Paced) {
        paced::run(rounds)?;
    }
    if wanted(Part::Stopped) {
        paced::stopped(rounds)?;
    }
    if wanted(Part::Throughput) {
        throughput::run(rounds)?;
    }
    if wanted(Part::Idle) {
        daemon::idle()?;
    }
    if wanted(Part::Memory) {
        daemon::memory()?;
    }
    if wanted(Part::Metrics) {
        metrics::run(rounds)?;
    }
    Ok(())
}
