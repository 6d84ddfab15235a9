//! Known-right streams: how others wrote down the books of a recording, line by line.
//!
//! The formats are those of the reference files beside the recordings. A reader is fed with
//! snapshots as a subscriber receives them and says the SHA-256 of the whole stream.
//!
//! Writing text and hashing it takes most of a slow machine's time. So a reader can leave that out
//! and only take the fingerprint of what it was handed: where one reader's stream has the known
//! hash, the others' equal fingerprints say that they received the same.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tapecast_wire::{Level, Snapshot, UNDEFINED_PRICE};
use zerocopy::IntoBytes;

/// Levels a side that every format writes.
const LEVELS: usize = 10;
/// Nasdaq's prices have four decimals, ours nine.
const NASDAQ_UNIT: i64 = 100_000;

/// How a stream is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Ten lines `bid_px,bid_sz,bid_ct,ask_px,ask_sz,ask_ct` and `--` whenever the top ten differ.
    DbnOnChange,
    /// One line `px:qty,…;px:qty,…` after each event message, changed or not.
    ItchEveryEvent,
    /// One line `px:qty:cnt,…;px:qty:cnt,…` whenever the top ten differ.
    ItchOnChange,
}

/// What a reader has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeResult {
    /// Entries of the stream.
    pub entries: u64,
    /// SHA-256 over the stream, in hexadecimal.
    pub sha256: String,
    /// The last entry.
    pub last: String,
    /// Over every snapshot that was handed over: its sequence, and levels in binary.
    pub fingerprint: String,
}

/// Writes one instrument's snapshots in a format and hashes them.
#[derive(Debug)]
pub struct Tape {
    format: Format,
    hash: Sha256,
    entries: u64,
    last: String,
    fingerprint: DefaultHasher,
    /// Whether nothing but the fingerprint is taken.
    only_fingerprint: bool,
    /// First and last event message, by feed sequence, of a format that writes every event.
    events: (u64, u64),
    next_event: u64,
}

impl Tape {
    /// A tape that begins with the first snapshot. `events` is looked at for
    /// [`Format::ItchEveryEvent`] only.
    #[must_use]
    pub fn new(format: Format, events: (u64, u64)) -> Self {
        let last = match format {
            Format::DbnOnChange => String::new(),
            Format::ItchEveryEvent | Format::ItchOnChange => ";\n".to_owned(),
        };
        Self {
            format,
            hash: Sha256::new(),
            entries: 0,
            last,
            fingerprint: DefaultHasher::new(),
            only_fingerprint: false,
            events,
            next_event: events.0,
        }
    }

    /// Takes nothing but the fingerprint.
    #[must_use]
    pub fn only_fingerprint(self) -> Self {
        Self { only_fingerprint: true, ..self }
    }

    /// The next snapshot of the instrument.
    pub fn on_snapshot(&mut self, snapshot: &Snapshot<'_>) {
        self.fingerprint.write_u64(snapshot.header().instrument_sequence);
        for side in [snapshot.bids(), snapshot.asks()] {
            self.fingerprint.write_usize(side.len());
            self.fingerprint.write(side.as_bytes());
        }
        if self.only_fingerprint {
            return;
        }
        let entry = self.entry(snapshot);
        match self.format {
            Format::DbnOnChange | Format::ItchOnChange => {
                if entry != self.last {
                    self.write(&entry);
                }
            }
            // Everything between two snapshots left the book as it was.
            Format::ItchEveryEvent => self.repeat_until(snapshot.header().feed_sequence),
        }
        self.last = entry;
    }

    /// The stream has ended.
    #[must_use]
    pub fn finish(mut self) -> TapeResult {
        let fingerprint = format!("{:016x}", self.fingerprint.finish());
        if self.format == Format::ItchEveryEvent && !self.only_fingerprint {
            self.repeat_until(self.events.1 + 1);
        }
        let digest = self.hash.finalize();
        let sha256 = digest.iter().fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        TapeResult { entries: self.entries, sha256, last: self.last, fingerprint }
    }

    fn repeat_until(&mut self, feed_sequence: u64) {
        while self.next_event < feed_sequence.min(self.events.1 + 1) {
            let entry = std::mem::take(&mut self.last);
            self.write(&entry);
            self.last = entry;
            self.next_event += 1;
        }
    }

    fn write(&mut self, entry: &str) {
        self.hash.update(entry);
        self.entries += 1;
    }

    fn entry(&self, snapshot: &Snapshot<'_>) -> String {
        let (bids, asks) = (top(snapshot.bids()), top(snapshot.asks()));
        match self.format {
            Format::DbnOnChange => dbn_entry(bids, asks),
            Format::ItchEveryEvent => format!("{};{}\n", line(bids, false), line(asks, false)),
            Format::ItchOnChange => format!("{};{}\n", line(bids, true), line(asks, true)),
        }
    }
}

fn top(levels: &[Level]) -> &[Level] {
    &levels[..levels.len().min(LEVELS)]
}

fn dbn_entry(bids: &[Level], asks: &[Level]) -> String {
    let mut text = String::new();
    for depth in 0..LEVELS {
        let bid = bids.get(depth).copied().unwrap_or(Level::EMPTY);
        let ask = asks.get(depth).copied().unwrap_or(Level::EMPTY);
        debug_assert!(bid.price != UNDEFINED_PRICE || bid.quantity == 0);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{},{},{},{},{},{}",
            bid.price, bid.quantity, bid.order_count, ask.price, ask.quantity, ask.order_count
        );
    }
    text + "--\n"
}

fn line(levels: &[Level], with_count: bool) -> String {
    let words: Vec<_> = levels
        .iter()
        .map(|level| {
            let (price, quantity) = (level.price / NASDAQ_UNIT, level.quantity);
            if with_count {
                format!("{price}:{quantity}:{}", level.order_count)
            } else {
                format!("{price}:{quantity}")
            }
        })
        .collect();
    words.join(",")
}
