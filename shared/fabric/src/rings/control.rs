//! What the publisher writes beside a ring: one line that says how the session stands.

use std::sync::atomic::{Ordering, fence};

use tapecast_ring::Words;
use tapecast_ring::cell::seal;
use tapecast_wire::Nanos;
use tapecast_wire::limits::WORD_BYTES;
use tapecast_wire::rdma::CONTROL_BLOCK_BYTES;

use crate::ChannelState;

/// Words of a control block.
pub const CONTROL_WORDS: usize = CONTROL_BLOCK_BYTES as usize / WORD_BYTES;

const IMAGES: usize = 0;
const STATE: usize = 1;
const HEARTBEAT: usize = 2;
const REQUESTS: usize = 3;
const FEED: usize = 4;
const SEAL: usize = 5;

/// How a session stands.
///
/// ```text
/// word 0   initial images, and 1; 0 until it is written
/// word 1   state: 0 running, 1 closing, 2 closed
/// word 2   heartbeat, Unix ns
/// word 3   requests taken from the session's cell
/// word 4   Unix ns since when the feed is silent; 0 while it is not
/// word 5   seal over the words before
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Initial images that the session is sent before anything else.
    pub images: u64,
    /// Whether the publisher goes on publishing.
    pub state: ChannelState,
    /// The publisher's clock.
    pub heartbeat: Nanos,
    /// Requests taken from the session's cell.
    pub requests: u64,
    /// Since when the feed is silent; 0 while it is not.
    pub feed_silent_since: Nanos,
}

impl Control {
    /// Words that are written.
    pub const USED_WORDS: usize = 6;

    /// The words to write.
    #[must_use]
    pub fn words(&self) -> [u64; Self::USED_WORDS] {
        let state = match self.state {
            ChannelState::Running => 0,
            ChannelState::Closing => 1,
            ChannelState::Closed => 2,
        };
        let said =
            [self.images + 1, state, self.heartbeat.0, self.requests, self.feed_silent_since.0];
        let [images, state, heartbeat, requests, feed] = said;
        [images, state, heartbeat, requests, feed, seal(&said)]
    }

    /// Reads what has arrived: `None` before anything has, and while it is being written. What the
    /// publisher wrote earlier, and was announced, is visible afterwards.
    #[must_use]
    pub fn read(words: &Words) -> Option<Self> {
        let load = |index| words.load(index).unwrap_or(0);
        let said = [IMAGES, STATE, HEARTBEAT, REQUESTS, FEED].map(load);
        let [images, state, heartbeat, requests, feed] = said;
        if seal(&said) != load(SEAL) {
            return None;
        }
        let state = match state {
            0 => ChannelState::Running,
            1 => ChannelState::Closing,
            _ => ChannelState::Closed,
        };
        // Acquire: whoever sees the state looks for records only afterwards.
        fence(Ordering::Acquire);
        Some(Self {
            images: images.checked_sub(1)?,
            state,
            heartbeat: Nanos(heartbeat),
            requests,
            feed_silent_since: Nanos(feed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapecast_ring::WordsMut;

    #[test]
    fn what_is_half_written_is_not_read() {
        let memory = WordsMut::heap(CONTROL_WORDS);
        let write = |control: Control, words: core::ops::Range<usize>| {
            for index in words {
                memory.store(index, control.words()[index]).unwrap();
            }
        };
        let before = Control {
            images: 254,
            state: ChannelState::Running,
            heartbeat: Nanos(7),
            requests: 0,
            feed_silent_since: Nanos(0),
        };
        let after =
            Control { images: 255, heartbeat: Nanos(8), feed_silent_since: Nanos(6), ..before };
        write(before, 0..Control::USED_WORDS);
        for words in 1..Control::USED_WORDS {
            write(after, 0..words);
            assert_eq!(Control::read(&memory.reader()), None, "{words} words of it");
        }
        // A byte of a word: what byte-wise copying shows.
        write(after, 0..Control::USED_WORDS);
        memory.store(0, (before.words()[0] & !0xFF) | (after.words()[0] & 0xFF)).unwrap();
        assert_eq!(Control::read(&memory.reader()), None);
        write(after, 0..Control::USED_WORDS);
        assert_eq!(Control::read(&memory.reader()), Some(after));
    }

    #[test]
    fn what_is_written_is_read_and_nothing_before_that() {
        let memory = WordsMut::heap(CONTROL_WORDS);
        assert_eq!(Control::read(&memory.reader()), None);
        for state in [ChannelState::Running, ChannelState::Closing, ChannelState::Closed] {
            let feed_silent_since = Nanos(5);
            let control =
                Control { images: 0, state, heartbeat: Nanos(7), requests: 3, feed_silent_since };
            for (index, word) in control.words().into_iter().enumerate() {
                memory.store(index, word).unwrap();
            }
            assert_eq!(Control::read(&memory.reader()), Some(control));
        }
    }
}
