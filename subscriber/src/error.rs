//! What can go wrong, with the cause and the remedy.

use core::time::Duration;
use std::io;

use tapecast_control::client::{AttachError, TargetError};
use tapecast_fabric::shm::OpenError;
#[cfg(feature = "verbs")]
use tapecast_fabric::verbs::VerbsError;

use crate::state::EndReason;

/// Another choice of instruments is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// Nobody knows this symbol, or it is not received.
    #[error(
        "unknown symbol {symbol:?}: write it as the venue does, see `Subscriber::instruments`; one \
         that is yet to appear needs `allow_unknown_symbols`"
    )]
    Unknown {
        /// The symbol.
        symbol: String,
    },
    /// No instrument would be left.
    #[error("no instrument would be left to receive: drop the subscription instead")]
    NothingLeft,
}

/// A subscription could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The publisher could not be reached, or refused.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Nobody came within [`crate::SubscriberBuilder::wait_for_publisher`].
    #[error("waited {waited:?} for a publisher: {source}")]
    NoPublisher {
        /// How long it was waited for.
        waited: Duration,
        /// The last answer.
        source: AttachError,
    },
    /// The memory that the publisher handed over cannot be used.
    #[error("the session's memory cannot be used: {0}")]
    Memory(#[from] OpenError),
    /// The address of [`crate::SubscriberBuilder::connect_to`] is none.
    #[error("cannot connect: {0}")]
    Address(#[from] TargetError),
    /// A session over the network without certificates.
    #[error(
        "{address} is not a loopback address, and beyond this machine a session needs TLS: give \
         the authority's certificate, this subscriber's certificate and its key with `.tls(..)`, \
         or --ca, --cert and --key on the command line"
    )]
    Unprotected {
        /// The address.
        address: String,
    },
    /// This build leaves RDMA out.
    #[error(
        "cannot connect to {address}: this build of the subscriber has no RDMA; build it with \
         feature `verbs`, or attach over shared memory on the publisher's machine (`.socket(..)`, \
         --socket)"
    )]
    NoRdma {
        /// The address.
        address: String,
    },
    /// The RDMA device, its memory or its queue pair cannot be had.
    #[cfg(feature = "verbs")]
    #[error("no session over RDMA: {0}")]
    Rdma(#[from] VerbsError),
    /// This process may not have the thread or descriptor that a subscription needs.
    #[error("cannot {action}: {source}; raise this process's limits (ulimit -n, ulimit -u)")]
    Resources {
        /// What was attempted.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl ConnectError {
    /// Whether a later attempt can succeed although nobody changes this program or the publisher's
    /// release.
    pub(crate) const fn may_pass(&self) -> bool {
        !matches!(
            self,
            Self::Address(_)
                | Self::Unprotected { .. }
                | Self::NoRdma { .. }
                | Self::Attach(AttachError::Version { .. })
                | Self::Memory(OpenError::Region(_) | OpenError::Descriptors { .. })
        )
    }
}

/// A poll could not deliver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PollError {
    /// The subscription is over and everything was delivered. Every later poll says the same.
    #[error("the subscription has ended: {0}")]
    Ended(EndReason),
    /// The session met bytes that it cannot use, or its connection broke, and it was given up. With
    /// reconnection on, the SDK attaches again by itself: go on polling.
    #[error("session given up: {0}")]
    Session(#[from] tapecast_fabric::PollError),
}

/// Waiting failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The fabric cannot wait.
    #[error(transparent)]
    Fabric(#[from] tapecast_fabric::WaitError),
    /// The system refused to wait on the subscription's descriptors.
    #[error("cannot wait on the subscription's descriptor: {0}")]
    Descriptor(#[from] io::Error),
}
