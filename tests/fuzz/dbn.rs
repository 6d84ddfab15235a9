//! DBN input from arbitrary bytes: an error or an end, never a panic or an endless loop.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use tapecast_publisher::book::{BookBuilder, SnapshotDraft, SnapshotSink};
use tapecast_publisher::source::dbn::{DbnOptions, DbnSource};
use tapecast_publisher::source::{Progress, Source};
use tapecast_wire::{Instrument, Level};

struct Nobody;

impl SnapshotSink for Nobody {
    fn on_instrument(&mut self, _instrument: &Instrument) {}
    fn on_snapshot(&mut self, _draft: &SnapshotDraft, bids: &[Level], asks: &[Level]) {
        assert!(bids.len() <= 10 && asks.len() <= 10);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let options = DbnOptions { allow_truncated: choice & 1 == 0, ..DbnOptions::default() };
    let Ok(mut source) = DbnSource::from_reader("fuzz", Cursor::new(bytes.to_vec()), options)
    else {
        return;
    };
    let mut builder = BookBuilder::new(10, Nobody);
    // zstd can unpack much from little: the bound is on records, 16 bytes each at least.
    for _ in 0..1 << 20 {
        match source.advance(&mut builder) {
            Ok(Progress::Event { .. }) => {}
            Ok(Progress::End) | Err(_) => return,
        }
    }
});
