//! Byte layouts of tapecast and nothing else: snapshots, directory entries, attach messages,
//! limits.
//!
//! Every byte that one process writes and another reads is described here, so this crate is the
//! contract between publisher, subscriber and every fabric. It never does I/O, never reads a clock
//! and contains no `unsafe`. A peer's bytes are parsed into views; a malformed record is a
//! [`WireError`], never a panic.
//!
//! ```text
//! record   = header (96 B) | bids (24 B each, best first) | asks (24 B each, best first)
//! page     = one 4096-byte pool buffer that holds one or more records
//! ```

#![forbid(unsafe_code)]

#[cfg(not(target_endian = "little"))]
compile_error!(
    "tapecast's records are little-endian in memory; big-endian hosts are not supported"
);

pub mod attach;
mod directory;
mod encode;
mod error;
pub mod limits;
pub mod rdma;
mod snapshot;
mod units;

pub use directory::{Instrument, InstrumentEntry, SYMBOL_BYTES, VENUE_BYTES};
pub use encode::{SnapshotFields, encode_padding, encode_snapshot};
pub use error::WireError;
pub use snapshot::{Flags, Kind, Level, Snapshot, SnapshotHeader, TradingStatus, record_len_of};
pub use units::{Epoch, InstrumentId, Nanos, Position, Sequence, SessionId};

/// Version of every layout in this crate. Publisher and subscriber must agree on it.
pub const WIRE_VERSION: u16 = 3;

/// Price of an empty side or an absent trade: `i64::MAX`, the convention of DBN (`UNDEF_PRICE`).
pub const UNDEFINED_PRICE: i64 = i64::MAX;

/// One unit of price is this fraction of the currency unit: prices are `i64` in 1e-9.
pub const PRICE_SCALE: i64 = 1_000_000_000;
