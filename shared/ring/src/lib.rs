//! Broadcast ring, remote ring, latest table and session cell over shared memory.
//!
//! Everything here is arithmetic over [`Words`]: runs of 64-bit words that another process (or a
//! network card) reads and writes at the same time. This crate maps no memory, makes no system
//! call, waits for nobody and knows neither sessions nor sockets. It never shows such memory as
//! `&[u8]`, except where a gate protects it ([`GatedReader`], [`GatedRemoteReader`]); and what it
//! reads there is parsed, never asserted.
//!
//! ```text
//!  publisher writes                              subscriber writes
//!  ┌─ region ───────────────────────────┐        ┌─ cell ──────────────┐
//!  │ header │ directory │ latest │ ring │        │ consumed, counters, │
//!  └────────────────────────────────────┘        │ latency, armed      │
//!    one for all sessions, read-only there       └─────────────────────┘
//!                                                  one per session
//! ```
//!
//! | module | what | who writes |
//! |---|---|---|
//! | [`broadcast`] | one ring for any number of readers that the writer does not know | publisher |
//! | [`latest`] | newest record of every instrument | publisher |
//! | [`directory`] | what an instrument id means | publisher |
//! | [`region`] | the above in one piece of memory, with a header | publisher |
//! | [`cell`] | what one session tells the publisher | subscriber |
//! | [`remote`] | one session's own ring, filled from afar | publisher |
//!
//! Under `--cfg loom` the atomics are loom's and memory comes from [`WordsMut::heap`] only.

pub mod broadcast;
pub mod cell;
pub mod directory;
pub mod latest;
mod record;
pub mod region;
pub mod remote;
mod sync;
mod words;

#[cfg(not(loom))]
pub use broadcast::GatedReader;
pub use broadcast::{BroadcastReader, BroadcastWriter, Full};
pub use cell::{CellReader, CellWriter};
pub use directory::{DirectoryReader, DirectoryWriter};
pub use latest::{LatestReader, LatestWriter};
pub use record::{MIN_RECORD_BYTES, RawRecord, ReadError, RecordBuffer, RecordBytes, RecordHead};
pub use region::{RegionLayout, RegionReader, RegionWriter};
#[cfg(not(loom))]
pub use remote::GatedRemoteReader;
pub use remote::{RemoteCursor, RemoteReader};
pub use words::{Words, WordsMut};
