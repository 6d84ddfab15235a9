//! The sender: takes what the feed has queued and hands it to the fabric.
//!
//! One thread, one duty cycle: commands (bounded) → one batch of what is queued → flush → turn. A
//! batch is whatever was queued when the sender came by; there is no timer, so one snapshot alone
//! goes at once. Once running it allocates nothing, takes no lock and, with the idle strategy
//! `spin`, makes no system call; it never wakes a subscriber.

mod command;
mod figures;
mod progress;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError};
use tapecast_fabric::park::{IdleStrategy, Parker};
use tapecast_fabric::pool::{Filled, Shared};
use tapecast_fabric::{Fabric, Full};
use tapecast_telemetry::LatencySummary;
use tapecast_wire::attach::Farewell;
use tapecast_wire::{InstrumentEntry, InstrumentId, Nanos, Snapshot};

pub use command::{Command, CommandPort, Outcome, SenderPort, command_ports};
pub use figures::{SenderFigures, SenderReading};
pub use progress::{Progress, SenderProgress};

use crate::clock::unix_now;
use crate::feed::SilentSince;

/// Most snapshots of one batch: bounds how long the first of them waits for the flush.
pub const BATCH_MAX: usize = 64;
/// Most commands of one duty cycle.
const COMMANDS_MAX: usize = 8;
/// Longest sleep: the heartbeat must go on.
const PARK_MAX: Duration = Duration::from_millis(100);
/// Duty cycles that a blocked sender yields before it naps.
const GATED_YIELDS: u32 = 64;
/// Nap of a sender that waits for a subscriber to make room. Nobody rings when that one has read.
const GATED_NAP: Duration = Duration::from_micros(50);
/// How long a closed fabric is given to write out what is on its way to subscribers.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// Longest nap: each doubles what the one before 64 duty cycles ago took.
const GATED_NAP_DOUBLINGS: u32 = 5;
/// How long a closed sender stays for the subscribers to leave.
const STAY_MAX: Duration = Duration::from_secs(5);
/// How often it looks meanwhile.
const STAY_NAP: Duration = Duration::from_millis(5);

/// What the feed queues for the sender, in order.
#[derive(Debug)]
pub enum FeedItem {
    /// A new or changed directory entry. Comes before the instrument's first snapshot. Not boxed:
    /// the sender would have to free the box, and it does not touch the heap.
    Instrument(InstrumentEntry),
    /// An encoded snapshot.
    Snapshot(Filled),
}

/// What one duty cycle did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Something.
    Done,
    /// Nothing: there was nothing to do.
    Idle,
    /// Nothing: a subscriber has to make room first, and nobody rings when it does.
    Gated,
    /// The channel is closed and nothing is on its way any more, or it was given long enough.
    Closed,
}

/// What a sender has done in its life.
#[derive(Debug)]
pub struct SenderReport {
    /// Counts.
    pub progress: Progress,
    /// Cost of publishing: from taking one snapshot off the queue to the next.
    pub cost: LatencySummary,
    /// Instruments of the snapshots that were still queued when the channel was closed.
    pub discarded: Vec<InstrumentId>,
    /// A directory entry that had no place; the snapshots of that instrument were not published.
    pub directory_full: Option<tapecast_fabric::DirectoryFull>,
}

/// Drives one fabric.
#[derive(Debug)]
pub struct Sender<F: Fabric> {
    fabric: F,
    items: Receiver<FeedItem>,
    port: SenderPort<F::Session>,
    progress: Arc<SenderProgress>,
    feed: SilentSince,
    /// For the metrics endpoint, where there is one.
    figures: Option<Arc<SenderFigures>>,
    /// A snapshot that the fabric had no room for. It goes before everything else.
    held: Option<Shared>,
    counts: Progress,
    /// The counts that the others were shown last.
    shown: Progress,
    cost: LatencySummary,
    discarded: Vec<InstrumentId>,
    directory_full: Option<tapecast_fabric::DirectoryFull>,
    ending: Ending,
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The channel is open.
    Open,
    /// It was closed; until then what is on its way is waited for.
    Settling(Instant),
    /// The conductor was told.
    Told,
}

impl<F: Fabric> Sender<F> {
    /// A sender that publishes `items` on `fabric` and takes commands from `port`.
    #[must_use]
    pub fn new(
        fabric: F,
        items: Receiver<FeedItem>,
        port: SenderPort<F::Session>,
        progress: Arc<SenderProgress>,
    ) -> Self {
        Self {
            fabric,
            items,
            port,
            progress,
            feed: SilentSince::default(),
            figures: None,
            held: None,
            counts: Progress::default(),
            shown: Progress::default(),
            cost: LatencySummary::new(),
            discarded: Vec::new(),
            directory_full: None,
            ending: Ending::Open,
        }
    }

    /// The same, which shows subscribers what `feed` says.
    #[must_use]
    pub fn with_feed(self, feed: SilentSince) -> Self {
        Self { feed, ..self }
    }

    /// The same, which records what it does in `figures`.
    #[must_use]
    pub fn with_figures(self, figures: Option<Arc<SenderFigures>>) -> Self {
        Self { figures, ..self }
    }

    /// Works until the channel is closed by a command.
    pub fn run(mut self, idle: IdleStrategy, mut parker: Parker) -> SenderReport {
        // So that the fabric knows the time before the first session is attached.
        self.fabric.turn(unix_now());
        let mut gated_turns = 0;
        let mut yields = 0;
        loop {
            let work = self.do_work();
            self.record(|figures| figures.on_cycle(work));
            match work {
                Work::Done => gated_turns = 0,
                Work::Idle => {
                    gated_turns = 0;
                    if idle == IdleStrategy::Block {
                        self.record(SenderFigures::on_park);
                    }
                    yields += u64::from(idle == IdleStrategy::Yield);
                    idle.idle(&mut parker, PARK_MAX);
                    self.record(|figures| figures.on_calls(parker.waits(), yields));
                }
                Work::Gated => {
                    gated_turns += 1;
                    yields += u64::from(yields_gated(idle, gated_turns));
                    wait_gated(idle, gated_turns, &mut parker);
                    self.record(|figures| figures.on_calls(parker.waits(), yields));
                }
                Work::Closed => break,
            }
        }
        self.stay(&mut parker);
        self.into_report()
    }

    /// Keeps the fabric until the conductor has seen the subscribers off: they still tell it what
    /// they have read, and a fabric that is gone would make that fail.
    fn stay(&self, parker: &mut Parker) {
        let deadline = Instant::now() + STAY_MAX;
        while !self.port.is_abandoned() && Instant::now() < deadline {
            parker.park(STAY_NAP);
        }
    }

    /// One duty cycle.
    pub fn do_work(&mut self) -> Work {
        self.progress.beat();
        let commands = self.take_commands();
        if self.ending != Ending::Open {
            return self.settle();
        }
        let began = unix_now();
        self.record(|figures| figures.on_beat(began));
        let mut now = began;
        let (published, gated) = self.publish_batch(&mut now);
        if published > 0 || gated {
            self.fabric.flush(now);
        }
        // One that only found no room again has published nothing: it is no batch.
        if published > 0 {
            self.record(|figures| figures.on_flushed(began, unix_now()));
        }
        self.fabric.show_feed(self.feed.get());
        let turned = self.fabric.turn(now);
        if published > 0 || self.counts.gated != gated {
            self.counts.batches += u64::from(published > 0);
            self.counts.gate_stalls += u64::from(gated && !self.counts.gated);
            self.counts.gated = gated;
            self.record(|figures| figures.on_held_back(gated, now));
            self.show_progress();
        }
        if commands + published + turned > 0 {
            Work::Done
        } else if gated || self.fabric.awaits_peers() {
            Work::Gated
        } else {
            Work::Idle
        }
    }

    /// After the channel was closed: turns until nothing is on its way to a subscriber any more,
    /// for a bounded time, and then answers that it is closed. So nobody is told farewell before
    /// the last snapshot is in its memory.
    fn settle(&mut self) -> Work {
        let Ending::Settling(deadline) = self.ending else { return Work::Closed };
        let turned = self.fabric.turn(unix_now());
        if (turned > 0 || self.fabric.awaits_peers()) && Instant::now() < deadline {
            return if turned > 0 { Work::Done } else { Work::Gated };
        }
        self.ending = Ending::Told;
        // There is room: the command was taken only with room for its outcome.
        self.port.answer(Outcome::Closed);
        Work::Closed
    }

    /// The fabric, to look at.
    #[must_use]
    pub const fn fabric(&self) -> &F {
        &self.fabric
    }

    /// Counts so far.
    #[must_use]
    pub const fn progress(&self) -> Progress {
        self.counts
    }

    /// Ends the sender without closing the channel.
    #[must_use]
    pub fn into_report(self) -> SenderReport {
        SenderReport {
            progress: self.counts,
            cost: self.cost,
            discarded: self.discarded,
            directory_full: self.directory_full,
        }
    }

    /// Publishes what is queued, at most one batch. Returns how many items were taken, and whether
    /// a lossless session stopped it. `now` moves on with each snapshot.
    fn publish_batch(&mut self, now: &mut Nanos) -> (usize, bool) {
        let mut taken = 0;
        if let Some(held) = self.held.take() {
            if !self.publish(held, now) {
                return (0, true);
            }
            taken += 1;
        }
        while taken < BATCH_MAX {
            match self.items.try_recv() {
                Ok(FeedItem::Snapshot(mut filled)) => {
                    self.record(|figures| figures.on_taken(filled.ts_publish(), *now));
                    filled.stamp_publish(*now);
                    if !self.publish(filled.share(), now) {
                        return (taken, true);
                    }
                }
                Ok(FeedItem::Instrument(entry)) => self.upsert_instrument(&entry),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.note_drained();
                    break;
                }
            }
            taken += 1;
        }
        (taken, false)
    }

    /// Returns whether the fabric took the snapshot; otherwise it is held for the next cycle.
    /// Moves `now` on, so that one reading of the clock serves the cost of this snapshot and the
    /// time of the next.
    fn publish(&mut self, snapshot: Shared, now: &mut Nanos) -> bool {
        let bytes = snapshot.bytes().len() as u64;
        if let Err(Full(snapshot)) = self.fabric.publish(snapshot) {
            self.held = Some(snapshot);
            return false;
        }
        let after = unix_now();
        let cost = after.since(*now);
        self.cost.record(cost.0);
        self.record(|figures| figures.on_published(cost));
        *now = after;
        self.counts.published += 1;
        self.counts.bytes += bytes;
        true
    }

    fn upsert_instrument(&mut self, entry: &InstrumentEntry) {
        // The feed refuses an instrument that has no place before it queues anything of it.
        if let Err(full) = self.fabric.upsert_instrument(entry) {
            self.directory_full = self.directory_full.or(Some(full));
        }
    }

    #[inline]
    fn record(&self, what: impl FnOnce(&SenderFigures)) {
        if let Some(figures) = &self.figures {
            what(figures);
        }
    }

    fn show_progress(&mut self) {
        self.progress.show(&self.shown, &self.counts);
        self.shown = self.counts;
    }

    fn note_drained(&mut self) {
        if !self.counts.drained && self.held.is_none() {
            self.counts.drained = true;
            self.show_progress();
        }
    }

    fn take_commands(&mut self) -> usize {
        let mut taken = 0;
        while taken < COMMANDS_MAX
            && self.ending == Ending::Open
            && let Some(command) = self.port.next_command()
        {
            if let Some(outcome) = self.execute(command) {
                self.port.answer(outcome);
            }
            taken += 1;
        }
        taken
    }

    /// `None` for a command that is answered later.
    fn execute(&mut self, command: Command<F::Session>) -> Option<Outcome<F::Session>> {
        match command {
            Command::Attach { ticket, session } => {
                Some(Outcome::Attached { ticket, result: self.fabric.attach(session) })
            }
            Command::Detach { id } => {
                Some(Outcome::Detached { id, session: self.fabric.detach(id) })
            }
            Command::Close { farewell } => {
                self.close(farewell);
                None
            }
        }
    }

    /// Not on the hot path: the channel ends here.
    fn close(&mut self, farewell: Farewell) {
        let held = self.held.take();
        let queued = self.items.try_iter().filter_map(|item| match item {
            FeedItem::Snapshot(filled) => Some(filled.share()),
            FeedItem::Instrument(_) => None,
        });
        let instruments = held.into_iter().chain(queued).filter_map(|snapshot| {
            Snapshot::parse(snapshot.bytes()).ok().map(|snapshot| snapshot.instrument_id())
        });
        self.discarded.extend(instruments);
        self.fabric.close(unix_now(), farewell);
        self.ending = Ending::Settling(Instant::now() + SETTLE_MAX);
        self.show_progress();
    }
}

/// Whether a gated sender lets other threads run, rather than spin or nap.
const fn yields_gated(idle: IdleStrategy, turns: u32) -> bool {
    match idle {
        IdleStrategy::Spin => false,
        IdleStrategy::Yield => true,
        IdleStrategy::Block => turns <= GATED_YIELDS,
    }
}

fn wait_gated(idle: IdleStrategy, turns: u32, parker: &mut Parker) {
    match idle {
        IdleStrategy::Spin => std::hint::spin_loop(),
        _ if yields_gated(idle, turns) => std::thread::yield_now(),
        IdleStrategy::Yield | IdleStrategy::Block => {
            // One that waits for long waits for somebody who is stopped.
            let doublings = (turns / GATED_YIELDS - 1).min(GATED_NAP_DOUBLINGS);
            parker.park(GATED_NAP * (1 << doublings));
        }
    }
}

#[cfg(test)]
mod tests;
