//! The reading end of a broadcast ring.

use tapecast_wire::{Nanos, Position, Sequence};

use super::{
    BroadcastShapeError, CHANNEL_SEQUENCE_WORD, INTENT_WORD, TAIL_WORD, check_shape, is_aligned,
};
use crate::record::{
    Extent, Found, RawRecord, ReadError, RecordBuffer, RecordBytes, RecordHead, find, lines_of,
    record_of,
};
use crate::sync::{Ordering, fence};
use crate::words::Words;

/// One reader of a broadcast ring: a position of its own, nothing that the writer knows of.
///
/// Nothing in the ring is trusted. Whatever the words hold, a call returns after a bounded number
/// of steps with a record, nothing, or a [`ReadError`]; after an error the position is unchanged.
///
/// # Invariants
/// When `position < tail`: both are aligned to 64 and at most one ring apart.
#[derive(Clone, Debug)]
pub struct BroadcastReader {
    control: Words,
    data: Words,
    capacity: u64,
    position: u64,
    /// The tail when it was last looked at. Its line is the writer's, so it is looked at only when
    /// everything before has been read.
    tail: u64,
    /// Bytes that [`Self::skip`] passes over; 0 unless [`Self::peek`] has just found a record.
    peeked: u64,
}

impl BroadcastReader {
    /// A reader that starts at `at`, normally a tail.
    ///
    /// # Errors
    /// [`BroadcastShapeError`] when the words cannot be a ring.
    pub fn new(control: Words, data: Words, at: Position) -> Result<Self, BroadcastShapeError> {
        let capacity = check_shape(control.len(), data.len())?;
        Ok(Self { control, data, capacity, position: at.0, tail: at.0, peeked: 0 })
    }

    /// Copies the next record into `buffer` and moves past it; `None` when there is none yet.
    ///
    /// # Errors
    /// [`ReadError`]; continue with [`Self::seek`].
    #[inline]
    pub fn next<'b>(
        &mut self,
        buffer: &'b mut RecordBuffer,
    ) -> Result<Option<RecordBytes<'b>>, ReadError> {
        let Some(extent) = self.locate()? else { return Ok(None) };
        buffer.copy_lines(lines_of(self.data.atomics(), extent));
        self.validate()?;
        self.advance(extent);
        Ok(Some(buffer.record(extent.len_bytes)))
    }

    /// What the next record is, without copying it or moving; `None` when there is none yet. Follow
    /// with [`Self::next`] or [`Self::skip`].
    ///
    /// # Errors
    /// [`ReadError`]; continue with [`Self::seek`].
    #[inline]
    pub fn peek(&mut self) -> Result<Option<RecordHead>, ReadError> {
        let Some(extent) = self.locate()? else { return Ok(None) };
        let head = RecordHead::read(self.data.atomics(), extent);
        self.validate()?;
        self.peeked = extent.span_bytes();
        Ok(Some(head))
    }

    /// Moves past the record that the call before, [`Self::peek`], has returned. Does nothing
    /// otherwise.
    #[inline]
    pub const fn skip(&mut self) {
        self.position += self.peeked;
        self.peeked = 0;
    }

    /// Shows the next record in place to `look` and moves past it; `None` when there is none yet.
    /// What `look` returns is dropped when the writer got there first: `look` may see a mixture of
    /// records and must not act on what it sees.
    ///
    /// # Errors
    /// [`ReadError`]; continue with [`Self::seek`].
    #[inline]
    pub fn inspect<T>(
        &mut self,
        look: impl FnOnce(RawRecord<'_>) -> T,
    ) -> Result<Option<T>, ReadError> {
        let Some(extent) = self.locate()? else { return Ok(None) };
        let seen = look(RawRecord::new(record_of(self.data.atomics(), extent)));
        self.validate()?;
        self.advance(extent);
        Ok(Some(seen))
    }

    /// Where the next record is read.
    #[must_use]
    pub const fn position(&self) -> Position {
        Position(self.position)
    }

    /// The tail now: everything before it is whole or overwritten. Whatever the writer stored
    /// before it committed this tail is visible after this call.
    #[must_use]
    #[inline]
    pub fn tail(&self) -> Position {
        // Acquire: pairs with the Release store in `BroadcastWriter::commit`.
        Position(self.control.atomics()[TAIL_WORD].load(Ordering::Acquire))
    }

    /// Channel sequence of the newest committed record, or of one a moment older.
    #[must_use]
    pub fn channel_sequence(&self) -> Sequence {
        Sequence(self.control.atomics()[CHANNEL_SEQUENCE_WORD].load(Ordering::Relaxed))
    }

    /// Continues at `at`, normally a tail.
    pub const fn seek(&mut self, at: Position) {
        self.position = at.0;
        self.tail = at.0;
        self.peeked = 0;
    }

    /// Bytes between this reader and the tail now.
    #[must_use]
    pub fn lag_bytes(&self) -> u64 {
        self.tail().0.saturating_sub(self.position)
    }

    /// When the oldest record that is not read was published, as it says itself; `None` when there
    /// is none, and when the writer got there first.
    #[must_use]
    pub fn unread_since(&self) -> Option<Nanos> {
        let header = self.clone().inspect(|record| record.header()).ok()???;
        Some(Nanos(header.ts_publish))
    }

    /// Bytes of the ring.
    #[must_use]
    pub const fn capacity_bytes(&self) -> u64 {
        self.capacity
    }

    /// Finds the next record that is not padding. It lies before the tail, but may be overwritten
    /// at any moment. The loop ends: padding is followed by the start of the ring, where no padding
    /// is accepted.
    #[inline]
    fn locate(&mut self) -> Result<Option<Extent>, ReadError> {
        self.peeked = 0;
        loop {
            if self.position == self.tail && !self.refresh_tail()? {
                return Ok(None);
            }
            match find(self.data.atomics(), self.position, self.tail) {
                Found::Record(extent) => return Ok(Some(extent)),
                Found::Padding(extent) => self.pass_padding(extent)?,
                Found::Garbage => return Err(self.lapped_or_corrupt()),
            }
        }
    }

    /// Kept out of the way: the common path then needs no memory for its result.
    #[cold]
    fn pass_padding(&mut self, padding: Extent) -> Result<(), ReadError> {
        self.validate()?;
        self.advance(padding);
        Ok(())
    }

    /// What looks like no record is one that is being overwritten, or damage.
    #[cold]
    fn lapped_or_corrupt(&self) -> ReadError {
        self.validate().err().unwrap_or_else(|| self.corrupt())
    }

    /// Looks at the tail; whether there is something before it.
    #[inline]
    fn refresh_tail(&mut self) -> Result<bool, ReadError> {
        let tail = self.tail().0;
        if tail == self.position {
            return Ok(false);
        }
        if tail < self.position || !is_aligned(tail) || !is_aligned(self.position) {
            return Err(self.corrupt());
        }
        if tail - self.position > self.capacity {
            return Err(self.lapped());
        }
        // INVARIANT: aligned, ordered and at most a ring apart, as just checked.
        self.tail = tail;
        Ok(true)
    }

    /// Whether everything that was loaded at `position` since the tail was looked at is of one lap.
    #[inline]
    fn validate(&self) -> Result<(), ReadError> {
        // Acquire: pairs with the fence in `BroadcastWriter::raise_intent` (protocol step 2), when
        // a relaxed load before this fence took a word that was stored after that one.
        fence(Ordering::Acquire);
        let intent = self.control.atomics()[INTENT_WORD].load(Ordering::Relaxed);
        // An intent before the position is impossible, and wraps round to "lapped".
        if intent.wrapping_sub(self.position) > self.capacity { Err(self.lapped()) } else { Ok(()) }
    }

    #[inline]
    const fn advance(&mut self, extent: Extent) {
        self.position += extent.span_bytes();
    }

    #[cold]
    const fn lapped(&self) -> ReadError {
        ReadError::Lapped { position: Position(self.position) }
    }

    #[cold]
    const fn corrupt(&self) -> ReadError {
        ReadError::Corrupt { position: Position(self.position) }
    }
}

/// A reader whose unread bytes the writer never touches, because they gate it: they can be lent in
/// place.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct GatedReader {
    reader: BroadcastReader,
}

#[cfg(not(loom))]
impl GatedReader {
    /// Wraps a reader whose position the writer respects.
    ///
    /// # Safety
    /// For the life of the result, nobody writes to the ring's words between a consumed position
    /// and the tail, where the consumed positions are at most what [`Self::position`] has returned
    /// so far. So: every push is a [`super::BroadcastWriter::push_within`] with a limit of at most
    /// consumed position + capacity, loaded with `Acquire` from where this reader's side announces
    /// it with `Release`; the gate has been closed at `reader`'s position from before the writer
    /// could pass it; and the process that writes is trusted to keep to this.
    #[must_use]
    pub const unsafe fn new(reader: BroadcastReader) -> Self {
        Self { reader }
    }

    /// Lends the next record in place and moves past it; `None` when there is none yet. It stays
    /// whole until the consumed position is announced beyond it, which the borrow keeps from
    /// happening by [`Self::position`]. Aligned to 8.
    ///
    /// # Errors
    /// [`ReadError`]: the gate does not hold, or the ring is damaged.
    #[inline]
    pub fn lend(&mut self) -> Result<Option<&[u8]>, ReadError> {
        let Some(extent) = self.reader.locate()? else { return Ok(None) };
        self.reader.validate()?;
        self.reader.advance(extent);
        // SAFETY: the record lies before the tail and at or after `position` as it was before this
        // call, and the borrow of `self` keeps `position` from being read, thus from being
        // announced, while the bytes are lent. So the promise of `new` says that nobody writes
        // them. `locate` gives extents inside `data`.
        Ok(Some(unsafe { self.reader.data.lend(extent.first_word(), extent.len_bytes) }))
    }

    /// What the next record is; `None` when there is none yet.
    ///
    /// # Errors
    /// As [`Self::lend`].
    #[inline]
    pub fn peek(&mut self) -> Result<Option<RecordHead>, ReadError> {
        self.reader.peek()
    }

    /// As [`BroadcastReader::skip`].
    #[inline]
    pub const fn skip(&mut self) {
        self.reader.skip();
    }

    /// Where the next record is read: what may be announced as consumed.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.reader.position()
    }

    /// As [`BroadcastReader::tail`].
    #[must_use]
    pub fn tail(&self) -> Position {
        self.reader.tail()
    }

    /// As [`BroadcastReader::lag_bytes`].
    #[must_use]
    pub fn lag_bytes(&self) -> u64 {
        self.reader.lag_bytes()
    }

    /// As [`BroadcastReader::unread_since`].
    #[must_use]
    pub fn unread_since(&self) -> Option<Nanos> {
        self.reader.unread_since()
    }

    /// As [`BroadcastReader::channel_sequence`].
    #[must_use]
    pub fn channel_sequence(&self) -> Sequence {
        self.reader.channel_sequence()
    }

    /// Gives up lending.
    #[must_use]
    pub fn into_inner(self) -> BroadcastReader {
        self.reader
    }
}
