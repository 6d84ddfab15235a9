//! Whose life the tables belong to.
//!
//! A publisher that takes a region over empties latest table and directory, while readers of the
//! life before it may be copying from them. Their stamps start anew then, so a reader could take a
//! mixture of two lives for a whole record. What tells is the epoch in the header:
//!
//! ```text
//! writer   store the new epoch │ fence(Release) │ empty the tables, fill them again
//! reader   copy from a table   │ fence(Acquire) │ load the epoch: another one? throw the copy away
//! ```
//!
//! If any word that was copied was stored after the writer's fence, the two fences make the new
//! epoch visible. The ring needs none of this, because each record carries its epoch; but a reader
//! that the new life has lapped asks too, before it turns to the table.

use tapecast_wire::Epoch;

use crate::sync::{Ordering, fence};
use crate::words::{Words, WordsMut};

/// The publisher's end of the word that names its life.
#[derive(Debug)]
pub struct LifeWriter {
    word: WordsMut,
}

impl LifeWriter {
    /// Over the first of these words; there is at least one.
    #[must_use]
    pub const fn new(word: WordsMut) -> Self {
        Self { word }
    }

    /// Begins a life. Whatever this thread stores afterwards shows a reader that the life it knew
    /// is over.
    pub fn begin(&self, epoch: Epoch) {
        self.word.atomics()[0].store(epoch.0, Ordering::Relaxed);
        // Release: pairs with the fence in `LifeReader::is_current`, when what was copied before
        // that one was stored after this one.
        fence(Ordering::Release);
    }
}

/// A subscriber's end of the word that names the publisher's life.
#[derive(Clone, Debug)]
pub struct LifeReader {
    word: Words,
    epoch: Epoch,
}

impl LifeReader {
    /// Over the first of these words, for a reader of life `epoch`; there is at least one.
    #[must_use]
    pub const fn new(word: Words, epoch: Epoch) -> Self {
        Self { word, epoch }
    }

    /// The life that this reader belongs to.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether everything that was copied before this call was stored by this reader's own life.
    #[must_use]
    #[inline]
    pub fn is_current(&self) -> bool {
        // Acquire: pairs with the fence in `LifeWriter::begin`.
        fence(Ordering::Acquire);
        self.word.atomics()[0].load(Ordering::Relaxed) == self.epoch.0
    }
}
