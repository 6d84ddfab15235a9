//! What the keeper tells the polling thread.
//!
//! The polling thread must never wait and never enter the kernel to learn that nothing happened, so
//! a flag says whether there is mail, and only then is the lock taken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::attachment::Attachment;
use crate::state::{EndReason, StaleCause};

/// What happened since the mailbox was last emptied, in the order of the fields.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// The session is gone, and why; with the publisher's sentence when it said one.
    pub(crate) lost: Option<(StaleCause, String)>,
    /// Attempts to attach again fail for this reason.
    pub(crate) failure: Option<String>,
    /// A new session. Replaces an earlier one that was never picked up.
    pub(crate) attached: Option<(Box<Attachment>, u32)>,
    /// The keeper has stopped.
    pub(crate) ended: Option<EndReason>,
}

/// Carries mail from the keeper to the polling thread.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    raised: AtomicBool,
    mail: Mutex<Mail>,
}

impl Mailbox {
    /// Adds to the mail. What it replaces is dropped outside the lock.
    pub(crate) fn post<T>(&self, change: impl FnOnce(&mut Mail) -> T) {
        let replaced = change(&mut self.lock());
        self.raised.store(true, Ordering::Release);
        drop(replaced);
    }

    /// Takes the mail, if there is any. One load when there is none.
    pub(crate) fn take(&self) -> Option<Mail> {
        if !self.raised.load(Ordering::Relaxed) {
            return None;
        }
        self.raised.store(false, Ordering::Relaxed);
        // The lock orders the mail itself; a post that comes after this raises the flag again.
        Some(core::mem::take(&mut *self.lock()))
    }

    /// Whether there is mail.
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
