//! ITCH messages by hand, and a sink that remembers.

#![expect(clippy::too_many_arguments, reason = "a message has the fields it has")]

use std::path::PathBuf;

use tapecast_publisher::book::{SnapshotDraft, SnapshotSink};
use tapecast_publisher::source::itch::{ItchError, ItchOptions, ItchSource};
use tapecast_publisher::source::{EventSink, Progress, Source};
use tapecast_wire::{Instrument, Level};

/// One dollar in 1e-9.
pub(crate) const DOLLAR: i64 = 1_000_000_000;

/// One snapshot as the builder handed it on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) draft: SnapshotDraft,
    pub(crate) bids: Vec<Level>,
    pub(crate) asks: Vec<Level>,
}

/// Remembers everything.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) instruments: Vec<Instrument>,
    pub(crate) seen: Vec<Seen>,
}

impl Recorder {
    pub(crate) fn last(&self) -> &Seen {
        self.seen.last().expect("a snapshot")
    }

    pub(crate) fn take(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.seen)
    }
}

impl SnapshotSink for Recorder {
    fn on_instrument(&mut self, instrument: &Instrument) {
        self.instruments.push(instrument.clone());
    }

    fn on_snapshot(&mut self, draft: &SnapshotDraft, bids: &[Level], asks: &[Level]) {
        self.seen.push(Seen { draft: *draft, bids: bids.to_vec(), asks: asks.to_vec() });
    }
}

/// Level of whole dollars.
pub(crate) fn level(dollars: i64, quantity: u64, orders: u32) -> Level {
    Level::new(dollars * DOLLAR, quantity, orders)
}

/// Messages in the making. Every message gets the current locate code and time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tape {
    pub(crate) bytes: Vec<u8>,
    pub(crate) locate: u16,
    pub(crate) time_ns: u64,
}

impl Tape {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), locate: 1, time_ns: 1 }
    }

    pub(crate) fn at(&mut self, time_ns: u64) -> &mut Self {
        self.time_ns = time_ns;
        self
    }

    pub(crate) fn on(&mut self, locate: u16) -> &mut Self {
        self.locate = locate;
        self
    }

    /// A frame of this type with this rest, whatever it is.
    pub(crate) fn raw(&mut self, kind: u8, rest: &[u8]) -> &mut Self {
        let length = (11 + rest.len()) as u16;
        self.bytes.extend(length.to_be_bytes());
        self.bytes.push(kind);
        self.bytes.extend(self.locate.to_be_bytes());
        self.bytes.extend([0, 0]);
        self.bytes.extend(&self.time_ns.to_be_bytes()[2..]);
        self.bytes.extend(rest);
        self
    }

    pub(crate) fn system(&mut self, code: u8) -> &mut Self {
        let locate = std::mem::take(&mut self.locate);
        self.raw(b'S', &[code]).on(locate)
    }

    pub(crate) fn list(&mut self, symbol: &str) -> &mut Self {
        let mut rest = stock(symbol).to_vec();
        rest.extend(*b"QN");
        rest.extend(100_u32.to_be_bytes());
        rest.extend(*b"NCZ PNN1N\0\0\0\0N");
        self.raw(b'R', &rest)
    }

    pub(crate) fn trading(&mut self, symbol: &str, state: u8) -> &mut Self {
        let mut rest = stock(symbol).to_vec();
        rest.extend([state, b' ']);
        rest.extend(*b"    ");
        self.raw(b'H', &rest)
    }

    pub(crate) fn operational(&mut self, symbol: &str, market: u8, action: u8) -> &mut Self {
        let mut rest = stock(symbol).to_vec();
        rest.extend([market, action]);
        self.raw(b'h', &rest)
    }

    /// `cents` is the price in 1/100.
    pub(crate) fn add(
        &mut self,
        id: u64,
        side: u8,
        shares: u32,
        symbol: &str,
        cents: u32,
    ) -> &mut Self {
        let rest = add_fields(id, side, shares, symbol, cents);
        self.raw(b'A', &rest)
    }

    pub(crate) fn add_attributed(
        &mut self,
        id: u64,
        side: u8,
        shares: u32,
        symbol: &str,
        cents: u32,
    ) -> &mut Self {
        let mut rest = add_fields(id, side, shares, symbol, cents);
        rest.extend(*b"NITE");
        self.raw(b'F', &rest)
    }

    pub(crate) fn execute(&mut self, id: u64, shares: u32) -> &mut Self {
        let mut rest = id.to_be_bytes().to_vec();
        rest.extend(shares.to_be_bytes());
        rest.extend(7_u64.to_be_bytes());
        self.raw(b'E', &rest)
    }

    pub(crate) fn execute_at(
        &mut self,
        id: u64,
        shares: u32,
        printable: u8,
        cents: u32,
    ) -> &mut Self {
        let mut rest = id.to_be_bytes().to_vec();
        rest.extend(shares.to_be_bytes());
        rest.extend(7_u64.to_be_bytes());
        rest.push(printable);
        rest.extend((cents * 100).to_be_bytes());
        self.raw(b'C', &rest)
    }

    pub(crate) fn cancel(&mut self, id: u64, shares: u32) -> &mut Self {
        let mut rest = id.to_be_bytes().to_vec();
        rest.extend(shares.to_be_bytes());
        self.raw(b'X', &rest)
    }

    pub(crate) fn delete(&mut self, id: u64) -> &mut Self {
        self.raw(b'D', &id.to_be_bytes())
    }

    pub(crate) fn replace(&mut self, old: u64, new: u64, shares: u32, cents: u32) -> &mut Self {
        let mut rest = old.to_be_bytes().to_vec();
        rest.extend(new.to_be_bytes());
        rest.extend(shares.to_be_bytes());
        rest.extend((cents * 100).to_be_bytes());
        self.raw(b'U', &rest)
    }

    pub(crate) fn trade(&mut self, shares: u32, symbol: &str, cents: u32) -> &mut Self {
        let mut rest = add_fields(0, b'B', shares, symbol, cents);
        rest.extend(7_u64.to_be_bytes());
        self.raw(b'P', &rest)
    }

    pub(crate) fn cross(&mut self, shares: u64, symbol: &str, cents: u32) -> &mut Self {
        let mut rest = shares.to_be_bytes().to_vec();
        rest.extend(stock(symbol));
        rest.extend((cents * 100).to_be_bytes());
        rest.extend(7_u64.to_be_bytes());
        rest.push(b'O');
        self.raw(b'Q', &rest)
    }

    pub(crate) fn source(&self) -> ItchSource {
        self.source_with(ItchOptions::default())
    }

    pub(crate) fn source_with(&self, options: ItchOptions) -> ItchSource {
        ItchSource::from_bytes(self.bytes.clone(), options).expect("a readable tape")
    }
}

fn add_fields(id: u64, side: u8, shares: u32, symbol: &str, cents: u32) -> Vec<u8> {
    let mut rest = id.to_be_bytes().to_vec();
    rest.push(side);
    rest.extend(shares.to_be_bytes());
    rest.extend(stock(symbol));
    rest.extend((cents * 100).to_be_bytes());
    rest
}

/// A symbol, padded with spaces.
pub(crate) fn stock(symbol: &str) -> [u8; 8] {
    let mut stock = [b' '; 8];
    stock[..symbol.len()].copy_from_slice(symbol.as_bytes());
    stock
}

/// Plays a source to its end or to its error.
pub(crate) fn play<S: EventSink>(source: &mut ItchSource, sink: &mut S) -> Result<(), ItchError> {
    while let Progress::Event { .. } = source.advance(sink)? {}
    Ok(())
}

/// A file of known-right results, if it is there; says so if it is not.
pub(crate) fn reference(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/itch").join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} is not there", path.display());
    None
}
