//! One region of shared memory: everything that a publisher shows to its subscribers.
//!
//! ```text
//! header (4096 bytes), every line 128 bytes and with one reason to be written
//!   line 0   identity   magic | layout version, wire version | epoch | total bytes | ring bytes |
//!                       instruments, levels | directory offset | latest offset | ring offset
//!   line 1   intent     of the broadcast ring
//!   line 2   tail       of the broadcast ring, and the channel sequence there
//!   line 3   state      running, closing, closed | Unix ns since when the feed is silent, or 0
//!   line 4   heartbeat  Unix ns; whether the sender is awake
//!   line 5   wake       rises with every batch; blocked readers wait on its low 32 bits (futex)
//!   line 6   life       position at which the present epoch began; 0 in a new region
//! then the sections of [`RegionLayout`]
//! ```
//!
//! The publisher creates the region in zeroed memory and is the only one that writes it. A
//! subscriber maps it read-only and believes nothing: [`RegionReader::open`] works the layout out
//! from the header's numbers and compares, keeps what it has checked, and never reads it again.
//!
//! A later publisher may take the region over ([`RegionWriter::resume`]). Then epoch and life
//! change, tables and directory are emptied, and the ring goes on where it was; [`life`] says how a
//! reader of the life before notices.

mod layout;
pub mod life;
mod reader;
mod writer;

pub use layout::{LayoutError, REGION_HEADER_BYTES, RegionLayout};
pub use life::{LifeReader, LifeWriter};
pub use reader::{RegionError, RegionReader};
pub use writer::{CreateError, RegionHeader, RegionWriter, ResumeError};

use crate::words::LINE_WORDS;

/// Version of the region's layout. Counts up with every change to this module's diagram.
pub const REGION_LAYOUT_VERSION: u32 = 2;

/// First word of a region.
const MAGIC: u64 = u64::from_le_bytes(*b"tapecast");

const MAGIC_WORD: usize = 0;
const VERSIONS_WORD: usize = 1;
const EPOCH_WORD: usize = 2;
const TOTAL_BYTES_WORD: usize = 3;
const RING_BYTES_WORD: usize = 4;
const TABLES_WORD: usize = 5;
const DIRECTORY_OFFSET_WORD: usize = 6;
const LATEST_OFFSET_WORD: usize = 7;
const RING_OFFSET_WORD: usize = 8;
const BROADCAST_CONTROL_WORD: usize = LINE_WORDS;
const STATE_WORD: usize = 3 * LINE_WORDS;
const FEED_SILENT_WORD: usize = 3 * LINE_WORDS + 1;
const HEARTBEAT_WORD: usize = 4 * LINE_WORDS;
const SENDER_ACTIVITY_WORD: usize = 4 * LINE_WORDS + 1;
const WAKE_WORD: usize = 5 * LINE_WORDS;
const LIFE_START_WORD: usize = 6 * LINE_WORDS;

/// What the publisher says about the region's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum RegionState {
    /// Records are published.
    Running = 1,
    /// The last records are being published.
    Closing = 2,
    /// Nothing follows.
    Closed = 3,
}

impl RegionState {
    /// Reads the word. One that this release does not know means that nothing here can be relied
    /// on any more, like [`RegionState::Closed`].
    const fn from_word(word: u64) -> Self {
        match word {
            1 => Self::Running,
            2 => Self::Closing,
            _ => Self::Closed,
        }
    }
}

/// Whether the sender is awake, for whoever wakes its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum SenderActivity {
    /// It sleeps until somebody rings.
    Parked = 0,
    /// It takes turns, so the tail may move at any moment.
    Active = 1,
}

impl SenderActivity {
    const fn from_word(word: u64) -> Self {
        if word == 0 { Self::Parked } else { Self::Active }
    }
}
