//! Waiting for the next snapshot.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::time::{ClockId, clock_gettime};

use super::futex::{Awake, Sleepers, WakeWord};
use crate::{WaitError, WaitStrategy};

/// Looks between two looks at the clock while spinning.
const SPINS_PER_CLOCK: u32 = 256;
/// Sleepers that a woken reader wakes in turn.
const HELP: u32 = 2;
/// Most wakes that a reader sits out after its help was not needed.
const PAUSE_MAX: u32 = 64;
/// Most bytes taken from the wake socket at once: more than its queue holds.
const DRAIN_MAX: usize = 1024;

/// Longest sleep before a reader looks by itself. All subscribers sleep on one word, and a hostile
/// one could have the kernel move the others' sleep to a word of its own (FUTEX_REQUEUE), where
/// nobody wakes them. This bounds what that costs them; looking costs an idle reader nothing much.
pub(super) const SLEEP_LIMIT: Duration = Duration::from_millis(100);

/// The waiting half of an endpoint.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) strategy: WaitStrategy,
    pub(super) sleep_limit: Duration,
    wake: WakeWord,
    /// The generation that the application has been told of. Compared before each sleep, so that
    /// what was announced between two waits (that the channel is closed, say) is not slept on.
    seen: u32,
    socket: OwnedFd,
    help: Help,
}

/// When a woken reader helps to wake others. Where the waker alone is quick enough, helping finds
/// nobody asleep and only delays the reader, so each time that happens it pauses for longer.
#[derive(Debug, Default)]
struct Help {
    pause: u32,
    length: u32,
}

impl Help {
    /// Whether to help this time.
    const fn is_due(&mut self) -> bool {
        let due = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        due
    }

    fn was(&mut self, useful: bool) {
        self.length = if useful { 0 } else { (self.length * 2 + 1).min(PAUSE_MAX) };
        self.pause = self.length;
    }
}

impl Waiter {
    pub(super) fn new(strategy: WaitStrategy, wake: WakeWord, socket: OwnedFd) -> Self {
        let seen = wake.generation();
        Self { strategy, sleep_limit: SLEEP_LIMIT, wake, seen, socket, help: Help::default() }
    }

    /// The descriptor that becomes readable after arming.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether something was announced since this was asked last. What was announced is visible
    /// after this call.
    pub(super) fn announced(&mut self) -> bool {
        let present = self.wake.generation();
        core::mem::replace(&mut self.seen, present) != present
    }

    /// Looks again and again until `ready`, until something has been announced, or for `timeout`.
    pub(super) fn spin(&mut self, timeout: Duration, mut ready: impl FnMut() -> bool) -> bool {
        let deadline = deadline_after(timeout);
        loop {
            for _ in 0..SPINS_PER_CLOCK {
                if ready() {
                    return true;
                }
                if self.strategy == WaitStrategy::Yield {
                    std::thread::yield_now();
                    break;
                }
                core::hint::spin_loop();
            }
            if self.announced() || now() >= deadline {
                return ready();
            }
        }
    }

    /// Sleeps until `ready`, until something has been announced, or for `timeout`.
    pub(super) fn block(
        &mut self,
        timeout: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<bool, WaitError> {
        let deadline = deadline_after(timeout);
        while !ready() {
            let until = deadline.min(deadline_after(self.sleep_limit));
            let seen = self.seen;
            let awake = self.wake.sleep(seen, &until).map_err(|errno| self.failed(errno))?;
            if self.announced() {
                if awake == Awake::Called {
                    self.help(self.seen, seen);
                }
                return Ok(ready());
            }
            if awake == Awake::TimedOut && until == deadline {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn help(&mut self, present: u32, seen: u32) {
        if self.help.is_due() {
            let woken = self.wake.wake(HELP, Sleepers::before(present, seen));
            self.help.was(woken > 0);
        }
    }

    /// Waits for the socket to become readable, or for `timeout`. The cell is armed.
    pub(super) fn readable(&self, timeout: Duration) -> Result<bool, WaitError> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(count) => Ok(count > 0),
            // A signal: the caller looks again.
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Takes what is in the socket, so that it is no longer readable.
    pub(super) fn drain(&self) {
        let mut byte = [0; 8];
        for _ in 0..DRAIN_MAX {
            if recv(&self.socket, &mut byte, RecvFlags::DONTWAIT).is_err() {
                return;
            }
        }
    }

    fn failed(&self, errno: Errno) -> WaitError {
        WaitError { strategy: self.strategy, source: io::Error::from(errno) }
    }
}

fn now() -> Timespec {
    clock_gettime(ClockId::Monotonic)
}

fn deadline_after(timeout: Duration) -> Timespec {
    const FAR: Timespec = Timespec { tv_sec: i64::MAX, tv_nsec: 0 };
    Timespec::try_from(timeout).ok().and_then(|timeout| now().checked_add(timeout)).unwrap_or(FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_that_is_not_needed_becomes_rare_and_returns_when_it_is() {
        let mut help = Help::default();
        let mut helped = 0;
        for _ in 0..1000 {
            if help.is_due() {
                helped += 1;
                help.was(false);
            }
        }
        assert!((10..30).contains(&helped), "{helped}");
        while !help.is_due() {}
        help.was(true);
        assert!(help.is_due());
    }

    #[test]
    fn the_longest_timeout_there_is_has_a_deadline() {
        assert!(deadline_after(Duration::MAX) > now());
        assert!(deadline_after(Duration::ZERO) <= now());
    }
}
