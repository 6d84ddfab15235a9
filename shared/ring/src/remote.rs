//! One session's own ring, filled from afar: by RDMA Writes, or by a simulator that copies.
//!
//! The ring lies in the subscriber's memory. The publisher knows its capacity and what was
//! consumed, so it does the arithmetic on its side ([`RemoteCursor`]), writes whole records, and
//! then announces the new tail. The subscriber reads up to the announced tail ([`RemoteReader`])
//! and announces what it has consumed; until then its bytes are protected.
//!
//! Records lie as in a broadcast ring: at multiples of 64 bytes, never across the end, with padding
//! up to the end before one that would be. Tails travel as their low 32 bits in units of 64 bytes,
//! which is what an RDMA immediate holds.

use tapecast_wire::limits::{MAX_RING_BYTES, PAGE_BYTES, RECORD_ALIGN_BYTES, WORD_BYTES};
use tapecast_wire::{Nanos, Position};

use crate::record::{
    Extent, Found, RawRecord, ReadError, RecordBuffer, RecordBytes, RecordHead, find, lines_of,
    record_of, span_bytes,
};
use crate::words::Words;

/// Bytes of one unit of an announced tail.
pub const TAIL_UNIT_BYTES: u64 = RECORD_ALIGN_BYTES as u64;

/// Fewest bytes of a remote ring: the largest record fits twice, so that one with its padding
/// always fits into an empty ring.
pub const MIN_REMOTE_BYTES: u64 = 2 * PAGE_BYTES as u64;

// An announced tail tells positions apart that are up to 2^32 units from each other.
const _: () = assert!(MAX_RING_BYTES < TAIL_UNIT_BYTES << 32);

/// A capacity that no remote ring has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "remote ring of {bytes} bytes: choose a power of two from {MIN_REMOTE_BYTES} to \
     {MAX_RING_BYTES}"
)]
pub struct RemoteShapeError {
    /// Bytes given.
    pub bytes: u64,
}

/// The limit leaves no room. Nothing was reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session has not consumed up to where the record would go: mark it dirty")]
pub struct NoCredit;

/// A tail that the publisher cannot have announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "tail {announced} announced while reading at {position} in a ring of {capacity} bytes: attach \
     again"
)]
pub struct TailError {
    /// Tail, extended to 64 bits.
    pub announced: Position,
    /// Where the reader stands.
    pub position: Position,
    /// Bytes of the ring.
    pub capacity: u64,
}

const fn check_capacity(bytes: u64) -> Result<(), RemoteShapeError> {
    if bytes.is_power_of_two() && bytes >= MIN_REMOTE_BYTES && bytes <= MAX_RING_BYTES {
        Ok(())
    } else {
        Err(RemoteShapeError { bytes })
    }
}

/// Bytes at the end of the ring that a record does not fit into. The first eight of them are to be
/// written with [`tapecast_wire::encode_padding`] of `len_bytes`; the rest is never read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Byte offset in the ring.
    pub offset_bytes: u64,
    /// Bytes up to the end of the ring.
    pub len_bytes: usize,
}

/// Where one record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Written before the record, when there is some.
    pub padding: Option<Padding>,
    /// Byte offset of the record in the ring.
    pub offset_bytes: u64,
    /// Bytes of the record with its slack: the next record without padding starts right after.
    pub span_bytes: u64,
    /// Position after the record: the tail to announce once it is written.
    pub end: Position,
}

/// The publisher's arithmetic for one remote ring. It touches no memory.
#[derive(Clone, Debug)]
pub struct RemoteCursor {
    capacity: u64,
    tail: u64,
}

impl RemoteCursor {
    /// A cursor for an empty ring.
    ///
    /// # Errors
    /// [`RemoteShapeError`] when no ring has this capacity.
    pub const fn new(capacity_bytes: u64) -> Result<Self, RemoteShapeError> {
        match check_capacity(capacity_bytes) {
            Ok(()) => Ok(Self { capacity: capacity_bytes, tail: 0 }),
            Err(error) => Err(error),
        }
    }

    /// Takes the space for a record of `len_bytes`, padding included, up to `limit`: an absolute
    /// position, at most the consumed position plus the capacity.
    ///
    /// # Errors
    /// [`NoCredit`] when it would end after `limit`; nothing has changed then.
    ///
    /// # Panics
    /// When `len_bytes` is not the length of a record: a bug of the caller.
    pub fn reserve(&mut self, len_bytes: usize, limit: Position) -> Result<Reservation, NoCredit> {
        assert!((1..=PAGE_BYTES).contains(&len_bytes), "no record has {len_bytes} bytes");
        let offset = self.tail & (self.capacity - 1);
        let span_bytes = span_bytes(len_bytes);
        let to_end = self.capacity - offset;
        let pad = if span_bytes > to_end { to_end } else { 0 };
        let end = self.tail + pad + span_bytes;
        if end > limit.0 {
            return Err(NoCredit);
        }
        self.tail = end;
        Ok(Reservation {
            padding: (pad > 0).then_some(Padding { offset_bytes: offset, len_bytes: pad as usize }),
            offset_bytes: (offset + pad) & (self.capacity - 1),
            span_bytes,
            end: Position(end),
        })
    }

    /// Position after everything reserved.
    #[must_use]
    pub const fn tail(&self) -> Position {
        Position(self.tail)
    }

    /// Low 32 bits of [`Self::tail`] in units of [`TAIL_UNIT_BYTES`]: what is announced.
    #[must_use]
    pub const fn tail_units(&self) -> u32 {
        (self.tail / TAIL_UNIT_BYTES) as u32
    }

    /// Bytes of the ring. A limit is the consumed position plus this, or less.
    #[must_use]
    pub const fn capacity_bytes(&self) -> u64 {
        self.capacity
    }
}

/// The subscriber's end of a remote ring. Nothing in the ring is trusted.
///
/// # Invariants
/// `position <= tail <= position + capacity`, both aligned to 64.
#[derive(Clone, Debug)]
pub struct RemoteReader {
    data: Words,
    capacity: u64,
    position: u64,
    tail: u64,
    peeked: u64,
}

impl RemoteReader {
    /// A reader of an empty ring.
    ///
    /// # Errors
    /// [`RemoteShapeError`] when the words cannot be a ring.
    pub fn new(data: Words) -> Result<Self, RemoteShapeError> {
        let capacity = (data.len() * WORD_BYTES) as u64;
        check_capacity(capacity)?;
        Ok(Self { data, capacity, position: 0, tail: 0, peeked: 0 })
    }

    /// Takes a tail as it travels. The announcement orders memory: whoever delivers it makes the
    /// record's bytes visible before (a work completion does; in one process, an Acquire load of
    /// where the tail was stored with Release).
    ///
    /// # Errors
    /// [`TailError`] when no such tail is possible now; nothing has changed then.
    pub fn announce_units(&mut self, units: u32) -> Result<(), TailError> {
        let ahead = units.wrapping_sub((self.tail / TAIL_UNIT_BYTES) as u32);
        self.announce(Position(self.tail.wrapping_add(u64::from(ahead) * TAIL_UNIT_BYTES)))
    }

    /// As [`Self::announce_units`], with the whole position.
    ///
    /// # Errors
    /// As [`Self::announce_units`].
    pub fn announce(&mut self, tail: Position) -> Result<(), TailError> {
        let possible = tail.0 >= self.tail
            && tail.0 - self.position <= self.capacity
            && tail.0.is_multiple_of(TAIL_UNIT_BYTES);
        if !possible {
            let (position, capacity) = (Position(self.position), self.capacity);
            return Err(TailError { announced: tail, position, capacity });
        }
        self.tail = tail.0;
        Ok(())
    }

    /// Copies the next record into `buffer` and moves past it; `None` when none is announced.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`]; the position is unchanged and the session is of no more use.
    #[inline]
    pub fn next<'b>(
        &mut self,
        buffer: &'b mut RecordBuffer,
    ) -> Result<Option<RecordBytes<'b>>, ReadError> {
        let Some(extent) = self.locate()? else { return Ok(None) };
        buffer.copy_lines(lines_of(self.data.atomics(), extent));
        self.position += extent.span_bytes();
        Ok(Some(buffer.record(extent.len_bytes)))
    }

    /// What the next record is, without moving; `None` when none is announced.
    ///
    /// # Errors
    /// As [`Self::next`].
    #[inline]
    pub fn peek(&mut self) -> Result<Option<RecordHead>, ReadError> {
        let Some(extent) = self.locate()? else { return Ok(None) };
        self.peeked = extent.span_bytes();
        Ok(Some(RecordHead::read(self.data.atomics(), extent)))
    }

    /// Moves past the record that the call before, [`Self::peek`], has returned. Does nothing
    /// otherwise.
    #[inline]
    pub const fn skip(&mut self) {
        self.position += self.peeked;
        self.peeked = 0;
    }

    /// Where the next record is read: what may be announced as consumed.
    #[must_use]
    pub const fn position(&self) -> Position {
        Position(self.position)
    }

    /// The tail announced last.
    #[must_use]
    pub const fn tail(&self) -> Position {
        Position(self.tail)
    }

    /// Bytes of the ring.
    #[must_use]
    pub const fn capacity_bytes(&self) -> u64 {
        self.capacity
    }

    /// When the oldest record that is announced and not read was published, as it says itself;
    /// `None` when there is none.
    #[must_use]
    pub fn unread_since(&self) -> Option<Nanos> {
        let extent = self.clone().locate().ok()??;
        let header = RawRecord::new(record_of(self.data.atomics(), extent)).header()?;
        Some(Nanos(header.ts_publish))
    }

    /// Finds the next record that is not padding. The loop ends: padding is followed by the start
    /// of the ring, where no padding is accepted.
    #[inline]
    fn locate(&mut self) -> Result<Option<Extent>, ReadError> {
        self.peeked = 0;
        while self.position != self.tail {
            match find(self.data.atomics(), self.position, self.tail) {
                Found::Record(extent) => return Ok(Some(extent)),
                Found::Padding(extent) => self.position += extent.span_bytes(),
                Found::Garbage => {
                    return Err(ReadError::Corrupt { position: Position(self.position) });
                }
            }
        }
        Ok(None)
    }
}

/// A reader that lends records in place, because the credit protects them.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct GatedRemoteReader {
    reader: RemoteReader,
}

#[cfg(not(loom))]
impl GatedRemoteReader {
    /// Wraps a reader whose position the writer respects.
    ///
    /// # Safety
    /// For the life of the result, nobody (no process, no network card) writes to the ring's words
    /// between a consumed position and the announced tail, where the consumed positions are at most
    /// what [`Self::position`] has returned so far; and what is announced is visible, as
    /// [`RemoteReader::announce_units`] asks. So the publisher is trusted to reserve with limits of
    /// at most consumed position + capacity.
    #[must_use]
    pub const unsafe fn new(reader: RemoteReader) -> Self {
        Self { reader }
    }

    /// Lends the next record in place and moves past it; `None` when none is announced. Aligned to
    /// 8.
    ///
    /// # Errors
    /// As [`RemoteReader::next`].
    #[inline]
    pub fn lend(&mut self) -> Result<Option<&[u8]>, ReadError> {
        let Some(extent) = self.reader.locate()? else { return Ok(None) };
        self.reader.position += extent.span_bytes();
        // SAFETY: the record lies before the announced tail and at or after `position` as it was
        // before this call, and the borrow of `self` keeps `position` from being read, thus from
        // being announced, while the bytes are lent. So the promise of `new` says that nobody
        // writes them. `locate` gives extents inside `data`.
        Ok(Some(unsafe { self.reader.data.lend(extent.first_word(), extent.len_bytes) }))
    }

    /// As [`RemoteReader::announce_units`].
    ///
    /// # Errors
    /// As [`RemoteReader::announce_units`].
    pub fn announce_units(&mut self, units: u32) -> Result<(), TailError> {
        self.reader.announce_units(units)
    }

    /// As [`RemoteReader::peek`].
    ///
    /// # Errors
    /// As [`RemoteReader::next`].
    #[inline]
    pub fn peek(&mut self) -> Result<Option<RecordHead>, ReadError> {
        self.reader.peek()
    }

    /// As [`RemoteReader::skip`].
    #[inline]
    pub const fn skip(&mut self) {
        self.reader.skip();
    }

    /// Where the next record is read: what may be announced as consumed.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.reader.position()
    }

    /// The tail announced last.
    #[must_use]
    pub const fn tail(&self) -> Position {
        self.reader.tail()
    }

    /// Gives up lending.
    #[must_use]
    pub fn into_inner(self) -> RemoteReader {
        self.reader
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::WordsMut;

    const CAPACITY: u64 = MIN_REMOTE_BYTES;
    /// Positions that are this far apart look the same when announced.
    const UNITS_WRAP_BYTES: u64 = TAIL_UNIT_BYTES << 32;

    fn reader_at(position: u64) -> RemoteReader {
        let data = WordsMut::heap(CAPACITY as usize / WORD_BYTES).reader();
        RemoteReader { position, tail: position, ..RemoteReader::new(data).unwrap() }
    }

    #[test]
    fn an_announced_tail_is_understood_where_its_32_bits_wrap() {
        for position in [0, CAPACITY, UNITS_WRAP_BYTES - CAPACITY / 2, 3 * UNITS_WRAP_BYTES - 64] {
            let mut reader = reader_at(position);
            for ahead in [0, 64, CAPACITY / 2, CAPACITY] {
                let cursor = RemoteCursor { capacity: CAPACITY, tail: position + ahead };
                reader.announce_units(cursor.tail_units()).unwrap();
                assert_eq!(reader.tail(), cursor.tail());
            }
        }
    }

    #[test]
    fn a_tail_that_goes_back_or_more_than_a_ring_ahead_is_refused() {
        for position in [0, 2 * CAPACITY, UNITS_WRAP_BYTES - 64] {
            let mut reader = reader_at(position);
            let tail = reader.tail();
            for units in [1 + CAPACITY / TAIL_UNIT_BYTES, u64::from(u32::MAX)] {
                let announced = position / TAIL_UNIT_BYTES + units;
                assert!(reader.announce_units(announced as u32).is_err(), "{units} ahead");
            }
            assert!(reader.announce(Position(position + 8)).is_err(), "not aligned");
            assert!(reader.announce(Position(position.wrapping_sub(64))).is_err());
            assert_eq!(reader.tail(), tail);
        }
    }

    #[test]
    fn a_capacity_just_outside_the_limits_is_refused() {
        for bytes in [0, 1, MIN_REMOTE_BYTES / 2, MIN_REMOTE_BYTES + 64, MAX_RING_BYTES * 2] {
            assert_eq!(RemoteCursor::new(bytes).map(|_| ()), Err(RemoteShapeError { bytes }));
        }
        assert!(RemoteCursor::new(MIN_REMOTE_BYTES).is_ok());
        assert!(RemoteCursor::new(MAX_RING_BYTES).is_ok());
    }
}
