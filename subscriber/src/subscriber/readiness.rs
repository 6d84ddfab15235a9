//! When to wake up.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use tapecast_fabric::WaitStrategy;

use crate::error::{ConnectError, WaitError};
use crate::wait_set::{WaitSet, wait_readable};

use super::{Phase, Subscriber};

/// Longest sleep in the fabric before looking after the publisher's health.
const SLEEP_SLICE: Duration = Duration::from_millis(100);
/// The same for those that do not sleep, and can look more often at no price.
const SPIN_SLICE: Duration = Duration::from_millis(5);

/// Looks at resting instruments within one least interval.
const RESTS_PER_LOOK: u32 = 4;

/// The descriptor that applications wait on.
#[derive(Debug)]
pub(super) struct Descriptor {
    set: WaitSet,
    /// The publisher will ring when it has something.
    armed: bool,
    /// Readable because a poll left something behind.
    nudged: bool,
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Subscriber {
    pub(crate) fn has_work(&self) -> bool {
        let session_has = match self.phase {
            Phase::Attached => self.receiver.is_ready(),
            // The poll that finds nothing moves on.
            Phase::Draining => true,
            Phase::Dry => self.next.is_some() || self.ending.is_some(),
        };
        session_has || self.keeper.mailbox().is_raised()
    }

    /// Sleeps for `rest` at most, and may wake early.
    pub(super) fn sleep(&mut self, rest: Duration) -> Result<(), WaitError> {
        if self.descriptor.is_some() {
            self.rearm();
            let Some(descriptor) = &self.descriptor else { return Ok(()) };
            return descriptor.set.wait(rest).map_err(Into::into);
        }
        if self.phase == Phase::Attached {
            let slice = match self.choices.wait {
                WaitStrategy::Spin | WaitStrategy::Yield => SPIN_SLICE,
                WaitStrategy::Block | WaitStrategy::Fd => SLEEP_SLICE,
            };
            self.receiver.wait(rest.min(slice))?;
            return Ok(());
        }
        // Nothing can come from the ring; only the keeper has news.
        wait_readable(self.keeper.news().as_fd(), rest)?;
        self.keeper.quiet();
        Ok(())
    }

    pub(super) fn open_descriptor(&mut self) -> Result<(), ConnectError> {
        let action = "wait on descriptors";
        let period = self.timer_period();
        let set = WaitSet::new(self.keeper.news().as_fd(), period)
            .map_err(|source| ConnectError::Resources { action, source })?;
        self.descriptor = Some(Descriptor { set, armed: false, nudged: false });
        self.watch_session().map_err(|source| ConnectError::Resources { action, source })?;
        // The initial images are there to be polled.
        self.arm(usize::MAX);
        Ok(())
    }

    /// How often the descriptor becomes readable by itself: to notice a silent publisher, and what
    /// has rested for the least interval, of which nobody rings.
    fn timer_period(&self) -> Duration {
        let period = self.choices.heartbeat_timeout / 2;
        match self.choices.min_interval {
            Duration::ZERO => period,
            interval => period.min(interval / RESTS_PER_LOOK),
        }
    }

    pub(super) fn watch_session(&mut self) -> io::Result<()> {
        let Some(descriptor) = &mut self.descriptor else { return Ok(()) };
        descriptor.armed = false;
        self.receiver
            .endpoint()
            .descriptor()
            .map_or(Ok(()), |session| descriptor.set.watch(session))
    }

    /// Makes the descriptor readable when a poll would find something, whatever it was before.
    pub(crate) fn rearm(&mut self) {
        self.disarm();
        self.arm(0);
    }

    /// A poll begins: the publisher need not ring.
    pub(super) fn disarm(&mut self) {
        if let Some(descriptor) = &mut self.descriptor
            && descriptor.armed
        {
            descriptor.armed = false;
            self.receiver.endpoint_mut().disarm();
        }
    }

    /// A poll has delivered `count`: makes the descriptor readable exactly when another would find
    /// something.
    pub(super) fn arm(&mut self, count: usize) {
        let Some(descriptor) = &mut self.descriptor else { return };
        let emptied = count < self.choices.poll_limit
            && match self.phase {
                Phase::Attached => self.receiver.endpoint_mut().arm(),
                Phase::Draining => false,
                Phase::Dry => true,
            };
        if !emptied {
            if !descriptor.nudged {
                descriptor.nudged = true;
                self.keeper.nudge();
            }
            return;
        }
        descriptor.armed = self.phase == Phase::Attached;
        descriptor.nudged = false;
        descriptor.set.quiet();
        self.keeper.quiet();
        // Mail that came before the news were silenced must not be slept over.
        if self.keeper.mailbox().is_raised() || self.next.is_some() || self.ending.is_some() {
            descriptor.nudged = true;
            self.keeper.nudge();
        }
    }
}
