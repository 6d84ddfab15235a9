//! One subscriber, attached or away.

use tapecast_core::account::Account;
use tapecast_fabric::sim::{SimEndpoint, SimFaults};
use tapecast_fabric::{ChannelState, Delivery, LatencyReport, PollError, Receiver};
use tapecast_wire::{Nanos, SessionId};

use super::event::{Event, Seen};
use super::history::History;
use super::observers::Observers;

/// One subscriber.
#[derive(Debug)]
pub(super) struct Seat {
    /// The turn in which it attaches, while it is away.
    pub back_at: u64,
    /// Its books of earlier attachments, when it keeps them.
    pub account: Option<Account>,
    /// Its session, while it is attached.
    pub attached: Option<Box<Attached>>,
}

/// A subscriber's end of one session, and what is wrong with it.
#[derive(Debug)]
pub(super) struct Attached {
    /// Its number in the history.
    pub attachment: usize,
    /// Its place at the publisher.
    pub session: SessionId,
    /// Its end.
    pub receiver: Receiver<SimEndpoint>,
    /// The switches of its session.
    pub faults: SimFaults,
    /// It stands still until this turn.
    pub paused_until: u64,
    /// Its delays end in this turn.
    pub slow_until: u64,
    /// Something was done to it, or by it, that ends the session sooner or later.
    pub doomed: bool,
    /// It does nothing any more.
    pub silent: bool,
    /// The turn in which the conductor takes it out.
    pub gone_at: Option<u64>,
}

impl Attached {
    /// Polls once and says that it lives.
    pub(super) fn poll(
        &mut self,
        limit: usize,
        beat: u64,
        history: &History,
        observers: &mut Observers,
    ) {
        let attachment = self.attachment;
        let polled = self.receiver.poll(limit, |delivery: Delivery<'_>| {
            let snapshot = delivery.snapshot();
            let seen = Seen {
                header: snapshot.header(),
                bids: snapshot.bids(),
                asks: snapshot.asks(),
                initial: delivery.is_initial(),
                conflated: delivery.conflated(),
            };
            observers.tell(&Event::Delivered { attachment, seen: &seen }, history);
        });
        if let Err(error) = polled {
            let evicted = matches!(error, PollError::Evicted { .. });
            let why = error.to_string();
            observers.tell(&Event::Broke { attachment, evicted, why: &why }, history);
            self.silent = true;
            self.gone_at.get_or_insert(history.turn + 3);
            return;
        }
        self.receiver.report(Nanos(beat), LatencyReport::default());
        observers.tell(&Event::Reported { attachment, beat }, history);
        if self.receiver.state() == ChannelState::Closed && !self.receiver.is_ready() {
            observers.tell(&Event::Ended { attachment }, history);
        }
    }

    /// Says that it lives, so that one which was stopped until now is not taken for dead before
    /// its next poll.
    pub(super) fn show_life(&mut self, beat: u64, history: &History, observers: &mut Observers) {
        if !self.silent {
            let attachment = self.attachment;
            self.receiver.report(Nanos(beat), LatencyReport::default());
            observers.tell(&Event::Reported { attachment, beat }, history);
        }
    }

    /// Nothing is wrong with it any more, as far as that can be.
    pub(super) fn heal(&mut self) {
        self.faults.resume();
        self.faults.delay_completions(0);
        self.faults.delay_credit(0);
        (self.paused_until, self.slow_until) = (0, 0);
    }
}
