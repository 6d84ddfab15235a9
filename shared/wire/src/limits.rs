//! Every maximum in one place, with the relations between them proven at compile time.

use crate::directory::InstrumentEntry;
use crate::snapshot::{Level, SnapshotHeader};

/// Sessions one publisher serves at once.
pub const MAX_SUBSCRIBERS: usize = 64;

/// Bytes of one pool page.
pub const PAGE_BYTES: usize = 4096;

/// Pages in the pool.
pub const POOL_PAGES: usize = 1024;

/// Bytes of the snapshot header.
pub const HEADER_BYTES: usize = size_of::<SnapshotHeader>();

/// Bytes of one level.
pub const LEVEL_BYTES: usize = size_of::<Level>();

/// Levels per side of a snapshot unless configured otherwise.
pub const DEFAULT_LEVELS_PER_SIDE: usize = 10;

/// Most levels per side that fit into one page.
pub const MAX_LEVELS_PER_SIDE: usize = (PAGE_BYTES - HEADER_BYTES) / (2 * LEVEL_BYTES);

/// Records start at multiples of this in a ring: one cache line, and the unit of the RDMA
/// immediate.
pub const RECORD_ALIGN_BYTES: usize = 64;

/// Records start and end at multiples of this in a page.
pub const WORD_BYTES: usize = 8;

/// Bytes of one directory entry.
pub const INSTRUMENT_ENTRY_BYTES: usize = size_of::<InstrumentEntry>();

/// Most instruments a directory can be configured for.
pub const MAX_INSTRUMENTS: usize = 1 << 20;

/// Smallest and largest ring.
pub const MIN_RING_BYTES: u64 = 64 * 1024;
/// Largest ring.
pub const MAX_RING_BYTES: u64 = 1 << 34;

const _: () = assert!(HEADER_BYTES == 96 && HEADER_BYTES.is_multiple_of(WORD_BYTES));
const _: () = assert!(LEVEL_BYTES == 24 && LEVEL_BYTES.is_multiple_of(WORD_BYTES));
const _: () = assert!(INSTRUMENT_ENTRY_BYTES == 64);
const _: () = assert!(MAX_LEVELS_PER_SIDE == 83);
const _: () = assert!(DEFAULT_LEVELS_PER_SIDE <= MAX_LEVELS_PER_SIDE);
const _: () = assert!(PAGE_BYTES <= u16::MAX as usize, "record_len is a u16");
const _: () = assert!(MIN_RING_BYTES >= 4 * PAGE_BYTES as u64);

/// Largest record for a number of levels per side, in bytes.
#[must_use]
pub const fn record_bytes_max(levels_per_side: usize) -> usize {
    HEADER_BYTES + 2 * levels_per_side * LEVEL_BYTES
}

/// Length of a time slot of publishing, in nanoseconds: of each, subscribers tell the latency of
/// the first snapshot by itself.
pub const SAMPLE_SLOT_NS: u64 = 100_000_000;
