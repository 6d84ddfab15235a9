//! What the metrics endpoint costs the sender, and how long a scrape takes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;
use tapecast_telemetry::HumanNanos;
use tapecast_tests::bench::median;
use tempfile::TempDir;

use super::daemon::Processes;

const SUBSCRIBERS: usize = 64;
const DAY: [&str; 6] = ["--seconds", "8", "--instruments", "100", "--steady-rate", "5000"];
const SCRAPE_EVERY: Duration = Duration::from_millis(200);

/// How the endpoint is used in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Off,
    On,
    Scraped,
}

/// One round: what publishing cost, and how long scrapes took.
struct Round {
    cost_p50_ns: f64,
    cost_p99_ns: f64,
    scrapes_ns: Vec<f64>,
    bytes: usize,
}

/// Prints cost with and without, and the time of a scrape with 64 subscribers.
pub(crate) fn run(rounds: usize) -> anyhow::Result<()> {
    println!(
        "\nmetrics: the daemon with 64 subscriber processes, 5,000 messages/s after a burst, scraped \
         five times a second"
    );
    let (mut off, mut on, mut scraped) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        off.push(round(Use::Off)?);
        on.push(round(Use::On)?);
        scraped.push(round(Use::Scraped)?);
    }
    let p50 = |rounds: &[Round]| of(rounds, |round| round.cost_p50_ns);
    let p99 = |rounds: &[Round]| of(rounds, |round| round.cost_p99_ns);
    print("publish cost p50, on and off", p50(&on), p50(&off));
    print("publish cost p99, on and off", p99(&on), p99(&off));
    print("the same, scraped and not", p99(&scraped), p99(&on));
    let scrapes: Vec<f64> =
        scraped.iter().flat_map(|round| round.scrapes_ns.iter().copied()).collect();
    let longest = scrapes.iter().copied().fold(0.0, f64::max);
    println!(
        "  {} scrapes of {} KB: median {}, longest {}",
        scrapes.len(),
        scraped.iter().map(|round| round.bytes).max().unwrap_or(0) / 1000,
        HumanNanos(median(&scrapes) as u64),
        HumanNanos(longest as u64)
    );
    Ok(())
}

fn of(rounds: &[Round], figure: impl Fn(&Round) -> f64) -> f64 {
    median(&rounds.iter().map(figure).collect::<Vec<_>>())
}

fn print(what: &str, this: f64, that: f64) {
    println!(
        "  {what:<30} {:>10} {:>10}   ratio {:.2}",
        HumanNanos(this as u64).to_string(),
        HumanNanos(that as u64).to_string(),
        this / that
    );
}

fn round(used: Use) -> anyhow::Result<Round> {
    let folder = TempDir::with_prefix("tapecast-bench-")?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (socket, report) = (path("s"), path("report.json"));
    let address = free_address()?;
    let at = address.to_string();
    let mut arguments =
        vec!["run", "--socket", &socket, "--report", &report, "--no-progress", "--exit-at-end"];
    arguments.extend(["--wait-for", "64"]);
    arguments.extend(DAY);
    if used != Use::Off {
        arguments.extend(["--metrics", &at]);
    }
    let mut processes = Processes::default();
    processes.start("tapecast-publisher", &arguments)?;
    for index in 0..SUBSCRIBERS {
        let name = format!("bench-{index}");
        let mut arguments = vec!["tail", "--quiet", "--until-end", "--socket", &socket];
        arguments.extend(["--wait-for-publisher", "30", "--name", &name]);
        processes.start("tapecast-subscriber", &arguments)?;
    }
    let (mut scrapes_ns, mut bytes) = (Vec::new(), 0);
    while !processes.has_first_ended()? {
        if used == Use::Scraped
            && let Some((took, size)) = scrape(address)
        {
            scrapes_ns.push(took.as_nanos() as f64);
            bytes = size;
        }
        std::thread::sleep(SCRAPE_EVERY);
    }
    let cost = cost_of(Path::new(&report))?;
    Ok(Round { cost_p50_ns: cost.0, cost_p99_ns: cost.1, scrapes_ns, bytes })
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// How long it took to have the figures of all subscribers, and their bytes. `None` while they are
/// not all there.
fn scrape(address: SocketAddr) -> Option<(Duration, usize)> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let took = start.elapsed();
    let all = format!("tapecast_sessions{{channel=\"tapecast\"}} {SUBSCRIBERS}\n");
    text.contains(&all).then_some((took, text.len()))
}

fn cost_of(report: &Path) -> anyhow::Result<(f64, f64)> {
    let report: Value = serde_json::from_slice(&std::fs::read(report)?)?;
    let figure = |name: &str| report["publish_cost"][name].as_f64().context("no publish cost");
    let cost = (figure("p50_ns")?, figure("p99_ns")?);
    if report["totals"]["published"].as_u64() < Some(10_000) {
        bail!("hardly anything was published: {}", report["totals"]);
    }
    Ok(cost)
}
