//! A real day's start of CME ES, from file to published books, against somebody else's answers.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod dbn_support;

use std::fmt::Write;

use dbn_support::data;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tapecast_publisher::book::{BookBuilder, SnapshotDraft, SnapshotSink};
use tapecast_publisher::source::dbn::{DbnOptions, DbnSource};
use tapecast_publisher::source::{Progress, Source};
use tapecast_wire::{Flags, Instrument, InstrumentId, Level};

/// Hashes the published top ten as the reference does.
#[derive(Default)]
struct TopTen {
    hash: Sha256,
    text: String,
    bids: Vec<Level>,
    asks: Vec<Level>,
    changes: u64,
    crossed: bool,
    flags: Flags,
    looked: bool,
}

impl SnapshotSink for TopTen {
    fn on_instrument(&mut self, _: &Instrument) {}

    fn on_snapshot(&mut self, draft: &SnapshotDraft, bids: &[Level], asks: &[Level]) {
        self.flags = draft.flags;
        self.crossed = draft.flags.contains(Flags::CROSSED);
        if self.looked && self.bids == bids && self.asks == asks {
            return;
        }
        self.looked = true;
        self.changes += 1;
        (self.bids, self.asks) = (bids.to_vec(), asks.to_vec());
        self.text.clear();
        for row in self.rows() {
            let line = row.map(|number| number.to_string()).join(",");
            writeln!(self.text, "{line}").unwrap();
        }
        self.text.push_str("--\n");
        self.hash.update(&self.text);
    }
}

impl TopTen {
    fn rows(&self) -> Vec<[i64; 6]> {
        let at =
            |levels: &[Level], index: usize| levels.get(index).copied().unwrap_or(Level::EMPTY);
        let row = |index| {
            let (bid, ask) = (at(&self.bids, index), at(&self.asks, index));
            let count = |level: Level| [level.quantity as i64, i64::from(level.order_count)];
            let ([bid_size, bids], [ask_size, asks]) = (count(bid), count(ask));
            [bid.price, bid_size, bids, ask.price, ask_size, asks]
        };
        (0..10).map(row).collect()
    }
}

fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|number| number.as_i64().unwrap()).collect()
}

fn checkpoint(reference: &Value, event: u64) -> Option<&Value> {
    let checkpoints = reference["checkpoints"].as_array().unwrap();
    checkpoints.iter().find(|point| point["event"].as_u64() == Some(event))
}

#[test]
fn every_event_top_ten_checkpoint_and_the_final_book_are_as_the_reference_has_them() {
    let (Some(file), Some(answers)) = (
        data("dbn/esh4-glbx-mdp3-20231225.mbo.dbn.zst"),
        data("dbn/esh4-glbx-mdp3-20231225.mbo.reference.json"),
    ) else {
        return;
    };
    let reference: Value = serde_json::from_slice(&std::fs::read(answers).unwrap()).unwrap();
    let mut source = DbnSource::open(&file, DbnOptions::default()).unwrap();
    assert_eq!(source.instruments()[0].symbol, "ESH4");
    let mut builder = BookBuilder::new(10, TopTen::default());
    let (mut events, mut crossed, mut checked) = (0, 0, 0);
    while let Progress::Event { feed_time_ns } = source.advance(&mut builder).unwrap() {
        events += 1;
        crossed += u64::from(builder.sink().crossed);
        let Some(expected) = checkpoint(&reference, events) else { continue };
        let depth = builder.depth(InstrumentId(0));
        let orders = (depth.bid_orders + depth.ask_orders) as u64;
        assert_eq!(Some(source.stats().messages), expected["record"].as_u64());
        assert_eq!(Some(feed_time_ns), expected["ts_recv"].as_u64());
        assert_eq!(Some(orders), expected["n_orders"].as_u64(), "event {events}");
        assert_eq!(Some(depth.bid_levels as u64), expected["bid_levels"].as_u64());
        assert_eq!(Some(depth.ask_levels as u64), expected["ask_levels"].as_u64());
        let best = ["bid_px", "bid_sz", "bid_ct", "ask_px", "ask_sz", "ask_ct"];
        assert_eq!(builder.sink().rows()[0], best.map(|name| expected[name].as_i64().unwrap()));
        checked += 1;
    }
    assert_eq!(checked, reference["checkpoints"].as_array().unwrap().len());
    assert_eq!(Some(events), reference["events_F_LAST"].as_u64());
    assert_eq!(Some(crossed), reference["crossed_events"].as_u64());

    let stats = source.stats();
    assert_eq!(Some(stats.messages), reference["records"].as_u64());
    for (action, count) in &stats.by_type {
        assert_eq!(Some(*count), reference["actions"][action].as_u64(), "action {action}");
    }
    assert_eq!(stats.bytes_read, std::fs::metadata(&file).unwrap().len());
    assert_eq!(stats.bytes_total, Some(stats.bytes_read));

    let depth = builder.depth(InstrumentId(0));
    let final_book = &reference["final"];
    let orders = (depth.bid_orders + depth.ask_orders) as u64;
    assert_eq!(Some(orders), final_book["n_orders"].as_u64());
    assert_eq!(builder.stats().unknown_orders, 0);
    let top_ten = builder.into_sink();
    for (row, expected) in top_ten.rows().iter().zip(final_book["top10"].as_array().unwrap()) {
        assert_eq!(row.as_slice(), numbers(expected));
    }
    assert_eq!(top_ten.flags, Flags::NONE, "the snapshot at the start is over");
    assert_eq!(Some(top_ten.changes), reference["top10_changes"].as_u64());
    let hash: String = top_ten.hash.finalize().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    });
    assert_eq!(Some(hash.as_str()), reference["top10_stream_sha256"].as_str());
}

/// Counts snapshots.
struct Counter(u64);

impl SnapshotSink for Counter {
    fn on_instrument(&mut self, _: &Instrument) {}

    fn on_snapshot(&mut self, _: &SnapshotDraft, _: &[Level], _: &[Level]) {
        self.0 += 1;
    }
}

#[test]
fn cut_anywhere_in_its_tail_the_file_is_reported_and_what_was_good_is_delivered() {
    let Some(file) = data("dbn/esh4-glbx-mdp3-20231225.mbo.dbn.zst") else { return };
    let bytes = std::fs::read(file).unwrap();
    for short_by in [1, 9, 100_000] {
        let cut = &bytes[..bytes.len() - short_by];
        let input = std::io::Cursor::new(cut);
        let mut source = DbnSource::from_reader("esh4", input, DbnOptions::default()).unwrap();
        let mut builder = BookBuilder::new(10, Counter(0));
        let error = loop {
            match source.advance(&mut builder) {
                Ok(Progress::Event { .. }) => {}
                Ok(Progress::End) => panic!("short by {short_by}: the cut goes unnoticed"),
                Err(error) => break error,
            }
        };
        let text = error.to_string();
        assert!(text.contains(&format!("truncated at byte {}", cut.len())), "{text}");
        assert!(text.contains(&format!("{} records", source.stats().messages)), "{text}");
        assert!(builder.into_sink().0 > 30_000, "short by {short_by}");
    }
}
