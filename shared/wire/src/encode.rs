//! Writing records into page memory.

use zerocopy::IntoBytes;

use crate::limits::{HEADER_BYTES, LEVEL_BYTES, PAGE_BYTES, WORD_BYTES};
use crate::snapshot::{Flags, Kind, Level, SnapshotHeader, TradingStatus};
use crate::{Epoch, InstrumentId, Sequence, WIRE_VERSION, WireError};

/// What a publisher says in a snapshot, besides the levels.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotFields {
    /// Index into the directory.
    pub instrument_id: InstrumentId,
    /// Flags; the receiving end adds its own.
    pub flags: Flags,
    /// Trading status.
    pub trading_status: TradingStatus,
    /// Life of the publisher.
    pub epoch: Epoch,
    /// Number in the channel, from 1.
    pub channel_sequence: Sequence,
    /// Number among the instrument's snapshots, from 1.
    pub instrument_sequence: Sequence,
    /// Sequence number of the last feed message in the book.
    pub feed_sequence: u64,
    /// Venue time, Unix nanoseconds.
    pub ts_event: u64,
    /// Receive time, Unix nanoseconds.
    pub ts_recv: u64,
    /// Last trade price in 1e-9, [`crate::UNDEFINED_PRICE`] for none.
    pub last_trade_price: i64,
    /// Last trade quantity.
    pub last_trade_quantity: u64,
}

/// Encodes one snapshot at the start of `out` and returns its length in bytes (a multiple of 8).
///
/// `ts_publish` is written as 0: the sender stamps it when it hands the record to the fabric.
///
/// # Errors
/// [`WireError::NoRoom`] when `out` is smaller than the record or the record is larger than a page.
pub fn encode_snapshot(
    out: &mut [u8],
    fields: &SnapshotFields,
    bids: &[Level],
    asks: &[Level],
) -> Result<usize, WireError> {
    let len = HEADER_BYTES + (bids.len() + asks.len()) * LEVEL_BYTES;
    if len > PAGE_BYTES || len > out.len() {
        return Err(WireError::NoRoom { need: len, have: out.len().min(PAGE_BYTES) });
    }
    let header = SnapshotHeader {
        record_len: len as u16,
        header_len: HEADER_BYTES as u16,
        version: WIRE_VERSION,
        kind: Kind::Snapshot as u8,
        trading_status: fields.trading_status as u8,
        flags: fields.flags,
        bid_count: bids.len() as u16,
        ask_count: asks.len() as u16,
        instrument_id: fields.instrument_id.0,
        conflated_count: 0,
        epoch: fields.epoch.0,
        channel_sequence: fields.channel_sequence.0,
        instrument_sequence: fields.instrument_sequence.0,
        feed_sequence: fields.feed_sequence,
        ts_event: fields.ts_event,
        ts_recv: fields.ts_recv,
        ts_publish: 0,
        last_trade_price: fields.last_trade_price,
        last_trade_quantity: fields.last_trade_quantity,
    };
    out[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    let bid_end = HEADER_BYTES + bids.len() * LEVEL_BYTES;
    out[HEADER_BYTES..bid_end].copy_from_slice(bids.as_bytes());
    out[bid_end..len].copy_from_slice(asks.as_bytes());
    Ok(len)
}

/// First word of a padding record of `len` bytes; the rest of it is never read.
///
/// # Panics
/// When `len` is not a multiple of 8 between 8 and [`PAGE_BYTES`]: a bug of the caller.
#[must_use]
pub fn encode_padding(len: usize) -> u64 {
    assert!((WORD_BYTES..=PAGE_BYTES).contains(&len) && len.is_multiple_of(WORD_BYTES));
    let version = u64::from(WIRE_VERSION) << 32;
    let kind = (Kind::Padding as u64) << 48;
    len as u64 | (WORD_BYTES as u64) << 16 | version | kind
}
