//! What the tap and the scribe do when there is no room, and what a replay makes of it.

use crossbeam_channel::{Receiver, bounded};
use tapecast_journal::{Entry, Hole, Series, files_of};
use tapecast_wire::{
    Flags, Instrument, InstrumentId, Level, Nanos, Sequence, SnapshotFields, TradingStatus,
    encode_snapshot,
};

use super::chunk::{ItemKind, Parcel};
use super::*;
use crate::book::SnapshotDraft;
use crate::source::journal::{JournalOptions, JournalSource};
use crate::source::{EventSink, FeedStamp, MarketEvent, Progress, Source};

fn record(id: u32, number: u64, flags: Flags) -> Vec<u8> {
    let fields = SnapshotFields {
        instrument_id: InstrumentId(id),
        flags,
        trading_status: TradingStatus::Trading,
        epoch: Epoch(7),
        channel_sequence: Sequence(number),
        instrument_sequence: Sequence(number),
        feed_sequence: 100 + number,
        ts_event: 1,
        ts_recv: 2,
        last_trade_price: 3,
        last_trade_quantity: 4,
    };
    let mut bytes = vec![0; 4096];
    let len = encode_snapshot(&mut bytes, &fields, &[Level::new(1, 2, 3); 10], &[]).unwrap();
    bytes.truncate(len);
    bytes
}

fn entry(id: u32, symbol: &str) -> InstrumentEntry {
    Instrument::new(InstrumentId(id), symbol, "X").to_wire()
}

/// A tap with so many chunks, and the scribe's ends of its channels.
fn tap(chunks: usize) -> (JournalTap, Receiver<Parcel>, crossbeam_channel::Sender<Chunk>) {
    let (to_scribe, full) = bounded(chunks + 1);
    let (to_tap, empty) = bounded(chunks);
    (0..chunks).for_each(|_| to_tap.try_send(Chunk::new()).unwrap());
    (JournalTap::new(to_scribe, empty), full, to_tap)
}

fn chunk_of(parcel: Parcel) -> Chunk {
    match parcel {
        Parcel::Chunk(chunk) => chunk,
        Parcel::End(_) => panic!("the end came too early"),
    }
}

#[test]
fn what_finds_no_chunk_is_counted_and_an_instrument_is_kept_for_the_next_one() {
    let (mut tap, full, to_tap) = tap(1);
    let one = record(0, 1, Flags::NONE);
    let fit = CHUNK_BYTES / (one.len() + 8);
    for number in 1..=fit as u64 + 3 {
        tap.on_snapshot(&record(0, number, Flags::NONE), Sequence(number));
    }
    tap.on_instrument(&entry(9, "LATE"));
    tap.on_snapshot(&record(9, 1, Flags::NONE), Sequence(fit as u64 + 4));
    let mut chunk = chunk_of(full.try_recv().unwrap());
    assert_eq!((chunk.items().count(), chunk.hole), (fit, Hole::default()));
    chunk.clear();
    to_tap.try_send(chunk).unwrap();
    tap.on_snapshot(&record(9, 2, Flags::NONE), Sequence(fit as u64 + 5));
    drop(tap);
    let chunk = chunk_of(full.try_recv().unwrap());
    let first = fit as u64 + 1;
    let hole = Hole { lost: 4, first_sequence: first, last_sequence: first + 3 };
    assert_eq!(chunk.hole, hole);
    let kinds: Vec<ItemKind> = chunk.items().map(|item| item.0).collect();
    assert_eq!(kinds, [ItemKind::Instrument, ItemKind::Snapshot]);
    assert!(matches!(full.try_recv(), Ok(Parcel::End(hole)) if hole.is_empty()));
}

#[test]
fn what_is_lost_last_is_told_at_the_end() {
    let (mut tap, full, _to_tap) = tap(0);
    tap.on_snapshot(&record(0, 5, Flags::NONE), Sequence(5));
    drop(tap);
    assert!(matches!(full.try_recv(), Ok(Parcel::End(hole)) if hole.lost == 1));
}

/// Writes a journal through tap and scribe; `put` says what.
fn written(folder: &Path, epoch: u64, put: impl FnOnce(&mut JournalTap)) -> JournalReport {
    let mut config = Config::default();
    config.journal.path = Some(folder.to_owned());
    let directory = Directory::new(8);
    let (mut tap, thread) = start(&config, Epoch(epoch), &directory).unwrap().unwrap();
    put(&mut tap);
    drop(tap);
    thread.finish()
}

#[test]
fn a_hole_is_marked_where_it_is_and_the_account_balances() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("j");
    let report = written(&folder, 7, |tap| {
        tap.on_instrument(&entry(0, "A"));
        tap.on_snapshot(&record(0, 1, Flags::NONE), Sequence(1));
        tap.hand_over();
        tap.hole.add(2);
        tap.on_snapshot(&record(0, 3, Flags::NONE), Sequence(3));
    });
    assert_eq!((report.records, report.lost, report.holes, report.files), (2, 1, 1, 1));
    assert_eq!(report.error, None);
    let mut series = Series::open(&folder).unwrap();
    let mut found = Vec::new();
    while series.advance().unwrap() {
        found.push(match series.record().unwrap().entry {
            Entry::Snapshot { snapshot, .. } => snapshot.channel_sequence().get().to_string(),
            Entry::Instrument(instrument) => instrument.symbol.clone(),
            Entry::Hole(hole) => format!("hole {}", hole.first_sequence),
        });
    }
    assert_eq!(found, ["A", "1", "hole 2", "3"]);
    let bytes: u64 = files_of(&folder).unwrap().iter().map(|f| f.metadata().unwrap().len()).sum();
    assert_eq!(report.bytes, bytes);
}

/// What a replay publishes.
#[derive(Debug, Default)]
struct Replayed {
    instruments: Vec<String>,
    snapshots: Vec<(SnapshotDraft, usize)>,
}

impl EventSink for Replayed {
    fn on_instrument(&mut self, instrument: &Instrument) {
        self.instruments.push(format!("{} {}", instrument.instrument_id, instrument.symbol));
    }

    fn on_event(&mut self, _: InstrumentId, _: &FeedStamp, _: MarketEvent<'_>) {
        panic!("a journal has whole snapshots only");
    }

    fn on_event_end(&mut self) {}

    fn on_snapshot(&mut self, draft: &SnapshotDraft, bids: &[Level], asks: &[Level]) {
        self.snapshots.push((*draft, bids.len() + asks.len()));
    }
}

fn options(symbols: &[&str]) -> JournalOptions {
    let symbols = symbols.iter().map(|symbol| (*symbol).to_owned()).collect();
    JournalOptions { symbols, allow_truncated: false, levels_max: 10 }
}

fn replay(folder: &Path, symbols: &[&str]) -> Replayed {
    let mut source = JournalSource::open(folder, options(symbols)).unwrap();
    let mut replayed = Replayed::default();
    let known: Vec<_> = source.instruments().to_vec();
    known.iter().for_each(|instrument| replayed.on_instrument(instrument));
    while source.advance(&mut replayed).unwrap() != Progress::End {}
    replayed
}

#[test]
fn a_replay_gives_back_the_drafts_without_the_marks_of_a_receiver_and_joins_lives_by_symbol() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("j");
    let marked = Flags::INITIAL_IMAGE.with(Flags::CONFLATED).with(Flags::SUSPECT);
    written(&folder, 7, |tap| {
        tap.on_instrument(&entry(0, "A"));
        tap.on_instrument(&entry(1, "B"));
        tap.on_snapshot(&record(1, 1, marked), Sequence(1));
    });
    // Another life deals other ids.
    written(&folder, 8, |tap| {
        tap.on_instrument(&entry(0, "B"));
        tap.on_snapshot(&record(0, 1, Flags::NONE), Sequence(1));
        tap.on_instrument(&entry(1, "C"));
        tap.on_snapshot(&record(1, 2, Flags::NONE), Sequence(2));
    });
    let all = replay(&folder, &[]);
    assert_eq!(all.instruments, ["0 A", "1 B", "2 C"]);
    let ids: Vec<u32> = all.snapshots.iter().map(|(draft, _)| draft.instrument.get()).collect();
    assert_eq!(ids, [1, 1, 2]);
    let expected = SnapshotDraft {
        instrument: InstrumentId(1),
        flags: Flags::SUSPECT,
        status: TradingStatus::Trading,
        feed_sequence: 101,
        ts_event: 1,
        ts_recv: 2,
        last_trade: Some((3, 4)),
    };
    assert_eq!(all.snapshots[0], (expected, 10));
    assert_eq!(replay(&folder, &["B"]).snapshots.len(), 2);
    assert!(JournalSource::open(&folder, options(&["NONE"])).is_err());
}

#[test]
fn a_snapshot_that_is_deeper_than_there_is_room_for_is_told_with_the_flag() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("j");
    written(&folder, 7, |tap| {
        tap.on_instrument(&entry(0, "A"));
        tap.on_snapshot(&record(0, 1, Flags::NONE), Sequence(1));
    });
    let shallow = JournalOptions { levels_max: 9, ..options(&[]) };
    let mut source = JournalSource::open(&folder, shallow).unwrap();
    let error = source.advance(&mut Replayed::default()).unwrap_err().to_string();
    assert!(error.contains("--levels 10"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error_that_says_what_to_do() {
    let mut config = Config::default();
    config.journal.path = Some(PathBuf::from("/nonexistent/journal"));
    let error = start(&config, Epoch(1), &Directory::new(1)).unwrap_err();
    assert!(error.to_string().contains("make the folder that it is to be in"), "{error}");
}

#[test]
fn holes_that_say_more_than_can_be_counted_are_no_reason_to_stop() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("j.tapejournal");
    let options = Options {
        place: Place::File { path: path.clone(), replace: false },
        identity: Identity { epoch: Epoch(7), origin: Origin::Publisher, levels: 10 },
        sync: Sync::Never,
    };
    let mut writer = Writer::create(options, &[entry(0, "A")], Nanos(1)).unwrap();
    for _ in 0..2 {
        let hole = Hole { lost: u64::MAX, first_sequence: 1, last_sequence: 2 };
        writer.append_hole(hole, Nanos(2)).unwrap();
    }
    writer.append_snapshot(&record(0, 1, Flags::NONE), Nanos(3)).unwrap();
    writer.close(Nanos(4)).unwrap();
    assert_eq!(replay(&path, &[]).snapshots.len(), 1);
}
