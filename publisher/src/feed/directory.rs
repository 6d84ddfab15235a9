//! The instruments that this publisher knows, for the handshake and the report.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustc_hash::FxHashMap;
use tapecast_wire::{Instrument, InstrumentId};

use crate::config::distance;

/// Written by the feed when an instrument appears or changes, read by the conductor. Not touched on
/// the hot path.
#[derive(Debug)]
pub struct Directory {
    capacity: usize,
    entries: RwLock<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    instruments: Vec<Instrument>,
    by_symbol: FxHashMap<String, InstrumentId>,
}

/// Symbols that nobody has heard of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct UnknownSymbols {
    text: String,
}

impl Directory {
    /// An empty directory with room for `capacity` instruments.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity, entries: RwLock::default() }
    }

    /// Instruments that there is room for.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether an instrument with this id can be in the directory.
    #[must_use]
    pub const fn has_place(&self, id: InstrumentId) -> bool {
        id.index() < self.capacity
    }

    /// Adds or replaces an instrument. `false` when it has no place: the directory is full, or ids
    /// before it are missing.
    #[must_use]
    pub fn upsert(&self, instrument: &Instrument) -> bool {
        let id = instrument.instrument_id;
        let mut entries = self.write();
        if id.index() > entries.instruments.len() || !self.has_place(id) {
            return false;
        }
        match entries.instruments.get_mut(id.index()) {
            Some(entry) => {
                let before = std::mem::replace(entry, instrument.clone());
                // Another instrument may have taken over the symbol meanwhile.
                if entries.by_symbol.get(&before.symbol) == Some(&id) {
                    entries.by_symbol.remove(&before.symbol);
                }
            }
            None => entries.instruments.push(instrument.clone()),
        }
        entries.by_symbol.insert(instrument.symbol.clone(), id);
        true
    }

    /// All instruments, in order of their ids.
    #[must_use]
    pub fn instruments(&self) -> Vec<Instrument> {
        self.read().instruments.clone()
    }

    /// Instruments known now.
    #[must_use]
    pub fn count(&self) -> usize {
        self.read().instruments.len()
    }

    /// Ids of `symbols`, in their order. With `allow_unknown` a symbol that is not known yet is
    /// left out.
    ///
    /// # Errors
    /// [`UnknownSymbols`] names those that are not known, and the nearest that are.
    pub fn resolve(
        &self,
        symbols: &[String],
        allow_unknown: bool,
    ) -> Result<Vec<InstrumentId>, UnknownSymbols> {
        let entries = self.read();
        let found = symbols.iter().map(|symbol| (symbol, entries.by_symbol.get(symbol.as_str())));
        let unknown: Vec<&String> =
            found.clone().filter(|(_, id)| id.is_none()).map(|(symbol, _)| symbol).collect();
        if unknown.is_empty() || allow_unknown {
            return Ok(found.filter_map(|(_, id)| id.copied()).collect());
        }
        Err(unknown_symbols(&unknown, &entries.instruments))
    }

    // A thread that panics ends the process, so a poisoned lock protects nothing.
    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Unknown symbols that are named in one answer.
const NAMED_MAX: usize = 3;
/// Near matches for each of them.
const NEAR_MAX: usize = 3;

fn unknown_symbols(unknown: &[&String], known: &[Instrument]) -> UnknownSymbols {
    if known.is_empty() {
        let text = "no instruments are known yet: ask again when the source has listed them, or \
                    accept unknown symbols";
        return UnknownSymbols { text: format!("unknown symbol {}: {text}", unknown[0]) };
    }
    let named = unknown.iter().take(NAMED_MAX).map(|symbol| {
        let near = near_symbols(symbol, known);
        match near.is_empty() {
            true => format!("{symbol:?}"),
            false => format!("{symbol:?} (near: {})", near.join(", ")),
        }
    });
    let mut text = format!("unknown symbol {}", named.collect::<Vec<_>>().join(", "));
    if unknown.len() > NAMED_MAX {
        text.push_str(&format!(" and {} more", unknown.len() - NAMED_MAX));
    }
    text.push_str(&format!("; {} instruments are known", known.len()));
    UnknownSymbols { text }
}

/// Known symbols within two edits, or that begin alike; nearest first.
pub(crate) fn near_symbols<'a>(symbol: &str, known: &'a [Instrument]) -> Vec<&'a str> {
    let wanted = symbol.to_uppercase();
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|instrument| instrument.symbol.as_str())
        .map(|candidate| (distance(&wanted, &candidate.to_uppercase()), candidate))
        .filter(|(distance, candidate)| *distance <= 2 && *distance < candidate.len())
        .collect();
    near.sort_unstable();
    near.into_iter().take(NEAR_MAX).map(|(_, candidate)| candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(symbols: &[&str]) -> Directory {
        let directory = Directory::new(4);
        for (id, symbol) in symbols.iter().enumerate() {
            assert!(directory.upsert(&Instrument::new(InstrumentId(id as u32), symbol, "XNAS")));
        }
        directory
    }

    fn names(symbols: &[&str]) -> Vec<String> {
        symbols.iter().map(|symbol| (*symbol).to_owned()).collect()
    }

    #[test]
    fn symbols_resolve_in_the_order_in_which_they_were_asked_for() {
        let directory = directory(&["AAPL", "MSFT", "ZM"]);
        let ids = directory.resolve(&names(&["ZM", "AAPL"]), false);
        assert_eq!(ids, Ok(vec![InstrumentId(2), InstrumentId(0)]));
        assert_eq!(directory.resolve(&[], false), Ok(vec![]));
    }

    #[test]
    fn an_unknown_symbol_is_named_with_those_that_are_near_it() {
        let directory = directory(&["AAPL", "AAPX", "MSFT"]);
        let error = directory.resolve(&names(&["MSFT", "APPL", "QQQQQQ"]), false).unwrap_err();
        let expected = "unknown symbol \"APPL\" (near: AAPL, AAPX), \"QQQQQQ\"; \
                        3 instruments are known";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn an_unknown_symbol_that_is_allowed_is_left_out() {
        let directory = directory(&["AAPL"]);
        let ids = directory.resolve(&names(&["LATER", "AAPL"]), true);
        assert_eq!(ids, Ok(vec![InstrumentId(0)]));
    }

    #[test]
    fn before_the_source_has_listed_anything_the_answer_says_so() {
        let error = directory(&[]).resolve(&names(&["AAPL"]), false).unwrap_err();
        assert!(error.to_string().contains("no instruments are known yet"), "{error}");
    }

    #[test]
    fn an_instrument_takes_its_new_symbol_and_gives_up_the_old_one() {
        let directory = directory(&["OLD", "B"]);
        assert!(directory.upsert(&Instrument::new(InstrumentId(0), "NEW", "XNAS")));
        assert!(directory.resolve(&names(&["OLD"]), false).is_err());
        assert_eq!(directory.resolve(&names(&["NEW"]), false), Ok(vec![InstrumentId(0)]));
        assert_eq!(directory.count(), 2);
    }

    #[test]
    fn beyond_its_capacity_and_behind_a_hole_there_is_no_place() {
        let directory = directory(&["A", "B", "C"]);
        assert!(!directory.upsert(&Instrument::new(InstrumentId(5), "F", "XNAS")));
        assert!(directory.upsert(&Instrument::new(InstrumentId(3), "D", "XNAS")));
        assert!(!directory.upsert(&Instrument::new(InstrumentId(4), "E", "XNAS")));
    }
}
