//! `tapecast-chaos`: rounds of harm on real processes, and restarts of the publisher.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use tapecast_tests::chaos::{
    ChaosError, Day, Restarts, RoundPlan, Score, Setting, Spread, Stop, Tally, free_address, play,
};
use tapecast_tests::demo::Link;

/// Status after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Harms real processes at random, round after round, and checks what tapecast promises.
///
/// Each round is the life of one publisher with many subscriber processes, all of them the shipped
/// programs. While the day is published, subscribers are killed (SIGKILL), stopped and continued,
/// slowed down, asked to end (SIGTERM), and others join. At the end of the round:
///
///   every account balances: published = delivered + conflated, nothing lost, order intact;
///   whoever was there is complete, the late, the slow and the stopped too;
///   both ends say the same, and witnesses read what was read in an unharmed rehearsal;
///   nobody was evicted or had to attach again; the publisher lives and its pool is whole;
///   no process, socket, file or segment is left behind.
///
/// Exit status 1 when something of this does not hold; seed, round and what each process said are
/// shown then. 130 after Ctrl-C, which leaves nothing behind either.
#[derive(Debug, Parser)]
#[command(name = "tapecast-chaos", args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  tapecast-chaos --rounds 200                       200 rounds with 64 subscribers, a fresh seed
  tapecast-chaos --seed 7 --from 31 --rounds 1      round 31 of seed 7, as far as processes allow
  tapecast-chaos --file es.mbo.dbn.zst              the same on a recording
  tapecast-chaos restarts --rounds 200              kill -9 of the publisher, and start it again
  make chaos FABRIC=verbs                           over RDMA, on Soft-RoCE in a virtual machine")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    rounds: RoundArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Kill the publisher (SIGKILL) at random instants and start it again at once: every subscriber
    /// must be back and complete each time, and how long that takes is told
    Restarts(RestartArguments),
}

#[derive(Debug, Args)]
struct RoundArguments {
    /// Rounds to play
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u64,
    /// Number of the first round, to play one of them again
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// Subscriber processes (1 to 64)
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    subscribers: u32,
    #[command(flatten)]
    choices: Choices,
}

#[derive(Debug, Args)]
struct RestartArguments {
    /// Restarts
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u64,
    /// Subscriber processes (1 to 64)
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    subscribers: u32,
    #[command(flatten)]
    choices: Choices,
}

#[derive(Debug, Args)]
struct Choices {
    /// What chance follows from [default: one that nobody knows; it is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Play this recording (DBN or ITCH) instead of a simulated exchange; with `auto` the recording
    /// of ES futures in ../shared/data, if it is there
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How long a day is made to take, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1_200)]
    #[arg(value_parser = clap::value_parser!(u64).range(100..=600_000))]
    day_ms: u64,
    /// Talk over RDMA, on this machine's device, instead of shared memory
    #[arg(long)]
    rdma: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        None => rounds(&arguments.rounds),
        Some(Command::Restarts(restarts)) => self::restarts(restarts),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tapecast-chaos: {error:#}");
            match error.downcast_ref() {
                Some(ChaosError::Interrupted) => ExitCode::from(INTERRUPTED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

impl Choices {
    /// Where the recording of ES futures is, from a checkout's root.
    const RECORDING: &str = "../shared/data/dbn/esh4-glbx-mdp3-20231225.mbo.dbn.zst";

    fn setting(&self) -> anyhow::Result<Setting> {
        let program = std::env::current_exe()?;
        let programs = program.parent().context("this program has no folder")?.to_owned();
        let link = match self.rdma {
            true => Link::Rdma(free_address()?),
            false => Link::SharedMemory,
        };
        let stop = Stop::on_signals().context("cannot take over signals")?;
        let day_length = Duration::from_millis(self.day_ms);
        Ok(Setting { programs, link, day: self.day(), day_length, stop })
    }

    fn day(&self) -> Day {
        let Some(file) = &self.file else { return Day::synthetic() };
        if file.as_os_str() != "auto" {
            return Day::recording(file);
        }
        let recording = PathBuf::from(Self::RECORDING);
        if recording.exists() { Day::recording(&recording) } else { Day::synthetic() }
    }

    fn seed(&self) -> u64 {
        use std::hash::{BuildHasher, RandomState};
        // Short enough to be typed.
        self.seed.unwrap_or_else(|| RandomState::new().hash_one(0) >> 40)
    }
}

fn rehearse(setting: &Setting, seed: u64) -> anyhow::Result<Score> {
    let score = Score::rehearse(setting)?;
    let (snapshots, instruments) = (score.snapshots(), score.instruments.len());
    eprintln!("seed {seed}; a day has {snapshots} snapshots of {instruments} instruments");
    Ok(score)
}

fn rounds(arguments: &RoundArguments) -> anyhow::Result<bool> {
    let (setting, seed) = (arguments.choices.setting()?, arguments.choices.seed());
    let score = Arc::new(rehearse(&setting, seed)?);
    let (mut total, began) = (Tally::default(), Instant::now());
    for number in arguments.from..arguments.from + arguments.rounds {
        let plan = RoundPlan::new(seed, number, arguments.subscribers as usize);
        let started = Instant::now();
        let round = play(&setting, &score, &plan)?;
        total += round.tally;
        let seconds = started.elapsed().as_secs_f64();
        eprintln!("round {number}: {} ({seconds:.1} s)", round.tally);
        if !round.complaints.is_empty() {
            eprintln!("round {number} of seed {seed} failed: {plan:?}");
            tell(&round.said, &round.complaints);
            let again = format!("--seed {seed} --from {number} --rounds 1");
            eprintln!("to play it again: tapecast-chaos {again}");
        }
    }
    println!("seed {seed}: {total}, {:.1} s", began.elapsed().as_secs_f64());
    Ok(total.failures == 0)
}

fn restarts(arguments: &RestartArguments) -> anyhow::Result<bool> {
    let (setting, seed) = (arguments.choices.setting()?, arguments.choices.seed());
    let score = rehearse(&setting, seed)?;
    let subscribers = arguments.subscribers as usize;
    let began = Instant::now();
    let restarts = Restarts { rounds: arguments.rounds, seed, subscribers };
    let tally = restarts.play(&setting, &score, |number| {
        if number.is_multiple_of(20) || arguments.rounds <= 20 {
            eprintln!("{number} restarts ({:.1} s)", began.elapsed().as_secs_f64());
        }
    })?;
    tell(&tally.said, &tally.complaints);
    println!("from restart to first snapshot: {}", Spread::of(tally.back));
    println!("from restart to every instrument: {}", Spread::of(tally.complete));
    println!(
        "seed {seed}: restarts {}, of publishers that were killed as soon as they listened {}, \
         subscribers {subscribers}, failures {}, {:.1} s",
        tally.restarts,
        tally.stillborn,
        tally.complaints.len(),
        began.elapsed().as_secs_f64()
    );
    Ok(tally.complaints.is_empty())
}

/// What each process said, and what was wrong.
fn tell(said: &[String], complaints: &[String]) {
    let mut out = std::io::stderr().lock();
    for text in said.iter().chain(complaints) {
        // Nobody to tell is no reason to stop.
        let _ = writeln!(out, "{text}");
    }
}
