//! What fabrics with one ring for each session have in common: `sim` and `verbs`.
//!
//! [`RingFabric`] is the publisher's end and [`RingEndpoint`] the subscriber's. They hold every
//! promise; what is below them only moves bytes:
//!
//! ```text
//!  RingFabric ── FanOut (core) ── who gets what, credit        RingEndpoint ── Account (core)
//!     │ stage, post            subscriber's memory                 ▲ take, control
//!  Network ═════════════════► ring │ receives │ control ─────── Inlet
//!     ▲ poll                                                       │ push
//!     └─ completions           publisher's memory: cell ◄══════════┘
//! ```
//!
//! - [`Network`] posts work requests and polls completions: a device, or a model of one.
//! - [`Inlet`] takes immediates, posts receives again, and writes the session's cell.
//!
//! Both ends trust nothing that the other one writes.

mod control;
mod directory;
mod endpoint;
mod fabric;
mod figures;
mod side;
mod table;

use tapecast_core::credit::Placement;
use tapecast_ring::remote::TailError;
use tapecast_ring::{Words, WordsMut};
use tapecast_wire::SessionId;

use crate::QueuePairStates;
use crate::pool::Shared;
pub use control::{CONTROL_WORDS, Control};
pub use endpoint::RingEndpoint;
pub(crate) use endpoint::Terms;
pub use fabric::{RingFabric, RingSettings};
pub use figures::{Completed, NetworkFigures, Sent};
pub use side::{RingMonitor, RingSession, Side};

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Its bytes have arrived.
    Done,
    /// The peer's memory refused it, or the peer is gone.
    Failed,
    /// No receive was posted for its immediate.
    ReceiverNotReady,
    /// It was outstanding when its queue pair went into error.
    Flushed,
}

/// One work completion.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Whose work requests it retires.
    pub session: SessionId,
    /// How they ended.
    pub status: Status,
    /// Work requests that it retires: itself and the unsignaled ones before it.
    pub retires: u32,
}

/// A session's queue pair did not take what was posted: it is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostFailed;

/// The lines of all sessions, by session id.
pub type Lines<L> = [Option<Side<L>>];

/// What moves the bytes of a fabric: a device, or a model of one. It decides nothing.
pub trait Network {
    /// One session's queue pair and what belongs to it.
    type Line: Line;

    /// A line begins to serve the session `id`.
    fn connect(&mut self, id: SessionId, line: &mut Self::Line);

    /// Stages a record: padding before it and a new work request when its placement says so, else
    /// as one more piece of the work request that was staged last.
    fn stage(&mut self, line: &mut Self::Line, record: Shared, placement: &Placement);

    /// Posts what is staged, as one burst that ends with a signaled work request.
    ///
    /// # Errors
    /// [`PostFailed`]; what was not posted is still staged.
    fn post(&mut self, line: &mut Self::Line) -> Result<(), PostFailed>;

    /// Stages a write of the control block. No record joins a work request that was staged before.
    fn stage_control(&mut self, line: &mut Self::Line, control: Control);

    /// Puts a queue pair into error: everything outstanding completes soon, as flushed.
    fn break_off(&mut self, id: SessionId, line: &mut Self::Line);

    /// Whether the network is a model, in which time passes only in turns: something in flight then
    /// is work, even when none of it is due in this turn.
    const TIME_IS_TURNS: bool;

    /// Lets time pass, where the network is a model. Returns how much moved.
    fn step(&mut self, lines: &mut Lines<Self::Line>) -> usize;

    /// The next completion, after its line has let go of the pages that it retires.
    fn poll(&mut self, lines: &mut Lines<Self::Line>) -> Option<Completion>;

    /// What the completion queue has brought, where anybody counts that.
    fn completed(&self) -> Completed {
        Completed::default()
    }

    /// Makes room for an answer that [`Network::poll`] has not got yet; a model has nothing to wait
    /// for and says so with `false`.
    fn linger(&self) -> bool;
}

/// One session's queue pair, its memory at the publisher, and its work requests.
pub trait Line: Send + 'static {
    /// Breaks the queue pair off from another thread.
    type Breaker: Breaker;

    /// The session's cell.
    fn cell(&self) -> &WordsMut;

    /// Work requests begun and not retired.
    fn outstanding(&self) -> usize;

    /// Work requests ever retired.
    fn retired(&self) -> u64;

    /// Records that these refer to: at most so many pages stay out of the pool because of them.
    fn records(&self) -> usize;

    /// Forgets work requests that were staged and not posted. Returns how many.
    fn drop_staged(&mut self) -> u32;

    /// Counts its queue pair's state, where there is one.
    fn count_state(&self, _states: &mut QueuePairStates) {}

    /// What it has sent, where anybody counts that.
    fn sent(&self) -> Sent {
        Sent::default()
    }

    /// For the session's monitor.
    fn breaker(&self) -> Self::Breaker;
}

/// Breaks one session's queue pair off, from any thread.
pub trait Breaker: Clone + Send + Sync + 'static {
    /// Puts the queue pair into error, so that nothing waits for a peer that is gone.
    fn break_off(&self);
}

/// The subscriber's side of a network.
pub trait Inlet {
    /// Hands the immediates that have arrived to `announce`, oldest first, and posts their receives
    /// again. Whatever was written before an immediate was sent is visible.
    ///
    /// # Errors
    /// What `announce` returned.
    fn take(&mut self, announce: impl FnMut(u32) -> Result<(), TailError>)
    -> Result<(), TailError>;

    /// Whether an immediate has arrived that was not taken.
    fn has_arrived(&self) -> bool;

    /// Whether the queue pair is in error: nothing more arrives.
    fn is_broken(&self) -> bool;

    /// Whether a test has stopped this end.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Receives ever posted.
    fn receives(&self) -> u64;

    /// Receives that are kept posted.
    fn depth(&self) -> u64;

    /// The control block, which the publisher writes.
    fn control(&self) -> &Words;

    /// Makes changes of the cell known to the publisher, in this order: requests, counters,
    /// latency and heartbeat, credit. Now, or as soon as it can be done: everything in a cell is
    /// cumulative, so a later push says what an earlier one would have.
    fn push(&mut self, news: News);

    /// Sleeps until something arrives, or for `timeout`. May return early.
    ///
    /// # Errors
    /// What the system says.
    fn sleep(&mut self, timeout: core::time::Duration) -> std::io::Result<()>;
}

/// Which parts of the cell have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Position, channel sequence, receives.
    pub credit: bool,
    /// Counters.
    pub counters: bool,
    /// Latency and heartbeat.
    pub figures: bool,
    /// Latencies by bucket, clock and samples.
    pub timing: bool,
    /// Requests.
    pub requests: bool,
}

impl News {
    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            credit: self.credit || other.credit,
            counters: self.counters || other.counters,
            figures: self.figures || other.figures,
            timing: self.timing || other.timing,
            requests: self.requests || other.requests,
        }
    }

    /// Whether there is any.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        !(self.credit || self.counters || self.figures || self.timing || self.requests)
    }
}
