//! `tapecast-sim`: runs of the deterministic simulator, one or very many.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use tapecast_core::planted::Planted;
use tapecast_tests::simulator::{Options, Plan, Report, Runner, Swarm, Tally};

/// Lines of a run's trace that are shown unless all are asked for.
const TRACE_LINES: usize = 120;
/// Runs between two lines of progress.
const PROGRESS_RUNS: u64 = 500;

/// Plays publisher and subscribers on a simulated network, with everything that can go wrong, and
/// checks every promise of tapecast at every step.
///
/// A seed decides everything: the same seed is the same run, on any machine. Each run has a phase
/// with faults, then heals, and then everything must arrive in a bounded number of turns.
///
/// A run that breaks a promise is reported with its seed and the command that replays it; the exit
/// status is 1 then.
#[derive(Debug, Parser)]
#[command(name = "tapecast-sim")]
#[command(after_help = "Examples:
  tapecast-sim --seeds 10000              seeds 0 to 9999, on every processor
  tapecast-sim --seeds 1000 --from 77000  seeds 77000 to 77999
  tapecast-sim --hours 8 --keep-going     as many seeds as there is time for, from a fresh one
  tapecast-sim --seed 77123               one run; what happened is shown when it fails
  tapecast-sim --seed 77123 --trace       the same, and all of what happened
  tapecast-sim --list-planted             bugs that it must find (built with --features planted)
  tapecast-sim --planted stale-latest     seeds until it has found that one")]
struct Arguments {
    /// Make the run of this seed only
    #[arg(long, conflicts_with_all = ["seeds", "hours", "seconds", "from"])]
    seed: Option<u64>,
    /// Make so many runs [default: 10000 when no time is given]
    #[arg(long, value_name = "COUNT")]
    seeds: Option<u64>,
    /// First seed [default: 0 with --seeds, else one that nobody knows]
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// Make runs for so many hours
    #[arg(long)]
    hours: Option<f64>,
    /// Make runs for so many seconds
    #[arg(long, conflicts_with = "hours")]
    seconds: Option<f64>,
    /// Go on after a failure
    #[arg(long)]
    keep_going: bool,
    /// Show all of what happened in the run of --seed
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Plant this bug; without --seed, look for the first seed that finds it
    #[arg(long, value_name = "NAME")]
    planted: Option<String>,
    /// List the bugs that can be planted
    #[arg(long)]
    list_planted: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tapecast-sim: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.list_planted {
        for bug in Planted::ALL {
            println!("{:<32} {}", bug.name(), bug.about());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let planted = arguments.planted.as_deref().map(planted).transpose()?;
    if let Some(seed) = arguments.seed {
        return Ok(replay(seed, planted, arguments.trace));
    }
    fly(arguments, planted)
}

fn planted(name: &str) -> anyhow::Result<Planted> {
    if !cfg!(feature = "planted") {
        bail!("this program has no planted bugs: build it with --features planted");
    }
    Planted::named(name).with_context(|| format!("no bug is called {name}: see --list-planted"))
}

/// One run, and what happened in it when it fails.
fn replay(seed: u64, planted: Option<Planted>, shows_all: bool) -> ExitCode {
    println!("{:#?}", Plan::from_seed(seed));
    let report = Runner::new().run(seed, Options { logs: true, planted });
    let skipped = if shows_all { 0 } else { report.log.len().saturating_sub(TRACE_LINES) };
    if report.violation.is_some() || shows_all {
        if skipped > 0 {
            println!("({skipped} lines before these: --trace shows them)");
        }
        report.log[skipped..].iter().for_each(|line| println!("{line}"));
    }
    let Report { published, delivered, hash, .. } = report;
    println!("seed {seed}: {published} published, {delivered} delivered, trace {hash:016x}");
    match report.violation {
        None => ExitCode::SUCCESS,
        Some(broken) => {
            println!("FAILED in turn {}, {}: {}", broken.turn, broken.checker, broken.what);
            ExitCode::FAILURE
        }
    }
}

fn fly(arguments: &Arguments, planted: Option<Planted>) -> anyhow::Result<ExitCode> {
    let seconds = arguments.hours.map(|hours| hours * 3600.0).or(arguments.seconds);
    let time = seconds.map(Duration::try_from_secs_f64).transpose().context("no such time")?;
    let is_fresh = time.is_some() && arguments.seeds.is_none();
    let from = arguments.from.unwrap_or_else(|| if is_fresh { fresh_seed() } else { 0 });
    let count = arguments.seeds.or_else(|| (!is_fresh).then_some(10_000));
    let options = Options { logs: false, planted };
    let swarm = Swarm { from, count, time, keeps_going: arguments.keep_going, options };
    eprintln!("from seed {from}");
    let tally = swarm.fly(|tally, report| show(tally, report, planted));
    let (runs, failures) = (tally.runs, tally.failures.len());
    println!(
        "{runs} runs, {failures} failures, {:.0} runs/s, {} published, {} delivered",
        tally.runs_per_second(),
        tally.published,
        tally.delivered,
    );
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A seed that nobody knows before.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) >> 16
}

fn show(tally: &Tally, report: &Report, planted: Option<Planted>) {
    let mut out = std::io::stderr().lock();
    let seed = report.seed;
    if let Some(broken) = &report.violation {
        let with = planted.map_or_else(String::new, |bug| format!(" PLANTED={}", bug.name()));
        // Progress is lost with the terminal, and nothing else is.
        let _lost = writeln!(
            out,
            "seed {seed} FAILED in turn {}, {}: {}\n  replay: make sim SEED={seed}{with}",
            broken.turn, broken.checker, broken.what
        );
    } else if tally.runs.is_multiple_of(PROGRESS_RUNS) {
        let (runs, failures) = (tally.runs, tally.failures.len());
        let speed = tally.runs_per_second();
        let _lost = writeln!(out, "{runs} runs, {failures} failures, {speed:.0} runs/s");
    }
}
