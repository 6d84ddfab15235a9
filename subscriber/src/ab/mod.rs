//! Two publishers of one feed, each snapshot once.

pub(crate) mod arbiter;
mod figures;
mod joining;
mod merge;
mod readiness;
pub(crate) mod side;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use tapecast_fabric::WaitStrategy;
use tapecast_wire::{Instrument, InstrumentId};

use crate::builder::SubscriberBuilder;
use crate::clock;
use crate::error::{ConnectError, PollError};
use crate::snapshot::Snapshot;
use crate::state::{EndReason, Event, State};
use crate::subscriber::Subscriber;

pub use figures::{AbSideFigures, AbSummary};
use merge::Merge;
use side::AbSide;

/// Instruments for which memory is reserved at the start, about 1 KB each, touched when they
/// appear. What a larger directory has beyond that is allocated as it appears.
const PREPARED_MAX: usize = 1 << 16;

/// A subscription to two publishers of the same feed. Each snapshot is delivered once, from the
/// side that brings it first; when one side dies, the other goes on without a gap.
///
/// ```no_run
/// use std::time::Duration;
/// use tapecast_subscriber::{AbSubscriber, Subscriber, Wakeup};
///
/// let a = Subscriber::builder().socket("/run/tapecast/a.sock");
/// let b = Subscriber::builder().socket("/run/tapecast/b.sock");
/// let mut subscriber = AbSubscriber::connect(a, b)?;
/// while subscriber.wait(Duration::from_secs(1))? != Wakeup::Ended {
///     subscriber.poll(|snapshot| println!("{} {}", snapshot.symbol(), snapshot.feed_sequence()))?;
///     for (side, event) in subscriber.events() {
///         eprintln!("{side}: {event}");
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What the publishers must have in common
/// The feed with its sequence numbers, the instruments' symbols and venues, and the levels per side
/// of a snapshot. Their ids, epochs, fabrics and starting times may differ: instruments are matched
/// by venue and symbol.
///
/// # What is delivered
/// For each instrument, what is newer than everything delivered before, by feed sequence (and by
/// what tells snapshots with the same feed sequence apart: a mark of the source's end, a halt or
/// another flag is never swallowed). A copy that is not suspect is delivered after one that was, so
/// that a gap in one side's *feed* is repaired by the other. [`Snapshot::conflated_count`] is the
/// number of snapshots that *neither* side delivered; it is exact once both sides have brought one
/// and the same snapshot since they attached, and before that at most too high. An initial image
/// stands for itself.
///
/// A publisher that starts again and replays what was delivered is silent until it has caught up;
/// for another replay of an input, make another `AbSubscriber`.
///
/// Belongs to one thread at a time; may be moved between threads.
#[derive(Debug)]
pub struct AbSubscriber {
    sides: [Subscriber; 2],
    merge: Merge,
    /// The side that the next poll looks at first.
    turn: AbSide,
    /// What the application chose; the sides wait on descriptors where it wants to sleep.
    wait: WaitStrategy,
    /// Readable when one of the sides is; `None` for those that never sleep.
    descriptor: Option<OwnedFd>,
    /// Events told when the last wait ended, so that the next one does not sleep over one.
    noticed: u64,
    started: Instant,
}

impl AbSubscriber {
    /// Attaches to both publishers. One of them may be absent: its side is stale
    /// ([`crate::StaleCause::Absent`]) and joins when its publisher comes.
    ///
    /// What concerns the application and not a publisher is taken from `a`: waiting, latency, and
    /// how long to wait for the first publisher. [`WaitStrategy::Block`] sleeps on descriptors
    /// here, because there are two rings to wait for.
    ///
    /// # Errors
    /// [`ConnectError`] when neither publisher is there, or when one of them refuses.
    pub fn connect(a: SubscriberBuilder, b: SubscriberBuilder) -> Result<Self, ConnectError> {
        let wait = a.wait;
        let mut choices = [a, b];
        let latency = choices[0].latency;
        for side in &mut choices {
            side.latency = latency;
            side.wait = if wait == WaitStrategy::Block { WaitStrategy::Fd } else { wait };
        }
        let sides = joining::connect(choices)?;
        let descriptor = readiness::descriptor(&sides)
            .map_err(|source| ConnectError::Resources { action: "wait on descriptors", source })?;
        let capacity = sides.iter().map(Subscriber::capacity).max().unwrap_or(0);
        let capacity = capacity.min(PREPARED_MAX);
        Ok(Self {
            merge: Merge::new(capacity, latency),
            sides,
            turn: AbSide::A,
            wait,
            descriptor,
            noticed: 0,
            started: clock::now(),
        })
    }

    /// Hands snapshots to `on_snapshot`, each once, in order for each instrument, and returns how
    /// many; at most [`SubscriberBuilder::poll_limit`]. Zero also when there were only copies of
    /// what had been delivered.
    ///
    /// Never blocks or connects; allocates only when an instrument appears for the first time on
    /// a side. Makes system calls as [`Subscriber::poll`] does.
    ///
    /// # Errors
    /// [`PollError::Ended`] when both sides were found over, and everything delivered, by polls
    /// before. [`PollError::Session`] when the session of one side met bytes that it cannot use, or
    /// its RDMA connection broke; go on polling.
    pub fn poll<F: FnMut(&Snapshot<'_>)>(
        &mut self,
        mut on_snapshot: F,
    ) -> Result<usize, PollError> {
        let first = self.turn;
        self.turn = first.other();
        let mut ended = 0;
        for side in [first, first.other()] {
            if matches!(self.sides[side.index()].state(), State::Ended(_)) {
                ended += 1;
                continue;
            }
            let count = self.poll_side(side, &mut on_snapshot)?;
            if count > 0 {
                return Ok(count);
            }
        }
        match self.end_reason() {
            Some(reason) if ended == 2 => Err(PollError::Ended(reason.clone())),
            _ => Ok(0),
        }
    }

    fn poll_side<F: FnMut(&Snapshot<'_>)>(
        &mut self,
        side: AbSide,
        on_snapshot: &mut F,
    ) -> Result<usize, PollError> {
        let Self { sides, merge, .. } = self;
        let mut count = 0;
        merge.set_live(side.other(), sides[side.other().index()].is_live());
        sides[side.index()].poll(|snapshot| {
            count += usize::from(merge.on_snapshot(side, snapshot, on_snapshot));
        })?;
        Ok(count)
    }

    /// How the merged subscription stands: live while one side is, ended when both are, else stale,
    /// since the later of the two became so. Each side's: [`AbSubscriber::side`].
    #[must_use]
    pub fn state(&self) -> &State {
        let [a, b] = &self.sides;
        match (a.state(), b.state()) {
            (State::Live, _) => a.state(),
            (_, State::Live) => b.state(),
            (State::Stale { since: a_since, .. }, State::Stale { since: b_since, .. }) => {
                if a_since >= b_since { a.state() } else { b.state() }
            }
            (State::Stale { .. }, State::Ended(_)) => a.state(),
            (State::Ended(_), State::Stale { .. }) => b.state(),
            // The end of the source says more than that the other side was gone by then.
            (State::Ended(reason), State::Ended(_)) if is_orderly(reason) => a.state(),
            (State::Ended(_), State::Ended(_)) => b.state(),
        }
    }

    fn end_reason(&self) -> Option<&EndReason> {
        match self.state() {
            State::Ended(reason) => Some(reason),
            State::Live | State::Stale { .. } => None,
        }
    }

    /// One side's subscription: its state, how its publisher's feed is, its epoch, statistics,
    /// accounts. What it delivers is not what the application has seen.
    #[must_use]
    pub const fn side(&self, side: AbSide) -> &Subscriber {
        &self.sides[side.index()]
    }

    /// What happened to each side since the last call, oldest first for each.
    pub fn events(&mut self) -> impl Iterator<Item = (AbSide, Event)> + '_ {
        let [a, b] = &mut self.sides;
        let a = a.events().map(|event| (AbSide::A, event));
        a.chain(b.events().map(|event| (AbSide::B, event)))
    }

    /// Whether the source has ended: a side says so, and no side is live that could say more.
    #[must_use]
    pub fn source_ended(&self) -> bool {
        let is_over = |side: &Subscriber| side.source_ended() || !side.is_live();
        self.sides.iter().any(Subscriber::source_ended) && self.sides.iter().all(is_over)
    }

    /// Whether the last poll left nothing behind on either side.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.sides.iter().all(Subscriber::is_drained)
    }

    /// Whether what was delivered of `instrument` may be out of date: both sides' books are stale,
    /// or nothing was delivered of it. The id is the one that merged snapshots carry.
    #[must_use]
    pub fn is_stale(&self, instrument: InstrumentId) -> bool {
        !self.sides.iter().any(Subscriber::is_live) || self.merge.instrument(instrument).is_none()
    }

    /// The entry of an instrument that a snapshot was received of, by the id that merged snapshots
    /// carry.
    #[must_use]
    pub fn instrument(&self, id: InstrumentId) -> Option<&Instrument> {
        self.merge.instrument(id)
    }

    /// The entry with this symbol, if a snapshot was received of it.
    #[must_use]
    pub fn find(&self, symbol: &str) -> Option<&Instrument> {
        self.instruments().find(|instrument| instrument.symbol == symbol)
    }

    /// Every instrument that a snapshot was received of, in the order of ids.
    pub fn instruments(&self) -> impl ExactSizeIterator<Item = &Instrument> {
        self.merge.instruments()
    }

    /// A descriptor that is readable whenever a poll would find something on one side, or a state
    /// has changed. It stays the same, so register it once, level-triggered. `None` unless
    /// [`WaitStrategy::Fd`] was chosen.
    #[must_use]
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        let wanted = self.wait == WaitStrategy::Fd;
        self.descriptor.as_ref().filter(|_| wanted).map(AsFd::as_fd)
    }
}

const fn is_orderly(reason: &EndReason) -> bool {
    matches!(reason, EndReason::EndOfSource | EndReason::Closing(_))
}
