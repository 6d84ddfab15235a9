//! Real data with results that others computed.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};
use tapecast_publisher::book::{BookBuilder, SnapshotDraft, SnapshotSink};
use tapecast_publisher::source::Source;
use tapecast_publisher::source::itch::{EventEnd, ItchError, ItchOptions, ItchSource};
use tapecast_wire::{Instrument, InstrumentId, Level};

use crate::support::{Recorder, play, reference};

const NEW_YORK_MIDNIGHT: u64 = 1_548_824_400_000_000_000; // 2019-01-30T05:00:00Z
const SCALE: i64 = 100_000; // 1e-4 to 1e-9

fn per_message() -> ItchOptions {
    ItchOptions { event_end: EventEnd::Message, ..ItchOptions::default() }
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_reader(File::open(path).unwrap()).unwrap()
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `px:qty,…` or `px:qty:count,…`, prices in 1e-4.
fn side_line(levels: &[Level], with_count: bool) -> String {
    let mut line = String::new();
    for level in levels {
        if !line.is_empty() {
            line.push(',');
        }
        write!(line, "{}:{}", level.price / SCALE, level.quantity).unwrap();
        if with_count {
            write!(line, ":{}", level.order_count).unwrap();
        }
    }
    line
}

/// The book of each instrument as last handed on, and when.
#[derive(Default)]
struct Latest {
    books: HashMap<InstrumentId, (Vec<Level>, Vec<Level>)>,
    changes: HashMap<InstrumentId, u64>,
    hashes: HashMap<InstrumentId, Sha256>,
    last: Option<SnapshotDraft>,
}

impl SnapshotSink for Latest {
    fn on_instrument(&mut self, _: &Instrument) {}

    fn on_snapshot(&mut self, draft: &SnapshotDraft, bids: &[Level], asks: &[Level]) {
        self.last = Some(*draft);
        let id = draft.instrument;
        let book = (bids.to_vec(), asks.to_vec());
        let before = self.books.entry(id).or_default();
        if *before == book {
            return; // the status changed
        }
        *before = book;
        *self.changes.entry(id).or_default() += 1;
        let line = format!("{};{}\n", side_line(bids, true), side_line(asks, true));
        self.hashes.entry(id).or_default().update(line);
    }
}

#[test]
fn aapl_has_the_known_book_after_each_of_its_ten_thousand_events() {
    let Some(path) = reference("aapl_20190130_093000_reencoded.itch50") else { return };
    let Some(csv) = reference("aapl_20190130_093000_top10.csv.gz") else { return };
    let Some(known) = reference("aapl_20190130_093000_reencoded.reference.json") else { return };
    let known = json(&known);
    let mut rows = BufReader::new(GzDecoder::new(File::open(csv).unwrap())).lines().skip(1);
    let mut source = ItchSource::open(path, per_message()).unwrap();
    let mut builder = BookBuilder::new(10, Latest::default());
    let first_event = known["first_event_msg_index"].as_u64().unwrap();
    let mut hash = Sha256::new();
    let (mut events, mut changes, mut before) = (0, 0, String::new());
    while source.stats().messages < known["messages"].as_u64().unwrap() {
        source.advance(&mut builder).unwrap();
        if source.stats().messages <= first_event {
            continue;
        }
        let (bids, asks) = &builder.sink().books[&InstrumentId(0)];
        let line = format!("{};{}\n", side_line(bids, false), side_line(asks, false));
        assert_eq!(line, csv_line(&rows.next().unwrap().unwrap()), "event {events}");
        events += 1;
        changes += u64::from(events > 1 && line != before);
        hash.update(&line);
        before = line;
    }
    assert_eq!(events, 10_000);
    assert_eq!(changes, known["top10_changes_between_events"].as_u64().unwrap());
    assert_eq!(hex(hash), known["stream_sha256"].as_str().unwrap());
    let depth = builder.depth(InstrumentId(0));
    assert_eq!((depth.bid_levels, depth.ask_levels), (493, 517));
    assert_eq!(builder.stats().unknown_orders, 0);
}

/// The book in one row of the CSV, in the form of the hash.
fn csv_line(row: &str) -> String {
    const FIRST_LEVEL_COLUMN: usize = 17;
    let fields: Vec<&str> = row.split(',').skip(FIRST_LEVEL_COLUMN).collect();
    let ticks = |text: &str| (text.parse::<f64>().unwrap() * 10_000.0).round() as i64;
    let side = |price: usize| {
        let levels = fields.chunks(4).map(|level| {
            let quantity: f64 = level[price + 1].parse().unwrap();
            format!("{}:{}", ticks(level[price]), quantity as u64)
        });
        levels.collect::<Vec<_>>().join(",")
    };
    format!("{};{}\n", side(2), side(0))
}

#[test]
fn aapl_has_the_known_best_prices_at_the_known_times() {
    let Some(path) = reference("aapl_20190130_093000_reencoded.itch50") else { return };
    let Some(known) = reference("aapl_20190130_093000_reencoded.reference.json") else { return };
    let known = json(&known);
    let mut source = ItchSource::open(path, per_message()).unwrap();
    let mut builder = BookBuilder::new(10, Latest::default());
    let mut checked = 0;
    for point in known["checkpoints"].as_array().unwrap() {
        while source.stats().messages <= point["msg_index"].as_u64().unwrap() {
            let progress = source.advance(&mut builder).unwrap();
            if source.stats().messages == point["msg_index"].as_u64().unwrap() + 1 {
                let feed_time_ns = point["ts_ns"].as_u64().unwrap() + NEW_YORK_MIDNIGHT;
                assert_eq!(progress, tapecast_publisher::source::Progress::Event { feed_time_ns });
            }
        }
        let (bids, asks) = &builder.sink().books[&InstrumentId(0)];
        let best = |level: &Level| serde_json::json!([level.price / SCALE, level.quantity]);
        assert_eq!(
            (best(&bids[0]), best(&asks[0])),
            (point["best_bid"].clone(), point["best_ask"].clone())
        );
        checked += 1;
    }
    assert_eq!(checked, 21);
}

#[test]
fn a_run_of_equal_timestamps_is_one_event_and_ends_in_the_same_book() {
    let Some(path) = reference("aapl_20190130_093000_reencoded.itch50") else { return };
    let mut books = Vec::new();
    for options in [per_message(), ItchOptions::default()] {
        let mut builder = BookBuilder::new(10, Latest::default());
        play(&mut ItchSource::open(&path, options).unwrap(), &mut builder).unwrap();
        let snapshots = builder.stats().snapshots;
        books.push((snapshots, builder.into_sink().books));
    }
    assert_eq!(books[0].1, books[1].1);
    assert!(books[1].0 < books[0].0);
}

#[test]
fn the_simulated_day_has_the_known_books_and_counts() {
    let Some(path) = reference("ritch_ex20101224.lenprefixed.itch50") else { return };
    let Some(known) = reference("ritch_ex20101224.reference.json") else { return };
    let known = json(&known);
    let mut source = ItchSource::open(path, per_message()).unwrap();
    let mut builder = BookBuilder::new(10, Latest::default());
    play(&mut source, &mut builder).unwrap();
    let stats = source.stats();
    assert_eq!(stats.messages, known["messages"].as_u64().unwrap());
    let counts: HashMap<&str, u64> =
        stats.by_type.iter().map(|(kind, count)| (&kind[..], *count)).collect();
    assert_eq!(serde_json::to_value(counts).unwrap(), known["by_type"]);
    let symbols = known["symbols"].as_object().unwrap();
    assert_eq!(source.instruments().len(), symbols.len());
    for instrument in source.instruments() {
        let id = instrument.instrument_id;
        let known = &symbols[&instrument.symbol];
        let depth = builder.depth(id);
        assert_eq!(serde_json::json!([depth.bid_levels, depth.ask_levels]), known["final_levels"]);
        assert_eq!(serde_json::json!([depth.bid_orders, depth.ask_orders]), known["final_orders"]);
        let (bids, asks) = &builder.sink().books[&id];
        assert_eq!(levels_json(bids), known["final_top10"]["bids"], "{}", instrument.symbol);
        assert_eq!(levels_json(asks), known["final_top10"]["asks"], "{}", instrument.symbol);
        assert_eq!(builder.sink().changes[&id], known["top10_changes"].as_u64().unwrap());
        let hash = builder.sink().hashes[&id].clone();
        assert_eq!(hex(hash), known["stream_sha256"].as_str().unwrap(), "{}", instrument.symbol);
    }
}

fn levels_json(levels: &[Level]) -> serde_json::Value {
    let level =
        |level: &Level| serde_json::json!([level.price / SCALE, level.quantity, level.order_count]);
    levels.iter().map(level).collect()
}

#[test]
fn the_head_of_a_real_day_ends_at_byte_4081_after_101_messages() {
    let Some(path) = reference("nasdaq_head4096_truncated.itch50") else { return };
    let mut source = ItchSource::open(&path, ItchOptions::default()).unwrap();
    assert_eq!(source.instruments().len(), 98);
    assert_eq!(source.instruments()[0].symbol, "A");
    let mut builder = BookBuilder::new(10, Recorder::default());
    let error = play(&mut source, &mut builder).unwrap_err();
    assert!(matches!(
        error,
        ItchError::Truncated { offset: 4081, have: 15, need: 41, messages: 101, .. }
    ));
    assert_eq!(source.stats().messages, 101);
    assert_eq!(builder.sink().seen.len(), 1, "the one trading action was delivered");

    let options = ItchOptions { allow_truncated: true, ..ItchOptions::default() };
    let mut source = ItchSource::open(&path, options).unwrap();
    play(&mut source, &mut builder).unwrap();
    assert_eq!(source.truncated_at(), Some(4081));
}

#[test]
fn the_answer_keys_are_of_the_files_that_are_read() {
    for name in ["aapl_20190130_093000_reencoded", "ritch_ex20101224"] {
        let Some(known) = reference(&format!("{name}.reference.json")) else { return };
        let known = json(&known);
        let Some(path) = reference(known["file"].as_str().unwrap()) else { return };
        let mut bytes = Vec::new();
        File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
        let hash = Sha256::new_with_prefix(bytes);
        assert_eq!(hex(hash), known["sha256"].as_str().unwrap());
    }
}
