//! Which work requests ask for a completion.
//!
//! A send queue frees places only when a completion is polled, and a completion frees every place
//! up to its own. So most work requests need none, but each burst must end with one: unsignaled
//! work requests at the end of a queue that then falls silent would never be retired, and a queue
//! full of them can never move again.

use crate::planted::{Planted, is_planted};

/// Decides, work request by work request, which of them are signaled.
///
/// # Invariants
/// `unsignaled < every`.
#[derive(Clone, Debug)]
pub struct SignalRule {
    every: u32,
    unsignaled: u32,
}

impl SignalRule {
    /// Signals at least each `every`th work request.
    ///
    /// # Panics
    /// When `every` is 0: a bug of the caller.
    #[must_use]
    pub const fn new(every: u32) -> Self {
        assert!(every > 0, "signaling each 0th work request makes no sense");
        Self { every, unsignaled: 0 }
    }

    /// Judges the next work request; `is_last` when no other follows it in this burst.
    ///
    /// Returns how many work requests its completion retires, itself included, or `None` when it
    /// need not be signaled.
    pub fn next(&mut self, is_last: bool) -> Option<u32> {
        let is_last = is_last && !is_planted(Planted::UnsignaledNeverRetired);
        let retires = self.unsignaled + 1;
        if is_last || retires == self.every {
            self.unsignaled = 0;
            return Some(retires);
        }
        self.unsignaled = retires;
        None
    }

    /// Work requests since the last signaled one.
    #[must_use]
    pub const fn unsignaled(&self) -> u32 {
        self.unsignaled
    }
}
