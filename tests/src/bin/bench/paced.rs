//! Latency with 64 sleeping subscriber processes, and what a stopped one does to the others.

use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use tapecast_fabric::Fabric;
use tapecast_telemetry::{HumanNanos, LatencySummary};
use tapecast_tests::bench::{
    BareRing, BareWait, BareWriter, ChildResult, Children, Distribution, Size, Stage,
    create_bare_ring, inherit, median, unix_now,
};
use tempfile::TempDir;

const SUBSCRIBERS: usize = 64;
const SLOTS: usize = 1024;
const MESSAGES: usize = 1_000;
const WARM_UP: usize = 100;
const PACE: Duration = Duration::from_millis(1);
const SIZE: Size = Size::Small;

/// Figures of one round.
struct Round {
    call_p50_ns: f64,
    call_p99_ns: f64,
    delivery_p50_ns: f64,
    delivery_p99_ns: f64,
}

/// One figure of a round.
type Figure = fn(&Round) -> f64;

const FIGURES: [(&str, Figure); 4] = [
    ("publish call p50", |round| round.call_p50_ns),
    ("publish call p99", |round| round.call_p99_ns),
    ("delivery p50", |round| round.delivery_p50_ns),
    ("delivery p99", |round| round.delivery_p99_ns),
];

/// Prints call and delivery latency beside the bare ring's.
pub(crate) fn run(rounds: usize) -> anyhow::Result<()> {
    println!("\npaced: 64 sleeping processes, 1,000 snapshots/s, {} B", SIZE.payload_bytes());
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(tapecast_round(Stopped::Nobody)?);
        bare.push(bare_round()?);
    }
    compare(("tapecast", &ours), ("bare ring", &bare), &FIGURES);
    Ok(())
}

/// Prints what a subscriber that is stopped changes for the others.
pub(crate) fn stopped(rounds: usize) -> anyhow::Result<()> {
    println!(
        "\nstopped: the same, and one of the 64 is stopped (SIGSTOP); figures of the other 63"
    );
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        before.push(tapecast_round(Stopped::Nobody)?);
        after.push(tapecast_round(Stopped::First)?);
    }
    compare(("one stopped", &after), ("all run", &before), &FIGURES[2..]);
    Ok(())
}

/// Prints the medians of two variants, and the first by the second.
fn compare(this: (&str, &[Round]), that: (&str, &[Round]), figures: &[(&str, Figure)]) {
    for (what, of) in figures {
        let of_rounds = |rounds: &[Round]| median(&rounds.iter().map(of).collect::<Vec<_>>());
        let (mine, theirs) = (of_rounds(this.1), of_rounds(that.1));
        println!(
            "  {what:<18} {} {:>10}   {} {:>10}   ratio {:.2}",
            this.0,
            HumanNanos(mine as u64).to_string(),
            that.0,
            HumanNanos(theirs as u64).to_string(),
            mine / theirs
        );
    }
}

/// Who is attached and does not run during a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    Nobody,
    First,
}

fn tapecast_round(stopped: Stopped) -> anyhow::Result<Round> {
    let folder = TempDir::with_prefix("tapecast-bench-")?;
    let socket = folder.path().join("s");
    let mut stage = Stage::open(&socket, SIZE, SLOTS, 1)?;
    let children = Children::start(SUBSCRIBERS, |_| {
        ["tapecast", "--socket", &socket.display().to_string(), "--sleep", "--latency"]
            .map(str::to_owned)
            .to_vec()
    })?;
    stage.admit(SUBSCRIBERS);
    let first = children.pids().first().and_then(|pid| Pid::from_raw(*pid as i32));
    let first = first.context("no subscriber was started")?;
    if stopped == Stopped::First {
        kill_process(first, Signal::STOP)?;
    }
    let mut traffic = stage.traffic(SIZE, 1)?;
    let calls = pace(|| {
        let snapshot = traffic.snapshot();
        let start = Instant::now();
        let published = stage.fabric.publish(snapshot);
        stage.fabric.flush(unix_now());
        let call = start.elapsed();
        drop(published);
        stage.waker.ring();
        stage.fabric.turn(unix_now());
        call
    });
    stage.close();
    kill_process(first, Signal::CONT)?;
    finish(&calls, &children.finish()?)
}

fn bare_round() -> anyhow::Result<Round> {
    let bytes = SIZE.payload_bytes();
    let memory = create_bare_ring(SLOTS, bytes)?;
    let descriptor = inherit(&memory)?;
    let children = Children::start(SUBSCRIBERS, |index| {
        let words = format!(
            "bare --descriptor {descriptor} --slots {SLOTS} --slot-bytes {bytes} --index {index} \
             --sleep --latency"
        );
        words.split(' ').map(str::to_owned).collect()
    })?;
    let ring = BareRing::map(descriptor, SLOTS, bytes)?;
    let mut writer = BareWriter::new(ring, SUBSCRIBERS, BareWait::Futex);
    let mut message = vec![7; bytes];
    // One message that all have read proves that all are there.
    writer.publish(&stamped(&mut message));
    while writer.slowest() < 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let calls = pace(|| {
        let message = stamped(&mut message);
        let start = Instant::now();
        writer.publish(&message);
        start.elapsed()
    });
    message[..8].fill(0);
    writer.publish(&message);
    finish(&calls, &children.finish()?)
}

fn stamped(message: &mut [u8]) -> Vec<u8> {
    message[..8].copy_from_slice(&unix_now().0.to_le_bytes());
    message.to_vec()
}

fn pace(mut publish: impl FnMut() -> Duration) -> Distribution {
    let mut calls = Distribution::with_capacity(MESSAGES);
    for index in 0..WARM_UP + MESSAGES {
        let call = publish();
        if index >= WARM_UP {
            calls.record(call.as_nanos() as u64);
        }
        std::thread::sleep(PACE);
    }
    calls
}

fn finish(calls: &Distribution, results: &[ChildResult]) -> anyhow::Result<Round> {
    let mut latency = LatencySummary::new();
    for result in results {
        anyhow::ensure!(result.lost == 0, "{} snapshots were lost", result.lost);
    }
    // The first is the one that may have been stopped.
    for result in results.iter().skip(1) {
        latency.merge(&result.latency);
    }
    let figures = latency.figures();
    Ok(Round {
        call_p50_ns: calls.quantile_ns(0.5) as f64,
        call_p99_ns: calls.quantile_ns(0.99) as f64,
        delivery_p50_ns: figures.p50_ns as f64,
        delivery_p99_ns: figures.p99_ns as f64,
    })
}
