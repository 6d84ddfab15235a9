//! What the DBN tests share: real data, a recording sink, and an encoder of small inputs.
#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses a part of it")]

use std::io::Cursor;
use std::num::NonZeroU64;
use std::path::PathBuf;

use dbn::encode::{DbnMetadataEncoder, DbnRecordEncoder, EncodeRecord};
use dbn::{FlagSet, MappingInterval, MboMsg, Metadata, RecordHeader, SType, Schema, SymbolMapping};
use tapecast_publisher::source::dbn::{DbnError, DbnOptions, DbnSource};
use tapecast_publisher::source::{EventSink, FeedStamp, MarketEvent, Progress, Source};
use tapecast_wire::{Instrument, InstrumentId};

/// A folder or file of the shared data, or `None` (said aloud) where it is absent.
pub(crate) fn data(relative: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(relative);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} is not there", path.display());
    None
}

/// Everything that a source said, in order, as text lines that tests can compare.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) lines: Vec<String>,
    pub(crate) stamps: Vec<FeedStamp>,
    pub(crate) events: u64,
    pub(crate) event_ends: u64,
}

impl EventSink for Recorder {
    fn on_instrument(&mut self, instrument: &Instrument) {
        self.lines.push(format!(
            "instrument {} {}@{} feed={} tick={} lot={}",
            instrument.instrument_id,
            instrument.symbol,
            instrument.venue,
            instrument.feed_instrument_id,
            instrument.tick_size,
            instrument.lot_size,
        ));
    }

    fn on_event(&mut self, instrument: InstrumentId, stamp: &FeedStamp, event: MarketEvent<'_>) {
        self.events += 1;
        self.stamps.push(*stamp);
        self.lines.push(format!("{instrument} {event:?}"));
    }

    fn on_event_end(&mut self) {
        self.event_ends += 1;
        self.lines.push("end".to_owned());
    }
}

/// Reads to the end or to the first error.
pub(crate) fn drain<S: Source>(source: &mut S, sink: &mut impl EventSink) -> Result<u64, S::Error> {
    let mut events = 0;
    loop {
        match source.advance(sink)? {
            Progress::Event { .. } => events += 1,
            Progress::End => return Ok(events),
        }
    }
}

pub(crate) type MemorySource = DbnSource<Cursor<Vec<u8>>>;

pub(crate) fn open(bytes: Vec<u8>) -> Result<MemorySource, DbnError> {
    open_with(bytes, DbnOptions::default())
}

pub(crate) fn open_with(bytes: Vec<u8>, options: DbnOptions) -> Result<MemorySource, DbnError> {
    DbnSource::from_reader("input", Cursor::new(bytes), options)
}

/// 2024-01-02 00:00 UTC.
pub(crate) const DAY_ONE: u64 = 1_704_153_600_000_000_000;
pub(crate) const DAY_NS: u64 = 86_400_000_000_000;

/// Metadata of a dataset with one venue, where each symbol has its own id on each day from 0.
pub(crate) fn metadata(schema: Option<Schema>, mappings: &[(&str, &[u32])]) -> Metadata {
    let day = |offset: usize| bare(None, DAY_ONE + offset as u64 * DAY_NS).start().date();
    let mappings = mappings.iter().map(|(symbol, ids)| SymbolMapping {
        raw_symbol: (*symbol).to_owned(),
        intervals: ids
            .iter()
            .enumerate()
            .map(|(index, id)| MappingInterval {
                start_date: day(index),
                end_date: day(index + 1),
                symbol: id.to_string(),
            })
            .collect(),
    });
    let mut metadata = bare(schema, DAY_ONE);
    metadata.mappings = mappings.collect();
    metadata
}

fn bare(schema: Option<Schema>, start: u64) -> Metadata {
    Metadata::builder()
        .dataset("GLBX.MDP3".to_owned())
        .schema(schema)
        .start(start)
        .end(NonZeroU64::new(start + DAY_NS))
        .stype_in(Some(SType::RawSymbol))
        .stype_out(SType::InstrumentId)
        .build()
}

/// Bytes of a DBN file.
pub(crate) struct File {
    bytes: Vec<u8>,
}

impl File {
    pub(crate) fn new(metadata: &Metadata) -> Self {
        let mut bytes = Vec::new();
        DbnMetadataEncoder::new(&mut bytes).encode(metadata).unwrap();
        Self { bytes }
    }

    pub(crate) fn mbo(mappings: &[(&str, &[u32])]) -> Self {
        Self::new(&metadata(Some(Schema::Mbo), mappings))
    }

    pub(crate) fn with<R: dbn::encode::DbnEncodable>(mut self, record: &R) -> Self {
        DbnRecordEncoder::new(&mut self.bytes).encode_record(record).unwrap();
        self
    }

    pub(crate) fn with_all(self, records: &[MboMsg]) -> Self {
        records.iter().fold(self, Self::with)
    }

    pub(crate) fn with_raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn zstd(self) -> Vec<u8> {
        zstd::encode_all(self.bytes.as_slice(), 3).unwrap()
    }
}

pub(crate) const LAST: u8 = dbn::flags::LAST;
pub(crate) const SNAPSHOT: u8 = dbn::flags::SNAPSHOT;
pub(crate) const TOB: u8 = dbn::flags::TOB;
pub(crate) const MAYBE_BAD_BOOK: u8 = dbn::flags::MAYBE_BAD_BOOK;
pub(crate) const BAD_TS_RECV: u8 = dbn::flags::BAD_TS_RECV;

/// An order record of instrument 7 at the start of day one; `what` is its action and its side.
pub(crate) fn mbo(what: &str, order_id: u64, price: i64, size: u32, flags: u8) -> MboMsg {
    MboMsg {
        hd: RecordHeader::new::<MboMsg>(dbn::rtype::MBO, 1, 7, DAY_ONE + 5),
        order_id,
        price,
        size,
        flags: FlagSet::new(flags),
        channel_id: 0,
        action: what.as_bytes()[0] as std::ffi::c_char,
        side: what.as_bytes()[1] as std::ffi::c_char,
        ts_recv: DAY_ONE + 10,
        ts_in_delta: 0,
        sequence: 42,
    }
}

pub(crate) fn of_instrument(mut record: MboMsg, instrument_id: u32) -> MboMsg {
    record.hd.instrument_id = instrument_id;
    record
}

pub(crate) fn on_day(mut record: MboMsg, day: u64) -> MboMsg {
    record.ts_recv += day * DAY_NS;
    record.hd.ts_event += day * DAY_NS;
    record
}

/// What one input says; panics when it is damaged.
pub(crate) fn lines(bytes: Vec<u8>) -> Vec<String> {
    let mut sink = Recorder::default();
    drain(&mut open(bytes).unwrap(), &mut sink).unwrap();
    sink.lines
}
