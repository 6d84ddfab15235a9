//! Snapshots that outlive their callback.

use std::sync::Arc;

use tapecast_wire::limits::{HEADER_BYTES, WORD_BYTES};
use tapecast_wire::{Instrument, Nanos, Snapshot as Record, SnapshotHeader};
use zerocopy::IntoBytes;

use crate::snapshot::Snapshot;

/// A snapshot to keep: one allocation, and a reference to its directory entry.
#[derive(Clone, Debug)]
pub struct OwnedSnapshot {
    record: OwnedRecord,
    instrument: Arc<Instrument>,
    received: Option<Nanos>,
}

impl OwnedSnapshot {
    pub(crate) const fn new(
        record: OwnedRecord,
        instrument: Arc<Instrument>,
        received: Option<Nanos>,
    ) -> Self {
        Self { record, instrument, received }
    }

    /// The same view that a callback has.
    #[must_use]
    pub fn view(&self) -> Snapshot<'_> {
        Snapshot::new(self.record.view(), &self.instrument, self.received)
    }
}

/// A copy of one record.
#[derive(Clone, Debug)]
pub(crate) struct OwnedRecord {
    /// Words, because a record is aligned to eight bytes.
    words: Box<[u64]>,
}

impl OwnedRecord {
    pub(crate) fn of(record: &Record<'_>) -> Self {
        Self::with_header(record, record.header())
    }

    /// A copy whose header has these values; its lengths and counts are the record's all the same.
    pub(crate) fn with_header(record: &Record<'_>, header: &SnapshotHeader) -> Self {
        let (bids, asks) = (record.bids().as_bytes(), record.asks().as_bytes());
        let len = HEADER_BYTES + bids.len() + asks.len();
        // What a later version may have put between header and levels is not kept.
        let header =
            SnapshotHeader { record_len: len as u16, header_len: HEADER_BYTES as u16, ..*header };
        let mut words = vec![0_u64; len / WORD_BYTES].into_boxed_slice();
        let (head, levels) = words.as_mut_bytes().split_at_mut(HEADER_BYTES);
        head.copy_from_slice(header.as_bytes());
        let (bid_bytes, ask_bytes) = levels.split_at_mut(bids.len());
        bid_bytes.copy_from_slice(bids);
        ask_bytes.copy_from_slice(asks);
        Self { words }
    }

    pub(crate) fn view(&self) -> Record<'_> {
        Record::parse(self.words.as_bytes()).expect("the copy of a parsed record parses")
    }
}

#[cfg(test)]
mod tests {
    use tapecast_wire::encode_snapshot;
    use tapecast_wire::limits::{MAX_LEVELS_PER_SIDE, PAGE_BYTES};
    use tapecast_wire::{
        Epoch, Flags, InstrumentId, Level, Sequence, SnapshotFields, TradingStatus,
    };

    use super::*;

    #[test]
    fn a_kept_snapshot_is_the_one_that_was_seen_down_to_the_last_level() {
        let fields = SnapshotFields {
            instrument_id: InstrumentId(1),
            flags: Flags::HALTED,
            trading_status: TradingStatus::Halted,
            epoch: Epoch(9),
            channel_sequence: Sequence(2),
            instrument_sequence: Sequence(1),
            feed_sequence: 3,
            ts_event: 4,
            ts_recv: 5,
            last_trade_price: 6,
            last_trade_quantity: 7,
        };
        for depth in [0, 1, MAX_LEVELS_PER_SIDE] {
            let bids: Vec<_> = (0..depth as i64).map(|i| Level::new(-i, 1, 1)).collect();
            let asks: Vec<_> = (0..depth as i64).map(|i| Level::new(i, 2, 2)).collect();
            let mut memory = vec![0_u64; PAGE_BYTES / WORD_BYTES];
            encode_snapshot(memory.as_mut_bytes(), &fields, &bids, &asks).unwrap();
            let record = Record::parse(memory.as_bytes()).unwrap();
            let kept = OwnedRecord::of(&record);
            let view = kept.view();
            assert_eq!(view.header(), record.header());
            assert_eq!((view.bids(), view.asks()), (&bids[..], &asks[..]));
        }
    }
}
