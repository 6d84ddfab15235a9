//! The feed's end of the journal: copies, never waits.

use crossbeam_channel::{Receiver, Sender};
use tapecast_journal::Hole;
use tapecast_wire::{InstrumentEntry, Sequence};
use zerocopy::IntoBytes;

use super::chunk::{Chunk, ItemKind, Parcel};

/// Copies what is published into chunks for the scribe.
#[derive(Debug)]
pub struct JournalTap {
    full: Sender<Parcel>,
    empty: Receiver<Chunk>,
    present: Option<Chunk>,
    /// What was lost since the last chunk.
    pub(super) hole: Hole,
    /// Directory entries that found no room. They are not lost: without them what follows would
    /// have no name.
    owed: Vec<InstrumentEntry>,
}

impl JournalTap {
    pub(super) const fn new(full: Sender<Parcel>, empty: Receiver<Chunk>) -> Self {
        Self {
            full,
            empty,
            present: None,
            hole: Hole { lost: 0, first_sequence: 0, last_sequence: 0 },
            owed: Vec::new(),
        }
    }

    /// Takes a copy of an encoded snapshot, or counts it as lost.
    #[inline]
    pub fn on_snapshot(&mut self, record: &[u8], sequence: Sequence) {
        if !self.settle() || !self.put(ItemKind::Snapshot, record) {
            self.hole.add(sequence.get());
        }
    }

    /// Takes a copy of a directory entry.
    pub fn on_instrument(&mut self, entry: &InstrumentEntry) {
        self.owed.push(*entry);
        self.settle();
    }

    /// Hands over what there is, as long as chunks are plenty: what is written early is safe early.
    /// When they become few, whole chunks go alone.
    #[inline]
    pub fn hand_over_early(&mut self) {
        if self.empty.len() > self.full.len() {
            self.hand_over();
        }
    }

    /// Hands over what there is.
    pub fn hand_over(&mut self) {
        if let Some(chunk) = self.present.take_if(|chunk| !chunk.is_empty()) {
            // There is room for every chunk; without a scribe nothing is written any more.
            let _sent = self.full.try_send(Parcel::Chunk(chunk));
        }
    }

    /// Puts in the entries that are owed. Whether none is left.
    fn settle(&mut self) -> bool {
        while let Some(entry) = self.owed.first().copied() {
            if !self.put(ItemKind::Instrument, entry.as_bytes()) {
                return false;
            }
            self.owed.remove(0);
        }
        true
    }

    #[inline]
    fn put(&mut self, kind: ItemKind, item: &[u8]) -> bool {
        if let Some(chunk) = &mut self.present
            && chunk.put(kind, item)
        {
            return true;
        }
        self.hand_over();
        let Ok(mut chunk) = self.empty.try_recv() else { return false };
        chunk.hole = std::mem::take(&mut self.hole);
        let put = chunk.put(kind, item);
        self.present = Some(chunk);
        put
    }
}

impl Drop for JournalTap {
    fn drop(&mut self) {
        self.hand_over();
        let _sent = self.full.try_send(Parcel::End(self.hole));
    }
}
