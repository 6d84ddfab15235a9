//! A file or a folder of files, read as one.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use crate::folder::files_of;
use crate::{Ending, Header, OpenError, Reader, Record};

type FileReader = Reader<BufReader<File>>;

/// Reads a file, or every journal file of a folder in the order in which they were begun.
#[derive(Debug)]
pub struct Series {
    path: PathBuf,
    current: FileReader,
    file: PathBuf,
    waiting: VecDeque<PathBuf>,
    /// Bytes of the files that were left behind.
    bytes_before: u64,
    endings: Vec<(PathBuf, Ending)>,
}

impl Series {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`OpenError`] when it cannot be read, or is no journal.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let unreadable = |source| OpenError::Read { path: path.to_owned(), source };
        let is_folder = std::fs::metadata(path).map_err(unreadable)?.is_dir();
        let files = match is_folder {
            true => files_of(path).map_err(unreadable)?,
            false => vec![path.to_owned()],
        };
        let mut waiting = VecDeque::from(files);
        let first = match is_folder {
            true => open_first(&mut waiting)?,
            // What is asked for by name is told about, whatever it is.
            false => {
                waiting.pop_front().map(|file| Ok((Reader::open(&file)?, file))).transpose()?
            }
        };
        let Some((current, file)) = first else {
            return Err(OpenError::NoFiles { path: path.to_owned() });
        };
        let endings = Vec::new();
        Ok(Self { path: path.to_owned(), current, file, waiting, bytes_before: 0, endings })
    }

    /// What was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that is being read.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What its header says.
    #[must_use]
    pub const fn header(&self) -> &Header {
        self.current.header()
    }

    /// Bytes read.
    #[must_use]
    pub const fn bytes_read(&self) -> u64 {
        self.bytes_before + self.current.position()
    }

    /// Bytes in what is still to be read, and in what was.
    #[must_use]
    pub fn bytes_total(&self) -> u64 {
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
        self.bytes_before + size(&self.file) + self.waiting.iter().map(size).sum::<u64>()
    }

    /// How the files ended that were read to their end.
    #[must_use]
    pub fn endings(&self) -> &[(PathBuf, Ending)] {
        &self.endings
    }

    /// How the file ended whose last record was read last; `None` before that.
    #[must_use]
    pub const fn ending(&self) -> Option<Ending> {
        self.current.ending()
    }

    /// Goes to the next whole record of the present file. Whether there is one; if not,
    /// [`Series::ending`] says why, and [`Series::next_file`] goes on.
    ///
    /// # Errors
    /// [`OpenError::Read`].
    pub fn advance(&mut self) -> Result<bool, OpenError> {
        let had_ended = self.current.ending().is_some();
        let is_there = self.current.advance();
        let is_there =
            is_there.map_err(|source| OpenError::Read { path: self.file.clone(), source })?;
        if let Some(ending) = self.current.ending().filter(|_| !had_ended) {
            self.endings.push((self.file.clone(), ending));
        }
        Ok(is_there)
    }

    /// Goes to the next file. Whether there is one.
    ///
    /// # Errors
    /// [`OpenError`] when it cannot be read, or is no journal.
    pub fn next_file(&mut self) -> Result<bool, OpenError> {
        let Some((next, file)) = open_first(&mut self.waiting)? else { return Ok(false) };
        self.bytes_before += self.current.position();
        (self.current, self.file) = (next, file);
        Ok(true)
    }

    /// The record that [`Series::advance`] went to.
    #[must_use]
    pub fn record(&self) -> Option<Record<'_>> {
        self.current.record()
    }
}

/// Opens the first file that something was written to.
fn open_first(waiting: &mut VecDeque<PathBuf>) -> Result<Option<(FileReader, PathBuf)>, OpenError> {
    while let Some(file) = waiting.pop_front() {
        match Reader::open(&file) {
            Ok(reader) => return Ok(Some((reader, file))),
            Err(error) if error.is_unwritten() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The headers of a file, or of every journal file of a folder.
///
/// # Errors
/// [`OpenError`] when one cannot be read, or is no journal.
pub fn headers_of(path: &Path) -> Result<Vec<Header>, OpenError> {
    let mut series = Series::open(path)?;
    let mut headers = vec![*series.header()];
    while series.next_file()? {
        headers.push(*series.header());
    }
    Ok(headers)
}
