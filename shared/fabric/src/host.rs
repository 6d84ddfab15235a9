//! The conductor's end of a fabric: it prepares sessions and looks at their figures.

use tapecast_core::Interest;
use tapecast_core::session::Eviction;
use tapecast_telemetry::LatencyBuckets;
use tapecast_wire::Nanos;
use tapecast_wire::attach::Policy;
use tapecast_wire::rdma::{RdmaAnswer, RdmaOffer};

use crate::shm::SessionDescriptors;
use crate::{SessionStats, Timing};

/// Prepares the sessions of one fabric, on the conductor's thread, so that attaching one takes the
/// sender no system call.
pub trait Host: Send {
    /// What is attached to the fabric: its [`crate::Fabric::Session`].
    type Session: Send + 'static;
    /// Figures of one session, for any thread.
    type Monitor: Monitor;

    /// Takes memory and queues for one session.
    ///
    /// # Errors
    /// [`HostError`], whose text is for the subscriber's user.
    fn prepare_session(
        &self,
        wish: &Wish<'_>,
    ) -> Result<Prepared<Self::Session, Self::Monitor>, HostError>;

    /// What the device has reported since the last call, for log lines: mostly trouble. Nothing
    /// where there is no device.
    fn take_events(&self) -> Vec<String> {
        Vec::new()
    }

    /// What the network has done, for any thread. `None` where subscribers read the same memory.
    fn network_stats(&self) -> Option<NetworkStats> {
        None
    }

    /// How long sampled work requests took from their doorbell to their completion. Nothing where
    /// there are none.
    fn post_to_completion(&self) -> LatencyBuckets {
        LatencyBuckets::new()
    }

    /// Why nothing can be published any more, once that is so: the publisher has to end, and to be
    /// started again.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// What a network with one queue pair for each session has done, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Work requests posted.
    pub work_requests: u64,
    /// Calls that posted them.
    pub doorbells: u64,
    /// Bytes that they write.
    pub bytes: u64,
    /// Completions taken.
    pub completions: u64,
    /// Of those, for sessions that were gone by then.
    pub strays: u64,
    /// Times that an immediate found no receive posted.
    pub receiver_not_ready: u64,
    /// Most completions found before the queue was empty.
    pub completions_high_water: u64,
    /// Completions that the queue holds.
    pub completion_depth: u64,
    /// Work requests that a send queue holds.
    pub send_depth: u64,
    /// Work requests that are not retired, over all sessions.
    pub outstanding: u64,
    /// Most of one session.
    pub outstanding_max: u64,
    /// Queue pairs of attached sessions by state.
    pub queue_pairs: QueuePairStates,
}

/// Queue pairs by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePairStates {
    /// On their way to being ready: RESET, INIT.
    pub preparing: u64,
    /// Ready to receive: RTR.
    pub ready_to_receive: u64,
    /// Ready to send: RTS.
    pub ready_to_send: u64,
    /// In error: ERR.
    pub failed: u64,
}

/// Figures of one session. Any thread may look; the sender is not asked.
pub trait Monitor: Clone + Send + Sync + 'static {
    /// The figures now.
    fn stats(&self) -> SessionStats;

    /// How long snapshots take to this session, in full, as it says.
    fn timing(&self) -> Timing;

    /// Why the fabric serves the session no longer; `None` while it does. The conductor then tells
    /// the subscriber and takes the session out.
    fn evicted(&self) -> Option<Eviction>;

    /// The subscriber is known to be gone: lets go of what still waits for it. The session is to be
    /// detached after this.
    fn quench(&self);
}

/// What a subscriber asks for, as far as a fabric has to know it.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// What happens when it does not keep up.
    pub policy: Policy,
    /// The instruments it wants, in this publisher's ids.
    pub interest: &'a Interest,
    /// Symbols that it may ever be sent, also when it asks for more later; `None` for all. Only
    /// where the publisher decides what a subscriber is sent.
    pub symbols: Option<&'a [String]>,
    /// Least time between two snapshots of one instrument; 0 for none. Only where the publisher
    /// decides what a subscriber is sent.
    pub min_interval: Nanos,
    /// Where it can be reached by RDMA; `None` when it did not offer that.
    pub offer: Option<&'a RdmaOffer>,
}

/// A session that is ready to be attached.
#[derive(Debug)]
pub struct Prepared<S, M> {
    /// For the sender.
    pub session: S,
    /// For everybody who wants to know how it does.
    pub monitor: M,
    /// For the subscriber.
    pub handover: Handover,
}

/// What the subscriber is given so that it can open its end.
#[derive(Debug)]
pub enum Handover {
    /// Descriptors of shared memory. They are handed over once the session is attached.
    Descriptors(SessionDescriptors),
    /// The publisher's end of a queue pair. The subscriber connects to it *before* the session is
    /// attached, because then the first write comes.
    Connect(RdmaAnswer),
}

/// A session could not be prepared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The subscriber offers what this fabric cannot use.
    #[error("{0}")]
    Unsuitable(String),
    /// Memory, descriptors or device resources are short.
    #[error("{0}")]
    Resources(String),
}
