//! ITCH input from arbitrary bytes, through decoder and books: an error or an end, never a panic,
//! and every snapshot is one that can be encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tapecast_publisher::book::{BookBuilder, SnapshotDraft, SnapshotSink};
use tapecast_publisher::source::itch::{EventEnd, ItchOptions, ItchSource};
use tapecast_publisher::source::{Progress, Source};
use tapecast_wire::{Instrument, Level};

const LEVELS: usize = 5;

/// Checks what the builder promises of every snapshot.
struct Checker;

impl SnapshotSink for Checker {
    fn on_instrument(&mut self, _instrument: &Instrument) {}

    fn on_snapshot(&mut self, _draft: &SnapshotDraft, bids: &[Level], asks: &[Level]) {
        assert!(bids.len() <= LEVELS && asks.len() <= LEVELS);
        assert!(bids.is_sorted_by(|a, b| a.price > b.price), "bids are not best first");
        assert!(asks.is_sorted_by(|a, b| a.price < b.price), "asks are not best first");
        assert!(bids.iter().chain(asks).all(|level| level.quantity > 0 && level.order_count > 0));
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let options = ItchOptions {
        event_end: if choice & 1 == 0 { EventEnd::Timestamp } else { EventEnd::Message },
        allow_truncated: choice & 2 == 0,
        ..ItchOptions::default()
    };
    let Ok(mut source) = ItchSource::from_bytes(bytes, options) else { return };
    let mut builder = BookBuilder::new(LEVELS, Checker);
    // No event is shorter than a byte of input, so a source that goes on for longer loops.
    for _ in 0..=bytes.len() {
        match source.advance(&mut builder) {
            Ok(Progress::Event { .. }) => {}
            Ok(Progress::End) | Err(_) => return,
        }
    }
    panic!("more events than bytes");
});
