//! The instrument directory in shared memory.
//!
//! ```text
//! control   count u64 | stamp u64 | unused to the end of the line
//! entries   64 bytes each, in the order of their instrument ids
//! ```
//!
//! The table grows at its end: an entry is stored, then the count with `Release`, so a reader that
//! sees the count sees the entry. Rewriting an entry (a venue announces a new tick size) is rare
//! and guarded by a stamp for the whole table, odd meanwhile.

use tapecast_wire::limits::{INSTRUMENT_ENTRY_BYTES, WORD_BYTES};
use tapecast_wire::{InstrumentEntry, InstrumentId};
use zerocopy::{FromZeros, IntoBytes};

use crate::record::{copy_bytes_out, copy_in};
use crate::sync::{AtomicU64, Ordering, fence, spin_loop};
use crate::words::{LINE_WORDS, Words, WordsMut};

const COUNT_WORD: usize = 0;
const STAMP_WORD: usize = 1;
const ENTRY_WORDS: usize = INSTRUMENT_ENTRY_BYTES / WORD_BYTES;
/// Times that a reader starts anew while an entry is being rewritten.
const ATTEMPTS: usize = if cfg!(loom) { 2 } else { 64 };

/// Words of a directory for so many instruments.
#[must_use]
pub const fn directory_words(instruments: usize) -> usize {
    LINE_WORDS + instruments * ENTRY_WORDS
}

/// Why an entry could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    /// No room.
    #[error("the directory holds {capacity} instruments and all are taken: configure more")]
    Full {
        /// Entries it holds.
        capacity: usize,
    },
    /// An instrument id was left out.
    #[error("instrument {given} cannot be added before instrument {next}: ids are dense from 0")]
    NotDense {
        /// Id of the entry.
        given: InstrumentId,
        /// Id that comes next.
        next: InstrumentId,
    },
}

/// Why an entry could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryReadError {
    /// The writer was rewriting entries all the time.
    #[error("the writer is changing the directory: try again later")]
    Busy,
    /// The entry names another instrument than its place says.
    #[error("the directory is damaged or has another layout: attach again")]
    Corrupt,
}

/// Words that cannot be a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("directory of {have} words: they are no control line and whole entries")]
pub struct DirectoryShapeError {
    /// Words given.
    have: usize,
}

fn capacity(words: usize) -> Result<usize, DirectoryShapeError> {
    let entries = words.checked_sub(LINE_WORDS).filter(|rest| rest.is_multiple_of(ENTRY_WORDS));
    entries.map(|rest| rest / ENTRY_WORDS).ok_or(DirectoryShapeError { have: words })
}

const fn entry_start(index: usize) -> usize {
    LINE_WORDS + index * ENTRY_WORDS
}

/// The one writer of a directory.
#[derive(Debug)]
pub struct DirectoryWriter {
    words: WordsMut,
    capacity: usize,
    count: usize,
}

impl DirectoryWriter {
    /// A writer over zeroed words, which nobody else writes.
    ///
    /// # Errors
    /// [`DirectoryShapeError`] when the words cannot be a directory.
    pub fn new(words: WordsMut) -> Result<Self, DirectoryShapeError> {
        let capacity = capacity(words.len())?;
        Ok(Self { words, capacity, count: 0 })
    }

    /// Adds the entry that comes next, or replaces the one with the same id.
    ///
    /// # Errors
    /// [`DirectoryError`]; nothing has changed then.
    pub fn upsert(&mut self, entry: &InstrumentEntry) -> Result<(), DirectoryError> {
        let index = entry.instrument_id as usize;
        if index < self.count {
            self.rewrite(index, entry);
            return Ok(());
        }
        if index >= self.capacity {
            return Err(DirectoryError::Full { capacity: self.capacity });
        }
        if index > self.count {
            let (given, next) =
                (InstrumentId(entry.instrument_id), InstrumentId(self.count as u32));
            return Err(DirectoryError::NotDense { given, next });
        }
        copy_in(entry.as_bytes(), self.entry_words(index));
        self.count += 1;
        // Release: pairs with the Acquire load in `DirectoryReader::len`.
        self.words.atomics()[COUNT_WORD].store(self.count as u64, Ordering::Release);
        Ok(())
    }

    /// Removes every entry, in whatever state an earlier writer has left the table. Its readers may
    /// take a mixture of lives for an entry after this, so they ask [`crate::region::LifeReader`]
    /// before they use one.
    pub fn empty(&mut self) {
        self.count = 0;
        for word in [COUNT_WORD, STAMP_WORD] {
            self.words.atomics()[word].store(0, Ordering::Relaxed);
        }
    }

    /// Entries so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Entries it can hold.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    fn rewrite(&self, index: usize, entry: &InstrumentEntry) {
        let target = self.entry_words(index);
        if load_entry(target) == *entry {
            return;
        }
        let stamp = &self.words.atomics()[STAMP_WORD];
        let before = stamp.load(Ordering::Relaxed);
        stamp.store(before + 1, Ordering::Relaxed);
        // Release: pairs with the Acquire fence in `DirectoryReader::entry`.
        fence(Ordering::Release);
        copy_in(entry.as_bytes(), target);
        // Release: pairs with the first load of the stamp in `DirectoryReader::entry`.
        stamp.store(before + 2, Ordering::Release);
    }

    fn entry_words(&self, index: usize) -> &[AtomicU64] {
        &self.words.atomics()[entry_start(index)..][..ENTRY_WORDS]
    }
}

/// A reader of a directory. Nothing in it is trusted.
#[derive(Clone, Debug)]
pub struct DirectoryReader {
    words: Words,
    capacity: usize,
}

impl DirectoryReader {
    /// A reader.
    ///
    /// # Errors
    /// [`DirectoryShapeError`] when the words cannot be a directory.
    pub fn new(words: Words) -> Result<Self, DirectoryShapeError> {
        let capacity = capacity(words.len())?;
        Ok(Self { words, capacity })
    }

    /// Entries there are now; at most the capacity, whatever the count says.
    #[must_use]
    pub fn len(&self) -> usize {
        // Acquire: pairs with the Release store in `DirectoryWriter::upsert`.
        let count = self.words.atomics()[COUNT_WORD].load(Ordering::Acquire);
        usize::try_from(count).unwrap_or(usize::MAX).min(self.capacity)
    }

    /// Whether there is none yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rises whenever an entry that was there before is replaced. Together with [`Self::len`] it
    /// tells whether the directory has changed.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.words.atomics()[STAMP_WORD].load(Ordering::Acquire)
    }

    /// The entry of `id`; `None` when there is none yet. Its texts are as the writer left them:
    /// parse it with [`tapecast_wire::Instrument::from_wire`].
    ///
    /// # Errors
    /// [`DirectoryReadError`].
    pub fn entry(&self, id: InstrumentId) -> Result<Option<InstrumentEntry>, DirectoryReadError> {
        if id.index() >= self.len() {
            return Ok(None);
        }
        let words = self.words.atomics();
        for _ in 0..ATTEMPTS {
            let before = words[STAMP_WORD].load(Ordering::Acquire);
            let entry = load_entry(&words[entry_start(id.index())..][..ENTRY_WORDS]);
            fence(Ordering::Acquire);
            let after = words[STAMP_WORD].load(Ordering::Relaxed);
            if before == after && before.is_multiple_of(2) {
                let ours = entry.instrument_id == id.0;
                return if ours { Ok(Some(entry)) } else { Err(DirectoryReadError::Corrupt) };
            }
            spin_loop();
        }
        Err(DirectoryReadError::Busy)
    }
}

fn load_entry(words: &[AtomicU64]) -> InstrumentEntry {
    let mut entry = InstrumentEntry::new_zeroed();
    copy_bytes_out(words, entry.as_mut_bytes());
    entry
}
