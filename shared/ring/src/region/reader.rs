//! A subscriber's side of a region.

use tapecast_wire::limits::{RECORD_ALIGN_BYTES, WORD_BYTES};
use tapecast_wire::{Epoch, Nanos, Position, Sequence, WIRE_VERSION};

use super::{
    BROADCAST_CONTROL_WORD, DIRECTORY_OFFSET_WORD, EPOCH_WORD, FEED_SILENT_WORD, HEARTBEAT_WORD,
    LATEST_OFFSET_WORD, LIFE_START_WORD, LayoutError, LifeReader, MAGIC, MAGIC_WORD,
    REGION_HEADER_BYTES, REGION_LAYOUT_VERSION, RING_BYTES_WORD, RING_OFFSET_WORD, RegionLayout,
    RegionState, SENDER_ACTIVITY_WORD, STATE_WORD, SenderActivity, TABLES_WORD, TOTAL_BYTES_WORD,
    VERSIONS_WORD, WAKE_WORD,
};
use crate::broadcast::{BROADCAST_CONTROL_WORDS, BroadcastReader, BroadcastShapeError};
use crate::directory::{DirectoryReader, DirectoryShapeError, directory_words};
use crate::latest::{LatestReader, LatestShapeError};
use crate::sync::Ordering;
use crate::words::Words;

/// Why memory is not a region that this side can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// Less memory than the header, or than the header says.
    #[error("region of {have} bytes, but it says that it has {need}: it is cut or damaged")]
    Short {
        /// Bytes given.
        have: u64,
        /// Bytes needed.
        need: u64,
    },
    /// Not a region, or one that is still being created.
    #[error("not a tapecast region: its first word is {found:#018x}")]
    Magic {
        /// First word.
        found: u64,
    },
    /// Another version.
    #[error(
        "region of layout version {layout} and wire version {wire}, but this side reads \
         {REGION_LAYOUT_VERSION} and {WIRE_VERSION}: run the same release on both ends"
    )]
    Version {
        /// Layout version in the header.
        layout: u32,
        /// Wire version in the header.
        wire: u32,
    },
    /// Sizes that no region has.
    #[error("damaged region header: {0}")]
    Layout(#[from] LayoutError),
    /// An offset or size that is not where the layout puts it.
    #[error("damaged region header: {field} is {found}, the layout puts it at {expected}")]
    Offset {
        /// Which one.
        field: &'static str,
        /// In the header.
        found: u64,
        /// By the layout.
        expected: u64,
    },
    /// A life that begins where no record can.
    #[error("damaged region header: the publisher's life begins at position {found}")]
    LifeStart {
        /// In the header.
        found: u64,
    },
    /// The ring is impossible.
    #[error("damaged region: {0}")]
    Broadcast(#[from] BroadcastShapeError),
    /// The latest table is impossible.
    #[error("damaged region: {0}")]
    Latest(#[from] LatestShapeError),
    /// The directory is impossible.
    #[error("damaged region: {0}")]
    Directory(#[from] DirectoryShapeError),
}

/// A subscriber's side of a region. Cheap to clone; what it hands out shares the mapping.
#[derive(Clone, Debug)]
pub struct RegionReader {
    words: Words,
    layout: RegionLayout,
    life: LifeReader,
    life_start: Position,
}

impl RegionReader {
    /// Checks a region's header against the layout that its numbers give and against the size of
    /// the mapping.
    ///
    /// # Errors
    /// [`RegionError`] when anything does not fit. Never panics, whatever the words.
    pub fn open(words: Words) -> Result<Self, RegionError> {
        let have = words.len_bytes() as u64;
        if have < REGION_HEADER_BYTES as u64 {
            return Err(RegionError::Short { have, need: REGION_HEADER_BYTES as u64 });
        }
        let header = words.atomics();
        // Acquire: pairs with the Release store of the magic in `RegionWriter::create`.
        let found = header[MAGIC_WORD].load(Ordering::Acquire);
        if found != MAGIC {
            return Err(RegionError::Magic { found });
        }
        let load = |word: usize| header[word].load(Ordering::Relaxed);
        let versions = load(VERSIONS_WORD);
        let (layout, wire) = (versions as u32, (versions >> 32) as u32);
        if layout != REGION_LAYOUT_VERSION || wire != u32::from(WIRE_VERSION) {
            return Err(RegionError::Version { layout, wire });
        }
        let layout = checked_layout(load)?;
        if have < layout.total_bytes() {
            return Err(RegionError::Short { have, need: layout.total_bytes() });
        }
        let (epoch, life_start) = (load(EPOCH_WORD), load(LIFE_START_WORD));
        if !life_start.is_multiple_of(RECORD_ALIGN_BYTES as u64) {
            return Err(RegionError::LifeStart { found: life_start });
        }
        let have = words.len_bytes() as u64;
        Self::trusted(words, layout, Epoch(epoch), Position(life_start))
            .ok_or(RegionError::Short { have, need: REGION_HEADER_BYTES as u64 })
    }

    /// A reader beside the writer that has just made the region its own. `None` without a header.
    pub(super) fn trusted(
        words: Words,
        layout: RegionLayout,
        epoch: Epoch,
        life_start: Position,
    ) -> Option<Self> {
        let life = LifeReader::new(words.part(EPOCH_WORD, 1)?, epoch);
        Some(Self { words, layout, life, life_start })
    }

    /// A reader of the ring that starts at `at`.
    ///
    /// # Errors
    /// [`RegionError`]; not after a successful [`Self::open`].
    pub fn broadcast_at(&self, at: Position) -> Result<BroadcastReader, RegionError> {
        let control =
            self.part((BROADCAST_CONTROL_WORD * WORD_BYTES) as u64, BROADCAST_CONTROL_WORDS)?;
        let ring =
            self.part(self.layout.ring_offset(), self.layout.ring_bytes() as usize / WORD_BYTES)?;
        Ok(BroadcastReader::new(control, ring, at)?)
    }

    /// A reader of the ring that starts at the tail as it is now (loaded with Acquire).
    ///
    /// # Errors
    /// As [`Self::broadcast_at`].
    pub fn broadcast(&self) -> Result<BroadcastReader, RegionError> {
        let mut reader = self.broadcast_at(Position(0))?;
        reader.seek(reader.tail());
        Ok(reader)
    }

    /// A reader of the latest table.
    ///
    /// # Errors
    /// As [`Self::broadcast_at`].
    pub fn latest(&self) -> Result<LatestReader, RegionError> {
        let shape = self.layout.latest();
        Ok(LatestReader::new(self.part(self.layout.latest_offset(), shape.words())?, shape)?)
    }

    /// A reader of the directory.
    ///
    /// # Errors
    /// As [`Self::broadcast_at`].
    pub fn directory(&self) -> Result<DirectoryReader, RegionError> {
        let words = directory_words(self.layout.instruments());
        Ok(DirectoryReader::new(self.part(self.layout.directory_offset(), words)?)?)
    }

    /// Where everything lies.
    #[must_use]
    pub const fn layout(&self) -> &RegionLayout {
        &self.layout
    }

    /// Life of the publisher when this reader was opened.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.life.epoch()
    }

    /// Where that life began in the ring.
    #[must_use]
    pub const fn life_start(&self) -> Position {
        self.life_start
    }

    /// Whether that life is the region's present one. When it is, everything that was copied from
    /// table or directory before this call was stored by it.
    #[must_use]
    #[inline]
    pub fn is_current(&self) -> bool {
        self.life.is_current()
    }

    /// Where the publisher is in its life.
    #[must_use]
    pub fn state(&self) -> RegionState {
        // Acquire: pairs with `RegionHeader::set_state`.
        RegionState::from_word(self.words.atomics()[STATE_WORD].load(Ordering::Acquire))
    }

    /// Since when the feed is silent, by the publisher's clock, Unix ns; 0 while it is not.
    #[must_use]
    #[inline]
    pub fn feed_silent_since(&self) -> Nanos {
        Nanos(self.words.atomics()[FEED_SILENT_WORD].load(Ordering::Relaxed))
    }

    /// When the sender last said that it lives, Unix ns; 0 for not yet.
    #[must_use]
    pub fn heartbeat(&self) -> Nanos {
        Nanos(self.words.atomics()[HEARTBEAT_WORD].load(Ordering::Relaxed))
    }

    /// Whether the sender is awake.
    #[must_use]
    pub fn sender_activity(&self) -> SenderActivity {
        let word = self.words.atomics()[SENDER_ACTIVITY_WORD].load(Ordering::Acquire);
        SenderActivity::from_word(word)
    }

    /// The ring's tail (Acquire).
    #[must_use]
    pub fn tail(&self) -> Position {
        let word = BROADCAST_CONTROL_WORD + crate::broadcast::TAIL_WORD;
        Position(self.words.atomics()[word].load(Ordering::Acquire))
    }

    /// Channel sequence of the newest committed record, or of one a moment older.
    #[must_use]
    pub fn channel_sequence(&self) -> Sequence {
        let word = BROADCAST_CONTROL_WORD + crate::broadcast::CHANNEL_SEQUENCE_WORD;
        Sequence(self.words.atomics()[word].load(Ordering::Relaxed))
    }

    /// The wake word now (Acquire).
    #[must_use]
    pub fn wake(&self) -> u32 {
        self.words.atomics()[WAKE_WORD].load(Ordering::Acquire) as u32
    }

    /// Address of the wake word, for the kernel to wait on (futex): valid as long as a clone of
    /// this reader lives, perhaps read-only. This process reads it through [`Self::wake`] alone:
    /// the word is stored as 64 bits, of which the kernel looks at the low half.
    #[must_use]
    pub fn wake_address(&self) -> *const u32 {
        core::ptr::from_ref(&self.words.atomics()[WAKE_WORD]).cast()
    }

    fn part(&self, offset: u64, len: usize) -> Result<Words, RegionError> {
        let (have, need) = (self.words.len_bytes() as u64, self.layout.total_bytes());
        let part = self.words.part(offset as usize / WORD_BYTES, len);
        part.ok_or(RegionError::Short { have, need })
    }
}

/// The layout that the header's sizes give, when the header's offsets are the same.
fn checked_layout(load: impl Fn(usize) -> u64) -> Result<RegionLayout, RegionError> {
    let tables = load(TABLES_WORD);
    let (instruments, levels) = (tables as u32 as usize, (tables >> 32) as usize);
    let layout = RegionLayout::new(load(RING_BYTES_WORD), instruments, levels)?;
    for (field, word, expected) in [
        ("directory offset", DIRECTORY_OFFSET_WORD, layout.directory_offset()),
        ("latest offset", LATEST_OFFSET_WORD, layout.latest_offset()),
        ("ring offset", RING_OFFSET_WORD, layout.ring_offset()),
        ("total bytes", TOTAL_BYTES_WORD, layout.total_bytes()),
    ] {
        let found = load(word);
        if found != expected {
            return Err(RegionError::Offset { field, found, expected });
        }
    }
    Ok(layout)
}

const _: () = assert!(REGION_HEADER_BYTES.is_multiple_of(RECORD_ALIGN_BYTES));
