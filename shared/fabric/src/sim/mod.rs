//! A simulated RDMA network in one process: deterministic, seeded, with faults.
//!
//! It has the semantics that `verbs` has, and none of its hardware, so what passes here has a
//! reason to pass there:
//!
//! - each session has a byte ring and a receive queue in *its* memory; the publisher's device
//!   writes there, and a work request with an immediate consumes one posted receive;
//! - work requests refer to pool pages and read them when they execute, some time after they were
//!   posted; a page stays referenced until a completion has been polled, flushed ones included;
//! - one session's work requests execute in order, different sessions' in any order;
//! - most work requests are unsignaled; a failure flushes every outstanding one as a completion of
//!   its own; the completion queue is bounded, and overrunning it is a bug;
//! - a completion says that bytes arrived, never that anybody read them.
//!
//! ```text
//!  SimFabric ── FanOut (core) ── who gets what, credit
//!     │ post                                     subscriber's memory
//!  QueuePair ═══ executes, some ticks later ═══► ring │ receive queue │ control block
//!     │ completes, some ticks later                  ▼
//!  CompletionQueue                              SimEndpoint ──► session cell (publisher's memory)
//! ```
//!
//! Time is the number of turns. The same seed and the same calls give the same run.

mod completions;
mod inlet;
mod link;
mod mail;
mod network;
mod queue_pair;

use std::sync::Arc;

use tapecast_core::credit::{WindowSize, WindowSizeError};
use tapecast_core::session::Terms;
use tapecast_core::{Interest, Session};
use tapecast_ring::RemoteReader;
use tapecast_ring::remote::RemoteShapeError;
use tapecast_wire::attach::Policy;
use tapecast_wire::limits::{DEFAULT_LEVELS_PER_SIDE, MAX_INSTRUMENTS, MAX_LEVELS_PER_SIDE};
use tapecast_wire::{Epoch, Nanos};

use crate::Wish;
use crate::pool::Pool;
use crate::rings::{RingEndpoint, RingFabric, RingSession, RingSettings};
pub use inlet::{OpenError, SimInlet};
use link::Link;
pub use link::SimFaults;
pub use network::{SimBreaker, SimLine, SimNetwork};
pub use queue_pair::MAX_GATHER;

/// The publisher's end of the simulated network.
pub type SimFabric = RingFabric<SimNetwork>;
/// What the conductor prepares for one subscriber.
pub type SimSession = RingSession<SimLine>;
/// The subscriber's end of the simulated network.
pub type SimEndpoint = RingEndpoint<SimInlet>;

/// What a simulated network is made from.
#[derive(Clone, Copy, Debug)]
pub struct SimConfig {
    /// Life of the publisher.
    pub epoch: Epoch,
    /// Decides every delay. Default 1.
    pub seed: u64,
    /// Instruments that the directory has room for. Default 1024.
    pub instruments: usize,
    /// Most levels per side of a snapshot. Default 10.
    pub levels_per_side: usize,
    /// Bytes of each session's ring, a power of two of at least 8 KiB. Default 256 KiB.
    pub ring_bytes: u64,
    /// Receive work requests that each subscriber keeps posted. Default 256.
    pub receive_depth: u32,
    /// Work requests that may be outstanding for each session. Default 64.
    pub send_depth: u32,
    /// Records that one work request gathers, at most [`MAX_GATHER`]. Default 8.
    pub gather: u32,
    /// At least each so-manieth work request is signaled. Default 16.
    pub signal_every: u32,
    /// Most turns between posting a work request and its execution. Default 2.
    pub execute_ticks_max: u32,
    /// Most turns between execution and completion. Default 2.
    pub complete_ticks_max: u32,
    /// Whether lossless sessions may attach. Default no.
    pub allow_lossless: bool,
    /// Silence after which a lossless session is evicted. Default 10 s.
    pub lossless_silence_limit: Nanos,
}

impl SimConfig {
    /// The defaults.
    #[must_use]
    pub const fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            seed: 1,
            instruments: 1024,
            levels_per_side: DEFAULT_LEVELS_PER_SIDE,
            ring_bytes: 256 << 10,
            receive_depth: 256,
            send_depth: 64,
            gather: 8,
            signal_every: 16,
            execute_ticks_max: 2,
            complete_ticks_max: 2,
            allow_lossless: false,
            lossless_silence_limit: Nanos(10_000_000_000),
        }
    }
}

/// No network can be made of these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A session's window.
    #[error(transparent)]
    Window(#[from] WindowSizeError),
    /// A session's ring.
    #[error(transparent)]
    Ring(#[from] RemoteShapeError),
    /// Number of records in a work request.
    #[error("{gather} records for each work request: at most {MAX_GATHER}")]
    Gather {
        /// Number given.
        gather: u32,
    },
    /// The signal rule would let unsignaled work requests fill the send queue.
    #[error("each {every}th of {depth} work requests signaled: use from 1 to half of the depth")]
    Signal {
        /// Number given.
        every: u32,
        /// Depth of the send queue.
        depth: u32,
    },
    /// Directory or record size.
    #[error(
        "{instruments} instruments of {levels_per_side} levels per side: at most {MAX_INSTRUMENTS} \
         and {MAX_LEVELS_PER_SIDE}"
    )]
    Shape {
        /// Instruments given.
        instruments: usize,
        /// Levels given.
        levels_per_side: usize,
    },
}

/// A network's two publisher-side users.
#[derive(Debug)]
pub struct Sim {
    /// For the conductor.
    pub host: SimHost,
    /// For the sender.
    pub fabric: SimFabric,
}

/// The conductor's side: prepares sessions.
#[derive(Debug)]
pub struct SimHost {
    config: SimConfig,
    window: WindowSize,
}

impl SimHost {
    /// Makes a network. `pool` is where conflated snapshots are copied to before they are sent.
    ///
    /// # Errors
    /// [`SimError`] for numbers of which no network can be made.
    pub fn create(config: &SimConfig, pool: Pool) -> Result<Sim, SimError> {
        let SimConfig { instruments, levels_per_side, gather, send_depth, .. } = *config;
        let window = WindowSize::new(config.ring_bytes, config.receive_depth, send_depth, gather)?;
        if gather as usize > MAX_GATHER {
            return Err(SimError::Gather { gather });
        }
        if config.signal_every == 0 || config.signal_every > send_depth / 2 {
            return Err(SimError::Signal { every: config.signal_every, depth: send_depth });
        }
        if instruments > MAX_INSTRUMENTS || levels_per_side > MAX_LEVELS_PER_SIDE {
            return Err(SimError::Shape { instruments, levels_per_side });
        }
        let host = Self { config: *config, window };
        let SimConfig { epoch, allow_lossless, .. } = *config;
        let settings = RingSettings { epoch, instruments, levels_per_side, allow_lossless };
        Ok(Sim { host, fabric: RingFabric::new(SimNetwork::new(config), &settings, pool) })
    }

    /// Prepares a session: the subscriber's memory, its cell, its queue pair. Attach the session,
    /// then open an endpoint with the ticket.
    ///
    /// # Errors
    /// [`SimError`] when the ring cannot be made.
    pub fn prepare(
        &self,
        policy: Policy,
        interest: &Interest,
    ) -> Result<(SimSession, SimTicket), SimError> {
        let min_interval = Nanos(0);
        self.prepare_for(&Wish { policy, interest, symbols: None, min_interval, offer: None })
    }

    /// As [`Self::prepare`], for a subscriber with this wish.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn prepare_for(&self, wish: &Wish<'_>) -> Result<(SimSession, SimTicket), SimError> {
        let Wish { policy, interest, symbols, min_interval, .. } = *wish;
        let silence_limit = match policy {
            Policy::Conflate | Policy::Disconnect => None,
            Policy::Lossless => Some(self.config.lossless_silence_limit),
        };
        let terms = Terms { policy, window: self.window, silence_limit, min_interval };
        let session = Box::new(Session::new(terms, interest, self.config.instruments));
        let link = Arc::new(Link::new(self.window));
        let ticket = SimTicket {
            reader: RemoteReader::new(link.ring.reader())?,
            link: Arc::clone(&link),
            policy,
            instruments: self.config.instruments,
        };
        Ok((SimSession::new(session, SimLine::new(link, &self.config), symbols), ticket))
    }
}

/// What a subscriber needs to open its endpoint: the counterpart of the handshake.
#[derive(Debug)]
pub struct SimTicket {
    link: Arc<Link>,
    reader: RemoteReader,
    policy: Policy,
    instruments: usize,
}

impl SimTicket {
    /// Switches for what can go wrong with this session.
    #[must_use]
    pub fn faults(&self) -> SimFaults {
        SimFaults::new(Arc::clone(&self.link))
    }
}

#[cfg(test)]
mod tests;
