//! The publisher's side of a region.

use tapecast_wire::limits::WORD_BYTES;
use tapecast_wire::{Epoch, Nanos, Position, WIRE_VERSION};

use super::{
    BROADCAST_CONTROL_WORD, DIRECTORY_OFFSET_WORD, EPOCH_WORD, FEED_SILENT_WORD, HEARTBEAT_WORD,
    LATEST_OFFSET_WORD, MAGIC, MAGIC_WORD, REGION_HEADER_BYTES, REGION_LAYOUT_VERSION,
    RING_BYTES_WORD, RING_OFFSET_WORD, RegionLayout, RegionReader, RegionState,
    SENDER_ACTIVITY_WORD, STATE_WORD, SenderActivity, TABLES_WORD, TOTAL_BYTES_WORD, VERSIONS_WORD,
    WAKE_WORD,
};
use crate::broadcast::{BROADCAST_CONTROL_WORDS, BroadcastShapeError, BroadcastWriter, Full};
use crate::directory::{DirectoryShapeError, DirectoryWriter, directory_words};
use crate::latest::{LatestShapeError, LatestWriter};
use crate::record::instrument_id_of;
use crate::sync::Ordering;
use crate::words::WordsMut;

/// Why memory could not be made a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// Less memory than the layout needs.
    #[error("region of {have} bytes, but the layout needs {need}")]
    Short {
        /// Bytes given.
        have: u64,
        /// Bytes of the layout.
        need: u64,
    },
    /// The memory has been used before.
    #[error("the memory for a region is not zeroed: create a new one")]
    NotZeroed,
    /// The ring could not be made.
    #[error(transparent)]
    Broadcast(#[from] BroadcastShapeError),
    /// The latest table could not be made.
    #[error(transparent)]
    Latest(#[from] LatestShapeError),
    /// The directory could not be made.
    #[error(transparent)]
    Directory(#[from] DirectoryShapeError),
}

/// The words of the header that change while the publisher runs.
#[derive(Debug)]
pub struct RegionHeader {
    words: WordsMut,
}

/// The publisher's side of a region: the one writer of all of it.
#[derive(Debug)]
pub struct RegionWriter {
    /// The ring.
    pub broadcast: BroadcastWriter,
    /// The latest table.
    pub latest: LatestWriter,
    /// The directory.
    pub directory: DirectoryWriter,
    /// State, silence of the feed, heartbeat, wake word.
    pub header: RegionHeader,
    words: WordsMut,
    layout: RegionLayout,
    epoch: Epoch,
}

impl RegionWriter {
    /// Makes zeroed memory a region in state running.
    ///
    /// # Errors
    /// [`CreateError`] when the memory is short or has been used.
    pub fn create(
        words: WordsMut,
        layout: &RegionLayout,
        epoch: Epoch,
    ) -> Result<Self, CreateError> {
        let (have, need) = (words.len_bytes() as u64, layout.total_bytes());
        let part = |offset: u64, len: usize| {
            words.part(offset as usize / WORD_BYTES, len).ok_or(CreateError::Short { have, need })
        };
        let header = part(0, REGION_HEADER_BYTES / WORD_BYTES)?;
        if header.atomics().iter().any(|word| word.load(Ordering::Relaxed) != 0) {
            return Err(CreateError::NotZeroed);
        }
        let control = part((BROADCAST_CONTROL_WORD * WORD_BYTES) as u64, BROADCAST_CONTROL_WORDS)?;
        let ring = part(layout.ring_offset(), layout.ring_bytes() as usize / WORD_BYTES)?;
        let latest = part(layout.latest_offset(), layout.latest().words())?;
        let directory = part(layout.directory_offset(), directory_words(layout.instruments()))?;
        let region = Self {
            broadcast: BroadcastWriter::new(control, ring)?,
            latest: LatestWriter::new(latest, layout.latest())?,
            directory: DirectoryWriter::new(directory)?,
            header: RegionHeader { words: header },
            words: words.clone(),
            layout: *layout,
            epoch,
        };
        region.header.set_state(RegionState::Running);
        region.write_identity();
        Ok(region)
    }

    /// Stores one encoded record in the latest table and appends it to the ring; returns the
    /// position after it. Readers see it after `broadcast.commit()`, so what the protocol of
    /// [`crate::latest`] asks for holds.
    ///
    /// # Panics
    /// As [`BroadcastWriter::push`] and [`LatestWriter::store`].
    #[inline]
    pub fn publish(&mut self, record: &[u8]) -> Position {
        let position = self.broadcast.push(record);
        self.latest.store(instrument_id_of(record), record);
        position
    }

    /// As [`Self::publish`], but only up to `limit`, see [`BroadcastWriter::push_within`].
    ///
    /// # Errors
    /// [`Full`]; nothing has happened then.
    ///
    /// # Panics
    /// As [`Self::publish`].
    #[inline]
    pub fn publish_within(&mut self, limit: Position, record: &[u8]) -> Result<Position, Full> {
        let position = self.broadcast.push_within(limit, record)?;
        self.latest.store(instrument_id_of(record), record);
        Ok(position)
    }

    /// Where everything lies.
    #[must_use]
    pub const fn layout(&self) -> &RegionLayout {
        &self.layout
    }

    /// Life of the publisher.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// A reader of this region in the same process, for instance for a waker thread.
    #[must_use]
    pub fn reader(&self) -> RegionReader {
        RegionReader::trusted(self.words.reader(), self.layout, self.epoch)
    }

    /// Identity last, and its magic last of all: a reader that sees the magic sees the rest.
    fn write_identity(&self) {
        let words = self.words.atomics();
        let layout = &self.layout;
        let tables = layout.instruments() as u64 | (layout.levels_per_side() as u64) << 32;
        let versions = u64::from(REGION_LAYOUT_VERSION) | u64::from(WIRE_VERSION) << 32;
        for (word, value) in [
            (VERSIONS_WORD, versions),
            (EPOCH_WORD, self.epoch.0),
            (TOTAL_BYTES_WORD, layout.total_bytes()),
            (RING_BYTES_WORD, layout.ring_bytes()),
            (TABLES_WORD, tables),
            (DIRECTORY_OFFSET_WORD, layout.directory_offset()),
            (LATEST_OFFSET_WORD, layout.latest_offset()),
            (RING_OFFSET_WORD, layout.ring_offset()),
        ] {
            words[word].store(value, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire load of the magic in `RegionReader::open`.
        words[MAGIC_WORD].store(MAGIC, Ordering::Release);
    }
}

impl RegionHeader {
    /// Says where the publisher is in its life. Release: what was committed before is visible to
    /// whoever sees this state.
    pub fn set_state(&self, state: RegionState) {
        self.words.atomics()[STATE_WORD].store(state as u64, Ordering::Release);
    }

    /// Says since when the feed is silent; 0 for that it is not. Raise the wake word afterwards, so
    /// that blocked readers look.
    pub fn set_feed_silent_since(&self, since: Nanos) {
        self.words.atomics()[FEED_SILENT_WORD].store(since.0, Ordering::Relaxed);
    }

    /// Says that the sender lives.
    #[inline]
    pub fn set_heartbeat(&self, now: Nanos) {
        self.words.atomics()[HEARTBEAT_WORD].store(now.0, Ordering::Relaxed);
    }

    /// Says whether the sender is awake.
    #[inline]
    pub fn set_sender_activity(&self, activity: SenderActivity) {
        self.words.atomics()[SENDER_ACTIVITY_WORD].store(activity as u64, Ordering::Release);
    }

    /// Raises the wake word by one, after a commit, and returns it. Wakes nobody. Release: a reader
    /// that sees the new value sees the tail committed before.
    #[inline]
    pub fn raise_wake(&self) -> u32 {
        let wake = &self.words.atomics()[WAKE_WORD];
        // This is the only writer, so a load and a store do; a read-modify-write would be a locked
        // instruction on the sender's path.
        let next = wake.load(Ordering::Relaxed).wrapping_add(1);
        wake.store(next, Ordering::Release);
        next as u32
    }
}
