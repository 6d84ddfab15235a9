//! Cost of a publish call by number of subscribers.

use std::time::{Duration, Instant};

use tapecast_fabric::Fabric;
use tapecast_tests::bench::{Children, Distribution, Size, Stage, Traffic, median, unix_now};
use tempfile::TempDir;

const SUBSCRIBERS: [usize; 3] = [1, 8, 64];
const INSTRUMENTS: usize = 100;
const SLOTS: usize = 4096;
/// Snapshots a second while the subscribers sleep between them.
const PACE: Duration = Duration::from_millis(1);
const PACED: usize = 200;
/// Bursts of each round; one of large snapshots has to fit into the pool's 1024 pages.
const BURSTS: usize = 5;
const BURST: usize = 1_000;

/// One stage with its sleeping subscribers, alive over all rounds.
struct Bench {
    stage: Stage,
    traffic: Traffic,
    children: Children,
    paced_ns: Vec<f64>,
    burst_ns: Vec<f64>,
    _folder: TempDir,
}

/// Prints ns per publish with 1, 8 and 64 sleeping subscriber processes.
pub(crate) fn run(rounds: usize) -> anyhow::Result<()> {
    println!("\npublish: ns per snapshot on the sender's thread, subscribers asleep");
    for size in [Size::Small, Size::Large] {
        let mut benches = Vec::new();
        for count in SUBSCRIBERS {
            benches.push(Bench::open(size, count)?);
        }
        for _ in 0..rounds {
            for bench in &mut benches {
                bench.paced();
            }
            for bench in &mut benches {
                bench.burst();
            }
        }
        print(size, &benches);
        for bench in benches {
            bench.close()?;
        }
    }
    Ok(())
}

/// One figure of a bench.
type Figure = fn(&Bench) -> f64;

fn print(size: Size, benches: &[Bench]) {
    let rows: [(&str, Figure); 2] = [
        ("publish + flush, p50 at 1,000/s", |bench| median(&bench.paced_ns)),
        ("publish, mean of a burst", |bench| median(&bench.burst_ns)),
    ];
    for (what, figure) in rows {
        let values: Vec<_> = benches.iter().map(figure).collect();
        let columns: Vec<_> = SUBSCRIBERS
            .iter()
            .zip(&values)
            .map(|(count, value)| format!("{count}: {value:.0} ns"))
            .collect();
        let ratio = values[2] / values[0];
        let bytes = size.payload_bytes();
        println!("  {bytes:>4} B  {what:<32} {}   64 ÷ 1 = {ratio:.2}", columns.join("  "));
    }
}

impl Bench {
    fn open(size: Size, count: usize) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("tapecast-bench-")?;
        let socket = folder.path().join("s");
        let mut stage = Stage::open(&socket, size, SLOTS, INSTRUMENTS)?;
        let children = Children::start(count, |_| {
            ["tapecast", "--socket", &socket.display().to_string(), "--sleep"]
                .map(str::to_owned)
                .to_vec()
        })?;
        stage.admit(count);
        let traffic = stage.traffic(size, INSTRUMENTS)?;
        let (paced_ns, burst_ns) = (Vec::new(), Vec::new());
        Ok(Self { stage, traffic, children, paced_ns, burst_ns, _folder: folder })
    }

    fn paced(&mut self) {
        let mut calls = Distribution::with_capacity(PACED);
        for _ in 0..PACED {
            let snapshot = self.traffic.snapshot();
            let start = Instant::now();
            let published = self.stage.fabric.publish(snapshot);
            self.stage.fabric.flush(unix_now());
            calls.record(start.elapsed().as_nanos() as u64);
            drop(published);
            self.stage.waker.ring();
            self.stage.fabric.turn(unix_now());
            std::thread::sleep(PACE);
        }
        self.paced_ns.push(calls.quantile_ns(0.5) as f64);
    }

    /// Subscribers wake up after the burst only: what is timed is the sender's own work.
    fn burst(&mut self) {
        let bursts: Vec<_> = (0..BURSTS).map(|_| self.one_burst()).collect();
        self.burst_ns.push(median(&bursts));
    }

    fn one_burst(&mut self) -> f64 {
        let batch: Vec<_> = (0..BURST).map(|_| self.traffic.snapshot()).collect();
        let start = Instant::now();
        for snapshot in batch {
            drop(self.stage.fabric.publish(snapshot));
        }
        self.stage.fabric.flush(unix_now());
        let cost_ns = start.elapsed().as_nanos() as f64 / BURST as f64;
        self.stage.waker.ring();
        std::thread::sleep(Duration::from_millis(20));
        self.stage.fabric.turn(unix_now());
        cost_ns
    }

    fn close(mut self) -> anyhow::Result<()> {
        self.stage.close();
        for result in self.children.finish()? {
            anyhow::ensure!(result.lost == 0, "{} snapshots were lost", result.lost);
        }
        Ok(())
    }
}
