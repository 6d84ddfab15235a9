//! When to wake up, with two rings to wait for.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use tapecast_fabric::WaitStrategy;

use crate::clock;
use crate::error::WaitError;
use crate::state::State;
use crate::subscriber::{Subscriber, Wakeup};
use crate::wait_set::wait_readable;

use super::AbSubscriber;

impl AbSubscriber {
    /// Waits until a poll would find something on one side or a state has changed, at most for
    /// `timeout`. What the poll finds may be only copies of what was delivered.
    ///
    /// # Errors
    /// [`WaitError`] when the system refuses to wait.
    pub fn wait(&mut self, timeout: Duration) -> Result<Wakeup, WaitError> {
        let deadline = clock::now().checked_add(timeout);
        loop {
            if let Some(wakeup) = self.glance() {
                return Ok(wakeup);
            }
            let now = clock::now();
            let rest = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(now));
            if rest.is_zero() {
                return Ok(Wakeup::TimedOut);
            }
            self.sleep(rest)?;
            self.sides.iter_mut().for_each(Subscriber::look_after);
        }
    }

    /// What there is to wake up for at once.
    fn glance(&mut self) -> Option<Wakeup> {
        if matches!(self.state(), State::Ended(_)) {
            return Some(Wakeup::Ended);
        }
        let told = self.sides.iter().map(Subscriber::told).sum();
        if core::mem::replace(&mut self.noticed, told) != told {
            return Some(Wakeup::Ready);
        }
        self.sides.iter().any(Subscriber::has_work).then_some(Wakeup::Ready)
    }

    /// Sleeps for `rest` at most, and may wake early.
    fn sleep(&mut self, rest: Duration) -> Result<(), WaitError> {
        let Some(descriptor) = &self.descriptor else {
            match self.wait {
                WaitStrategy::Spin => core::hint::spin_loop(),
                _ => std::thread::yield_now(),
            }
            return Ok(());
        };
        self.sides.iter_mut().for_each(Subscriber::rearm);
        wait_readable(descriptor.as_fd(), rest).map_err(Into::into)
    }
}

/// One descriptor over both sides' own, where they have some.
pub(super) fn descriptor(sides: &[Subscriber; 2]) -> io::Result<Option<OwnedFd>> {
    let [Some(a), Some(b)] = sides.each_ref().map(Subscriber::as_fd) else { return Ok(None) };
    both(a, b).map(Some)
}

fn both(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    for descriptor in [a, b] {
        epoll::add(&epoll, descriptor, EventData::new_u64(0), EventFlags::IN)?;
    }
    Ok(epoll)
}
