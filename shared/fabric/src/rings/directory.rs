//! Directory entries as records that travel through a session's ring.
//!
//! ```text
//! record = header (96 B; kind: directory, instrument id) | entry (64 B)
//! ```

use tapecast_core::session::DIRECTORY_RECORD_BYTES;
use tapecast_wire::limits::{HEADER_BYTES, INSTRUMENT_ENTRY_BYTES};
use tapecast_wire::{
    Epoch, Flags, InstrumentEntry, InstrumentId, Kind, Sequence, SnapshotFields, SnapshotHeader,
    TradingStatus, UNDEFINED_PRICE, WireError, encode_snapshot,
};

pub(super) type Record = [u8; DIRECTORY_RECORD_BYTES];

const KIND: usize = core::mem::offset_of!(SnapshotHeader, kind);

/// The record of an entry.
pub(super) fn encode(entry: &InstrumentEntry, epoch: Epoch) -> Record {
    let fields = SnapshotFields {
        instrument_id: InstrumentId(entry.instrument_id),
        flags: Flags::NONE,
        trading_status: TradingStatus::Unknown,
        epoch,
        channel_sequence: Sequence(0),
        instrument_sequence: Sequence(0),
        feed_sequence: 0,
        ts_event: 0,
        ts_recv: 0,
        last_trade_price: UNDEFINED_PRICE,
        last_trade_quantity: 0,
    };
    let mut record = [0; DIRECTORY_RECORD_BYTES];
    let encoded = encode_snapshot(&mut record, &fields, &[], &[]);
    debug_assert_eq!(encoded, Ok(HEADER_BYTES));
    record[..2].copy_from_slice(&(DIRECTORY_RECORD_BYTES as u16).to_le_bytes());
    record[KIND] = Kind::Directory as u8;
    let mut writer = Fields { bytes: &mut record[HEADER_BYTES..] };
    writer.put(&entry.instrument_id.to_le_bytes());
    writer.put(&entry.price_exponent.to_le_bytes());
    writer.put(&entry.quantity_exponent.to_le_bytes());
    writer.put(&entry.reserved.to_le_bytes());
    writer.put(&entry.tick_size.to_le_bytes());
    writer.put(&entry.lot_size.to_le_bytes());
    writer.put(&entry.feed_instrument_id.to_le_bytes());
    writer.put(&entry.symbol);
    writer.put(&entry.venue);
    writer.put(&entry.reserved2.to_le_bytes());
    record
}

struct Fields<'a> {
    bytes: &'a mut [u8],
}

impl Fields<'_> {
    fn put(&mut self, field: &[u8]) {
        let (head, rest) = core::mem::take(&mut self.bytes).split_at_mut(field.len());
        head.copy_from_slice(field);
        self.bytes = rest;
    }
}

/// Reads the entry out of a directory record whose header was parsed before.
pub(super) fn decode(record: &[u8]) -> Result<InstrumentEntry, WireError> {
    let have = record.len();
    let short = WireError::Short { what: "directory record", have, need: DIRECTORY_RECORD_BYTES };
    let mut rest = record.get(HEADER_BYTES..).ok_or(short)?;
    if rest.len() < INSTRUMENT_ENTRY_BYTES {
        return Err(short);
    }
    Ok(InstrumentEntry {
        instrument_id: u32::from_le_bytes(take(&mut rest, short)?),
        price_exponent: i8::from_le_bytes(take(&mut rest, short)?),
        quantity_exponent: i8::from_le_bytes(take(&mut rest, short)?),
        reserved: u16::from_le_bytes(take(&mut rest, short)?),
        tick_size: i64::from_le_bytes(take(&mut rest, short)?),
        lot_size: u32::from_le_bytes(take(&mut rest, short)?),
        feed_instrument_id: u32::from_le_bytes(take(&mut rest, short)?),
        symbol: take(&mut rest, short)?,
        venue: take(&mut rest, short)?,
        reserved2: u64::from_le_bytes(take(&mut rest, short)?),
    })
}

fn take<const N: usize>(bytes: &mut &[u8], short: WireError) -> Result<[u8; N], WireError> {
    let (head, rest) = bytes.split_first_chunk().ok_or(short)?;
    *bytes = rest;
    Ok(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapecast_wire::{Instrument, Snapshot};

    fn entry(id: u32) -> InstrumentEntry {
        let mut instrument = Instrument::new(InstrumentId(id), "BRK.B", "XNYS");
        instrument.quantity_exponent = -3;
        instrument.tick_size = 10_000_000;
        instrument.lot_size = 100;
        instrument.feed_instrument_id = 0x0102_0304;
        instrument.to_wire()
    }

    #[test]
    fn an_entry_survives_its_record() {
        let record = encode(&entry(7), Epoch(9));
        let header = Snapshot::header_of(&record[..]);
        assert_eq!(decode(&record), Ok(entry(7)));
        // The array need not be aligned as a record in a ring is.
        if let Ok(header) = header {
            assert_eq!(Kind::from_wire(header.kind), Ok(Kind::Directory));
            assert_eq!((header.instrument_id, header.epoch), (7, 9));
        }
    }

    #[test]
    fn a_whole_record_is_decoded_and_one_byte_less_is_refused() {
        let record = encode(&entry(7), Epoch(9));
        assert!(decode(&record[..DIRECTORY_RECORD_BYTES - 1]).is_err());
        assert!(decode(&record[..HEADER_BYTES - 1]).is_err());
        assert!(decode(&[]).is_err());
    }
}
