//! Why sessions end against their will, in the words that the subscriber is told.

use crate::credit::Liar;
use crate::lag::{Lag, LagLimit};

/// Why a session must be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Eviction {
    /// Its subscriber claimed what cannot be true.
    #[error(transparent)]
    Liar(#[from] Liar),
    /// A work request of it failed.
    #[error("a write into the subscriber's memory failed: it is gone or its memory was withdrawn")]
    Unreachable,
    /// It asked to be disconnected rather than conflated, and would have had to be conflated.
    #[error(
        "the subscriber asked to be disconnected rather than conflated, and what it can take now \
         (ring, receives, work requests) is used up: read faster, bring a larger ring, or attach \
         with the policy conflate"
    )]
    Overrun,
    /// It asked to be disconnected rather than to lag.
    #[error(
        "the subscriber asked to be disconnected rather than to lag, and is {} bytes and {} ms \
         behind, of which {} bytes and {} ms are allowed (0: any): read faster, or attach with the \
         policy conflate",
        lag.bytes, lag.time.0 / 1_000_000, limit.bytes, limit.time.0 / 1_000_000
    )]
    Lagging {
        /// How far it is behind.
        lag: Lag,
        /// How far it may be.
        limit: LagLimit,
    },
    /// It is lossless, and stopped all others.
    #[error(
        "evicted: a lossless subscriber that reads nothing for {seconds} s stops all others; read \
         faster, or attach with the conflating policy"
    )]
    Stalled {
        /// How long, in seconds.
        seconds: u64,
    },
    /// It gave no sign of life.
    #[error("the subscriber gave no sign of life for {silent_ns} ns: it is stopped or gone")]
    Silent {
        /// How long, in nanoseconds.
        silent_ns: u64,
    },
}
