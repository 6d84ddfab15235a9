//! Length-prefixed frames out of any reader, through one fixed window of memory.

use std::io::{self, Read};

use thiserror::Error;

/// Bytes read at a time.
const WINDOW_BYTES: usize = 1 << 20;
/// The length prefix.
const PREFIX_BYTES: usize = 2;

const _: () = assert!(WINDOW_BYTES >= 4 * (u16::MAX as usize + PREFIX_BYTES));

/// Why there is no next frame. Offsets are in the unpacked data.
#[derive(Debug, Error)]
pub(crate) enum FrameError {
    /// A length prefix of zero with more data behind it.
    #[error("length prefix 0 at byte {offset}")]
    Zero { offset: u64 },
    /// The data ends inside a frame.
    #[error("cut at byte {offset}")]
    Cut { offset: u64, have: usize, need: usize },
    /// The reader failed before the next frame was complete.
    #[error("cannot read on at byte {offset}: {error}")]
    Read { offset: u64, error: io::Error },
}

/// A window over the data of a reader. Frames are lent from it; nothing is allocated for them.
#[derive(Debug)]
pub(crate) struct Window<R> {
    input: R,
    buffer: Box<[u8]>,
    /// Unread data is `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Offset of `start` in the unpacked data.
    offset: u64,
    at_end: bool,
    /// Kind and text of the reader's error: what it gave before is read first.
    failure: Option<(io::ErrorKind, String)>,
}

impl<R: Read> Window<R> {
    pub(crate) fn new(input: R) -> Self {
        let buffer = vec![0; WINDOW_BYTES].into_boxed_slice();
        Self { input, buffer, start: 0, end: 0, offset: 0, at_end: false, failure: None }
    }

    pub(crate) const fn input(&self) -> &R {
        &self.input
    }

    /// Offset of the next frame's length prefix.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Up to `bytes` bytes from here on, without reading them.
    pub(crate) fn head(&mut self, bytes: usize) -> Result<&[u8], FrameError> {
        let have = self.fill(bytes);
        if have == 0 && self.failure.is_some() {
            return Err(self.missing(0, bytes));
        }
        Ok(&self.buffer[self.start..self.start + have.min(bytes)])
    }

    /// The next frame's message, if it is in the window: then [`Window::peek`] gives the same, and
    /// else it reads.
    #[inline]
    pub(crate) fn at_hand(&self) -> Option<&[u8]> {
        let length = self.length().filter(|length| *length > 0)?;
        let message = self.start + PREFIX_BYTES;
        self.buffer[..self.end].get(message..message + length)
    }

    /// The next frame's message; `None` at the end. It stays the next until [`Window::consume`].
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let length = match self.length() {
            Some(length) if length > 0 && self.end - self.start >= PREFIX_BYTES + length => length,
            _ => match self.read_frame()? {
                Some(length) => length,
                None => return Ok(None),
            },
        };
        let message = self.start + PREFIX_BYTES;
        Ok(Some(&self.buffer[message..message + length]))
    }

    /// Goes on behind a message of this many bytes, the one that [`Window::peek`] lent.
    #[inline]
    pub(crate) fn consume(&mut self, message_bytes: usize) {
        self.start = self.end.min(self.start + PREFIX_BYTES + message_bytes);
        self.offset += (PREFIX_BYTES + message_bytes) as u64;
    }

    /// The next length prefix, if it is in the window.
    #[inline]
    fn length(&self) -> Option<usize> {
        let prefix = self.buffer[self.start..self.end].first_chunk::<PREFIX_BYTES>()?;
        Some(usize::from(u16::from_be_bytes(*prefix)))
    }

    /// Reads until the next frame is in the window.
    #[cold]
    fn read_frame(&mut self) -> Result<Option<usize>, FrameError> {
        let have = self.fill(PREFIX_BYTES);
        let Some(length) = self.length() else {
            if have == 0 && self.failure.is_none() {
                return Ok(None);
            }
            return Err(self.missing(have, PREFIX_BYTES));
        };
        let need = PREFIX_BYTES + length;
        if length == 0 {
            return self.end_mark();
        }
        let have = self.fill(need);
        if have < need { Err(self.missing(have, need)) } else { Ok(Some(length)) }
    }

    /// A length of zero says that the session is over, if nothing follows and something was before.
    fn end_mark(&mut self) -> Result<Option<usize>, FrameError> {
        let more = self.fill(PREFIX_BYTES + 1) > PREFIX_BYTES;
        if more || self.offset == 0 || self.failure.is_some() {
            return Err(FrameError::Zero { offset: self.offset });
        }
        Ok(None)
    }

    /// Reads until `need` bytes are in the window or the data ends; returns how many there are.
    fn fill(&mut self, need: usize) -> usize {
        if self.start + need > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < need && !self.at_end {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(bytes) => self.end += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure = Some((error.kind(), error.to_string()));
                    self.at_end = true;
                }
            }
        }
        self.end - self.start
    }

    fn missing(&self, have: usize, need: usize) -> FrameError {
        let offset = self.offset;
        match &self.failure {
            None => FrameError::Cut { offset, have, need },
            Some((kind, text)) => {
                FrameError::Read { offset, error: io::Error::new(*kind, text.clone()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives the bytes in pieces of the given sizes, then an error or the end.
    struct Pieces {
        data: Vec<u8>,
        sizes: Vec<usize>,
        turn: usize,
    }

    impl Read for Pieces {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.turn += 1;
            if self.turn.is_multiple_of(5) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let size = self.sizes[self.turn % self.sizes.len()];
            let count = size.min(out.len()).min(self.data.len());
            out[..count].copy_from_slice(&self.data[..count]);
            self.data.drain(..count);
            Ok(count)
        }
    }

    fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
        let mut data = Vec::new();
        for message in messages {
            data.extend((message.len() as u16).to_be_bytes());
            data.extend(message);
        }
        data
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_the_reader_cuts_them(
            messages in prop::collection::vec(
                prop::collection::vec(any::<u8>(), 1..400), 0..50),
            sizes in prop::collection::vec(1_usize..300, 1..8),
        ) {
            let data = framed(&messages);
            let total = data.len() as u64;
            let mut window = Window::new(Pieces { data, sizes, turn: 0 });
            for message in &messages {
                let bytes = window.peek().unwrap().unwrap();
                prop_assert_eq!(bytes, &message[..]);
                let length = bytes.len();
                window.consume(length);
            }
            prop_assert!(window.peek().unwrap().is_none());
            prop_assert_eq!(window.offset(), total);
        }

        #[test]
        fn any_bytes_end_in_finitely_many_frames_or_an_error(
            data in prop::collection::vec(any::<u8>(), 0..2000),
        ) {
            let mut window = Window::new(&data[..]);
            let mut frames = 0;
            while let Ok(Some(message)) = window.peek() {
                let length = message.len();
                window.consume(length);
                frames += 1;
                prop_assert!(frames <= data.len());
            }
        }
    }

    #[test]
    fn messages_of_the_largest_length_pass_through_the_window() {
        let messages: Vec<Vec<u8>> = (0..40).map(|byte| vec![byte; 65_535]).collect();
        let data = framed(&messages);
        let mut window = Window::new(&data[..]);
        for message in &messages {
            assert_eq!(window.peek().unwrap().unwrap(), &message[..]);
            window.consume(message.len());
        }
        assert!(window.peek().unwrap().is_none());
    }

    #[test]
    fn a_zero_prefix_is_an_end_mark_only_when_it_ends_the_data() {
        let end = [0, 1, b'x', 0, 0];
        let mut window = Window::new(&end[..]);
        window.peek().unwrap().unwrap();
        window.consume(1);
        assert!(window.peek().unwrap().is_none());

        let mut middle = Window::new(&[0, 1, b'x', 0, 0, 0, 1, b'y'][..]);
        middle.peek().unwrap().unwrap();
        middle.consume(1);
        assert!(matches!(middle.peek(), Err(FrameError::Zero { offset: 3 })));

        let mut first = Window::new(&[0, 0][..]);
        assert!(matches!(first.peek(), Err(FrameError::Zero { offset: 0 })));
    }

    #[test]
    fn a_cut_is_reported_again_and_again_without_moving() {
        let mut window = Window::new(&[0, 9, 1, 2][..]);
        for _ in 0..3 {
            let error = window.peek().unwrap_err();
            assert!(matches!(error, FrameError::Cut { offset: 0, have: 4, need: 11 }));
        }
    }
}
