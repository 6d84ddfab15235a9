//! Reads one file, record by record, whatever bytes are in it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use tapecast_wire::limits::{MAX_INSTRUMENTS, WORD_BYTES};
use tapecast_wire::{Epoch, Instrument, InstrumentEntry, InstrumentId, Nanos, Snapshot};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::NotAJournal;
use crate::layout::{
    End, FileHeader, HEAD_BYTES, HEADER_BYTES, Hole, JOURNAL_VERSION, MAGIC, Origin,
    RECORD_BYTES_MAX, RecordHead, RecordKind,
};
use crate::{Ending, How, OpenError};

const READ_BYTES: usize = 256 * 1024;

/// What the header of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Life of the publisher.
    pub epoch: Epoch,
    /// Who wrote it.
    pub origin: Origin,
    /// Number of the file in its journal, from 1.
    pub file_number: u32,
    /// Most levels per side in a snapshot; `None` when the writer did not know.
    pub levels: Option<usize>,
    /// When the file was begun.
    pub created: Nanos,
    /// Snapshots in earlier files of this journal.
    pub snapshots_before: u64,
}

/// One whole record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Where in the file it begins.
    pub offset: u64,
    /// When it was written down, or delivered to the subscriber that wrote.
    pub stamp: Nanos,
    /// What it says.
    pub entry: Entry<'a>,
}

/// What a record says.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// A snapshot.
    Snapshot {
        /// As it was published or delivered.
        snapshot: Snapshot<'a>,
        /// What it is of; `None` when the directory does not say.
        instrument: Option<&'a Instrument>,
    },
    /// A directory entry.
    Instrument(&'a Instrument),
    /// Snapshots are missing here.
    Hole(Hole),
}

/// Reads one file.
///
/// # Invariants
/// - What it hands out is whole: length, checksum and content were checked.
/// - It never reads more of a record than the file has, and takes memory for one record and the
///   directory alone.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    /// One record; words, because a snapshot is aligned to eight bytes.
    words: Box<[u64]>,
    /// Kind of the record in the buffer, and bytes of its payload.
    present: Option<(RecordKind, usize)>,
    /// Offset of the record in the buffer.
    offset: u64,
    /// Offset of the one after it.
    next: u64,
    directory: HashMap<u32, Instrument>,
    snapshots: u64,
    ending: Option<Ending>,
}

impl Reader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// [`OpenError`] when it cannot be read, or is no journal.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let unreadable = |source| OpenError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        Self::new(BufReader::with_capacity(READ_BYTES, file))
            .map_err(unreadable)?
            .map_err(|what| OpenError::NotAJournal { path: path.to_owned(), what })
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header. The inner result says whether it is one.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub fn new(mut input: R) -> io::Result<Result<Self, NotAJournal>> {
        let mut bytes = [0; HEADER_BYTES];
        let have = fill(&mut input, &mut bytes)?;
        let header = match header_of(&bytes[..have]) {
            Ok(header) => header,
            Err(what) => return Ok(Err(what)),
        };
        let words = vec![0; RECORD_BYTES_MAX / WORD_BYTES].into_boxed_slice();
        Ok(Ok(Self {
            input,
            header,
            words,
            present: None,
            offset: 0,
            next: HEADER_BYTES as u64,
            directory: HashMap::new(),
            snapshots: 0,
            ending: None,
        }))
    }

    /// What the header says.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Snapshots read so far.
    #[must_use]
    pub const fn snapshots(&self) -> u64 {
        self.snapshots
    }

    /// Offset behind the last whole record so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.next
    }

    /// How the file ends; `None` until everything was read.
    #[must_use]
    pub const fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Reads the next whole record; `None` at the end, see [`Reader::ending`].
    ///
    /// # Errors
    /// When the input cannot be read.
    pub fn next_record(&mut self) -> io::Result<Option<Record<'_>>> {
        self.advance()?;
        Ok(self.record())
    }

    /// Goes to the next whole record. Whether there is one.
    ///
    /// # Errors
    /// As [`Reader::next_record`].
    pub fn advance(&mut self) -> io::Result<bool> {
        self.present = None;
        if self.ending.is_some() {
            return Ok(false);
        }
        match self.read()? {
            Ok(present) => self.present = Some(present),
            Err(how) => self.ending = Some(Ending { at: self.next, how }),
        }
        Ok(self.present.is_some())
    }

    /// The record that [`Reader::advance`] went to.
    #[must_use]
    pub fn record(&self) -> Option<Record<'_>> {
        let (kind, len) = self.present?;
        let (head, payload) = self.words.as_bytes().split_at(HEAD_BYTES);
        let payload = &payload[..len];
        let stamp = Nanos(RecordHead::ref_from_bytes(head).ok()?.stamp_ns);
        let entry = match kind {
            RecordKind::Snapshot => {
                let snapshot = Snapshot::parse(payload).ok()?;
                let instrument = self.directory.get(&snapshot.instrument_id().get());
                Entry::Snapshot { snapshot, instrument }
            }
            RecordKind::Instrument => {
                let entry = InstrumentEntry::ref_from_bytes(payload).ok()?;
                Entry::Instrument(self.directory.get(&entry.instrument_id)?)
            }
            RecordKind::Hole => Entry::Hole(Hole::read_from_bytes(payload).ok()?),
            RecordKind::End => return None,
        };
        Some(Record { offset: self.offset, stamp, entry })
    }

    /// Reads one record into the buffer, or says what is there instead.
    fn read(&mut self) -> io::Result<Result<(RecordKind, usize), How>> {
        let bytes = self.words.as_mut_bytes();
        let have = fill(&mut self.input, &mut bytes[..HEAD_BYTES])?;
        if have < HEAD_BYTES {
            let is_blank = bytes[..have].iter().all(|byte| *byte == 0);
            return Ok(Err(if is_blank { How::Open } else { How::Cut }));
        }
        let (head_bytes, rest) = bytes.split_at_mut(HEAD_BYTES);
        let Ok(head) = RecordHead::read_from_bytes(head_bytes) else { return Ok(Err(How::Cut)) };
        if head.len == 0 {
            return self.read_blank(&head).map(Err);
        }
        let Some(len) = head.payload_len() else {
            return Ok(Err(How::Damaged("no record has the length that stands there")));
        };
        let payload = &mut rest[..len];
        if fill(&mut self.input, payload)? < len {
            return Ok(Err(How::Cut));
        }
        if head.checksum != head.computed(payload) {
            return self.read_torn().map(Err);
        }
        let Some(kind) = RecordKind::from_file(head.kind) else {
            return Ok(Err(How::Damaged("a kind of record that this release does not know")));
        };
        self.take_in(kind, len)
    }

    /// Checks and notes the content of a record whose checksum is right.
    fn take_in(
        &mut self,
        kind: RecordKind,
        len: usize,
    ) -> io::Result<Result<(RecordKind, usize), How>> {
        let (before, after) = (self.next, self.next + (HEAD_BYTES + len) as u64);
        let payload = &self.words.as_bytes()[HEAD_BYTES..HEAD_BYTES + len];
        let is_good = match kind {
            RecordKind::Snapshot => {
                let whole = Snapshot::parse(payload).is_ok_and(|s| s.as_bytes().len() == len);
                self.snapshots += u64::from(whole);
                whole
            }
            RecordKind::Instrument => instrument_of(payload).is_some_and(|instrument| {
                self.directory.insert(instrument.instrument_id.get(), instrument);
                true
            }),
            RecordKind::Hole => Hole::read_from_bytes(payload).is_ok(),
            RecordKind::End => {
                let Ok(end) = End::read_from_bytes(payload) else { return Ok(Err(WRONG_CONTENT)) };
                return self.read_end(&end, after).map(Err);
            }
        };
        if !is_good {
            return Ok(Err(WRONG_CONTENT));
        }
        (self.offset, self.next) = (before, after);
        Ok(Ok((kind, len)))
    }

    /// What follows the record that closes the file.
    fn read_end(&mut self, end: &End, after: u64) -> io::Result<How> {
        if end.snapshots != self.snapshots {
            return Ok(How::Damaged("the file was closed with another number of snapshots"));
        }
        self.next = after;
        // The writer may have been killed before it gave back what it had reserved.
        Ok(match rest(&mut self.input)?.last_written {
            0 => How::Closed,
            _ => How::Damaged("something follows the end"),
        })
    }

    /// The file ends here, or a record was being written, or something is gone.
    fn read_blank(&mut self, head: &RecordHead) -> io::Result<How> {
        let in_head = head.as_bytes().iter().any(|byte| *byte != 0);
        let rest = rest(&mut self.input)?;
        Ok(match rest.last_written {
            0 if !in_head => How::Open,
            last if last <= (RECORD_BYTES_MAX - HEAD_BYTES) as u64 => How::Cut,
            _ => How::Damaged("zeros where a record belongs"),
        })
    }

    /// A checksum is wrong: only half of the last record came to the disk, or something changed it.
    fn read_torn(&mut self) -> io::Result<How> {
        let rest = rest(&mut self.input)?;
        let is_last = rest.bytes > 0 && rest.last_written == 0;
        Ok(if is_last { How::Cut } else { How::Damaged("the checksum does not match") })
    }
}

const WRONG_CONTENT: How = How::Damaged("a record whose content cannot be");

fn header_of(bytes: &[u8]) -> Result<Header, NotAJournal> {
    if bytes.len() == HEADER_BYTES && bytes.iter().all(|byte| *byte == 0) {
        return Err(NotAJournal::Blank);
    }
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    if magic != &MAGIC[..magic.len()] {
        return Err(NotAJournal::Magic);
    }
    let header = FileHeader::read_from_bytes(bytes).map_err(|_| NotAJournal::Short(bytes.len()))?;
    if header.version != JOURNAL_VERSION {
        return Err(NotAJournal::Version { theirs: header.version, ours: JOURNAL_VERSION });
    }
    let origin = Origin::from_file(header.origin);
    let is_sound = header.checksum == header.computed()
        && usize::from(header.header_len) == HEADER_BYTES
        && header.wire_version == tapecast_wire::WIRE_VERSION;
    let Some(origin) = origin.filter(|_| is_sound) else { return Err(NotAJournal::Header) };
    Ok(Header {
        epoch: Epoch(header.epoch),
        origin,
        file_number: header.file_number,
        levels: (header.levels > 0).then_some(usize::from(header.levels)),
        created: Nanos(header.created_ns),
        snapshots_before: header.snapshots_before,
    })
}

fn instrument_of(payload: &[u8]) -> Option<Instrument> {
    let entry = InstrumentEntry::read_from_bytes(payload).ok()?;
    let instrument = Instrument::from_wire(&entry).ok()?;
    (instrument.instrument_id < InstrumentId(MAX_INSTRUMENTS as u32)).then_some(instrument)
}

/// Reads until `bytes` are full or the input ends. Returns how many there are.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < bytes.len() {
        match input.read(&mut bytes[have..]) {
            Ok(0) => break,
            Ok(more) => have += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}

/// What is left of an input.
#[derive(Clone, Copy, Debug)]
struct Rest {
    bytes: u64,
    /// Bytes up to and with the last that is not zero; 0 when all are.
    last_written: u64,
}

fn rest(input: &mut impl Read) -> io::Result<Rest> {
    let mut rest = Rest { bytes: 0, last_written: 0 };
    let mut piece = [0; 4096];
    loop {
        let have = fill(input, &mut piece)?;
        if let Some(last) = piece[..have].iter().rposition(|byte| *byte != 0) {
            rest.last_written = rest.bytes + last as u64 + 1;
        }
        rest.bytes += have as u64;
        if have < piece.len() {
            return Ok(rest);
        }
    }
}
