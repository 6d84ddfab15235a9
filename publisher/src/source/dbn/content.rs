//! From the bytes of a file to the bytes of its content, with every premature end noticed.
//!
//! The `dbn` crate ends a cut zstd frame like a complete one. This reader drives zstd itself and
//! knows whether the last frame was finished.

use std::io::{self, Read};
use std::sync::Arc;

use zstd::stream::raw::{Decoder, Operation};

use super::error::DbnError;
use super::format::{Format, SNIFF_BYTES};

/// Bytes read from the input at a time.
const READ_BYTES: usize = 128 * 1024;

/// Reads the decompressed content of a DBN input.
pub(super) struct ContentReader<R> {
    input: R,
    name: Arc<str>,
    raw: Box<[u8]>,
    raw_start: usize,
    raw_end: usize,
    file_bytes: u64,
    codec: Codec,
    /// The last read got all that it asked for: zstd may hold more.
    was_full: bool,
}

enum Codec {
    Plain,
    Zstd { decoder: Decoder<'static>, in_frame: bool },
}

impl<R: Read> ContentReader<R> {
    /// Reads the first bytes and chooses how to go on.
    pub(super) fn open(name: Arc<str>, input: R) -> Result<(Self, Format), DbnError> {
        let mut reader = Self {
            input,
            name,
            raw: vec![0; READ_BYTES].into_boxed_slice(),
            raw_start: 0,
            raw_end: 0,
            file_bytes: 0,
            codec: Codec::Plain,
            was_full: false,
        };
        while reader.raw_end < SNIFF_BYTES && reader.refill()? {}
        if reader.raw_end == 0 {
            return Err(DbnError::Empty { path: reader.path() });
        }
        let format = Format::of(&reader.raw[..reader.raw_end.min(SNIFF_BYTES)]);
        match format {
            Format::Dbn => {}
            Format::Zstd | Format::Dbz => {
                let decoder = Decoder::new().map_err(|error| reader.read_error(error))?;
                reader.codec = Codec::Zstd { decoder, in_frame: false };
            }
            Format::Other { found, remedy } => {
                return Err(DbnError::Format { path: reader.path(), found, remedy });
            }
        }
        Ok((reader, format))
    }

    /// Bytes taken from the input so far.
    pub(super) const fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub(super) fn path(&self) -> String {
        self.name.to_string()
    }

    /// The input, where nothing is left of what was read from it.
    pub(super) const fn starved_input(&self) -> Option<&R> {
        let may_hold_more = matches!(self.codec, Codec::Zstd { .. }) && self.was_full;
        if self.raw_start == self.raw_end && !may_hold_more { Some(&self.input) } else { None }
    }

    /// The input, to rewind it.
    pub(super) fn into_input(self) -> R {
        self.input
    }

    /// Takes exactly `bytes` of the file as they are, before any decompression.
    pub(super) fn take_raw(&mut self, bytes: usize, inside: &str) -> Result<Vec<u8>, DbnError> {
        let mut taken = Vec::new();
        while taken.len() < bytes {
            if self.raw_start == self.raw_end && !self.refill()? {
                return Err(self.truncated(inside.to_owned(), 0));
            }
            let end = self.raw_end.min(self.raw_start + bytes - taken.len());
            taken.extend_from_slice(&self.raw[self.raw_start..end]);
            self.raw_start = end;
        }
        Ok(taken)
    }

    /// Reads content into `out`. 0 means that the input has ended, and ended well.
    pub(super) fn read(&mut self, out: &mut [u8], records: u64) -> Result<usize, DbnError> {
        loop {
            let input = &self.raw[self.raw_start..self.raw_end];
            let (taken, written) = match &mut self.codec {
                Codec::Plain => copy(input, out),
                Codec::Zstd { decoder, in_frame } => {
                    match decompress(decoder, in_frame, input, out) {
                        Ok(step) => step,
                        Err(error) => return Err(self.damaged(error.to_string())),
                    }
                }
            };
            self.raw_start += taken;
            self.was_full = written == out.len();
            if written > 0 {
                return Ok(written);
            }
            if self.raw_start < self.raw_end {
                if taken == 0 {
                    return Err(self.damaged("zstd makes no progress".to_owned()));
                }
            } else if !self.refill()? {
                return if matches!(self.codec, Codec::Zstd { in_frame: true, .. }) {
                    Err(self.truncated("a zstd frame".to_owned(), records))
                } else {
                    Ok(0)
                };
            }
        }
    }

    /// Reads more of the file behind what is there. False at its end.
    fn refill(&mut self) -> Result<bool, DbnError> {
        if self.raw_start == self.raw_end {
            (self.raw_start, self.raw_end) = (0, 0);
        }
        loop {
            match self.input.read(&mut self.raw[self.raw_end..]) {
                Ok(count) => {
                    self.raw_end += count;
                    self.file_bytes += count as u64;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.read_error(error)),
            }
        }
    }

    fn read_error(&self, source: io::Error) -> DbnError {
        DbnError::Read { path: self.path(), offset: self.file_bytes, source }
    }

    pub(super) fn truncated(&self, inside: String, records: u64) -> DbnError {
        DbnError::Truncated { path: self.path(), offset: self.file_bytes, inside, records }
    }

    pub(super) fn damaged(&self, reason: String) -> DbnError {
        let unread = (self.raw_end - self.raw_start) as u64;
        DbnError::Damaged { path: self.path(), offset: self.file_bytes - unread, reason }
    }
}

fn copy(input: &[u8], out: &mut [u8]) -> (usize, usize) {
    let count = input.len().min(out.len());
    out[..count].copy_from_slice(&input[..count]);
    (count, count)
}

/// One step of zstd; keeps `in_frame` true while a frame has begun and not ended.
fn decompress(
    decoder: &mut Decoder<'static>,
    in_frame: &mut bool,
    input: &[u8],
    out: &mut [u8],
) -> io::Result<(usize, usize)> {
    let status = decoder.run_on_buffers(input, out)?;
    if status.remaining == 0 {
        *in_frame = false;
    } else if status.bytes_read > 0 {
        *in_frame = true;
    }
    Ok((status.bytes_read, status.bytes_written))
}
