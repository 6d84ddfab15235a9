//! One-way latency of one session, both ends busy.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use tapecast_fabric::verbs::{MAX_GATHER, VerbsEndpoint};
use tapecast_fabric::{Fabric, Receiver};
use tapecast_tests::bench::{Distribution, Size, unix_now};

use super::perftest::Latencies;
use super::stage::{Manner, Stage};

/// Samples before those that count.
const WARM_UP: usize = 100;

/// One round's figures, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) whole: Latencies,
    /// Median of what `publish` took.
    pub(crate) staging_us: f64,
    /// Median from the doorbell until the subscriber knows that something has arrived.
    pub(crate) way_us: f64,
    /// Median from there to the delivery.
    pub(crate) taking_us: f64,
    /// What reading the clock takes; all the others are without it.
    pub(crate) clock_us: f64,
}

/// Each so-manieth sample says where the time goes and counts for nothing else: an emulated
/// machine's clock is slow to read.
const DISSECT_EVERY: usize = 9;

const fn is_dissected(nth: u64) -> bool {
    nth.is_multiple_of(DISSECT_EVERY as u64)
}

fn ns_since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

/// Median of what two readings of the clock in a row differ by, in nanoseconds.
fn clock_cost() -> u64 {
    let mut costs = Distribution::with_capacity(1000);
    for _ in 0..1000 {
        let (first, second) = (Instant::now(), Instant::now());
        costs.record((second - first).as_nanos() as u64);
    }
    costs.quantile_ns(0.5)
}

/// What the subscriber says.
#[derive(Debug, Default)]
struct Arrival {
    /// Snapshots delivered.
    count: AtomicU64,
    /// When the last one was noticed, in nanoseconds after the start.
    noticed_ns: AtomicU64,
    /// When it was delivered.
    at_ns: AtomicU64,
    is_over: AtomicBool,
}

struct Ending<'a>(&'a Arrival);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

/// From the call of `publish` to the delivery, on one clock; the next snapshot is published when
/// the last one was delivered, as in `ib_write_lat`.
///
/// # Errors
/// When the device fails.
pub(crate) fn round(device: &str, size: Size, samples: usize) -> anyhow::Result<Round> {
    let mut stage = Stage::open(device, size, Manner { gather: MAX_GATHER, batch: 1 })?;
    let mut receiver = stage.admit()?;
    let (start, arrival) = (Instant::now(), Arrival::default());
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&mut receiver, start, &arrival));
        let sending = {
            let _ending = Ending(&arrival);
            send(&mut stage, samples, start, &arrival)
        };
        match reading.join() {
            Ok(read) => read?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        sending
    })
}

fn send(
    stage: &mut Stage,
    samples: usize,
    start: Instant,
    arrival: &Arrival,
) -> anyhow::Result<Round> {
    let new = || Distribution::with_capacity(samples);
    let (mut latencies, mut staging, mut way, mut taking) = (new(), new(), new(), new());
    let clock_ns = clock_cost();
    for nth in 1..=(WARM_UP + samples + samples / (DISSECT_EVERY - 1)) as u64 {
        let now = unix_now();
        let snapshot = stage.traffic.snapshot();
        let snapshot = snapshot.ok_or_else(|| anyhow::anyhow!("the pool is empty: a leak"))?;
        let published_ns = ns_since(start);
        if stage.fabric.publish(snapshot).is_err() {
            anyhow::bail!("no room for a session that has read everything: a lack of credit");
        }
        let staged_ns = if is_dissected(nth) { ns_since(start) } else { 0 };
        stage.fabric.flush(now);
        let has_come = || {
            arrival.count.load(Ordering::Acquire) >= nth || arrival.is_over.load(Ordering::Acquire)
        };
        while !has_come() {
            std::hint::spin_loop();
        }
        anyhow::ensure!(!arrival.is_over.load(Ordering::Acquire), "the subscriber has ended");
        if nth > WARM_UP as u64 {
            let at_ns = arrival.at_ns.load(Ordering::Relaxed);
            let noticed_ns = arrival.noticed_ns.load(Ordering::Relaxed);
            let record = |to: &mut Distribution, from: u64, until: u64| {
                to.record(until.saturating_sub(from + clock_ns));
            };
            if is_dissected(nth) {
                record(&mut staging, published_ns, staged_ns);
                record(&mut way, staged_ns, noticed_ns);
                record(&mut taking, noticed_ns, at_ns);
            } else {
                record(&mut latencies, published_ns, at_ns);
            }
        }
        stage.fabric.turn(now);
    }
    let us = |all: &Distribution, share| all.quantile_ns(share) as f64 / 1e3;
    Ok(Round {
        whole: Latencies { typical_us: us(&latencies, 0.5), p99_us: us(&latencies, 0.99) },
        staging_us: us(&staging, 0.5),
        way_us: us(&way, 0.5),
        taking_us: us(&taking, 0.5),
        clock_us: clock_ns as f64 / 1e3,
    })
}

fn read(
    receiver: &mut Receiver<VerbsEndpoint>,
    start: Instant,
    arrival: &Arrival,
) -> anyhow::Result<()> {
    let _ending = Ending(arrival);
    let mut count = 0;
    while !arrival.is_over.load(Ordering::Acquire) {
        if !receiver.is_ready() {
            std::hint::spin_loop();
            continue;
        }
        if is_dissected(count + 1) {
            arrival.noticed_ns.store(ns_since(start), Ordering::Relaxed);
        }
        receiver.poll(usize::MAX, |_snapshot| {
            arrival.at_ns.store(ns_since(start), Ordering::Relaxed);
            count += 1;
            arrival.count.store(count, Ordering::Release);
        })?;
    }
    Ok(())
}
