//! `tapecast-tape`: one subscriber process that hashes what it receives; the end-to-end tests
//! compare
//! it with what others computed from the same recording.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tapecast_subscriber::{Policy, PollError, Reconnect, Subscriber, Wakeup};
use tapecast_tests::tape::{Format, Tape};

/// Hashes every instrument's snapshots as one stream each.
#[derive(Debug, Parser)]
struct Arguments {
    /// Socket of the publisher
    #[arg(long, required_unless_present = "connect")]
    socket: Option<PathBuf>,
    /// Address of the publisher, to attach over RDMA
    #[arg(long, conflicts_with = "socket")]
    connect: Option<String>,
    /// How the stream is written
    #[arg(long)]
    format: Format,
    /// Feed sequences of the first and the last event, for a format that writes every event
    #[arg(long, num_args = 2, default_values_t = [0, 0])]
    events: Vec<u64>,
    /// Take a fingerprint of the stream and leave its text out
    #[arg(long)]
    only_fingerprint: bool,
    /// Ask the publisher to wait
    #[arg(long)]
    lossless: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tapecast-tape: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut choices = Subscriber::builder();
    choices = match (&arguments.connect, &arguments.socket) {
        (Some(address), _) => choices.connect_to(address.as_str()),
        (None, Some(socket)) => choices.socket(socket),
        (None, None) => choices,
    };
    let mut subscriber = choices
        .policy(if arguments.lossless { Policy::Lossless } else { Policy::Conflate })
        .reconnect(Reconnect::Never)
        // An emulated machine that starts 64 of these takes its time.
        .connect_timeout(Duration::from_secs(60))
        .wait_for_publisher(Duration::from_secs(120))
        .connect()?;
    let events = (arguments.events[0], arguments.events[1]);
    let mut tapes: BTreeMap<String, Tape> = BTreeMap::new();
    while subscriber.wait(Duration::from_secs(1))? != Wakeup::Ended {
        let polled = subscriber.poll(|snapshot| {
            if !tapes.contains_key(snapshot.symbol()) {
                let tape = Tape::new(arguments.format, events);
                let tape = if arguments.only_fingerprint { tape.only_fingerprint() } else { tape };
                tapes.insert(snapshot.symbol().to_owned(), tape);
            }
            if let Some(tape) = tapes.get_mut(snapshot.symbol()) {
                tape.on_snapshot(&snapshot.record());
            }
        });
        match polled {
            Ok(_) => {}
            Err(PollError::Ended(_)) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let figures = subscriber.statistics();
    anyhow::ensure!(figures.lost == 0, "{} snapshots were lost", figures.lost);
    let results: BTreeMap<_, _> =
        tapes.into_iter().map(|(symbol, tape)| (symbol, tape.finish())).collect();
    println!("{}", serde_json::to_string(&results)?);
    Ok(())
}
