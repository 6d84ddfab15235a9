//! An endpoint with its account: what the SDK and the conformance suite use.

use std::time::Duration;

use tapecast_core::Interest;
use tapecast_core::account::{Account, InstrumentTotals, Totals};
use tapecast_wire::{Epoch, Instrument, InstrumentId, Nanos};

use crate::{ChannelState, Delivery, Endpoint, LatencyReport, PollError, Timing, WaitError};

/// One session's receiving end: finds records, decides which to deliver, and keeps the books.
#[derive(Debug)]
pub struct Receiver<E> {
    pub(crate) endpoint: E,
    pub(crate) account: Account,
}

impl<E: Endpoint> Receiver<E> {
    /// A receiver for what `interest` names.
    #[must_use]
    pub fn new(endpoint: E, interest: &Interest) -> Self {
        let account = Account::new(interest, endpoint.instrument_capacity());
        Self { endpoint, account }
    }

    /// A receiver on a new session that goes on with the totals of an earlier one. The directory,
    /// and with it the ids in `interest`, are the new session's.
    #[must_use]
    pub fn resume(endpoint: E, mut account: Account, interest: &Interest) -> Self {
        account.reserve(endpoint.instrument_capacity());
        account.begin_epoch(interest);
        Self { endpoint, account }
    }

    /// Takes the receiver apart, to keep the account for the next session.
    #[must_use]
    pub fn into_parts(self) -> (E, Account) {
        (self.endpoint, self.account)
    }

    /// Hands at most `limit` snapshots to `deliver`, oldest first, and returns how many.
    ///
    /// # Errors
    /// [`PollError`] when the session is of no further use.
    pub fn poll<F: FnMut(Delivery<'_>)>(
        &mut self,
        limit: usize,
        deliver: F,
    ) -> Result<usize, PollError> {
        let polled = self.endpoint.poll(&mut self.account, limit, deliver);
        if polled != Ok(0) {
            self.endpoint.settle(&self.account.totals());
        }
        polled
    }

    /// Waits until a poll would find something, or for `timeout`. Returns whether it would. It may
    /// return earlier, above all when the channel is closed: look at [`Receiver::state`] after it.
    ///
    /// # Errors
    /// [`WaitError`] when the system refuses to wait.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, WaitError> {
        self.endpoint.wait(timeout)
    }

    /// Begins to receive one more instrument, its newest snapshot first. Returns whether that
    /// changed anything.
    pub fn watch(&mut self, id: InstrumentId) -> bool {
        let changed = self.account.watch(id);
        if changed {
            if self.endpoint.has_trail() {
                self.account.expect_trail(id);
            }
            self.endpoint.request_image(id);
        }
        changed
    }

    /// Stops receiving an instrument. Returns whether that changed anything.
    pub fn unwatch(&mut self, id: InstrumentId) -> bool {
        let changed = self.account.unwatch(id);
        if changed {
            self.endpoint.withdraw(id);
        }
        changed
    }

    /// Asks for the newest snapshot of an instrument once more. It is delivered also when it has
    /// been before; then it is marked as an initial image, and counts as published and delivered
    /// once more. Returns whether the instrument is wanted at all.
    pub fn refresh(&mut self, id: InstrumentId) -> bool {
        let is_wanted = self.account.wants(id);
        if is_wanted {
            self.endpoint.request_image(id);
        }
        is_wanted
    }

    /// Sets what the publisher is told about latency in full, with the next [`Self::report`].
    pub fn show_timing(&mut self, timing: &Timing) {
        self.endpoint.show_timing(timing);
    }

    /// Tells the publisher that this subscriber lives, and the latency that it sees.
    pub fn report(&mut self, now: Nanos, latency: LatencyReport) {
        self.endpoint.report(now, latency);
    }

    /// Whether a poll would find something to do.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.endpoint.is_ready()
    }

    /// Counts over all instruments, and all sessions that this account has seen.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.account.totals()
    }

    /// Counts of one instrument in this session.
    #[must_use]
    pub fn instrument_totals(&self, id: InstrumentId) -> Option<InstrumentTotals> {
        self.account.instrument(id)
    }

    /// A directory entry.
    #[must_use]
    pub fn instrument(&self, id: InstrumentId) -> Option<Instrument> {
        self.endpoint.instrument(id)
    }

    /// Instruments in the directory now.
    #[must_use]
    pub fn instrument_count(&self) -> usize {
        self.endpoint.instrument_count()
    }

    /// Life of the publisher.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.endpoint.epoch()
    }

    /// Whether the publisher goes on publishing.
    #[must_use]
    pub fn state(&self) -> ChannelState {
        self.endpoint.state()
    }

    /// The publisher's clock when it last showed life.
    #[must_use]
    pub fn heartbeat(&self) -> Nanos {
        self.endpoint.heartbeat()
    }

    /// Since when the publisher's feed is silent, by the publisher's clock; `None` while it is not.
    #[must_use]
    pub fn feed_silent_since(&self) -> Option<Nanos> {
        self.endpoint.feed_silent_since()
    }

    /// Times that this session was lapped and recovered.
    #[must_use]
    pub fn laps(&self) -> u64 {
        self.endpoint.laps()
    }

    /// The account, to look at.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// The endpoint, for what only its fabric has.
    #[must_use]
    pub const fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// The endpoint, for what only its fabric has.
    pub const fn endpoint_mut(&mut self) -> &mut E {
        &mut self.endpoint
    }
}
