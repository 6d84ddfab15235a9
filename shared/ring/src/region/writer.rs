//! The publisher's side of a region.

use tapecast_wire::limits::WORD_BYTES;
use tapecast_wire::{Epoch, Nanos, Position, WIRE_VERSION};

use super::{
    BROADCAST_CONTROL_WORD, DIRECTORY_OFFSET_WORD, EPOCH_WORD, FEED_SILENT_WORD, HEARTBEAT_WORD,
    LATEST_OFFSET_WORD, LIFE_START_WORD, LifeWriter, MAGIC, MAGIC_WORD, REGION_HEADER_BYTES,
    REGION_LAYOUT_VERSION, RING_BYTES_WORD, RING_OFFSET_WORD, RegionError, RegionLayout,
    RegionReader, RegionState, SENDER_ACTIVITY_WORD, STATE_WORD, SenderActivity, TABLES_WORD,
    TOTAL_BYTES_WORD, VERSIONS_WORD, WAKE_WORD,
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

/// Why a region that an earlier writer left could not be taken over. Nothing in it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// No region, one of another release, or a damaged one.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// Other sizes than those asked for.
    #[error(
        "it has a ring of {ring_bytes} bytes, {instruments} instruments and {levels} levels per \
         side, other numbers are configured"
    )]
    Layout {
        /// Bytes of its ring.
        ring_bytes: u64,
        /// Instruments in it.
        instruments: usize,
        /// Levels per side in it.
        levels: usize,
    },
    /// The life before is not older: records of the two could not be told apart.
    #[error("it is of epoch {before}, which is not before {now}: the clock was set back")]
    Epoch {
        /// Epoch in the region.
        before: Epoch,
        /// Epoch of the new life.
        now: Epoch,
    },
    /// Its ring or tables are in a state from which no writer can go on.
    #[error(transparent)]
    State(#[from] CreateError),
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
    life: LifeWriter,
    reader: RegionReader,
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
        let header = words.atomics().iter().take(REGION_HEADER_BYTES / WORD_BYTES);
        if header.into_iter().any(|word| word.load(Ordering::Relaxed) != 0) {
            return Err(CreateError::NotZeroed);
        }
        let region = Self::over(&words, layout, epoch)?;
        region.header.set_state(RegionState::Running);
        region.header.write_identity(layout, epoch);
        Ok(region)
    }

    /// Takes over a region that an earlier writer, which is gone, has left at any moment of its
    /// work. A new life begins at the committed tail, with an empty table and directory; what was
    /// committed before stays in the ring for readers of that life.
    ///
    /// Stopped in the middle, it can be begun again.
    ///
    /// # Errors
    /// [`ResumeError`]; then nothing in the memory has changed.
    pub fn resume(
        words: &WordsMut,
        layout: &RegionLayout,
        epoch: Epoch,
    ) -> Result<Self, ResumeError> {
        let left = RegionReader::open(words.reader())?;
        let found = left.layout();
        if found != layout {
            let (ring_bytes, instruments) = (found.ring_bytes(), found.instruments());
            let levels = found.levels_per_side();
            return Err(ResumeError::Layout { ring_bytes, instruments, levels });
        }
        if epoch <= left.epoch() {
            return Err(ResumeError::Epoch { before: left.epoch(), now: epoch });
        }
        let mut region = Self::over(words, layout, epoch)?;
        // All is well. The epoch comes first, so that whoever sees any of the rest knows.
        region.life.begin(epoch);
        region.broadcast.begin_life();
        region.latest.empty();
        region.directory.empty();
        region.header.begin_life(region.broadcast.committed());
        Ok(region)
    }

    /// Writers over all parts. Writes nothing.
    fn over(words: &WordsMut, layout: &RegionLayout, epoch: Epoch) -> Result<Self, CreateError> {
        let (have, need) = (words.len_bytes() as u64, layout.total_bytes());
        let short = CreateError::Short { have, need };
        let part =
            |offset: u64, len: usize| words.part(offset as usize / WORD_BYTES, len).ok_or(short);
        let header = part(0, REGION_HEADER_BYTES / WORD_BYTES)?;
        let control = part((BROADCAST_CONTROL_WORD * WORD_BYTES) as u64, BROADCAST_CONTROL_WORDS)?;
        let ring = part(layout.ring_offset(), layout.ring_bytes() as usize / WORD_BYTES)?;
        let latest = part(layout.latest_offset(), layout.latest().words())?;
        let directory = part(layout.directory_offset(), directory_words(layout.instruments()))?;
        let broadcast = BroadcastWriter::new(control, ring)?;
        let life_start = broadcast.committed();
        let reader = RegionReader::trusted(words.reader(), *layout, epoch, life_start);
        Ok(Self {
            broadcast,
            latest: LatestWriter::new(latest, layout.latest())?,
            directory: DirectoryWriter::new(directory)?,
            header: RegionHeader { words: header },
            life: LifeWriter::new(part((EPOCH_WORD * WORD_BYTES) as u64, 1)?),
            reader: reader.ok_or(short)?,
        })
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
        self.reader.layout()
    }

    /// Life of the publisher.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.reader.epoch()
    }

    /// A reader of this region in the same process, for instance for a waker thread.
    #[must_use]
    pub fn reader(&self) -> RegionReader {
        self.reader.clone()
    }
}

impl RegionHeader {
    /// Identity last, and its magic last of all: a reader that sees the magic sees the rest.
    fn write_identity(&self, layout: &RegionLayout, epoch: Epoch) {
        let words = self.words.atomics();
        let tables = layout.instruments() as u64 | (layout.levels_per_side() as u64) << 32;
        let versions = u64::from(REGION_LAYOUT_VERSION) | u64::from(WIRE_VERSION) << 32;
        for (word, value) in [
            (VERSIONS_WORD, versions),
            (EPOCH_WORD, epoch.0),
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

    /// What the writer before left here gives way to what a new region says.
    fn begin_life(&self, start: Position) {
        self.words.atomics()[LIFE_START_WORD].store(start.0, Ordering::Relaxed);
        self.set_heartbeat(Nanos(0));
        self.set_feed_silent_since(Nanos(0));
        self.set_sender_activity(SenderActivity::Parked);
        self.set_state(RegionState::Running);
        self.raise_wake();
    }

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
