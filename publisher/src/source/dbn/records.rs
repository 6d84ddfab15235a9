//! From content bytes to records: metadata first, then frames of `length × 4` bytes.
//!
//! Framing is done here because the crate takes a cut record at the end for a clean end, and
//! because it trusts a record's length once its type is known. Here a record is copied into an
//! aligned [`RecordBuf`] and read through accessors that check type and length.

use std::io::Read;
use std::sync::Arc;

use dbn::decode::dbn::fsm::{DbnFsm, ProcessResult};
use dbn::{HasRType, MboMsg, Metadata, RecordBuf, RecordHeader};

use super::content::ContentReader;
use super::error::DbnError;
use super::format::{self, Format, SNIFF_BYTES};
use super::legacy;

/// Magic, version and length in front of the metadata.
const PRELUDE_BYTES: usize = 8;
/// Shortest metadata: its fixed fields.
const METADATA_BYTES_MIN: usize = 100;
/// Longest metadata that is accepted; every symbol of OPRA fits.
const METADATA_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes of a record header.
const HEADER_BYTES: usize = size_of::<RecordHeader>();
/// No record is longer: its length is one byte, in words of four.
const RECORD_BYTES_MAX: usize = 255 * RecordHeader::LENGTH_MULTIPLIER;
/// Content bytes buffered at a time.
const BUFFER_BYTES: usize = 64 * 1024;
/// "Unknown" in the record counts of old headers.
const NO_COUNT: u64 = u64::MAX;

/// Room for any record, aligned.
pub(super) type AlignedRecord = RecordBuf<1024>;

const _: () = assert!(RECORD_BYTES_MAX <= 1024);

/// Reads metadata and then one record after the other.
pub(super) struct RecordReader<R> {
    content: ContentReader<R>,
    metadata: Metadata,
    version: u8,
    legacy: bool,
    expected: Option<u64>,
    records: u64,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Where `start` is in the content.
    content_offset: u64,
    aligned: AlignedRecord,
}

/// One record as it is in the input.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    bytes: &'a [u8],
    aligned: &'a AlignedRecord,
    version: u8,
}

impl<'a> Frame<'a> {
    /// Record type.
    pub(super) const fn rtype(&self) -> u8 {
        self.bytes[1]
    }

    /// DBN version that laid it out.
    pub(super) const fn version(&self) -> u8 {
        self.version
    }

    /// The record as it is, at least a header long.
    pub(super) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// What every record starts with.
    pub(super) fn header(&self) -> &'a RecordHeader {
        self.aligned.header()
    }

    /// The record as a `T` whose layout is the same in all versions; `None` when it is of another
    /// type or too short to be one.
    pub(super) fn get<T: HasRType<Header = RecordHeader>>(&self) -> Option<&'a T> {
        (self.bytes.len() >= size_of::<T>()).then(|| self.aligned.try_get::<T>().ok()).flatten()
    }
}

impl<R: Read> RecordReader<R> {
    /// Reads the metadata of `input`.
    pub(super) fn open(name: Arc<str>, input: R) -> Result<Self, DbnError> {
        let (mut content, format) = ContentReader::open(name, input)?;
        let (header, expected) = if format == Format::Dbz {
            let header = legacy::read_header(&mut content)?;
            (header.dbn, Some(header.record_count).filter(|count| *count != NO_COUNT))
        } else {
            (read_header(&mut content)?, None)
        };
        let metadata = parse_metadata(&header).map_err(|reason| content.damaged(reason))?;
        Ok(Self {
            content,
            metadata,
            version: header[3],
            legacy: format == Format::Dbz,
            expected,
            records: 0,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            content_offset: header.len() as u64,
            aligned: AlignedRecord::from(MboMsg::default()),
        })
    }

    /// The metadata, upgraded to the newest version that the crate knows.
    pub(super) const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Version in the input; `None` for the legacy format.
    pub(super) const fn version(&self) -> Option<u8> {
        if self.legacy { None } else { Some(self.version) }
    }

    /// Complete records read.
    pub(super) const fn records(&self) -> u64 {
        self.records
    }

    /// Bytes taken from the file.
    pub(super) const fn file_bytes(&self) -> u64 {
        self.content.file_bytes()
    }

    /// The input, to rewind it.
    pub(super) fn into_input(self) -> R {
        self.content.into_input()
    }

    /// Whether the next record can be had without reading.
    #[inline]
    pub(super) fn is_at_hand(&self) -> bool {
        let there = &self.buffer[self.start..self.end];
        there.first().is_some_and(|words| {
            usize::from(*words) * RecordHeader::LENGTH_MULTIPLIER <= there.len()
        })
    }

    /// The input, where nothing is left of what was read from it.
    pub(super) const fn starved_input(&self) -> Option<&R> {
        self.content.starved_input()
    }

    /// The next record, or `None` when the input has ended, and ended well.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'_>>, DbnError> {
        let Some(bytes) = self.frame_bytes()? else {
            return Ok(None);
        };
        let frame = &self.buffer[self.start..self.start + bytes];
        self.aligned.raw_buf_mut()[..bytes].copy_from_slice(frame);
        self.start += bytes;
        self.content_offset += bytes as u64;
        self.records += 1;
        Ok(Some(Frame { bytes: frame, aligned: &self.aligned, version: self.version }))
    }

    /// Makes a whole record available at `start` and returns its length.
    fn frame_bytes(&mut self) -> Result<Option<usize>, DbnError> {
        loop {
            let there = self.end - self.start;
            if there > 0 {
                let bytes = usize::from(self.buffer[self.start]) * RecordHeader::LENGTH_MULTIPLIER;
                if bytes < HEADER_BYTES {
                    let offset = self.content_offset;
                    let reason = format!("record length {bytes} at content byte {offset}");
                    return Err(self.content.damaged(reason));
                }
                if bytes <= there {
                    return Ok(Some(bytes));
                }
            }
            if !self.refill()? {
                return if there == 0 { self.check_count() } else { Err(self.cut_record()) };
            }
        }
    }

    fn refill(&mut self) -> Result<bool, DbnError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let count = self.content.read(&mut self.buffer[self.end..], self.records)?;
        self.end += count;
        Ok(count > 0)
    }

    fn cut_record(&self) -> DbnError {
        let inside = format!("the record at content byte {}", self.content_offset);
        self.content.truncated(inside, self.records)
    }

    /// Old headers say how many records there are.
    fn check_count(&self) -> Result<Option<usize>, DbnError> {
        match self.expected {
            Some(expected) if self.records < expected => {
                let inside = format!("record {} of {expected}", self.records + 1);
                Err(self.content.truncated(inside, self.records))
            }
            _ => Ok(None),
        }
    }
}

/// Prelude and metadata of a DBN input, as bytes.
fn read_header<R: Read>(content: &mut ContentReader<R>) -> Result<Vec<u8>, DbnError> {
    let mut header = Vec::new();
    read_up_to(content, &mut header, PRELUDE_BYTES)?;
    if header.is_empty() {
        return Err(DbnError::Empty { path: content.path() });
    }
    if !b"DBN".starts_with(&header[..header.len().min(3)]) {
        // Only the content of a zstd file comes here unchecked.
        let (found, remedy) = format::other(&peek_more(content, header)?);
        return Err(DbnError::Format { path: content.path(), found, remedy });
    }
    if header.len() < PRELUDE_BYTES {
        return Err(content.truncated("the metadata".to_owned(), 0));
    }
    let version = header[3];
    if !(1..=3).contains(&version) {
        return Err(DbnError::Version { path: content.path(), version });
    }
    let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
    if !(METADATA_BYTES_MIN..=METADATA_BYTES_MAX).contains(&length) {
        return Err(content.damaged(format!("metadata of {length} bytes")));
    }
    read_up_to(content, &mut header, PRELUDE_BYTES + length)?;
    if header.len() < PRELUDE_BYTES + length {
        return Err(content.truncated("the metadata".to_owned(), 0));
    }
    Ok(header)
}

/// Content that is not DBN: enough of it to say what it is.
fn peek_more<R: Read>(
    content: &mut ContentReader<R>,
    mut head: Vec<u8>,
) -> Result<Vec<u8>, DbnError> {
    read_up_to(content, &mut head, SNIFF_BYTES)?;
    Ok(head)
}

/// Grows `out` to `bytes`, or to what there is. Memory grows only as data arrives.
fn read_up_to<R: Read>(
    content: &mut ContentReader<R>,
    out: &mut Vec<u8>,
    bytes: usize,
) -> Result<(), DbnError> {
    let mut piece = vec![0; BUFFER_BYTES.min(bytes)];
    while out.len() < bytes {
        let want = piece.len().min(bytes - out.len());
        let count = content.read(&mut piece[..want], 0)?;
        if count == 0 {
            break;
        }
        out.extend_from_slice(&piece[..count]);
    }
    Ok(())
}

fn parse_metadata(header: &[u8]) -> Result<Metadata, String> {
    let mut machine = DbnFsm::new(header.len(), 0);
    machine.write_all(header);
    match machine.process() {
        ProcessResult::Metadata(metadata) => Ok(metadata),
        ProcessResult::Err(error) => Err(error.to_string()),
        ProcessResult::ReadMore(_) | ProcessResult::Record(()) => {
            Err("the metadata contradicts its own length".to_owned())
        }
    }
}
