//! Snapshots to send.

use tapecast_fabric::pool::{PageWriter, Pool, Shared};
use tapecast_tests::bench::{Size, unix_now};
use tapecast_wire::limits::record_bytes_max;
use tapecast_wire::{
    Epoch, Flags, InstrumentId, Level, Sequence, SnapshotFields, TradingStatus, UNDEFINED_PRICE,
    encode_snapshot,
};

/// Makes snapshots of one instrument after the other, as a feed thread would.
#[derive(Debug)]
pub(crate) struct Traffic {
    pool: Pool,
    page: Option<PageWriter>,
    levels: Vec<Level>,
    instruments: u64,
    made: u64,
    epoch: Epoch,
}

impl Traffic {
    pub(crate) fn new(pool: Pool, size: Size, instruments: usize, epoch: Epoch) -> Self {
        let levels = (0..size.levels() as i64)
            .map(|depth| Level::new(1_000_000_000_000 - depth * 10_000_000, 100, 1))
            .collect();
        Self { pool, page: None, levels, instruments: instruments as u64, made: 0, epoch }
    }

    /// The next snapshot, whose channel sequence is one more than the last one's. `None` while no
    /// page is free.
    pub(crate) fn snapshot(&mut self) -> Option<Shared> {
        let bytes = record_bytes_max(self.levels.len());
        if self.page.as_ref().is_none_or(|page| page.room() < bytes) {
            // The old page returns when nobody reads it any more.
            self.page = None;
            self.page = Some(self.pool.loan()?);
        }
        let fields = SnapshotFields {
            instrument_id: InstrumentId((self.made % self.instruments) as u32),
            flags: Flags::NONE,
            trading_status: TradingStatus::Trading,
            epoch: self.epoch,
            channel_sequence: Sequence(self.made + 1),
            instrument_sequence: Sequence(self.made / self.instruments + 1),
            feed_sequence: self.made + 1,
            ts_event: self.made + 1,
            ts_recv: self.made + 1,
            last_trade_price: UNDEFINED_PRICE,
            last_trade_quantity: 0,
        };
        let levels = &self.levels;
        let encode = |out: &mut [u8]| encode_snapshot(out, &fields, levels, levels);
        let mut filled = self.page.as_mut()?.append(bytes, encode).ok()?;
        filled.stamp_publish(unix_now());
        self.made += 1;
        Some(filled.share())
    }
}
