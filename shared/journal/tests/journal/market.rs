//! Snapshots and journals to test with.

use std::path::Path;

use tapecast_journal::{
    Ending, Entry, Hole, Identity, Options, Origin, Place, Reader, Sync, Writer,
};
use tapecast_wire::{
    Epoch, Flags, Instrument, InstrumentEntry, InstrumentId, Level, Nanos, Sequence,
    SnapshotFields, TradingStatus, encode_snapshot,
};

pub(crate) const NOW: Nanos = Nanos(1_700_000_000_000_000_000);

/// The record of snapshot `number`, from 1, of instrument `id`, with so many levels a side.
pub(crate) fn record(id: u32, number: u64, levels: usize) -> Vec<u8> {
    let fields = SnapshotFields {
        instrument_id: InstrumentId(id),
        flags: Flags::NONE,
        trading_status: TradingStatus::Trading,
        epoch: Epoch(7),
        channel_sequence: Sequence(number),
        instrument_sequence: Sequence(number),
        feed_sequence: 10 * number,
        ts_event: number,
        ts_recv: number,
        last_trade_price: 5,
        last_trade_quantity: 6,
    };
    let side: Vec<Level> = (0..levels).map(|i| Level::new(i as i64, number, 1)).collect();
    let mut bytes = vec![0; 4096];
    let len = encode_snapshot(&mut bytes, &fields, &side, &side).unwrap();
    bytes.truncate(len);
    bytes
}

pub(crate) fn entry(id: u32) -> InstrumentEntry {
    Instrument::new(InstrumentId(id), &format!("S{id}"), "XTST").to_wire()
}

pub(crate) fn identity() -> Identity {
    Identity { epoch: Epoch(7), origin: Origin::Publisher, levels: 10 }
}

pub(crate) fn one_file(path: &Path) -> Options {
    let place = Place::File { path: path.to_owned(), replace: false };
    Options { place, identity: identity(), sync: Sync::Never }
}

pub(crate) fn folder(path: &Path, rotate_bytes: u64, keep: usize) -> Options {
    let place = Place::Folder { path: path.to_owned(), rotate_bytes, keep };
    Options { place, identity: identity(), sync: Sync::Close }
}

/// Writes a small journal of everything that there is, and closes it.
pub(crate) fn small_journal(path: &Path) -> Vec<u8> {
    let mut writer = Writer::create(one_file(path), &[entry(0)], NOW).unwrap();
    writer.append_snapshot(&record(0, 1, 2), NOW).unwrap();
    writer.append_instrument(&entry(1), NOW).unwrap();
    writer.append_snapshot(&record(1, 2, 0), NOW).unwrap();
    let hole = Hole { lost: 2, first_sequence: 3, last_sequence: 4 };
    writer.append_hole(hole, NOW).unwrap();
    writer.append_snapshot(&record(0, 5, 1), NOW).unwrap();
    writer.close(NOW).unwrap();
    std::fs::read(path).unwrap()
}

/// What a reader found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// A line for each record.
    pub(crate) records: Vec<String>,
    /// Where each of them ends.
    pub(crate) ends: Vec<u64>,
    pub(crate) ending: Ending,
}

/// Reads everything there is; `None` when it is no journal.
pub(crate) fn read(bytes: &[u8]) -> Option<Found> {
    let mut reader = Reader::new(bytes).unwrap().ok()?;
    let (mut records, mut ends) = (Vec::new(), Vec::new());
    while let Some(record) = reader.next_record().unwrap() {
        records.push(match record.entry {
            Entry::Snapshot { snapshot, instrument } => {
                let symbol = instrument.map_or("nameless", |known| known.symbol.as_str());
                format!("{symbol} {}", snapshot.channel_sequence())
            }
            Entry::Instrument(instrument) => format!("is {}", instrument.symbol),
            Entry::Hole(hole) => format!("lost {}", hole.lost),
        });
        ends.push(reader.position());
    }
    Some(Found { records, ends, ending: reader.ending().unwrap() })
}
