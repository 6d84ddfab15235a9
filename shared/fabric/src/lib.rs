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
//! source ─ PageWriter ─ Filled ─► channel ─► sender ─ Shared ─► Fabric ══► Endpoint ─ Receiver ─►
//! app
//!             pool                  Bell ─────►│                  │ ▲
//! └──► Waker (shm) ─ wakes ───┘ └─ session cell: consumed, counts
//! ```
//!
//! [`shm`] has one ring that all subscribers of this host read. [`rings`] is what fabrics with a
//! ring for each session have in common: [`sim`], a deterministic model of a network, and `verbs`,
//! RDMA over RoCE v2 (feature `verbs`).
//!
//! This crate and `tapecast-ring` are the only homes of `unsafe`. The sender's path (`publish`,
//! `flush`, `turn`) takes no lock and allocates nothing, and makes no system call, except that a
//! device may take its doorbell by one (Soft-RoCE does; network cards do not).

mod delivery;
mod endpoint;
mod fabric;
mod host;
mod interface_statistics;
mod kernel_clock;
pub mod park;
pub mod pool;
mod receiver;
pub mod rings;
pub mod shm;
pub mod sim;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use delivery::Delivery;
pub use endpoint::{ChannelState, Endpoint, PollError, WaitError, WaitStrategy};
pub use fabric::{
    AttachError, DirectoryFull, Fabric, Full, LatencyReport, SendQueueStats, SessionCounts,
    SessionStats,
};
pub use host::{Handover, Host, HostError, Monitor, NetworkStats, Prepared, QueuePairStates, Wish};
pub use interface_statistics::interface_statistics;
pub use kernel_clock::KernelClock;
pub use receiver::Receiver;
pub use tapecast_ring::cell::{
    CELL_SAMPLES, CELL_TRANSIT_WORDS, CellClock as ClockReport, CellTiming as Timing,
};
