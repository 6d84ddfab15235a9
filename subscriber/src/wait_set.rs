//! One descriptor that is readable whenever a poll would find something.
//!
//! It is an epoll instance over the session's wake descriptor, the keeper's news and a timer that
//! makes a sleeping application notice a silent publisher. It stays the same over all sessions, so
//! an application registers it once.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

#[derive(Debug)]
pub(crate) struct WaitSet {
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl WaitSet {
    /// A set over `news` that also wakes every `period`.
    pub(crate) fn new(news: BorrowedFd<'_>, period: Duration) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let period = Timespec::try_from(period.max(Duration::from_millis(1)))
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let spec = Itimerspec { it_interval: period, it_value: period };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec)?;
        let set = Self { epoll, timer };
        set.watch(news)?;
        set.watch(set.timer.as_fd())?;
        Ok(set)
    }

    /// Adds a descriptor. It leaves the set when its last copy is closed.
    pub(crate) fn watch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let data = EventData::new_u64(0);
        epoll::add(&self.epoll, descriptor, data, EventFlags::IN).map_err(Into::into)
    }

    /// Forgets that the timer fired.
    pub(crate) fn quiet(&self) {
        // It fails only when the timer has not fired.
        let _ = rustix::io::read(&self.timer, &mut [0_u8; 8]);
    }

    /// Sleeps until the set is readable, or for `timeout`. A signal ends the sleep early.
    pub(crate) fn wait(&self, timeout: Duration) -> io::Result<()> {
        wait_readable(self.epoll.as_fd(), timeout)
    }
}

impl AsFd for WaitSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Sleeps until `descriptor` is readable, or for `timeout`. A signal ends the sleep early.
pub(crate) fn wait_readable(descriptor: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    let mut awaited = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    // A timeout beyond what the kernel's type holds is no timeout.
    match poll(&mut awaited, Timespec::try_from(timeout).ok().as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn is_readable(set: &WaitSet) -> bool {
        let mut awaited = [PollFd::new(set, PollFlags::IN)];
        poll(&mut awaited, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn the_set_is_readable_while_a_member_is() {
        let news = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let set = WaitSet::new(news.as_fd(), Duration::from_secs(3600)).unwrap();
        assert!(!is_readable(&set));
        rustix::io::write(&news, &1_u64.to_ne_bytes()).unwrap();
        assert!(is_readable(&set));
        rustix::io::read(&news, &mut [0_u8; 8]).unwrap();
        assert!(!is_readable(&set));
    }

    #[test]
    fn the_timer_wakes_again_and_again() {
        let news = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let set = WaitSet::new(news.as_fd(), Duration::from_millis(1)).unwrap();
        for _ in 0..2 {
            set.wait(Duration::from_secs(3600)).unwrap();
            set.quiet();
        }
    }

    #[test]
    fn a_member_that_is_closed_leaves() {
        let news = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let set = WaitSet::new(news.as_fd(), Duration::from_secs(3600)).unwrap();
        let session = eventfd(1, EventfdFlags::NONBLOCK).unwrap();
        set.watch(session.as_fd()).unwrap();
        assert!(is_readable(&set));
        drop(session);
        assert!(!is_readable(&set));
    }
}
