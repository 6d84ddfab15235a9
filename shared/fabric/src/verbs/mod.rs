//! The RDMA fabric: RoCE v2, over reliable connections.

mod completion;
mod config;
mod device;
mod error;
mod events;
mod ffi;
mod host;
mod inlet;
mod memlock;
mod memory;
mod network;
mod queue_pair;
mod receives;
mod route;
mod send_queue;

use crate::rings::{RingEndpoint, RingFabric, RingMonitor, RingSession};
pub use config::{EndpointConfig, MAX_GATHER, VerbsConfig};
pub use error::VerbsError;
pub use host::{Verbs, VerbsHost};
pub use inlet::{Connected, Offered, VerbsInlet};
pub use memlock::LockLimit;
pub use network::{NetworkCounts, VerbsBreaker, VerbsLine, VerbsNetwork};
pub use route::{DeviceChoice, RouteConfig, RouteError, flow_label};
pub use send_queue::SendCounts;

/// The publisher's end of the RDMA fabric.
pub type VerbsFabric = RingFabric<VerbsNetwork>;
/// What the conductor prepares for one subscriber.
pub type VerbsSession = RingSession<VerbsLine>;
/// Figures of one session, for any thread.
pub type VerbsMonitor = RingMonitor<VerbsBreaker>;
/// The subscriber's end of the RDMA fabric.
pub type VerbsEndpoint = RingEndpoint<VerbsInlet>;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
