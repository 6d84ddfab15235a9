//! Snapshots a second to many queue pairs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tapecast_fabric::Receiver;
use tapecast_fabric::verbs::VerbsEndpoint;
use tapecast_tests::bench::Size;

use super::counts::{Counts, write_calls};
use super::stage::{Manner, SenderTime, Stage};

/// Snapshots before the clock starts.
const WARM_UP: usize = 32;
/// Snapshots that one poll delivers at most.
const POLL_LIMIT: usize = 256;

/// One round's figures.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Round {
    /// Snapshots delivered, over all queue pairs.
    pub(crate) deliveries: u64,
    pub(crate) elapsed_ns: u64,
    /// What the publisher's lines have sent.
    pub(crate) sent: Counts,
    /// Real `write(2)` calls of the sender's thread.
    pub(crate) sender_calls: Option<u64>,
    /// Real `write(2)` calls of the subscribers' thread: credit.
    pub(crate) reader_calls: Option<u64>,
    pub(crate) sender: SenderTime,
    /// Time that the subscribers' thread spent in passes that found something.
    pub(crate) reader_busy_ns: u64,
}

impl Round {
    pub(crate) fn per_second(&self) -> f64 {
        self.deliveries as f64 / (self.elapsed_ns as f64 / 1e9)
    }
}

/// What the subscribers' thread sleeps when it has found nothing: where cores are few, one that
/// spins takes them from the sender. Far less than it takes to use up a window.
const IDLE: Duration = Duration::from_micros(300);

/// What both threads know.
#[derive(Debug, Default)]
struct Progress {
    delivered: AtomicU64,
    is_over: AtomicBool,
}

/// Tells the subscribers' thread to end, also when the sender fails.
struct Ending<'a>(&'a Progress);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

/// Sends `count` snapshots to `queue_pairs` sessions, each of which gets every one of them.
///
/// # Errors
/// When a session missed one, or anything failed.
pub(crate) fn round(
    device: &str,
    queue_pairs: usize,
    size: Size,
    count: usize,
    manner: Manner,
) -> anyhow::Result<Round> {
    let mut stage = Stage::open(device, size, manner)?;
    let seats: anyhow::Result<Vec<_>> =
        (0..queue_pairs).map(|_| Ok(Seat { receiver: stage.admit()?, received: 0 })).collect();
    let mut crowd = Crowd { seats: seats?, busy_ns: 0 };
    let progress = Progress::default();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| crowd.read(&progress));
        let sending = {
            let _ending = Ending(&progress);
            send(&mut stage, queue_pairs, count, &progress)
        };
        let read = match reading.join() {
            Ok(read) => read,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        // Why a subscriber failed explains best why the sender did.
        let read = read?;
        let round = sending?;
        Ok::<_, anyhow::Error>(Round {
            reader_busy_ns: read.busy_ns,
            reader_calls: read.calls,
            ..round
        })
    })
    .and_then(|round| {
        let expected = (WARM_UP + count) as u64;
        for (index, seat) in crowd.seats.iter().enumerate() {
            let received = seat.received;
            anyhow::ensure!(received == expected, "session {index} got {received} of {expected}");
        }
        Ok(round)
    })
}

fn send(
    stage: &mut Stage,
    queue_pairs: usize,
    count: usize,
    progress: &Progress,
) -> anyhow::Result<Round> {
    let has_all = |snapshots: usize| {
        let expected = (snapshots * queue_pairs) as u64;
        move || {
            progress.delivered.load(Ordering::Acquire) >= expected
                || progress.is_over.load(Ordering::Acquire)
        }
    };
    stage.publish(WARM_UP)?;
    stage.wait_until(has_all(WARM_UP))?;
    let (before, calls) = (Counts::of(&stage.fabric), write_calls());
    stage.time = SenderTime::default();
    let started = Instant::now();
    stage.publish(count)?;
    stage.wait_until(has_all(WARM_UP + count))?;
    let elapsed_ns = started.elapsed().as_nanos() as u64;
    let sender_calls = write_calls().zip(calls).map(|(now, before)| now - before);
    Ok(Round {
        deliveries: (count * queue_pairs) as u64,
        elapsed_ns,
        sent: Counts::of(&stage.fabric).since(before),
        sender_calls,
        reader_calls: None,
        sender: stage.time,
        reader_busy_ns: 0,
    })
}

/// One subscriber.
#[derive(Debug)]
struct Seat {
    receiver: Receiver<VerbsEndpoint>,
    received: u64,
}

impl Seat {
    /// Takes what has arrived; each snapshot must be the one after the last.
    fn take(&mut self) -> anyhow::Result<usize> {
        let Self { receiver, received } = self;
        let mut hole = None;
        let taken = receiver.poll(POLL_LIMIT, |snapshot| {
            *received += 1;
            let sequence = snapshot.channel_sequence().0;
            if sequence != *received || snapshot.conflated() != 0 {
                hole = Some(sequence);
            }
        })?;
        anyhow::ensure!(hole.is_none(), "snapshot {hole:?} came as number {received}");
        Ok(taken)
    }
}

/// All subscribers, polled in turn by one thread.
#[derive(Debug)]
struct Crowd {
    seats: Vec<Seat>,
    busy_ns: u64,
}

/// What the subscribers' thread did while the clock ran.
#[derive(Clone, Copy, Debug)]
struct Read {
    busy_ns: u64,
    calls: Option<u64>,
}

impl Crowd {
    /// Reads until the sender says that it is over.
    ///
    /// Only who has something is polled: a poll that finds nothing tells the publisher all progress
    /// at once, which is what somebody who is about to sleep wants and costs a doorbell each.
    fn read(&mut self, progress: &Progress) -> anyhow::Result<Read> {
        let _ending = Ending(progress);
        let warm = (WARM_UP * self.seats.len()) as u64;
        let mut delivered = 0;
        let mut calls = write_calls();
        while !progress.is_over.load(Ordering::Acquire) {
            let began = Instant::now();
            let mut found = 0;
            for seat in &mut self.seats {
                if seat.receiver.is_ready() {
                    found += seat.take()? as u64;
                }
            }
            if found == 0 {
                std::thread::sleep(IDLE);
                continue;
            }
            self.busy_ns += began.elapsed().as_nanos() as u64;
            delivered += found;
            if delivered == warm {
                self.busy_ns = 0;
                calls = write_calls();
            }
            progress.delivered.store(delivered, Ordering::Release);
        }
        let calls = write_calls().zip(calls).map(|(now, before)| now - before);
        Ok(Read { busy_ns: self.busy_ns, calls })
    }
}
