//! One ring, one writer, any number of readers that the writer does not know.
//!
//! ```text
//! control   line 0: intent                  line 1: tail, channel sequence
//! data      records, each starting at a multiple of 64 bytes; one that would cross the end of the
//!           ring is preceded by padding up to the end
//!
//!            tail - capacity              position          tail      intent
//!   ─────────┼──────────────────────────────┼─────────────────┼──────────┼────────►  bytes written
//!            └─ may be overwritten from     └─ read next      └─ whole   └─ the writer may be
//!               intent - capacity on                             up to here   writing up to here
//! ```
//!
//! # Protocol
//! The writer (1) raises `intent` over everything that it is about to write, (2) `fence(Release)`,
//! (3) stores the record's words, and once per batch (4) stores `tail` with `Release`. A reader
//! loads `tail` with `Acquire` (pairs with 4), copies words, then `fence(Acquire)` (pairs with 2)
//! and loads `intent`. If one of the copied words came from a later lap, the two fences make the
//! `intent` of that lap visible, so it is more than a lap ahead of the reader's position: the copy
//! is thrown away. If it is not, every word is from the reader's own lap.
//!
//! `intent` is raised in strides of a sixteenth of the ring, so the line that every reader looks at
//! once per record changes rarely and stays in the readers' caches. The price is that a reader
//! counts as lapped up to one stride early.
//!
//! # Gate
//! Where readers must lose nothing, the writer is given a limit (the least consumed position plus
//! the capacity) and neither writes nor raises `intent` beyond it. See
//! [`BroadcastWriter::push_within`] and [`GatedReader`].

mod reader;
mod writer;

pub use reader::BroadcastReader;
#[cfg(not(loom))]
pub use reader::GatedReader;
pub use writer::{BroadcastWriter, Full};

use tapecast_wire::limits::{RECORD_ALIGN_BYTES, WORD_BYTES};

use crate::words::LINE_WORDS;

/// Words of the control block.
pub const BROADCAST_CONTROL_WORDS: usize = 2 * LINE_WORDS;

const INTENT_WORD: usize = 0;
pub(crate) const TAIL_WORD: usize = LINE_WORDS;
pub(crate) const CHANNEL_SEQUENCE_WORD: usize = LINE_WORDS + 1;

/// Fewest bytes of a ring: four of the smallest records, so that a writer alone does not lap a
/// reader that stands at the tail.
const MIN_CAPACITY_BYTES: u64 = 4 * RECORD_ALIGN_BYTES as u64;

/// Words that cannot be a broadcast ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BroadcastShapeError {
    /// The control block has the wrong size.
    #[error("broadcast control block of {have} words, but it has {BROADCAST_CONTROL_WORDS}")]
    Control {
        /// Words given.
        have: usize,
    },
    /// The capacity is no power of two or too small.
    #[error(
        "broadcast ring of {bytes} bytes: choose a power of two, at least {MIN_CAPACITY_BYTES}"
    )]
    Capacity {
        /// Bytes given.
        bytes: u64,
    },
    /// The control words left by an earlier writer contradict each other.
    #[error("broadcast ring has tail {tail} and intent {intent}: start from zeroed memory")]
    Positions {
        /// Tail found.
        tail: u64,
        /// Intent found.
        intent: u64,
    },
}

/// Capacity in bytes, when control block and data can be a ring.
fn check_shape(control: usize, data: usize) -> Result<u64, BroadcastShapeError> {
    if control != BROADCAST_CONTROL_WORDS {
        return Err(BroadcastShapeError::Control { have: control });
    }
    let bytes = (data * WORD_BYTES) as u64;
    if !bytes.is_power_of_two() || bytes < MIN_CAPACITY_BYTES {
        return Err(BroadcastShapeError::Capacity { bytes });
    }
    Ok(bytes)
}

const fn is_aligned(position: u64) -> bool {
    position.is_multiple_of(RECORD_ALIGN_BYTES as u64)
}
