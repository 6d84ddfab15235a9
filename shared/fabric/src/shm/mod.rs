//! Shared memory: one ring that every subscriber on this machine reads, and nobody else writes.
//!
//! A **region** (a sealed memfd, mapped read-only by subscribers) holds the broadcast ring, the
//! latest table and the directory. Each session has a **cell**, one page that its subscriber
//! writes: consumed position, counts, whether it waits on its descriptor. A publish is one copy
//! into the ring and one into the latest table, however many sessions there are.
//!
//! ```text
//!   conductor: ShmHost ── prepare ──► ShmSession ──► sender: ShmFabric ═══╗ region (read-only there)
//!                 └─ SessionDescriptors ─► SCM_RIGHTS ─► ShmEndpoint ◄════╝
//!                                                          │  ▲ futex / one byte
//!   waker thread: Waker ◄──── wake word ◄── flush          ▼  │
//!                   └──────────── wakes ◄──────────────── cell: armed
//! ```
//!
//! # Rules
//! - The sender wakes nobody: it raises the wake word. The [`Waker`]'s thread makes the calls, and
//!   readers that wake up help. A helper that stops delays nobody, because the waker goes on.
//! - A subscriber that is slow, stopped, dead or hostile costs the others nothing: the writer does
//!   not look at it, unless it is lossless, which only the publisher's configuration can allow.
//! - What a subscriber writes into its cell is checked before it decides anything.
//! - Readers that block sleep on one shared word. A hostile one can wake the others for nothing, or
//!   keep them from being woken, for 100 ms at most; it cannot with [`WaitStrategy::Fd`], where
//!   each has a socket of its own.
//! - Memory is allocated before it is used, and sealed in size, so that nobody gets SIGBUS later.
//!
//! [`WaitStrategy::Fd`]: crate::WaitStrategy::Fd
//!
//! # Where a session begins
//! The sender attaches a session between two batches, and notes position and channel sequence in
//! the session's cell. The subscriber delivers from the latest table what is not newer than that
//! sequence, then the ring from that position. So it sees each snapshot that was the newest when
//! it was attached, and each that was published afterwards, once.
//!
//! # A region that outlives its publisher
//! The next publisher takes it over where the tail is ([`ShmHost::resume`]), with another epoch. A
//! session of the life before delivers what was committed to the last record and is closed then:
//! it never delivers a record of another epoch, and before it uses something out of table or
//! directory it asks whose they are. A session that succeeds it ([`ShmEndpoint::open_after`])
//! begins where the new life began, so it sees that life from its first snapshot on.

mod batch;
mod endpoint;
mod fabric;
mod futex;
mod host;
mod identity;
mod joining;
mod mapping;
mod memory;
mod rests;
mod session;
mod wait;
mod waker;
mod walk;

pub use endpoint::{OpenError, ShmEndpoint};
pub use fabric::ShmFabric;
pub use host::{CreateError, PrepareError, ResumeError, Sealing, Shm, ShmConfig, ShmHost};
pub use identity::{RegionIdentity, RegionLife};
pub use mapping::MappingError;
pub use memory::{MemoryLimit, MemoryShortage, check_memory};
pub use session::{SessionDescriptors, SessionMonitor, ShmSession};
pub use waker::{Waker, WakerThread};

/// Each part may move to the thread that it is for.
const _: () = {
    const fn sends<T: Send>() {}
    const fn shares<T: Send + Sync>() {}
    sends::<ShmFabric>();
    sends::<ShmEndpoint>();
    sends::<ShmSession>();
    sends::<Waker>();
    shares::<ShmHost>();
    shares::<SessionMonitor>();
};

#[cfg(test)]
mod tests;
