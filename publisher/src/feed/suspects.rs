//! How many instruments are suspect.

use tapecast_wire::{Flags, InstrumentId};

/// Instruments whose latest snapshot is flagged [`Flags::SUSPECT`].
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// By id; may be shorter than the directory.
    is_suspect: Vec<bool>,
    count: u64,
}

impl Suspects {
    /// An instrument has another snapshot. Returns whether their number has changed.
    #[inline]
    pub(super) fn on_snapshot(&mut self, instrument: InstrumentId, flags: Flags) -> bool {
        let suspect = flags.contains(Flags::SUSPECT);
        let before = self.is_suspect.get(instrument.index()).is_some_and(|before| *before);
        if suspect == before {
            return false;
        }
        self.change(instrument, suspect);
        true
    }

    /// Their number.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    #[cold]
    fn change(&mut self, instrument: InstrumentId, suspect: bool) {
        let index = instrument.index();
        if index >= self.is_suspect.len() {
            self.is_suspect.resize(index + 1, false);
        }
        self.is_suspect[index] = suspect;
        self.count = if suspect { self.count + 1 } else { self.count - 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instrument_counts_once_from_its_first_suspect_snapshot_to_its_next_good_one() {
        let mut suspects = Suspects::default();
        let bad = Flags::SUSPECT.with(Flags::LOCKED);
        for (instrument, flags, changes, count) in [
            (7, Flags::NONE, false, 0),
            (7, bad, true, 1),
            (7, bad, false, 1),
            (2, Flags::SUSPECT, true, 2),
            (9, Flags::LOCKED, false, 2),
            (7, Flags::LOCKED, true, 1),
            (7, Flags::NONE, false, 1),
            (2, Flags::NONE, true, 0),
        ] {
            let changed = suspects.on_snapshot(InstrumentId(instrument), flags);
            assert_eq!((changed, suspects.count()), (changes, count), "{instrument} {flags:?}");
        }
    }
}
