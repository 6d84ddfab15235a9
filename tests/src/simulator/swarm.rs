//! Many runs, on every processor.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::run::{Options, Report, Runner};

/// How many runs, and when to end.
#[derive(Clone, Copy, Debug)]
pub struct Swarm {
    /// The first seed.
    pub from: u64,
    /// Seeds; as many as there is time for when it is `None`.
    pub count: Option<u64>,
    /// Time after which no run begins.
    pub time: Option<Duration>,
    /// Go on after a failure.
    pub keeps_going: bool,
    /// What every run is asked for.
    pub options: Options,
}

/// What became of them.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Runs made.
    pub runs: u64,
    /// Snapshots published.
    pub published: u64,
    /// Snapshots delivered.
    pub delivered: u64,
    /// Runs that broke a promise, lowest seed first.
    pub failures: Vec<Report>,
    /// Time that they took.
    pub took: Duration,
}

impl Tally {
    /// Runs made in a second.
    #[must_use]
    pub fn runs_per_second(&self) -> f64 {
        self.runs as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

impl Swarm {
    /// Makes the runs. `on_report` is called after each of them, with the tally so far.
    pub fn fly(&self, on_report: impl Fn(&Tally, &Report) + Sync) -> Tally {
        let started = Instant::now();
        let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let tally = Mutex::new(Tally::default());
        let worker = || {
            let mut runner = Runner::new();
            while !stop.load(Ordering::Relaxed)
                && self.time.is_none_or(|time| started.elapsed() < time)
            {
                let nth = next.fetch_add(1, Ordering::Relaxed);
                if self.count.is_some_and(|count| nth >= count) {
                    return;
                }
                let report = runner.run(self.from.wrapping_add(nth), self.options);
                if report.violation.is_some() && !self.keeps_going {
                    stop.store(true, Ordering::Relaxed);
                }
                let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                tally.add(&report, started.elapsed());
                on_report(&tally, &report);
            }
        };
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(worker);
            }
        });
        let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        tally.failures.sort_by_key(|report| report.seed);
        tally
    }
}

impl Tally {
    fn add(&mut self, report: &Report, took: Duration) {
        self.runs += 1;
        self.published += report.published;
        self.delivered += report.delivered;
        self.took = took;
        if report.violation.is_some() {
            self.failures.push(report.clone());
        }
    }
}
