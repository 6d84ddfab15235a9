//! Where everything lies in a region.

use tapecast_wire::limits::{
    MAX_INSTRUMENTS, MAX_LEVELS_PER_SIDE, MAX_RING_BYTES, MIN_RING_BYTES, PAGE_BYTES, WORD_BYTES,
    record_bytes_max,
};

use crate::directory::directory_words;
use crate::latest::LatestShape;

/// Bytes of the region header.
pub const REGION_HEADER_BYTES: usize = PAGE_BYTES;

/// Numbers that no region can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The ring's size is impossible.
    #[error(
        "ring of {bytes} bytes: choose a power of two from {MIN_RING_BYTES} to {MAX_RING_BYTES}"
    )]
    RingBytes {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The number of instruments is impossible.
    #[error("{instruments} instruments: choose a number from 1 to {MAX_INSTRUMENTS}")]
    Instruments {
        /// Number asked for.
        instruments: u64,
    },
    /// The number of levels is impossible.
    #[error("{levels} levels per side: choose a number from 1 to {MAX_LEVELS_PER_SIDE}")]
    Levels {
        /// Number asked for.
        levels: u64,
    },
}

/// Offsets and sizes in one region. Sections start on pages, in this order:
///
/// ```text
/// 0                  header        4096 bytes, see the module
/// directory_offset   directory     one line, then 64 bytes per instrument
/// latest_offset      latest table  one slot per instrument: stamp and the largest record
/// ring_offset        ring          ring_bytes
/// total_bytes
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLayout {
    ring_bytes: u64,
    instruments: usize,
    levels_per_side: usize,
    directory_offset: u64,
    latest_offset: u64,
    ring_offset: u64,
}

impl RegionLayout {
    /// The layout for a ring of `ring_bytes`, a power of two, and tables for so many instruments of
    /// so many levels per side.
    ///
    /// # Errors
    /// [`LayoutError`] names the number that is out of range, and the range.
    pub fn new(
        ring_bytes: u64,
        instruments: usize,
        levels_per_side: usize,
    ) -> Result<Self, LayoutError> {
        if !ring_bytes.is_power_of_two() || !(MIN_RING_BYTES..=MAX_RING_BYTES).contains(&ring_bytes)
        {
            return Err(LayoutError::RingBytes { bytes: ring_bytes });
        }
        if !(1..=MAX_INSTRUMENTS).contains(&instruments) {
            return Err(LayoutError::Instruments { instruments: instruments as u64 });
        }
        if !(1..=MAX_LEVELS_PER_SIDE).contains(&levels_per_side) {
            return Err(LayoutError::Levels { levels: levels_per_side as u64 });
        }
        let latest =
            LatestShape { instruments, record_bytes_max: record_bytes_max(levels_per_side) };
        let directory_offset = REGION_HEADER_BYTES as u64;
        let latest_offset = directory_offset + page_multiple(directory_words(instruments));
        let ring_offset = latest_offset + page_multiple(latest.words());
        Ok(Self {
            ring_bytes,
            instruments,
            levels_per_side,
            directory_offset,
            latest_offset,
            ring_offset,
        })
    }

    /// Bytes of the whole region, a multiple of the page size.
    #[must_use]
    pub const fn total_bytes(&self) -> u64 {
        self.ring_offset + self.ring_bytes
    }

    /// Bytes of the ring.
    #[must_use]
    pub const fn ring_bytes(&self) -> u64 {
        self.ring_bytes
    }

    /// Instruments that the tables have room for.
    #[must_use]
    pub const fn instruments(&self) -> usize {
        self.instruments
    }

    /// Levels per side of the largest record.
    #[must_use]
    pub const fn levels_per_side(&self) -> usize {
        self.levels_per_side
    }

    /// Byte offset of the directory.
    #[must_use]
    pub const fn directory_offset(&self) -> u64 {
        self.directory_offset
    }

    /// Byte offset of the latest table.
    #[must_use]
    pub const fn latest_offset(&self) -> u64 {
        self.latest_offset
    }

    /// Byte offset of the ring.
    #[must_use]
    pub const fn ring_offset(&self) -> u64 {
        self.ring_offset
    }

    /// Shape of the latest table.
    #[must_use]
    pub const fn latest(&self) -> LatestShape {
        LatestShape {
            instruments: self.instruments,
            record_bytes_max: record_bytes_max(self.levels_per_side),
        }
    }
}

const fn page_multiple(words: usize) -> u64 {
    (words * WORD_BYTES).next_multiple_of(PAGE_BYTES) as u64
}

// The largest region is far from overflowing, so no sum above needs a check.
const _: () = assert!(
    MAX_INSTRUMENTS as u128 * (2 * PAGE_BYTES as u128) + (MAX_RING_BYTES as u128) < 1 << 40
);
