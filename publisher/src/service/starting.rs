//! A start that takes long: while it goes on, the service manager is asked for more time.
//!
//! A source may be a pipe that nobody writes to for hours. The main thread reads it then, so a
//! thread of its own tells, until the conductor does.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::feed::{InputBeats, InputPulse};

/// Time between two looks at the start.
const EVERY: Duration = Duration::from_secs(2);
/// Time that is asked for: as much as systemd gives a start by default, because what comes after
/// the wait takes its time, too.
const EXTENSION_US: u32 = 90_000_000;

const WAITING: &str = "waiting for the writer of the input";
const READING: &str = "reading the beginning of the source";

/// The thread that asks for time. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Starting {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Starting {
    /// Asks for time as long as `input` gives signs of life.
    pub(super) fn begin(input: InputPulse) -> io::Result<Self> {
        let (end, ended) = channel();
        let thread = std::thread::Builder::new().name("tapecast-start".to_owned());
        let thread = thread.spawn(move || ask_until(&ended, &input))?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it has ended the process.
            let _ended = thread.join();
        }
    }
}

fn ask_until(ended: &Receiver<()>, input: &InputPulse) {
    let mut start = Start::default();
    while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        let more = NotifyState::ExtendTimeoutUsec(EXTENSION_US);
        // Whether it listens was tried, and logged, when the start began.
        let _told = match start.on_look(input.beats()) {
            News::Nothing => Ok(()),
            News::GoesOn => sd_notify::notify(&[more]),
            News::Does(doing) => sd_notify::notify(&[more, NotifyState::Status(doing)]),
        };
    }
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// Nothing has moved.
    Nothing,
    /// It does what it did.
    GoesOn,
    /// It does something else.
    Does(&'static str),
}

/// What is known of a start. Keeps no clock.
#[derive(Debug, Default)]
struct Start {
    seen: InputBeats,
    said: Option<&'static str>,
}

impl Start {
    fn on_look(&mut self, beats: InputBeats) -> News {
        let before = std::mem::replace(&mut self.seen, beats);
        if beats == before {
            return News::Nothing;
        }
        let doing = if beats.reads == before.reads { WAITING } else { READING };
        match self.said.replace(doing) == Some(doing) {
            true => News::GoesOn,
            false => News::Does(doing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beats(reads: u64, naps: u64) -> InputBeats {
        InputBeats { reads, naps }
    }

    #[test]
    fn a_start_that_goes_on_says_what_it_does_when_that_changes() {
        let mut start = Start::default();
        assert_eq!(start.on_look(beats(0, 40)), News::Does(WAITING));
        assert_eq!(start.on_look(beats(0, 80)), News::GoesOn);
        assert_eq!(start.on_look(beats(7, 90)), News::Does(READING));
        assert_eq!(start.on_look(beats(9, 90)), News::GoesOn);
        assert_eq!(start.on_look(beats(9, 130)), News::Does(WAITING), "its writer pauses");
    }

    #[test]
    fn a_start_that_hangs_is_given_no_time() {
        let mut start = Start::default();
        assert_eq!(start.on_look(beats(0, 0)), News::Nothing);
        assert_eq!(start.on_look(beats(3, 5)), News::Does(READING));
        assert_eq!(start.on_look(beats(3, 5)), News::Nothing);
    }
}
