//! Records on their way out of shared words: copying, finding the next one, looking at one in
//! place.

use core::ops::Deref;

use tapecast_wire::limits::{LEVEL_BYTES, PAGE_BYTES, RECORD_ALIGN_BYTES, WORD_BYTES};
use tapecast_wire::{
    Epoch, InstrumentId, Kind, Level, Position, Sequence, SnapshotHeader, record_len_of,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::sync::{AtomicU64, Ordering};

/// Words of a line, which is copied at a time.
const LINE_WORDS: usize = RECORD_ALIGN_BYTES / WORD_BYTES;
const INSTRUMENT_ID_WORD: usize = SnapshotHeader::INSTRUMENT_ID_OFFSET / WORD_BYTES;
const EPOCH_WORD: usize = core::mem::offset_of!(SnapshotHeader, epoch) / WORD_BYTES;
const CHANNEL_SEQUENCE_WORD: usize =
    core::mem::offset_of!(SnapshotHeader, channel_sequence) / WORD_BYTES;
const INSTRUMENT_SEQUENCE_WORD: usize = SnapshotHeader::INSTRUMENT_SEQUENCE_OFFSET / WORD_BYTES;

/// Fewest bytes of a record in a ring: it reaches to the end of the instrument sequence, so that
/// every reader can decide what to do with it. Padding is exempt.
pub const MIN_RECORD_BYTES: usize = (INSTRUMENT_SEQUENCE_WORD + 1) * WORD_BYTES;

const _: () = assert!(INSTRUMENT_ID_WORD == 2 && EPOCH_WORD == 3 && CHANNEL_SEQUENCE_WORD == 4);
const _: () = assert!(MIN_RECORD_BYTES <= RECORD_ALIGN_BYTES);

/// Why no record could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The writer has overwritten what this reader would have read next.
    #[error(
        "the writer has lapped this reader at position {position}: continue at the tail and take \
         what was missed from the latest table"
    )]
    Lapped {
        /// Where the reader stood.
        position: Position,
    },
    /// The bytes are not a record, or the ring's words contradict each other.
    #[error(
        "no record at position {position}: the ring is damaged or has another layout; attach again"
    )]
    Corrupt {
        /// Where the reader stood.
        position: Position,
    },
}

/// Room for one record of any size, owned by its reader. Aligned so that a record in it can be
/// parsed in place.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct RecordBuffer {
    words: [u64; PAGE_BYTES / WORD_BYTES],
}

impl RecordBuffer {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: [0; PAGE_BYTES / WORD_BYTES] }
    }

    /// Copies whole lines to the start of the buffer; `source` is at most as long.
    #[inline]
    pub(crate) fn copy_lines(&mut self, source: &[Line]) {
        let (target, _) = self.words.as_chunks_mut::<LINE_WORDS>();
        copy_lines(source, target);
    }

    /// Copies words to the start of the buffer.
    #[inline]
    pub(crate) fn copy(&mut self, source: &[AtomicU64]) {
        copy_out(source, &mut self.words);
    }

    /// The record of that length at the start of the buffer.
    #[inline]
    pub(crate) fn record(&mut self, len_bytes: usize) -> RecordBytes<'_> {
        RecordBytes { words: &mut self.words[..len_bytes / WORD_BYTES] }
    }
}

impl Default for RecordBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// The bytes of one record, copied out and found whole. They belong to the holder, who may change
/// them.
#[derive(Debug)]
pub struct RecordBytes<'a> {
    words: &'a mut [u64],
}

impl<'a> RecordBytes<'a> {
    /// The bytes, aligned to 8.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.words.as_bytes()
    }

    /// The bytes for changing, aligned to 8.
    #[must_use]
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        self.words.as_mut_bytes()
    }

    /// The bytes for as long as the buffer is borrowed, aligned to 8.
    #[must_use]
    pub fn into_bytes(self) -> &'a [u8] {
        self.words.as_bytes()
    }

    /// The bytes for changing, for as long as the buffer is borrowed, aligned to 8.
    #[must_use]
    pub fn into_bytes_mut(self) -> &'a mut [u8] {
        self.words.as_mut_bytes()
    }

    /// Instrument named in the record.
    #[must_use]
    pub fn instrument_id(&self) -> InstrumentId {
        InstrumentId(self.words[INSTRUMENT_ID_WORD] as u32)
    }

    /// Number of the record among its instrument's.
    #[must_use]
    pub fn instrument_sequence(&self) -> Sequence {
        Sequence(self.words[INSTRUMENT_SEQUENCE_WORD])
    }

    /// Life of the publisher that wrote the record.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.words[EPOCH_WORD])
    }

    /// Number of the record in the channel.
    #[must_use]
    pub fn channel_sequence(&self) -> Sequence {
        Sequence(self.words[CHANNEL_SEQUENCE_WORD])
    }
}

impl Deref for RecordBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// What a reader needs to know to decide whether it wants a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Bytes of the record.
    pub len_bytes: usize,
    /// Instrument named in the record.
    pub instrument_id: InstrumentId,
    /// Life of the publisher that wrote the record.
    pub epoch: Epoch,
    /// Number of the record in the channel.
    pub channel_sequence: Sequence,
    /// Number of the record among its instrument's.
    pub instrument_sequence: Sequence,
}

impl RecordHead {
    #[inline]
    pub(crate) fn read(words: &[AtomicU64], extent: Extent) -> Self {
        let load = |index: usize| words[extent.first_word() + index].load(Ordering::Relaxed);
        Self {
            len_bytes: extent.len_bytes,
            instrument_id: InstrumentId(load(INSTRUMENT_ID_WORD) as u32),
            epoch: Epoch(load(EPOCH_WORD)),
            channel_sequence: Sequence(load(CHANNEL_SEQUENCE_WORD)),
            instrument_sequence: Sequence(load(INSTRUMENT_SEQUENCE_WORD)),
        }
    }
}

/// A record seen in place, while the writer may be overwriting it: any two words may belong to
/// different records, so nothing read here may be acted on before the reader has validated.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    words: &'a [AtomicU64],
}

impl<'a> RawRecord<'a> {
    pub(crate) const fn new(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    /// Bytes of the record.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.words.len() * WORD_BYTES
    }

    /// One word of the record, little-endian, or `None` beyond its end.
    #[must_use]
    #[inline]
    pub fn word(&self, index: usize) -> Option<u64> {
        self.words.get(index).map(|word| word.load(Ordering::Relaxed))
    }

    /// The header, or `None` when the record is too short for one.
    #[must_use]
    pub fn header(&self) -> Option<SnapshotHeader> {
        self.read(0)
    }

    /// Level `index` from the best bid on, as `header` says where; `None` beyond the last.
    #[must_use]
    pub fn bid(&self, header: &SnapshotHeader, index: usize) -> Option<Level> {
        (index < usize::from(header.bid_count)).then(|| self.level(header, index)).flatten()
    }

    /// Level `index` from the best ask on, as `header` says where; `None` beyond the last.
    #[must_use]
    pub fn ask(&self, header: &SnapshotHeader, index: usize) -> Option<Level> {
        let bids = usize::from(header.bid_count);
        (index < usize::from(header.ask_count)).then(|| self.level(header, bids + index)).flatten()
    }

    fn level(&self, header: &SnapshotHeader, index: usize) -> Option<Level> {
        let start = usize::from(header.header_len);
        if !start.is_multiple_of(WORD_BYTES) {
            return None;
        }
        self.read(start / WORD_BYTES + index * (LEVEL_BYTES / WORD_BYTES))
    }

    fn read<T: FromBytes + IntoBytes>(&self, start: usize) -> Option<T> {
        let source = self.words.get(start..start + size_of::<T>() / WORD_BYTES)?;
        let mut value = T::new_zeroed();
        copy_bytes_out(source, value.as_mut_bytes());
        Some(value)
    }
}

/// The unit of a ring: [`RECORD_ALIGN_BYTES`], one cache line.
pub(crate) type Line = [AtomicU64; LINE_WORDS];

/// Where a record lies in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Index of its first line.
    first_line: usize,
    /// Bytes of the record.
    pub(crate) len_bytes: usize,
}

impl Extent {
    /// Bytes it takes up in the ring.
    #[inline]
    pub(crate) const fn span_bytes(self) -> u64 {
        span_bytes(self.len_bytes)
    }

    /// Index of its first word.
    #[inline]
    pub(crate) const fn first_word(self) -> usize {
        self.first_line * LINE_WORDS
    }
}

/// What lies at a position of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Record(Extent),
    Padding(Extent),
    /// Nothing that a writer would have written.
    Garbage,
}

/// Bytes that a record of `len_bytes` takes up in a ring.
#[inline]
pub(crate) const fn span_bytes(len_bytes: usize) -> u64 {
    len_bytes.next_multiple_of(RECORD_ALIGN_BYTES) as u64
}

/// Looks at the record at `position`, without trusting anything in it: whatever the words hold, the
/// result lies inside `data` and before `tail`.
///
/// `data` has a power of two of bytes; `position` is aligned to [`RECORD_ALIGN_BYTES`] and before
/// `tail`.
#[inline]
pub(crate) fn find(data: &[AtomicU64], position: u64, tail: u64) -> Found {
    let capacity = (data.len() * WORD_BYTES) as u64;
    let offset = position & (capacity - 1);
    let first_line = offset as usize / RECORD_ALIGN_BYTES;
    let first = data[first_line * LINE_WORDS].load(Ordering::Relaxed);
    let Some(len_bytes) = record_len_of(first) else { return Found::Garbage };
    let extent = Extent { first_line, len_bytes };
    if extent.span_bytes() > (tail - position).min(capacity - offset) {
        return Found::Garbage;
    }
    if (first >> 48) as u8 == Kind::Padding as u8 {
        // A writer pads up to the end, and never a whole ring.
        let to_end = offset != 0 && offset + extent.span_bytes() == capacity;
        return if to_end { Found::Padding(extent) } else { Found::Garbage };
    }
    if len_bytes < MIN_RECORD_BYTES { Found::Garbage } else { Found::Record(extent) }
}

/// Lines that a record takes up in `data`, slack included.
#[inline]
pub(crate) fn lines_of(data: &[AtomicU64], extent: Extent) -> &[Line] {
    let (lines, _) = data.as_chunks::<LINE_WORDS>();
    &lines[extent.first_line..][..extent.len_bytes.div_ceil(RECORD_ALIGN_BYTES)]
}

/// Words of a record in `data`, without slack.
#[inline]
pub(crate) fn record_of(data: &[AtomicU64], extent: Extent) -> &[AtomicU64] {
    &data[extent.first_word()..][..extent.len_bytes / WORD_BYTES]
}

/// Word-by-word copy out of shared memory; `target` is at least as long.
#[inline]
pub(crate) fn copy_out(source: &[AtomicU64], target: &mut [u64]) {
    let (lines, rest) = source.as_chunks::<LINE_WORDS>();
    let (line_targets, rest_targets) = target.split_at_mut(source.len() - rest.len());
    copy_lines(lines, line_targets.as_chunks_mut::<LINE_WORDS>().0);
    for (to, from) in rest_targets.iter_mut().zip(rest) {
        *to = from.load(Ordering::Relaxed);
    }
}

/// As [`copy_out`], in lines. The inner loop is of constant length, so it is unrolled.
#[inline]
fn copy_lines(source: &[Line], target: &mut [[u64; LINE_WORDS]]) {
    for (to, from) in target.iter_mut().zip(source) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.load(Ordering::Relaxed);
        }
    }
}

/// Word-by-word copy out of shared memory into whole words of bytes.
pub(crate) fn copy_bytes_out(source: &[AtomicU64], target: &mut [u8]) {
    let (words, _) = target.as_chunks_mut::<WORD_BYTES>();
    for (to, from) in words.iter_mut().zip(source) {
        *to = from.load(Ordering::Relaxed).to_le_bytes();
    }
}

/// Word-by-word copy into shared memory; `target` is at least as long, `source` is whole words.
#[inline]
pub(crate) fn copy_in(source: &[u8], target: &[AtomicU64]) {
    let (lines, rest) = source.as_chunks::<RECORD_ALIGN_BYTES>();
    let (line_targets, rest_targets) = target.split_at(lines.len() * LINE_WORDS);
    let (line_targets, _) = line_targets.as_chunks::<LINE_WORDS>();
    for (to, from) in line_targets.iter().zip(lines) {
        store_words(from, to);
    }
    store_words(rest, rest_targets);
}

#[inline]
fn store_words(source: &[u8], target: &[AtomicU64]) {
    let (words, _) = source.as_chunks::<WORD_BYTES>();
    for (to, from) in target.iter().zip(words) {
        to.store(u64::from_le_bytes(*from), Ordering::Relaxed);
    }
}

/// Checks a record that this process is about to write. What fails here is a bug of the caller.
#[inline]
pub(crate) fn assert_record(record: &[u8], max_bytes: usize) {
    let first = record.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    assert!(
        record_len_of(first) == Some(record.len()) && record.len() >= MIN_RECORD_BYTES,
        "{} bytes that are not one encoded record",
        record.len()
    );
    assert!(record.len() <= max_bytes, "record of {} bytes, {max_bytes} fit", record.len());
}

/// A word of an encoded record. The record is at least [`MIN_RECORD_BYTES`] long.
#[inline]
pub(crate) fn record_word(record: &[u8], index: usize) -> u64 {
    let (words, _) = record.as_chunks::<WORD_BYTES>();
    u64::from_le_bytes(words[index])
}

/// Instrument of an encoded record.
#[inline]
pub(crate) fn instrument_id_of(record: &[u8]) -> InstrumentId {
    InstrumentId(record_word(record, INSTRUMENT_ID_WORD) as u32)
}

/// Channel sequence of an encoded record.
#[inline]
pub(crate) fn channel_sequence_of(record: &[u8]) -> Sequence {
    Sequence(record_word(record, CHANNEL_SEQUENCE_WORD))
}

/// Word of a record that holds its instrument sequence.
pub(crate) const fn instrument_sequence_word() -> usize {
    INSTRUMENT_SEQUENCE_WORD
}
