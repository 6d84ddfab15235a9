//! `tapecast-demo`: a publisher and 64 subscriber processes on this machine, and their account.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use tapecast_tests::demo::{Fleet, FleetPlan, Link, join, render};

/// Runs one publisher and many subscriber processes, then shows what became of every snapshot.
///
/// Ends with status 1 when published ≠ delivered + conflated for any subscriber and instrument, or
/// when a process fails.
#[derive(Debug, Parser)]
#[command(name = "tapecast-demo")]
struct Arguments {
    /// What to play: synthetic (an opening burst of our own exchange), itch or dbn
    #[arg(long, default_value = "synthetic")]
    source: String,
    /// Input of an itch or dbn source
    #[arg(long, required_if_eq_any([("source", "itch"), ("source", "dbn")]))]
    file: Option<PathBuf>,
    /// Subscriber processes (1 to 64)
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=64))]
    subscribers: u32,
    /// Seconds of the synthetic day
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Instruments of the synthetic exchange
    #[arg(long, default_value_t = 100)]
    instruments: u32,
    /// Messages per second of its calm trading [default: the publisher's own]
    #[arg(long, value_name = "N")]
    steady_rate: Option<u64>,
    /// Messages per second when its market opens [default: the publisher's own]
    #[arg(long, value_name = "N")]
    burst_rate: Option<u64>,
    /// Speed: max, realtime or a multiple such as 10x [default: realtime, files: max]
    #[arg(long)]
    pace: Option<String>,
    /// Talk over RDMA, on this machine's device, instead of shared memory
    #[arg(long)]
    rdma: bool,
    /// Make the publisher wait for every subscriber, so that nothing is conflated
    #[arg(long)]
    lossless: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tapecast-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let folder = tempfile::Builder::new().prefix("tapecast-demo-").tempdir()?;
    let programs =
        std::env::current_exe()?.parent().context("this program has no folder")?.to_owned();
    let subscribers = arguments.subscribers as usize;
    let over = if arguments.rdma { "RDMA" } else { "shared memory" };
    println!("one publisher ({}), {subscribers} subscriber processes, {over}", arguments.source);
    let policy = if arguments.lossless { "lossless" } else { "conflate" };
    let plan = FleetPlan {
        programs,
        folder: folder.path().to_owned(),
        source: source_arguments(arguments)?,
        subscribers,
        tail: vec!["--policy".into(), policy.into()],
        progress: true,
        link: if arguments.rdma { Link::Rdma(free_address()?) } else { Link::SharedMemory },
    };
    let plan = Fleet::start(plan)?.wait(|| {})?;
    let account = join(&plan.read_report()?, plan.read_summaries()?)?;
    println!("{}", render(&account));
    Ok(account.imbalances.is_empty())
}

/// An address that nobody listens at now.
fn free_address() -> anyhow::Result<String> {
    // Below the ports that the system gives to outgoing connections: subscribers that are there
    // before the publisher must not be given its port.
    let mut addresses = (17_411..27_411).map(|port| format!("127.0.0.1:{port}"));
    addresses.find(|address| std::net::TcpListener::bind(address).is_ok()).context("no free port")
}

fn source_arguments(arguments: &Arguments) -> anyhow::Result<Vec<String>> {
    let mut words = vec!["--source".to_owned(), arguments.source.clone()];
    let pace = match &*arguments.source {
        "synthetic" => {
            words.extend(["--seconds".into(), arguments.seconds.to_string()]);
            words.extend(["--instruments".into(), arguments.instruments.to_string()]);
            let rates =
                [("--steady-rate", arguments.steady_rate), ("--burst-rate", arguments.burst_rate)];
            for (option, rate) in rates {
                words.extend(rate.into_iter().flat_map(|rate| [option.into(), rate.to_string()]));
            }
            "realtime"
        }
        "itch" | "dbn" => "max",
        other => bail!("no source is called {other}: use synthetic, itch or dbn"),
    };
    if let Some(file) = &arguments.file {
        words.extend(["--file".into(), file.display().to_string()]);
    }
    words.extend(["--pace".into(), arguments.pace.as_deref().unwrap_or(pace).to_owned()]);
    words.extend(["--log-level".into(), "warn".into()]);
    if arguments.lossless {
        words.push("--lossless".into());
    }
    Ok(words)
}
