//! From the fabric to the application.

use std::sync::Arc;

use crate::clock;
use crate::directory::nameless;
use crate::error::PollError;
use crate::owned::OwnedRecord;
use crate::snapshot::Snapshot;

use super::{Phase, Subscriber};

impl Subscriber {
    pub(super) fn deliver<F: FnMut(&Snapshot<'_>)>(
        &mut self,
        on_snapshot: &mut F,
    ) -> Result<usize, PollError> {
        if self.phase == Phase::Dry {
            return Ok(0);
        }
        self.read_directory();
        let Self { receiver, directory, recorder, deferred, .. } = self;
        let polled = receiver.poll(self.choices.poll_limit, |delivery| {
            let record = delivery.snapshot();
            let received = recorder.on_delivery(&record, clock::unix_now);
            match directory.get(record.instrument_id()) {
                Some(entry) if deferred.is_empty() => {
                    on_snapshot(&Snapshot::new(record, entry, received));
                }
                _ => deferred.push((OwnedRecord::of(&record), received)),
            }
        });
        if !self.deferred.is_empty() {
            self.deliver_deferred(on_snapshot);
        }
        polled.or_else(|error| self.on_failed_poll(error).map_or(Ok(0), Err))
    }

    /// An instrument appeared while the poll was running. Its entry was in the directory before its
    /// first record was in the ring, so now it can be read; order is kept.
    #[cold]
    fn deliver_deferred<F: FnMut(&Snapshot<'_>)>(&mut self, on_snapshot: &mut F) {
        self.read_directory();
        for (record, received) in self.deferred.drain(..) {
            let record = record.view();
            let id = record.instrument_id();
            match self.directory.get(id) {
                Some(entry) => on_snapshot(&Snapshot::new(record, entry, received)),
                None => on_snapshot(&Snapshot::new(record, &Arc::new(nameless(id)), received)),
            }
        }
    }

    /// Reads directory entries that are new, and begins to watch wanted symbols among them.
    pub(super) fn read_directory(&mut self) {
        if !self.directory.sync(&self.receiver) {
            return;
        }
        self.drop_unwanted();
        if !self.unresolved.is_empty() {
            let Self { unresolved, directory, receiver, .. } = self;
            unresolved.retain(|symbol| match directory.find(symbol) {
                Some(entry) => {
                    receiver.watch(entry.instrument_id);
                    false
                }
                None => true,
            });
        }
    }
}
