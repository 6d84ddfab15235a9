//! Where the bytes come from: a file or memory, plain or compressed with gzip.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::PathBuf;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;

use super::error::ItchError;
use super::format::{Format, HEAD_BYTES, recognise};
use super::window::{FrameError, Window};
use crate::feed::StopFlag;
use crate::source::InputFile;

/// Bytes read from a compressed file at a time.
const PACKED_BYTES: usize = 1 << 17;

/// What to open, as often as needed.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// With what ends the wait for a pipe's writer.
    Path(PathBuf, StopFlag),
    Memory(Arc<[u8]>),
}

/// The bytes as they are stored, counted.
#[derive(Debug)]
struct Stored {
    bytes: StoredBytes,
    read: u64,
}

#[derive(Debug)]
enum StoredBytes {
    File(InputFile),
    Memory(Cursor<Arc<[u8]>>),
}

impl Read for Stored {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = match &mut self.bytes {
            StoredBytes::File(file) => file.read(out)?,
            StoredBytes::Memory(cursor) => cursor.read(out)?,
        };
        self.read += count as u64;
        Ok(count)
    }
}

/// The bytes unpacked.
#[derive(Debug)]
pub(crate) struct Input {
    packing: Packing,
    total: Option<u64>,
    /// The last read got all that it asked for: what was unpacked may be more.
    was_full: bool,
}

#[derive(Debug)]
enum Packing {
    Plain(BufReader<Stored>),
    Gzip(Box<MultiGzDecoder<BufReader<Stored>>>),
}

impl Input {
    /// Stored bytes read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        match &self.packing {
            Packing::Plain(reader) => reader.get_ref().read,
            Packing::Gzip(decoder) => decoder.get_ref().get_ref().read,
        }
    }

    /// Stored bytes in all; `None` for a pipe.
    pub(crate) const fn bytes_total(&self) -> Option<u64> {
        self.total
    }

    /// Whether nothing more comes for a moment. It takes that moment to know, where the input can
    /// pause at all.
    pub(crate) fn pauses(&self) -> bool {
        let stored = match &self.packing {
            Packing::Plain(reader) => reader,
            Packing::Gzip(decoder) => decoder.get_ref(),
        };
        let StoredBytes::File(file) = &stored.get_ref().bytes else { return false };
        let may_hold_more = self.is_gzip() && self.was_full;
        stored.buffer().is_empty() && !may_hold_more && file.pauses()
    }

    pub(crate) const fn is_gzip(&self) -> bool {
        matches!(self.packing, Packing::Gzip(_))
    }
}

impl Read for Input {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = match &mut self.packing {
            Packing::Plain(reader) => reader.read(out),
            Packing::Gzip(decoder) => decoder.read(out),
        }?;
        self.was_full = count == out.len();
        Ok(count)
    }
}

impl Origin {
    /// Its name in messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Path(path, _) => path.display().to_string(),
            Self::Memory(_) => "ITCH data in memory".to_owned(),
        }
    }

    /// Whether it can be read a second time.
    pub(crate) fn is_repeatable(&self) -> bool {
        match self {
            Self::Path(path, _) => path.is_file(),
            Self::Memory(_) => true,
        }
    }

    /// Opens it, and makes sure that it is ITCH as far as its first bytes tell.
    pub(crate) fn open(&self) -> Result<Window<Input>, ItchError> {
        let (stored, total) = self.store()?;
        let mut reader = BufReader::with_capacity(PACKED_BYTES, stored);
        let head = reader.fill_buf().map_err(|error| self.unreadable(error))?;
        let head = &head[..head.len().min(HEAD_BYTES)];
        if head.is_empty() {
            return Err(ItchError::NoData { input: self.name() });
        }
        let packing = match self.accept(head)? {
            Format::Gzip => Packing::Gzip(Box::new(MultiGzDecoder::new(reader))),
            _ => Packing::Plain(reader),
        };
        let mut window = Window::new(Input { packing, total, was_full: false });
        if window.input().is_gzip() {
            self.accept_unpacked(&mut window)?;
        }
        Ok(window)
    }

    fn store(&self) -> Result<(Stored, Option<u64>), ItchError> {
        let (bytes, total) = match self {
            Self::Path(path, stop) => {
                let (file, metadata) =
                    InputFile::open(path, stop).map_err(|error| self.unreadable(error))?;
                if metadata.is_dir() {
                    return Err(ItchError::Directory { input: self.name() });
                }
                (StoredBytes::File(file), metadata.is_file().then_some(metadata.len()))
            }
            Self::Memory(bytes) => {
                (StoredBytes::Memory(Cursor::new(bytes.clone())), Some(bytes.len() as u64))
            }
        };
        Ok((Stored { bytes, read: 0 }, total))
    }

    fn accept(&self, head: &[u8]) -> Result<Format, ItchError> {
        match recognise(head) {
            Format::Other { what, remedy } => {
                Err(ItchError::WrongFormat { input: self.name(), what, remedy })
            }
            format => Ok(format),
        }
    }

    fn accept_unpacked(&self, window: &mut Window<Input>) -> Result<(), ItchError> {
        let head = match window.head(HEAD_BYTES) {
            Ok(head) => head,
            Err(error) => return Err(self.damage(error, true, 0)),
        };
        if head.is_empty() {
            return Err(ItchError::NoData { input: self.name() });
        }
        if self.accept(head)? == Format::Gzip {
            let (what, remedy) = ("compressed with gzip twice", "unpack it once (gzip -d)");
            return Err(ItchError::WrongFormat { input: self.name(), what, remedy });
        }
        Ok(())
    }

    fn unreadable(&self, error: io::Error) -> ItchError {
        match error.kind() {
            io::ErrorKind::NotFound => ItchError::Missing { input: self.name() },
            io::ErrorKind::IsADirectory => ItchError::Directory { input: self.name() },
            _ => ItchError::Unreadable { input: self.name(), offset: 0, error },
        }
    }

    /// Says what a framing error means for this input. `messages` were good.
    pub(crate) fn damage(&self, error: FrameError, gzip: bool, messages: u64) -> ItchError {
        let input = self.name();
        match error {
            FrameError::Zero { offset } => ItchError::ZeroLength { input, offset, messages },
            FrameError::Cut { offset, have, need } => {
                ItchError::Truncated { input, offset, have, need, messages }
            }
            FrameError::Read { offset, error } if gzip => match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    ItchError::TruncatedGzip { input, offset, messages }
                }
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                    ItchError::DamagedGzip { input, offset, messages, error }
                }
                _ => ItchError::Unreadable { input, offset, error },
            },
            FrameError::Read { offset, error } => ItchError::Unreadable { input, offset, error },
        }
    }
}
