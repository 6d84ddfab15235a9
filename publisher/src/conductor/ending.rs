//! The orderly end: feed, sender, sessions, socket, in this order.

use std::time::{Duration, Instant};

use tapecast_fabric::Host;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use super::session::{Goodbye, SessionEvent};
use super::{Conductor, ConductorReport, PoolRecord, Questions, Reason, TICK_OWED};
use crate::feed::FeedEnd;
use crate::sender::Command;

/// How long the feed is given to notice the order to stop.
const FEED_MAX: Duration = Duration::from_secs(5);
/// How long the sender is given to publish what is queued, and to close.
const SENDER_MAX: Duration = Duration::from_secs(2);
/// How long the last work requests are given to complete: a lost packet is sent again after the
/// acknowledgement timeout, and that more than once.
const PAGES_MAX: Duration = Duration::from_secs(3);
/// How long sessions are given to end after their farewell.
const SESSIONS_MAX: Duration = Duration::from_secs(2);

impl<H: Host> Conductor<H> {
    /// Ends everything in order. Bounded in time, whatever the subscribers do.
    pub(super) async fn end(
        mut self,
        reason: Reason,
        feed: oneshot::Receiver<FeedEnd>,
    ) -> ConductorReport {
        match &reason {
            Reason::FabricFailed(_) => error!("closing: {}", reason.sentence()),
            _ => info!("closing: {}", reason.sentence()),
        }
        self.service.on_end(&reason.sentence());
        // Who asks now is told at once that there is no answer, and is not left to wait for it.
        self.questions = Questions::none();
        self.stop.stop();
        // What subscribers are shown stays: nothing was heard.
        self.silence.on_end();
        // A feed that still waits for subscribers is let go, and sees the order to stop.
        self.gate = None;
        self.await_feed(feed).await;
        // A fabric that has failed publishes nothing any more.
        if !matches!(reason, Reason::FabricFailed(_))
            && !self.wait_until(SENDER_MAX, |this| this.progress.load().drained).await
        {
            warn!("what was queued is not published: a lossless subscriber does not read");
        }
        if matches!(reason, Reason::SourceFailed(_)) {
            // What was good is delivered before the end is told.
            let limit = self.settings.stall_max + SENDER_MAX;
            self.wait_until(limit, |this| this.has_drained(Instant::now())).await;
        }
        let pool = self.await_pages().await;
        self.close_sender(&reason).await;
        self.refuse_all_tickets();
        self.dismiss_all(&reason).await;
        let Self { listener, roster, feed, silence, refusals, evictions, .. } = self;
        let counted = listener.stats();
        let silence = silence.record();
        listener.close();
        // Lets the refusals be written that have not had a chance yet.
        tokio::task::yield_now().await;
        ConductorReport {
            sessions: roster.into_records(),
            feed,
            silence,
            refusals,
            evictions,
            pool,
            listener: counted,
            fabric_failure: reason.into_fabric_failure(),
        }
    }

    /// Waits a moment for the last completions, and says how the pool is then.
    async fn await_pages(&mut self) -> PoolRecord {
        self.wait_until(PAGES_MAX, |this| this.pool.free_pages() == this.pool.pages()).await;
        PoolRecord { pages: self.pool.pages(), free_pages: self.pool.free_pages() }
    }

    async fn await_feed(&mut self, feed: oneshot::Receiver<FeedEnd>) {
        if self.feed.is_some() {
            return;
        }
        match tokio::time::timeout(FEED_MAX, feed).await {
            Ok(Ok(end)) => self.feed = Some(end),
            Ok(Err(_)) | Err(_) => {
                let seconds = FEED_MAX.as_secs();
                warn!("the source did not stop within {seconds} s: it is left behind");
            }
        }
    }

    async fn close_sender(&mut self, reason: &Reason) {
        let command = Command::Close { farewell: reason.farewell() };
        // The port holds more commands than there can be sessions; if it is full nevertheless, the
        // sender has stopped taking any, and closing it is pointless.
        if self.port.submit(command).is_err() {
            warn!("the sender does not answer");
            return;
        }
        self.sender.ring();
        if !self.wait_until(SENDER_MAX, |this| this.sender_closed).await {
            warn!("the sender does not answer");
        }
    }

    async fn dismiss_all(&mut self, reason: &Reason) {
        for member in self.roster.members_mut() {
            if let Some(goodbye) = member.goodbye.take() {
                let (farewell, text) = (reason.farewell(), reason.sentence());
                let _told = goodbye.send(Goodbye { farewell, text });
            }
        }
        let deadline = Instant::now() + SESSIONS_MAX;
        while self.roster.count() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, self.events.recv()).await {
                Ok(Some(event)) => self.on_last_event(event),
                Ok(None) | Err(_) => break,
            }
        }
    }

    /// The sender has ended: there is nobody to tell of a session's end.
    fn on_last_event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Ended { id, reason } => {
                if let Some(member) = self.roster.get_mut(id) {
                    member.reason = Some(reason);
                }
                self.roster.remove(id);
            }
            SessionEvent::Connected { ticket, result } => self.on_connected(ticket, result),
            SessionEvent::Accepted { .. } => {}
        }
    }

    /// Looks again and again, and takes the sender's answers meanwhile. Whether it came true.
    async fn wait_until(
        &mut self,
        limit: Duration,
        mut is_true: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            while let Ok(event) = self.events.try_recv() {
                self.on_session(event);
            }
            self.take_outcomes();
            if is_true(self) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(TICK_OWED).await;
        }
    }
}
