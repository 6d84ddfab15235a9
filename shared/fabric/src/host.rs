//! The conductor's end of a fabric: it prepares sessions and looks at their figures.

use tapecast_core::Interest;
use tapecast_core::session::Eviction;
use tapecast_wire::Nanos;
use tapecast_wire::attach::Policy;
use tapecast_wire::rdma::{RdmaAnswer, RdmaOffer};

use crate::SessionStats;
use crate::shm::SessionDescriptors;

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

    /// Why nothing can be published any more, once that is so: the publisher has to end, and to be
    /// started again.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// Figures of one session. Any thread may look; the sender is not asked.
pub trait Monitor: Clone + Send + Sync + 'static {
    /// The figures now.
    fn stats(&self) -> SessionStats;

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
