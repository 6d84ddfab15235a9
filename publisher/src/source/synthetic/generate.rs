//! Writes the exchange's day to a file that anyone can read as Nasdaq ITCH 5.0.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::config::{SessionLength, SyntheticConfig, SyntheticError};
use super::exchange::Exchange;

/// Bytes handed to the file at a time, and between two reports of progress.
const CHUNK_BYTES: usize = 256 * 1024;
/// File names tried for the unfinished file before giving up.
const TEMPORARY_NAMES: u32 = 100;

/// What has been written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generated {
    /// Messages.
    pub messages: u64,
    /// Bytes before compression.
    pub bytes: u64,
    /// Bytes of the file, once it is complete.
    pub file_bytes: u64,
}

/// Why a file was not written. In every case nothing of it is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The configuration cannot be.
    #[error(transparent)]
    Config(#[from] SyntheticError),
    /// A file cannot hold an endless day.
    #[error("an endless session fits into no file: give a number of messages or a duration")]
    Endless,
    /// The file is already there.
    #[error("{} exists: remove it, choose another name, or allow overwriting", path.display())]
    Exists {
        /// File asked for.
        path: PathBuf,
    },
    /// The disk is full.
    #[error(
        "{}: no space left after {written} bytes: free some or choose another folder; \
         nothing was left behind", path.display()
    )]
    DiskFull {
        /// File asked for.
        path: PathBuf,
        /// Bytes produced before, uncompressed.
        written: u64,
    },
    /// Writing failed.
    #[error("{}: {source}: check the folder and its permissions", path.display())]
    Write {
        /// File asked for.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The caller wanted no more.
    #[error("stopped before {} was complete; nothing was left behind", path.display())]
    Stopped {
        /// File asked for.
        path: PathBuf,
    },
}

/// What to write, and where.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// The exchange.
    pub config: SyntheticConfig,
    /// File to write; compressed when its name ends in `.gz`. A pipe or device is written directly.
    pub path: PathBuf,
    /// Replace a file that is there.
    pub overwrite: bool,
}

impl GenerateRequest {
    /// Writes the whole day. The file appears under its name only when it is complete.
    ///
    /// `on_progress` is called every 256 KiB; [`ControlFlow::Break`] stops and removes what there
    /// is.
    ///
    /// # Errors
    /// [`GenerateError`]; nothing is left behind.
    pub fn run(
        &self,
        on_progress: impl FnMut(Generated) -> ControlFlow<()>,
    ) -> Result<Generated, GenerateError> {
        let mut day = Day { written: Generated::default(), on_progress };
        let outcome = self.write(&mut day);
        let written = day.written.bytes;
        outcome.map_err(|failure| failure.explain(&self.path, written))
    }

    fn write<P>(&self, day: &mut Day<P>) -> Result<Generated, Failure>
    where
        P: FnMut(Generated) -> ControlFlow<()>,
    {
        if self.config.length == SessionLength::Endless {
            return Err(Failure::Known(GenerateError::Endless));
        }
        let exchange = Exchange::new(&self.config).map_err(|e| Failure::Known(e.into()))?;
        let gzip = self.path.extension().is_some_and(|extension| extension == "gz");
        match fs::metadata(&self.path) {
            Ok(there) if there.is_dir() => {
                return Err(Failure::Io(io::ErrorKind::IsADirectory.into()));
            }
            Ok(there) if there.is_file() && !self.overwrite => {
                return Err(Failure::Known(GenerateError::Exists { path: self.path.clone() }));
            }
            Ok(there) if !there.is_file() => {
                let device = OpenOptions::new().write(true).open(&self.path)?;
                day.write_to(exchange, device, gzip)?;
                return Ok(day.written);
            }
            _ => {}
        }
        let mut temporary = Temporary::beside(&self.path)?;
        let file = day.write_to(exchange, temporary.take_file()?, gzip)?;
        file.sync_all()?;
        day.written.file_bytes = file.metadata()?.len();
        temporary.persist(&self.path)?;
        Ok(day.written)
    }
}

enum Failure {
    Io(io::Error),
    Stopped,
    Known(GenerateError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Failure {
    fn explain(self, path: &Path, written: u64) -> GenerateError {
        let path = path.to_owned();
        match self {
            Self::Known(error) => error,
            Self::Stopped => GenerateError::Stopped { path },
            Self::Io(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                GenerateError::DiskFull { path, written }
            }
            Self::Io(source) => GenerateError::Write { path, source },
        }
    }
}

/// Writes one day and counts.
struct Day<P> {
    written: Generated,
    on_progress: P,
}

impl<P: FnMut(Generated) -> ControlFlow<()>> Day<P> {
    /// Writes everything and hands the output back.
    fn write_to<W: Write>(
        &mut self,
        exchange: Exchange,
        output: W,
        gzip: bool,
    ) -> Result<W, Failure> {
        if gzip {
            let mut encoder = GzEncoder::new(output, Compression::new(4));
            self.pump(exchange, &mut encoder)?;
            Ok(encoder.finish()?)
        } else {
            let mut buffered = BufWriter::with_capacity(CHUNK_BYTES, output);
            self.pump(exchange, &mut buffered)?;
            buffered.into_inner().map_err(|error| Failure::Io(error.into_error()))
        }
    }

    fn pump(&mut self, mut exchange: Exchange, output: &mut impl Write) -> Result<(), Failure> {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + 4096);
        loop {
            let more = exchange.step(&mut chunk);
            if chunk.len() >= CHUNK_BYTES || !more {
                output.write_all(&chunk)?;
                self.written.bytes += chunk.len() as u64;
                self.written.messages = exchange.messages();
                chunk.clear();
                if (self.on_progress)(self.written).is_break() {
                    return Err(Failure::Stopped);
                }
            }
            if !more {
                output.flush()?;
                return Ok(());
            }
        }
    }
}

/// A file that removes itself unless it is made permanent.
struct Temporary {
    path: PathBuf,
    file: Option<File>,
}

impl Temporary {
    /// Creates an empty file in the folder of `path`.
    fn beside(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_string_lossy();
        for attempt in 0..TEMPORARY_NAMES {
            let partial = format!(".{name}.{}-{attempt}.partial", std::process::id());
            let partial = path.with_file_name(partial);
            match OpenOptions::new().write(true).create_new(true).open(&partial) {
                Ok(file) => return Ok(Self { path: partial, file: Some(file) }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn take_file(&mut self) -> io::Result<File> {
        self.file.take().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn persist(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.path = PathBuf::new();
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // Nothing better can be done about a file that cannot be removed.
            let _ = fs::remove_file(&self.path);
        }
    }
}
