//! What instrument ids mean in this session.

use std::sync::Arc;

use tapecast_fabric::{Endpoint, Receiver};
use tapecast_wire::{Instrument, InstrumentId};

/// The session's copy of the publisher's directory, so that a snapshot's symbol is a borrow.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    instruments: Vec<Arc<Instrument>>,
}

impl Directory {
    /// Reads the entries that are new. Costs one load when there are none.
    pub(crate) fn sync<E: Endpoint>(&mut self, receiver: &Receiver<E>) -> bool {
        let count = receiver.instrument_count();
        if count == self.instruments.len() {
            return false;
        }
        self.read(receiver, count);
        true
    }

    #[cold]
    fn read<E: Endpoint>(&mut self, receiver: &Receiver<E>, count: usize) {
        for index in self.instruments.len()..count {
            let id = InstrumentId(index as u32);
            // An entry that cannot be read stays nameless, not absent: ids are dense.
            let entry = receiver.instrument(id).unwrap_or_else(|| nameless(id));
            self.instruments.push(Arc::new(entry));
        }
    }

    /// Forgets everything: another session deals other ids.
    pub(crate) fn clear(&mut self) {
        self.instruments.clear();
    }

    pub(crate) fn get(&self, id: InstrumentId) -> Option<&Arc<Instrument>> {
        self.instruments.get(id.index())
    }

    pub(crate) fn find(&self, symbol: &str) -> Option<&Arc<Instrument>> {
        self.instruments.iter().find(|instrument| instrument.symbol == symbol)
    }

    pub(crate) fn all(&self) -> &[Arc<Instrument>] {
        &self.instruments
    }
}

/// Stands in for an entry that cannot be read.
pub(crate) fn nameless(id: InstrumentId) -> Instrument {
    Instrument::new(id, &format!("#{id}"), "")
}
