//! One deadline over several blocking steps.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A deadline; none when the timeout reaches beyond what the clock can say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    timeout: Duration,
    at: Option<Instant>,
}

impl Deadline {
    pub(super) fn after(timeout: Duration) -> Self {
        Self { timeout, at: Instant::now().checked_add(timeout) }
    }

    pub(super) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Time left: none when it is over, `Some(None)` when it has no end.
    pub(super) fn left(&self) -> Option<Option<Duration>> {
        let Some(at) = self.at else {
            return Some(None);
        };
        let left = at.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(Some(left))
    }

    /// Waits until the socket is ready; `false` when the deadline comes first.
    pub(super) fn wait(&self, socket: impl AsFd, flags: PollFlags) -> Result<bool, Errno> {
        let mut polled = [PollFd::new(&socket, flags)];
        while let Some(left) = self.left() {
            // A time that poll cannot express has no end either.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut polled, left.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(errno) => return Err(errno),
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use rustix::event::PollFlags;

    use super::Deadline;

    #[test]
    fn a_deadline_ends_the_wait() {
        let (near, _far) = UnixStream::pair().unwrap();
        for timeout in [Duration::ZERO, Duration::from_millis(5)] {
            let deadline = Deadline::after(timeout);
            assert_eq!(deadline.wait(&near, PollFlags::IN), Ok(false));
            assert_eq!(deadline.left(), None);
        }
    }

    #[test]
    fn what_is_ready_is_seen_whether_or_not_there_is_an_end() {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"x").unwrap();
        for timeout in [Duration::from_secs(3600), Duration::MAX] {
            let deadline = Deadline::after(timeout);
            assert!(deadline.left().is_some());
            assert_eq!(deadline.wait(&near, PollFlags::IN), Ok(true));
        }
    }
}
