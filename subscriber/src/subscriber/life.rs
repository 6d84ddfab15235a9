//! Sessions that end and sessions that follow.

use crate::attachment::Attachment;
use crate::backoff::Reconnect;
use crate::clock;
use crate::error::PollError;
use crate::mailbox::Mail;
use crate::pulse::{Pulse, Sign};
use crate::state::{EndReason, Event, FeedState, StaleCause};

use tapecast_fabric::Receiver;

use super::{Phase, Subscriber};

/// Polls of a session that is over that may deliver nothing and read nothing.
const IDLE_POLLS_MIN: usize = 16;
/// And so many instruments that nobody wants are looked at in one more of them.
const LOOKS_PER_POLL: usize = 1024;

/// A poll that never finds the ring empty looks after things every so many polls.
const BUSY_POLLS_MAX: u32 = 256;

impl Subscriber {
    pub(super) fn after_busy_poll(&mut self) {
        self.busy_polls += 1;
        let is_quiet = self.standing.is_silent() || self.standing.feed().is_silent();
        if self.busy_polls >= BUSY_POLLS_MAX || is_quiet {
            self.busy_polls = 0;
            self.look_after();
        }
    }

    /// Returns whether another session has begun, so that there may be something to deliver.
    pub(super) fn after_idle_poll(&mut self) -> Result<bool, PollError> {
        self.busy_polls = 0;
        match self.phase {
            Phase::Attached => {
                self.look_after();
                return Ok(false);
            }
            Phase::Draining => {
                if self.receiver.is_ready() && !self.is_stuck() {
                    return Ok(false);
                }
                self.run_dry();
            }
            Phase::Dry => {}
        }
        if let Some((attachment, attempts)) = self.next.take() {
            self.begin_session(*attachment, attempts);
            return Ok(true);
        }
        if let Some(reason) = self.ending.take() {
            // Said by the state and by the next wait; only a poll after that is an error.
            self.standing.end(reason);
            return Ok(false);
        }
        match self.standing.ended() {
            Some(reason) => Err(PollError::Ended(reason.clone())),
            None => Ok(false),
        }
    }

    /// Whether polls of a session that is over find something and get no further: the publisher
    /// was killed while it wrote a snapshot into the latest table, and that one will never be
    /// whole. Looking at what nobody wants makes no delivery either, but is bounded.
    fn is_stuck(&mut self) -> bool {
        let lag_bytes = self.receiver.endpoint().lag_bytes();
        let polls = match self.drained {
            (before, polls) if before == lag_bytes => polls + 1,
            _ => 1,
        };
        self.drained = (lag_bytes, polls);
        polls as usize > IDLE_POLLS_MIN + self.receiver.account().capacity() / LOOKS_PER_POLL
    }

    #[cold]
    pub(super) fn on_mail(&mut self, mail: Mail) {
        if let Some((cause, why)) = mail.lost {
            self.on_loss(cause, why);
        }
        if let Some(why) = mail.failure {
            self.standing.tell(Event::AttachFailed(why));
        }
        if mail.attached.is_some() {
            self.next = mail.attached;
            if self.phase == Phase::Attached {
                self.phase = Phase::Draining;
            }
        }
        self.ending = mail.ended.or_else(|| self.ending.take());
    }

    fn on_loss(&mut self, cause: StaleCause, why: String) {
        if cause != StaleCause::Crashed {
            self.standing.tell(Event::Farewell(cause, why));
        }
        self.source_ended = cause == StaleCause::EndOfSource;
        self.standing.stale(cause, clock::now());
        self.drained = (0, 0);
        self.receiver.endpoint_mut().drain();
        // A session that waits to be picked up is the one that was lost.
        self.next = None;
        if self.phase == Phase::Attached {
            self.phase = Phase::Draining;
        }
    }

    /// The session is of no further use.
    fn give_up(&mut self, error: tapecast_fabric::PollError) -> PollError {
        if self.phase == Phase::Attached {
            let is_overrun = matches!(error, tapecast_fabric::PollError::Overrun { .. });
            let cause = if is_overrun { StaleCause::Evicted } else { StaleCause::Unusable };
            self.standing.stale(cause, clock::now());
        }
        self.run_dry();
        if self.choices.reconnect == Reconnect::Never {
            self.keeper.stop();
            // What the publisher said before is the better reason.
            self.ending.get_or_insert_with(|| match error {
                tapecast_fabric::PollError::Overrun { .. } => EndReason::Evicted(error.to_string()),
                _ => EndReason::Unusable(error.to_string()),
            });
        } else if self.next.is_none() {
            self.keeper.renew(self.generation);
        }
        PollError::Session(error)
    }

    /// A poll failed. Returns what the application has to know of it: nothing when a session whose
    /// end was told already has only been read to its end.
    #[cold]
    pub(super) fn on_failed_poll(
        &mut self,
        error: tapecast_fabric::PollError,
    ) -> Option<PollError> {
        let is_end = matches!(error, tapecast_fabric::PollError::Evicted { .. });
        let is_told = self.phase == Phase::Draining;
        if is_told && is_end && self.receiver.endpoint().delivers_copies() {
            self.run_dry();
            return None;
        }
        Some(self.give_up(error))
    }

    /// Nothing more comes from the present session: what it holds, above all registered memory and
    /// a queue pair, is given back, because the next one may be long in coming.
    fn run_dry(&mut self) {
        if self.phase != Phase::Dry {
            self.phase = Phase::Dry;
            self.receiver.endpoint_mut().release();
        }
    }

    /// Goes on with another session. Totals go on; ids, directory and sequences are new.
    #[cold]
    fn begin_session(&mut self, attachment: Attachment, attempts: u32) {
        self.ledger.close(&self.receiver, &self.directory);
        self.laps_before += self.receiver.laps();
        let ended = self.receiver.epoch();
        let interest = attachment.interest(&self.choices);
        let continued = attachment.endpoint.is_continued();
        let account = self.receiver.account().clone();
        self.session = attachment.accepted.session_id;
        self.generation = attachment.generation;
        self.receiver = Receiver::resume(attachment.endpoint, account, &interest);
        self.recorder.begin_session(ended, self.receiver.account().capacity());
        self.pulse = Pulse::new(self.choices.heartbeat_timeout, self.receiver.heartbeat());
        self.directory.clear();
        self.unresolved.clone_from(&self.choices.symbols);
        self.read_directory();
        self.phase = Phase::Attached;
        self.source_ended = false;
        self.reconnects += 1;
        let epoch = self.receiver.epoch();
        let session = self.session;
        self.standing.revive(Event::Reattached { epoch, session, attempts, continued });
        self.look_at_feed();
        if let Err(error) = self.watch_session() {
            // Without its wake descriptor the session would be served by the timer alone.
            self.standing.tell(Event::AttachFailed(error.to_string()));
        }
    }

    /// Looks how the publisher's feed is: loads, no system call.
    pub(super) fn look_at_feed(&mut self) {
        let since = self.receiver.feed_silent_since();
        self.standing.on_feed(since.map_or(FeedState::Live, |since| FeedState::Silent { since }));
    }

    /// Looks whether the publisher and its feed live, and tells it that this subscriber does, now
    /// and then.
    pub(crate) fn look_after(&mut self) {
        if self.phase != Phase::Attached {
            return;
        }
        self.look_at_feed();
        let Self { pulse, receiver, standing, recorder, keeper, .. } = self;
        let now = clock::coarse_now();
        if !pulse.is_due(now) {
            return;
        }
        if pulse.report_is_due(now) {
            if let Some(timing) = recorder.timing(keeper.clock()) {
                receiver.show_timing(&timing);
            }
            receiver.report(clock::unix_now(), recorder.report());
        }
        match pulse.on_heartbeat(receiver.heartbeat(), now) {
            Sign::Alive if standing.is_silent() => standing.revive(Event::Heard),
            Sign::Silent if standing.is_live() => {
                standing.stale(StaleCause::Silent, clock::now());
            }
            Sign::Alive | Sign::Silent => {}
        }
    }
}
