//! Fabrics of tapecast: how snapshots travel from one publisher to its subscribers' memory.
//!
//! A fabric has two ends. [`Fabric`] is the publisher's: one sender thread drives it, and the
//! daemon takes it as a type parameter. [`Endpoint`] is the subscriber's; [`Receiver`] joins it to
//! the accounting of `tapecast-core`, so that every fabric delivers with the same promises:
//!
//! - each instrument's newest snapshot first, then everything that follows, without gap or
//!   duplicate;
//! - what a slow subscriber does not see is counted, and published = delivered + conflated;
//! - no subscriber can delay or harm another one, or the publisher.
//!
//! ```text
//! source ─ PageWriter ─ Filled ─► channel ─► sender ─ Shared ─► Fabric ══► Endpoint ─ Receiver ─► app
//!             pool                  Bell ─────►│                  │ ▲
//!                                     └──► Waker (shm) ─ wakes ───┘ └─ session cell: consumed, counts
//! ```
//!
//! This crate and `tapecast-ring` are the only homes of `unsafe`. The sender's path (`publish`,
//! `flush`, `turn`) makes no system call, takes no lock and allocates nothing.

mod delivery;
mod endpoint;
mod fabric;
pub mod park;
pub mod pool;
mod receiver;
pub mod shm;
pub mod sim;

pub use delivery::Delivery;
pub use endpoint::{ChannelState, Endpoint, PollError, WaitError, WaitStrategy};
pub use fabric::{
    AttachError, DirectoryFull, Fabric, Full, LatencyReport, SessionCounts, SessionStats,
};
pub use receiver::Receiver;
