//! Which instrument a message speaks of.

use std::collections::{HashMap, HashSet};

use tapecast_wire::{Instrument, InstrumentId};

use super::message::Stock;
use crate::source::EventSink;

/// Venue code of Nasdaq (ISO 10383).
const VENUE: &str = "XNAS";

/// Locate codes are 16 bits wide, so no day has more instruments.
const INSTRUMENTS_MAX: usize = 1 << 16;

/// Symbol of a locate code that is not listed.
const NO_STOCK: Stock = [0; 8];

/// What a locate code stands for today.
#[derive(Clone, Copy, Debug)]
struct Listing {
    stock: Stock,
    /// `None` for a symbol that nobody asked for.
    instrument: Option<InstrumentId>,
}

/// What the directory knows about a locate code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// It is this instrument.
    Instrument(InstrumentId),
    /// It is a symbol that nobody asked for.
    Unwanted,
    /// Nothing has listed it.
    No,
}

/// The instruments of a feed. Ids are dense in order of first mention and stay with their symbol;
/// locate codes are those of the day.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Symbols that were asked for; `None` for all.
    wanted: Option<HashSet<Stock>>,
    /// By locate code.
    listings: Vec<Listing>,
    by_symbol: HashMap<Stock, InstrumentId>,
    instruments: Vec<Instrument>,
}

impl Directory {
    /// Only these symbols get instruments; all do when the list is empty.
    pub(crate) fn new(symbols: &[String]) -> Self {
        let wanted = symbols.iter().filter_map(|symbol| padded(symbol)).collect();
        Self {
            wanted: (!symbols.is_empty()).then_some(wanted),
            listings: Vec::new(),
            by_symbol: HashMap::new(),
            instruments: Vec::new(),
        }
    }

    pub(crate) fn instruments(&self) -> &[Instrument] {
        &self.instruments
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = InstrumentId> + use<> {
        (0..self.instruments.len() as u32).map(InstrumentId)
    }

    /// Another day: its locate codes are not known yet.
    pub(crate) fn forget_locates(&mut self) {
        self.listings.clear();
    }

    #[inline]
    pub(crate) fn at(&self, locate: u16) -> Listed {
        match self.listings.get(usize::from(locate)) {
            Some(Listing { instrument: Some(id), .. }) => Listed::Instrument(*id),
            Some(listing) if listing.stock != NO_STOCK => Listed::Unwanted,
            _ => Listed::No,
        }
    }

    /// What is known about the locate code of a message that carries its symbol too:
    /// [`Listed::No`] unless it is listed as that symbol.
    #[inline]
    pub(crate) fn at_with(&self, locate: u16, stock: Stock) -> Listed {
        match self.listings.get(usize::from(locate)) {
            Some(listing) if listing.stock == stock => {
                listing.instrument.map_or(Listed::Unwanted, Listed::Instrument)
            }
            _ => Listed::No,
        }
    }

    /// Lists a symbol under a locate code; gives it an instrument if it is wanted.
    #[cold]
    pub(crate) fn list<S: EventSink>(
        &mut self,
        (locate, stock): (u16, Stock),
        lot_size: Option<u32>,
        sink: &mut S,
    ) -> Option<InstrumentId> {
        let index = usize::from(locate);
        if self.listings.len() <= index {
            self.listings.resize(index + 1, Listing { stock: NO_STOCK, instrument: None });
        }
        let wanted = self.wanted.as_ref().is_none_or(|wanted| wanted.contains(&stock));
        let instrument = match self.by_symbol.get(&stock).copied() {
            _ if !wanted => None,
            Some(id) => {
                self.update(id, locate, lot_size, sink);
                Some(id)
            }
            None => self.create(locate, stock, lot_size, sink),
        };
        self.listings[index] = Listing { stock, instrument };
        instrument
    }

    /// Tells the sink if something about the instrument is new.
    fn update<S: EventSink>(
        &mut self,
        id: InstrumentId,
        locate: u16,
        lot_size: Option<u32>,
        sink: &mut S,
    ) {
        let known = &mut self.instruments[id.index()];
        let new = (u32::from(locate), lot_size.unwrap_or(known.lot_size));
        if (known.feed_instrument_id, known.lot_size) != new {
            (known.feed_instrument_id, known.lot_size) = new;
            sink.on_instrument(known);
        }
    }

    /// A new instrument; `None` for a symbol without characters, and when there are too many.
    fn create<S: EventSink>(
        &mut self,
        locate: u16,
        stock: Stock,
        lot_size: Option<u32>,
        sink: &mut S,
    ) -> Option<InstrumentId> {
        let symbol = String::from_utf8_lossy(&stock).trim_end_matches([' ', '\0']).to_owned();
        if symbol.is_empty() || self.instruments.len() >= INSTRUMENTS_MAX {
            return None;
        }
        let id = InstrumentId(self.instruments.len() as u32);
        let mut instrument = Instrument::new(id, &symbol, VENUE);
        instrument.feed_instrument_id = u32::from(locate);
        instrument.lot_size = lot_size.unwrap_or(0);
        sink.on_instrument(&instrument);
        self.instruments.push(instrument);
        self.by_symbol.insert(stock, id);
        Some(id)
    }
}

/// A symbol as the feed writes it; `None` if it is too long for the feed.
fn padded(symbol: &str) -> Option<Stock> {
    let mut stock = [b' '; 8];
    stock.get_mut(..symbol.len())?.copy_from_slice(symbol.as_bytes());
    Some(stock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{FeedStamp, MarketEvent};

    #[derive(Default)]
    struct Heard(Vec<Instrument>);

    impl EventSink for Heard {
        fn on_instrument(&mut self, instrument: &Instrument) {
            self.0.push(instrument.clone());
        }
        fn on_event(&mut self, _: InstrumentId, _: &FeedStamp, _: MarketEvent<'_>) {}
        fn on_event_end(&mut self) {}
    }

    #[test]
    fn a_locate_code_that_comes_with_another_symbol_stands_for_that_one_from_then_on() {
        let (mut directory, mut heard) = (Directory::new(&[]), Heard::default());
        let first = directory.list((7, *b"AAPL    "), None, &mut heard);
        assert_eq!(directory.at_with(7, *b"AAPL    "), Listed::Instrument(first.unwrap()));
        assert_eq!(directory.at_with(7, *b"MSFT    "), Listed::No);
        let second = directory.list((7, *b"MSFT    "), None, &mut heard);
        assert_ne!(first, second);
        assert_eq!(directory.at_with(7, *b"AAPL    "), Listed::No);
        assert_eq!(directory.at(7), Listed::Instrument(second.unwrap()));
        assert_eq!(directory.at(6), Listed::No);
        assert_eq!(heard.0.len(), 2);
    }

    #[test]
    fn a_symbol_without_characters_is_no_instrument() {
        let (mut directory, mut heard) = (Directory::new(&[]), Heard::default());
        assert_eq!(directory.list((1, *b"        "), None, &mut heard), None);
        assert_eq!(directory.at(1), Listed::Unwanted);
    }

    #[test]
    fn there_are_no_more_instruments_than_locate_codes_whatever_the_feed_says() {
        let (mut directory, mut heard) = (Directory::new(&[]), Heard::default());
        for number in 0..INSTRUMENTS_MAX as u64 + 10 {
            directory.list((3, (number | 1 << 63).to_be_bytes()), None, &mut heard);
        }
        assert_eq!(directory.instruments().len(), INSTRUMENTS_MAX);
        assert_eq!(directory.at(3), Listed::Unwanted);
    }

    #[test]
    fn text_that_is_not_utf_8_becomes_a_symbol_that_fits_the_wire() {
        let (mut directory, mut heard) = (Directory::new(&[]), Heard::default());
        directory.list((1, [0xff; 8]), None, &mut heard);
        assert_eq!(Instrument::from_wire(&heard.0[0].to_wire()).unwrap(), heard.0[0]);
    }
}
