//! The writing end of a broadcast ring.

use tapecast_wire::limits::{PAGE_BYTES, RECORD_ALIGN_BYTES, WORD_BYTES};
use tapecast_wire::{Position, Sequence, encode_padding};

use super::{
    BroadcastShapeError, CHANNEL_SEQUENCE_WORD, INTENT_WORD, TAIL_WORD, check_shape, is_aligned,
};
use crate::record::{assert_record, channel_sequence_of, copy_in, span_bytes};
use crate::sync::{Ordering, fence};
use crate::words::WordsMut;

/// `intent` is raised by this fraction of the ring at a time.
const STRIDES_PER_RING: u64 = 16;

/// The gate leaves no room for the record. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lossless session has not consumed up to where the record would go: try again later")]
pub struct Full;

/// The one writer of a broadcast ring.
///
/// # Invariants
/// - `committed <= position <= intent`, all aligned to 64; `tail` in memory is `committed`.
/// - Words at ring offsets of `[position, intent)` may be written, no others.
#[derive(Debug)]
pub struct BroadcastWriter {
    control: WordsMut,
    data: WordsMut,
    capacity: u64,
    stride: u64,
    max_record_bytes: usize,
    position: u64,
    committed: u64,
    intent: u64,
    channel_sequence: Sequence,
}

/// Where the next record goes.
struct Placement {
    padding: u64,
    start: u64,
    end: u64,
}

impl BroadcastWriter {
    /// A writer that continues at the tail in `control`: 0 in zeroed memory. Nobody else may write
    /// to these words.
    ///
    /// # Errors
    /// [`BroadcastShapeError`] when the words cannot be a ring or are left in a state that no
    /// writer leaves.
    pub fn new(control: WordsMut, data: WordsMut) -> Result<Self, BroadcastShapeError> {
        let capacity = check_shape(control.len(), data.len())?;
        let load = |word: usize| control.atomics()[word].load(Ordering::Relaxed);
        let (tail, intent) = (load(TAIL_WORD), load(INTENT_WORD));
        if !is_aligned(tail) || tail > intent || intent - tail > capacity {
            return Err(BroadcastShapeError::Positions { tail, intent });
        }
        let channel_sequence = Sequence(load(CHANNEL_SEQUENCE_WORD));
        let stride = (capacity / STRIDES_PER_RING).max(RECORD_ALIGN_BYTES as u64);
        // A record with its padding and a stride of intent stay within one ring, so pushing one
        // record never laps a reader that stands at the tail.
        let half = (capacity - stride) / 2;
        let max_record_bytes =
            (half as usize / RECORD_ALIGN_BYTES * RECORD_ALIGN_BYTES).min(PAGE_BYTES);
        Ok(Self {
            control,
            data,
            capacity,
            stride,
            max_record_bytes,
            position: tail,
            committed: tail,
            intent,
            channel_sequence,
        })
    }

    /// Begins another life of the publisher at the tail: channel sequences count anew. Records that
    /// an earlier writer left behind the tail are overwritten, and `intent` stays as high as it
    /// was, because that writer may have stored up to there.
    pub(crate) fn begin_life(&mut self) {
        self.channel_sequence = Sequence(0);
        self.control.atomics()[CHANNEL_SEQUENCE_WORD].store(0, Ordering::Relaxed);
    }

    /// Appends one encoded record and returns the position after it. Readers see it after
    /// [`Self::commit`].
    ///
    /// # Panics
    /// When `record` is not exactly one encoded record of at most [`Self::max_record_bytes`].
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Position {
        assert_record(record, self.max_record_bytes);
        let placement = self.placement(record.len());
        self.write(record, &placement, u64::MAX);
        Position(self.position)
    }

    /// Appends like [`Self::push`], but neither writes nor announces to write beyond `limit`, an
    /// absolute position.
    ///
    /// # Errors
    /// [`Full`] when the record with its padding would end after `limit`; nothing has happened
    /// then.
    ///
    /// # Panics
    /// As [`Self::push`].
    #[inline]
    pub fn push_within(&mut self, limit: Position, record: &[u8]) -> Result<Position, Full> {
        assert_record(record, self.max_record_bytes);
        let placement = self.placement(record.len());
        if placement.end > limit.0 {
            return Err(Full);
        }
        self.write(record, &placement, limit.0);
        Ok(Position(self.position))
    }

    /// Makes everything pushed so far visible to readers and returns the tail. Does not touch
    /// memory when there is nothing new.
    #[inline]
    pub fn commit(&mut self) -> Position {
        if self.committed != self.position {
            let control = self.control.atomics();
            control[CHANNEL_SEQUENCE_WORD].store(self.channel_sequence.0, Ordering::Relaxed);
            // Release: pairs with the Acquire load of the tail in every reader (protocol step 4).
            control[TAIL_WORD].store(self.position, Ordering::Release);
            self.committed = self.position;
        }
        Position(self.committed)
    }

    /// Where the next record or its padding goes: everything before has been pushed.
    #[must_use]
    pub const fn position(&self) -> Position {
        Position(self.position)
    }

    /// What readers see as the end.
    #[must_use]
    pub const fn committed(&self) -> Position {
        Position(self.committed)
    }

    /// Channel sequence of the last record pushed.
    #[must_use]
    pub const fn channel_sequence(&self) -> Sequence {
        self.channel_sequence
    }

    /// Bytes of the ring. A gate's limit is the least consumed position plus this.
    #[must_use]
    pub const fn capacity_bytes(&self) -> u64 {
        self.capacity
    }

    /// Bytes of the largest record that this ring takes.
    #[must_use]
    pub const fn max_record_bytes(&self) -> usize {
        self.max_record_bytes
    }

    #[inline]
    const fn placement(&self, len_bytes: usize) -> Placement {
        let span = span_bytes(len_bytes);
        let to_end = self.capacity - (self.position & (self.capacity - 1));
        let padding = if span > to_end { to_end } else { 0 };
        let start = self.position + padding;
        Placement { padding, start, end: start + span }
    }

    #[inline]
    fn write(&mut self, record: &[u8], placement: &Placement, limit: u64) {
        if placement.end > self.intent {
            self.raise_intent(placement.end, limit);
        }
        if placement.padding > 0 {
            self.write_padding(placement.padding as usize);
        }
        let first = self.word_at(placement.start);
        copy_in(record, &self.data.atomics()[first..first + record.len() / WORD_BYTES]);
        self.position = placement.end;
        self.channel_sequence = channel_sequence_of(record);
        debug_assert!(self.position <= self.intent && self.intent <= self.committed_limit());
    }

    /// Protocol steps 1 and 2. The fence orders this store before all the data stores that follow,
    /// up to the next time.
    fn raise_intent(&mut self, end: u64, limit: u64) {
        let stride = end.next_multiple_of(self.stride);
        self.intent = stride.min(limit).max(end);
        self.control.atomics()[INTENT_WORD].store(self.intent, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    #[cold]
    fn write_padding(&self, len_bytes: usize) {
        let first = self.word_at(self.position);
        self.data.atomics()[first].store(encode_padding(len_bytes), Ordering::Relaxed);
    }

    const fn word_at(&self, position: u64) -> usize {
        (position & (self.capacity - 1)) as usize / WORD_BYTES
    }

    /// Beyond this, `intent` would call a reader lapped that stands at the last record pushed.
    const fn committed_limit(&self) -> u64 {
        self.position + self.capacity
    }
}
