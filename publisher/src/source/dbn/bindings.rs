//! Which book a record belongs to: (publisher, instrument id, day) → directory entry.
//!
//! A DBN instrument id means a symbol on one day and may mean another on the next, so a binding is
//! looked up again whenever the day changes. Directory entries are per venue and symbol, dense and
//! stable: an id that moves to another symbol moves to that symbol's entry.

use dbn::{Dataset, Metadata, Publisher, TsSymbolMap};
use rustc_hash::FxHashMap;
use tapecast_wire::limits::MAX_INSTRUMENTS;
use tapecast_wire::{Instrument, InstrumentId};

use crate::source::EventSink;

const NANOS_PER_DAY: u64 = 86_400_000_000_000;
/// A day that no record has: the binding must be looked up.
const NO_DAY: u64 = u64::MAX;

/// A venue's own name for one book.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FeedKey {
    pub(super) publisher_id: u16,
    pub(super) instrument_id: u32,
}

#[derive(Clone, Copy)]
struct Binding {
    day: u64,
    book: Option<InstrumentId>,
}

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Not among the chosen symbols.
    Unwanted,
    /// This book, as before.
    Book(InstrumentId),
    /// This book, which belonged to another feed instrument until now: what is in it is over.
    Rebound(InstrumentId),
    /// The directory is full.
    Full,
}

/// Directory and bindings of one input.
pub(super) struct Bindings {
    wanted: Vec<String>,
    dataset: String,
    dated: TsSymbolMap,
    /// Names from the stream itself: symbol mapping and definition records.
    streamed: FxHashMap<u32, String>,
    bindings: FxHashMap<FeedKey, Binding>,
    last: Option<(FeedKey, Binding)>,
    by_name: FxHashMap<(String, String), InstrumentId>,
    instruments: Vec<Instrument>,
}

impl Bindings {
    /// Directory from the metadata, as far as that says which venue a symbol is on.
    pub(super) fn new(metadata: &Metadata, wanted: Vec<String>) -> Self {
        let mut this = Self {
            wanted,
            dataset: metadata.dataset.clone(),
            // Metadata that maps nothing to instrument ids leaves the names to the stream.
            dated: TsSymbolMap::from_metadata(metadata).unwrap_or_default(),
            streamed: FxHashMap::default(),
            bindings: FxHashMap::default(),
            last: None,
            by_name: FxHashMap::default(),
            instruments: Vec::new(),
        };
        if let Some(venue) = only_venue(&metadata.dataset) {
            for (feed_id, symbol) in mapped_symbols(metadata) {
                if this.is_wanted(&symbol) && this.instruments.len() < MAX_INSTRUMENTS {
                    this.entry(&venue, &symbol, feed_id);
                }
            }
        }
        this
    }

    /// The directory so far.
    pub(super) fn instruments(&self) -> &[Instrument] {
        &self.instruments
    }

    /// The book of `key` at feed time `ts`. A new directory entry is announced to `sink`.
    #[inline]
    pub(super) fn resolve<S: EventSink>(&mut self, key: FeedKey, ts: u64, sink: &mut S) -> Bound {
        let day = ts / NANOS_PER_DAY;
        match self.last {
            Some((last, binding)) if last == key && binding.day == day => as_bound(binding.book),
            _ => self.look_up(key, ts, day, sink),
        }
    }

    fn look_up<S: EventSink>(&mut self, key: FeedKey, ts: u64, day: u64, sink: &mut S) -> Bound {
        if let Some(&binding) = self.bindings.get(&key)
            && binding.day == day
        {
            self.last = Some((key, binding));
            return as_bound(binding.book);
        }
        let symbol = self.symbol_at(key.instrument_id, ts);
        let bound = if self.is_wanted(&symbol) {
            self.bind(&venue_of(key.publisher_id, &self.dataset), &symbol, key, sink)
        } else {
            Bound::Unwanted
        };
        let book = match bound {
            Bound::Book(id) | Bound::Rebound(id) => Some(id),
            Bound::Unwanted => None,
            Bound::Full => return bound,
        };
        let binding = Binding { day, book };
        self.bindings.insert(key, binding);
        self.last = Some((key, binding));
        bound
    }

    fn bind<S: EventSink>(
        &mut self,
        venue: &str,
        symbol: &str,
        key: FeedKey,
        sink: &mut S,
    ) -> Bound {
        let known = self.instruments.len();
        if known >= MAX_INSTRUMENTS && !self.has(venue, symbol) {
            return Bound::Full;
        }
        let id = self.entry(venue, symbol, key.instrument_id);
        let instrument = &mut self.instruments[id.index()];
        if id.index() >= known {
            sink.on_instrument(instrument);
            Bound::Book(id)
        } else if instrument.feed_instrument_id == key.instrument_id {
            Bound::Book(id)
        } else {
            instrument.feed_instrument_id = key.instrument_id;
            sink.on_instrument(instrument);
            Bound::Rebound(id)
        }
    }

    fn has(&self, venue: &str, symbol: &str) -> bool {
        self.by_name.contains_key(&(venue.to_owned(), symbol.to_owned()))
    }

    fn entry(&mut self, venue: &str, symbol: &str, feed_id: u32) -> InstrumentId {
        let next = InstrumentId(self.instruments.len() as u32);
        let id = *self.by_name.entry((venue.to_owned(), symbol.to_owned())).or_insert(next);
        if id == next {
            let mut instrument = Instrument::new(id, symbol, venue);
            instrument.feed_instrument_id = feed_id;
            self.instruments.push(instrument);
        }
        id
    }

    fn symbol_at(&self, feed_id: u32, ts: u64) -> String {
        self.dated
            .get_for_ts(ts, feed_id)
            .or_else(|| self.streamed.get(&feed_id))
            .cloned()
            .unwrap_or_else(|| feed_id.to_string())
    }

    fn is_wanted(&self, symbol: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|wanted| wanted == symbol)
    }

    /// The stream says that `feed_id` means `symbol` from now on.
    pub(super) fn on_symbol(&mut self, feed_id: u32, symbol: &str) {
        if symbol.is_empty() || self.streamed.get(&feed_id).is_some_and(|known| known == symbol) {
            return;
        }
        if self.streamed.len() >= MAX_INSTRUMENTS && !self.streamed.contains_key(&feed_id) {
            return;
        }
        self.streamed.insert(feed_id, symbol.to_owned());
        self.last = None;
        for (key, binding) in &mut self.bindings {
            if key.instrument_id == feed_id {
                binding.day = NO_DAY;
            }
        }
    }

    /// The stream gives the tick and lot of a book.
    pub(super) fn on_terms<S: EventSink>(
        &mut self,
        id: InstrumentId,
        tick_size: i64,
        lot_size: u32,
        sink: &mut S,
    ) {
        let instrument = &mut self.instruments[id.index()];
        if (instrument.tick_size, instrument.lot_size) != (tick_size, lot_size) {
            (instrument.tick_size, instrument.lot_size) = (tick_size, lot_size);
            sink.on_instrument(instrument);
        }
    }
}

const fn as_bound(book: Option<InstrumentId>) -> Bound {
    match book {
        Some(id) => Bound::Book(id),
        None => Bound::Unwanted,
    }
}

/// Every (instrument id, symbol) of the metadata, in its order, each symbol once.
pub(super) fn mapped_symbols(metadata: &Metadata) -> Vec<(u32, String)> {
    let mut seen = rustc_hash::FxHashSet::default();
    let mut symbols = Vec::new();
    for mapping in &metadata.mappings {
        for interval in &mapping.intervals {
            let named = if metadata.stype_out == dbn::SType::InstrumentId {
                interval.symbol.parse().ok().map(|id: u32| (id, &mapping.raw_symbol))
            } else {
                mapping.raw_symbol.parse().ok().map(|id: u32| (id, &interval.symbol))
            };
            if let Some((id, symbol)) = named
                && !symbol.is_empty()
                && seen.insert(symbol.clone())
            {
                symbols.push((id, symbol.clone()));
            }
        }
    }
    symbols
}

/// The venue of a dataset that has only one.
fn only_venue(dataset: &str) -> Option<String> {
    match dataset.parse::<Dataset>().ok()?.publishers() {
        [publisher] => Some(publisher.venue().as_str().to_owned()),
        _ => None,
    }
}

fn venue_of(publisher_id: u16, dataset: &str) -> String {
    match Publisher::try_from(publisher_id) {
        Ok(publisher) => publisher.venue().as_str().to_owned(),
        Err(_) => dataset.split('.').next().unwrap_or_default().to_owned(),
    }
}
