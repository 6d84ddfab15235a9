//! What the unit tests of this module share.

use tapecast_wire::{
    Epoch, Flags, InstrumentId, Sequence, SnapshotFields, TradingStatus, UNDEFINED_PRICE,
    encode_snapshot,
};

/// One encoded snapshot without levels.
pub(super) fn record(instrument: u32, channel: u64, sequence: u64) -> Vec<u8> {
    let fields = SnapshotFields {
        instrument_id: InstrumentId(instrument),
        flags: Flags::NONE,
        trading_status: TradingStatus::Trading,
        epoch: Epoch(1),
        channel_sequence: Sequence(channel),
        instrument_sequence: Sequence(sequence),
        feed_sequence: channel,
        ts_event: 1,
        ts_recv: 2,
        last_trade_price: UNDEFINED_PRICE,
        last_trade_quantity: 0,
    };
    let mut out = vec![0; 4096];
    let len = encode_snapshot(&mut out, &fields, &[], &[]).unwrap();
    out.truncate(len);
    out
}
