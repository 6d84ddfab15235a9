//! A journal that a killed publisher has left, or anybody: recovered to its last whole record, with
//! nothing of what could be read before lost, and then played into the books.
#![no_main]

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use tapecast_journal::layout::{
    End, FileHeader, HEADER_BYTES, Hole, JOURNAL_VERSION, MAGIC, Origin, RecordHead, RecordKind,
};
use tapecast_journal::{How, Reader, Series, file_name, recover};
use tapecast_publisher::book::{BookBuilder, SnapshotDraft, SnapshotSink};
use tapecast_publisher::source::journal::{JournalOptions, JournalSource};
use tapecast_publisher::source::{Progress, Source};
use tapecast_wire::limits::PAGE_BYTES;
use tapecast_wire::{
    Epoch, Flags, Instrument, InstrumentId, Level, Sequence, SnapshotFields, TradingStatus,
    WIRE_VERSION, encode_snapshot,
};
use tempfile::TempDir;
use zerocopy::IntoBytes;

const LEVELS: usize = 5;

thread_local! {
    static PLACE: RefCell<(TempDir, PathBuf)> = {
        // Memory, where there is such a folder.
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let folder = folder.expect("a folder");
        let path = folder.path().join(file_name(Epoch(1), 1));
        RefCell::new((folder, path))
    };
}

struct Nobody;

impl SnapshotSink for Nobody {
    fn on_instrument(&mut self, _instrument: &Instrument) {}
    fn on_snapshot(&mut self, _draft: &SnapshotDraft, bids: &[Level], asks: &[Level]) {
        assert!(bids.len() <= LEVELS && asks.len() <= LEVELS);
    }
}

/// A journal's beginning and records as a script wants them: most of them good, and some whatever.
fn compose(script: &[u8]) -> Vec<u8> {
    let header = FileHeader {
        magic: MAGIC,
        version: JOURNAL_VERSION,
        header_len: HEADER_BYTES as u16,
        wire_version: WIRE_VERSION,
        origin: Origin::Publisher as u8,
        reserved: 0,
        epoch: 1,
        file_number: 1,
        levels: LEVELS as u16,
        reserved2: 0,
        created_ns: 1,
        snapshots_before: 0,
        reserved3: [0; 12],
        checksum: 0,
    };
    let mut journal = header.sealed().as_bytes().to_vec();
    let mut script = script.iter().copied();
    let mut snapshots = 0;
    while let Some(operation) = script.next() {
        let (which, number) = (script.next().unwrap_or(0), script.next().unwrap_or(0));
        match operation % 7 {
            0 => {
                let symbol = format!("S{}", number % 8);
                let instrument = Instrument::new(InstrumentId(u32::from(which % 4)), &symbol, "X");
                put(&mut journal, RecordKind::Instrument, instrument.to_wire().as_bytes());
            }
            1 => {
                snapshots += 1;
                put(&mut journal, RecordKind::Snapshot, &snapshot(which, number));
            }
            2 => {
                let lost =
                    if which & 1 == 0 { u64::from(number) } else { u64::MAX - u64::from(number) };
                let (first_sequence, last_sequence) = (u64::from(which), u64::from(number));
                let hole = Hole { lost, first_sequence, last_sequence };
                put(&mut journal, RecordKind::Hole, hole.as_bytes());
            }
            3 => {
                let wrong = u64::from(number == 0xff);
                let end = End { reason: which % 4, reserved: [0; 7], snapshots: snapshots + wrong };
                put(&mut journal, RecordKind::End, end.as_bytes());
            }
            4 => {
                let kind = RecordKind::from_file(which % 4 + 1).expect("a kind");
                let payload: Vec<u8> = script.by_ref().take(usize::from(number)).collect();
                put(&mut journal, kind, &payload);
            }
            5 => journal.extend(script.by_ref().take(usize::from(number))),
            _ => journal.resize(journal.len() + 8 * usize::from(number), 0),
        }
    }
    journal
}

fn put(journal: &mut Vec<u8>, kind: RecordKind, payload: &[u8]) {
    journal.extend_from_slice(RecordHead::new(kind, 1, payload).as_bytes());
    journal.extend_from_slice(payload);
}

fn snapshot(which: u8, number: u8) -> Vec<u8> {
    let sequence = Sequence(u64::from(number));
    let fields = SnapshotFields {
        instrument_id: InstrumentId(u32::from(which % 4)),
        flags: Flags::default(),
        trading_status: TradingStatus::default(),
        epoch: Epoch(1),
        channel_sequence: sequence,
        instrument_sequence: sequence,
        feed_sequence: sequence.0,
        ts_event: sequence.0,
        ts_recv: sequence.0,
        last_trade_price: 1,
        last_trade_quantity: 1,
    };
    // More of them than the books have room for, too.
    let level = Level { price: 1, quantity: 1, order_count: 1, reserved: 0 };
    let levels = [level; 8];
    let (bids, asks) = (usize::from(which >> 2 & 7), usize::from(which >> 5));
    let mut bytes = vec![0; PAGE_BYTES];
    let len = encode_snapshot(&mut bytes, &fields, &levels[..bids], &levels[..asks]);
    bytes.truncate(len.expect("it fits"));
    bytes
}

/// Snapshots that can be read, and how the reading ended.
fn read(path: &Path) -> Option<(u64, How, u64)> {
    let mut reader = Reader::open(path).ok()?;
    while reader.advance().expect("a file can be read") {}
    let ending = reader.ending().expect("it has ended");
    Some((reader.snapshots(), ending.how, ending.at))
}

fn play(path: &Path, allow_truncated: bool) {
    let options = JournalOptions { symbols: Vec::new(), allow_truncated, levels_max: LEVELS };
    let Ok(mut source) = JournalSource::open(path, options) else { return };
    let mut builder = BookBuilder::new(LEVELS, Nobody);
    let bytes = fs::metadata(path).expect("a file").len();
    // No event is shorter than a byte of input, so a source that goes on for longer loops.
    for _ in 0..=bytes {
        match source.advance(&mut builder) {
            Ok(Progress::Event { .. }) => {}
            Ok(Progress::End) | Err(_) => return,
        }
    }
    panic!("more events than bytes");
}

fuzz_target!(|bytes: &[u8]| PLACE.with_borrow(|(folder, path)| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let bytes = if choice & 6 == 0 { bytes.to_vec() } else { compose(bytes) };
    fs::write(path, &bytes).expect("a file of ours");
    play(path, choice & 1 == 0);
    let before = read(path);
    let recovered = recover(path);
    assert_eq!(recovered.is_ok(), before.is_some(), "{recovered:?}, {before:?}");
    let (Ok(recovered), Some((snapshots, how, at))) = (recovered, before) else { return };
    let recovered = recovered.expect("nobody else has it open");
    assert_eq!(
        (recovered.snapshots, recovered.ending.how, recovered.ending.at),
        (snapshots, how, at)
    );
    let len = fs::metadata(path).expect("a file").len();
    assert_eq!(len + recovered.removed_bytes, bytes.len() as u64);
    assert_eq!(fs::read(path).expect("a file"), bytes[..len as usize], "it has changed");
    let (still, how, _) = read(path).expect("a journal still");
    assert_eq!(still, snapshots, "something was lost");
    assert!(how != How::Cut, "there is still a cut record");
    let again = recover(path).expect("a journal still").expect("nobody else has it open");
    assert_eq!(again.removed_bytes, 0, "recovered twice");
    let mut series = Series::open(folder.path()).expect("a folder with a journal");
    while series.advance().expect("a file can be read") {}
}));
