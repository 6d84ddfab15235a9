//! The newest record of every instrument, for joining, conflating and recovering.
//!
//! ```text
//! slot i    stamp u64 | record, up to the largest          (a slot starts on a cache line)
//! ```
//!
//! A slot is a seqlock: its stamp is odd while the writer is at it and rises with every record. A
//! reader takes the stamp, copies, and takes the stamp again.
//!
//! # Joining a broadcast ring without gap or duplicate
//! The writer stores a record here *before* it commits it to the ring. A reader takes the ring's
//! tail T with `Acquire`, then reads this table, then the ring from T on, leaving out records whose
//! instrument sequence is not above the one it has already seen. What was committed before T is
//! then in the table, or something newer is; what comes after T is in the ring.

use tapecast_wire::limits::{PAGE_BYTES, RECORD_ALIGN_BYTES, WORD_BYTES};
use tapecast_wire::{InstrumentId, Sequence, record_len_of};

use crate::record::{
    MIN_RECORD_BYTES, RecordBuffer, RecordBytes, assert_record, copy_in, instrument_id_of,
    instrument_sequence_word,
};
use crate::sync::{AtomicU64, Ordering, fence, spin_loop};
use crate::words::{Words, WordsMut};

/// Times that a reader starts anew before it gives up. The writer is at one slot for some
/// tens of nanoseconds, so more than a few collisions in a row mean that it stands still there.
const ATTEMPTS: usize = if cfg!(loom) { 2 } else { 64 };

/// Words before the record in a slot.
const STAMP_WORDS: usize = 1;

/// Size of a latest table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatestShape {
    /// Instruments, each with a slot.
    pub instruments: usize,
    /// Bytes of the largest record.
    pub record_bytes_max: usize,
}

impl LatestShape {
    /// Words from one slot to the next.
    #[must_use]
    pub const fn stride_words(self) -> usize {
        let bytes = STAMP_WORDS * WORD_BYTES + self.record_bytes_max;
        bytes.next_multiple_of(RECORD_ALIGN_BYTES) / WORD_BYTES
    }

    /// Words of the whole table.
    #[must_use]
    pub const fn words(self) -> usize {
        self.instruments * self.stride_words()
    }

    /// Index of the slot's first word, when the instrument has one.
    #[inline]
    const fn slot(self, id: InstrumentId) -> Option<usize> {
        if id.index() < self.instruments { Some(id.index() * self.stride_words()) } else { None }
    }
}

/// Words that cannot be a latest table of the given shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LatestShapeError {
    /// The record size is impossible.
    #[error(
        "latest table for records of {bytes} bytes: choose a multiple of 8 from {MIN_RECORD_BYTES} \
         to {PAGE_BYTES}"
    )]
    RecordBytes {
        /// Bytes given.
        bytes: usize,
    },
    /// The memory has another size than the table.
    #[error("latest table of {need} words, but {have} were given")]
    Words {
        /// Words given.
        have: usize,
        /// Words of the table.
        need: usize,
    },
}

/// Why a slot could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LatestError {
    /// The writer was at this slot all the time.
    #[error("the writer holds this instrument's slot: try again later")]
    Busy,
    /// The slot is whole, but holds no record of this instrument.
    #[error("the latest table is damaged or has another layout: attach again")]
    Corrupt,
}

fn check_shape(shape: LatestShape, have: usize) -> Result<(), LatestShapeError> {
    let bytes = shape.record_bytes_max;
    if !(MIN_RECORD_BYTES..=PAGE_BYTES).contains(&bytes) || !bytes.is_multiple_of(WORD_BYTES) {
        return Err(LatestShapeError::RecordBytes { bytes });
    }
    let need = shape.instruments.saturating_mul(shape.stride_words());
    if have != need {
        return Err(LatestShapeError::Words { have, need });
    }
    Ok(())
}

/// The one writer of a latest table.
#[derive(Debug)]
pub struct LatestWriter {
    words: WordsMut,
    shape: LatestShape,
}

impl LatestWriter {
    /// A writer over zeroed words, which nobody else writes.
    ///
    /// # Errors
    /// [`LatestShapeError`] when the words do not have that shape.
    pub fn new(words: WordsMut, shape: LatestShape) -> Result<Self, LatestShapeError> {
        check_shape(shape, words.len())?;
        Ok(Self { words, shape })
    }

    /// Replaces the newest record of `id`.
    ///
    /// # Panics
    /// When `record` is not exactly one encoded record of that instrument that fits, or `id` has no
    /// slot.
    #[inline]
    pub fn store(&mut self, id: InstrumentId, record: &[u8]) {
        assert_record(record, self.shape.record_bytes_max);
        assert!(instrument_id_of(record) == id, "record of another instrument than {id}");
        let slot = self.shape.slot(id).unwrap_or(usize::MAX);
        assert!(slot != usize::MAX, "instrument {id} has no slot, {} have", self.shape.instruments);
        let slot = &self.words.atomics()[slot..slot + self.shape.stride_words()];
        let stamp = slot[0].load(Ordering::Relaxed);
        debug_assert!(stamp.is_multiple_of(2), "only this writer changes the stamp");
        slot[0].store(stamp + 1, Ordering::Relaxed);
        // Release: pairs with the Acquire fence in `LatestReader::load`, when a copied word came
        // from below: then its second look at the stamp sees the odd value or a later one.
        fence(Ordering::Release);
        copy_in(record, &slot[STAMP_WORDS..]);
        // Release: pairs with the first, Acquire, load of the stamp in `LatestReader::load`.
        slot[0].store(stamp + 2, Ordering::Release);
    }

    /// Empties every slot, in whatever state an earlier writer has left it. Its readers may take a
    /// mixture of lives for a record after this, so they ask [`crate::region::LifeReader`] before
    /// they use one.
    pub fn empty(&mut self) {
        for slot in self.words.atomics().chunks_exact(self.shape.stride_words()) {
            slot[0].store(0, Ordering::Relaxed);
            slot[STAMP_WORDS + instrument_sequence_word()].store(0, Ordering::Relaxed);
        }
    }

    /// Size of the table.
    #[must_use]
    pub const fn shape(&self) -> LatestShape {
        self.shape
    }
}

/// A reader of a latest table. Nothing in it is trusted.
#[derive(Clone, Debug)]
pub struct LatestReader {
    words: Words,
    shape: LatestShape,
}

impl LatestReader {
    /// A reader.
    ///
    /// # Errors
    /// [`LatestShapeError`] when the words do not have that shape.
    pub fn new(words: Words, shape: LatestShape) -> Result<Self, LatestShapeError> {
        check_shape(shape, words.len())?;
        Ok(Self { words, shape })
    }

    /// Copies the newest record of `id` into `buffer`; `None` when it has none or no slot.
    ///
    /// # Errors
    /// [`LatestError::Busy`] after a bounded number of collisions with the writer.
    pub fn load<'b>(
        &self,
        id: InstrumentId,
        buffer: &'b mut RecordBuffer,
    ) -> Result<Option<RecordBytes<'b>>, LatestError> {
        let Some(slot) = self.slot(id) else { return Ok(None) };
        for _ in 0..ATTEMPTS {
            match copy_slot(slot, buffer) {
                Copied::Empty => return Ok(None),
                Copied::Torn => spin_loop(),
                Copied::Garbage => return Err(LatestError::Corrupt),
                Copied::Record { len_bytes } => {
                    let record = buffer.record(len_bytes);
                    let ours = record.instrument_id() == id;
                    return if ours { Ok(Some(record)) } else { Err(LatestError::Corrupt) };
                }
            }
        }
        Err(LatestError::Busy)
    }

    /// Instrument sequence of the newest record of `id`, or of one a moment older or newer; 0 when
    /// there is none. Costs one load.
    #[must_use]
    #[inline]
    pub fn instrument_sequence(&self, id: InstrumentId) -> Sequence {
        let word = STAMP_WORDS + instrument_sequence_word();
        Sequence(self.slot(id).map_or(0, |slot| slot[word].load(Ordering::Relaxed)))
    }

    /// Size of the table.
    #[must_use]
    pub const fn shape(&self) -> LatestShape {
        self.shape
    }

    #[inline]
    fn slot(&self, id: InstrumentId) -> Option<&[AtomicU64]> {
        let start = self.shape.slot(id)?;
        self.words.atomics().get(start..start + self.shape.stride_words())
    }
}

/// What one attempt at copying a slot gave.
enum Copied {
    Empty,
    Record {
        len_bytes: usize,
    },
    /// The writer was there meanwhile.
    Torn,
    /// Whole, but nothing that a writer would have stored.
    Garbage,
}

#[inline]
fn copy_slot(slot: &[AtomicU64], buffer: &mut RecordBuffer) -> Copied {
    // Acquire: pairs with the last store of the stamp in `LatestWriter::store`.
    let stamp = slot[0].load(Ordering::Acquire);
    if stamp == 0 {
        return Copied::Empty;
    }
    if !stamp.is_multiple_of(2) {
        return Copied::Torn;
    }
    let words = &slot[STAMP_WORDS..];
    let len_bytes = record_len_of(words[0].load(Ordering::Relaxed)).unwrap_or(0);
    let record = words.get(..len_bytes / WORD_BYTES).unwrap_or(&[]);
    buffer.copy(record);
    // Acquire: pairs with the Release fence in `LatestWriter::store`.
    fence(Ordering::Acquire);
    if slot[0].load(Ordering::Relaxed) != stamp {
        return Copied::Torn;
    }
    let whole = record.len() * WORD_BYTES == len_bytes && len_bytes >= MIN_RECORD_BYTES;
    if whole { Copied::Record { len_bytes } } else { Copied::Garbage }
}
