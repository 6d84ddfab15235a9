//! Every byte of a journal file. All integers little-endian; all times Unix nanoseconds.
//!
//! ```text
//! header, 64 bytes
//!  0 magic "TAPEJRNL"
//!  8 version u16 | header_len u16 | wire_version u16 | origin u8 | reserved u8
//! 16 epoch u64
//! 24 file_number u32 | levels u16 | reserved u16
//! 32 created_ns u64
//! 40 snapshots_before u64
//! 48 reserved, 12 bytes
//! 60 checksum u32, of bytes 0 to 59
//!
//! record, 24 bytes and a payload
//!  0 checksum u32, of bytes 4 to the end of the record
//!  4 len u32, bytes of the whole record: a multiple of 8, 24 to 4120
//!  8 kind u8 | reserved, 7 bytes
//! 16 stamp_ns u64
//! 24 payload
//!
//! kind  payload
//!    1  snapshot: one record of the wire crate
//!    2  instrument: one directory entry of the wire crate, 64 bytes
//!    3  hole, 24 bytes: lost u64 | first_sequence u64 | last_sequence u64
//!    4  end, 16 bytes: reason u8 | reserved, 7 bytes | snapshots u64
//! ```
//!
//! The directory comes right after the header: an instrument record for every instrument known when
//! the file was begun. Later ones stand before their first snapshot, and an entry replaces an
//! earlier one with the same id. Where a `len` of 0 stands, the file ends: room was reserved there
//! that nothing has been written to.

use core::mem::offset_of;

use tapecast_wire::limits::{INSTRUMENT_ENTRY_BYTES, PAGE_BYTES, WORD_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of every file.
pub const MAGIC: [u8; 8] = *b"TAPEJRNL";
/// Version of this layout.
pub const JOURNAL_VERSION: u16 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = size_of::<FileHeader>();
/// Bytes of a record before its payload.
pub const HEAD_BYTES: usize = size_of::<RecordHead>();
/// Bytes of the largest record.
pub const RECORD_BYTES_MAX: usize = HEAD_BYTES + PAGE_BYTES;
/// Bytes of the record that closes a file.
pub const END_RECORD_BYTES: usize = HEAD_BYTES + size_of::<End>();

/// Who wrote a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// A publisher: every snapshot as it was encoded, before the time of publishing was known.
    Publisher = 1,
    /// A subscriber: what was delivered to it, as it was delivered.
    Subscriber = 2,
}

impl Origin {
    /// Reads the value in a file.
    #[must_use]
    pub const fn from_file(value: u8) -> Option<Self> {
        match value {
            1 => Some(Self::Publisher),
            2 => Some(Self::Subscriber),
            _ => None,
        }
    }

    /// Lower-case name, for people and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publisher => "publisher",
            Self::Subscriber => "subscriber",
        }
    }
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A snapshot.
    Snapshot = 1,
    /// A directory entry.
    Instrument = 2,
    /// Snapshots are missing here.
    Hole = 3,
    /// The file was closed.
    End = 4,
}

impl RecordKind {
    /// Reads the value in a file.
    #[must_use]
    pub const fn from_file(value: u8) -> Option<Self> {
        match value {
            1 => Some(Self::Snapshot),
            2 => Some(Self::Instrument),
            3 => Some(Self::Hole),
            4 => Some(Self::End),
            _ => None,
        }
    }
}

/// Begins every file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`JOURNAL_VERSION`].
    pub version: u16,
    /// Bytes of the header: where the first record starts. A later version may be longer.
    pub header_len: u16,
    /// Version of the records of the wire crate.
    pub wire_version: u16,
    /// [`Origin`] as its value in a file.
    pub origin: u8,
    /// Zero.
    pub reserved: u8,
    /// Life of the publisher.
    pub epoch: u64,
    /// Number of the file in its journal, from 1.
    pub file_number: u32,
    /// Most levels per side in a snapshot; 0 when the writer did not know.
    pub levels: u16,
    /// Zero.
    pub reserved2: u16,
    /// When the file was begun.
    pub created_ns: u64,
    /// Snapshots in earlier files of this journal.
    pub snapshots_before: u64,
    /// Zero.
    pub reserved3: [u8; 12],
    /// CRC-32 of all bytes before.
    pub checksum: u32,
}

impl FileHeader {
    /// The header with its checksum.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.checksum = self.computed();
        self
    }

    /// What the checksum should be.
    #[must_use]
    pub fn computed(&self) -> u32 {
        crc32fast::hash(&self.as_bytes()[..offset_of!(Self, checksum)])
    }
}

/// Begins every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecordHead {
    /// CRC-32 of everything that follows, to the end of the record.
    pub checksum: u32,
    /// Bytes of the whole record.
    pub len: u32,
    /// [`RecordKind`] as its value in a file.
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 7],
    /// When it was written down, or delivered to the subscriber that writes.
    pub stamp_ns: u64,
}

impl RecordHead {
    /// The head of a record with this payload.
    #[must_use]
    pub fn new(kind: RecordKind, stamp_ns: u64, payload: &[u8]) -> Self {
        let len = (HEAD_BYTES + payload.len()) as u32;
        let head = Self { checksum: 0, len, kind: kind as u8, reserved: [0; 7], stamp_ns };
        Self { checksum: head.computed(payload), ..head }
    }

    /// What the checksum should be.
    #[must_use]
    pub fn computed(&self, payload: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.as_bytes()[offset_of!(Self, len)..]);
        hasher.update(payload);
        hasher.finalize()
    }

    /// Bytes of the payload, or `None` when there can be no record of this length.
    #[must_use]
    pub const fn payload_len(&self) -> Option<usize> {
        let len = self.len as usize;
        if len >= HEAD_BYTES && len <= RECORD_BYTES_MAX && len.is_multiple_of(WORD_BYTES) {
            Some(len - HEAD_BYTES)
        } else {
            None
        }
    }
}

/// Snapshots that were published and are not in the journal.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Hole {
    /// How many.
    pub lost: u64,
    /// Channel sequence of the first of them; 0 when that is not known.
    pub first_sequence: u64,
    /// Channel sequence of the last of them; 0 when that is not known.
    pub last_sequence: u64,
}

impl Hole {
    /// Whether nothing is missing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.lost == 0
    }

    /// One more, later than all before.
    pub const fn add(&mut self, sequence: u64) {
        self.join(Self { lost: 1, first_sequence: sequence, last_sequence: sequence });
    }

    /// Makes one hole of this and a later one.
    pub const fn join(&mut self, later: Self) {
        if later.is_empty() {
            return;
        }
        if self.is_empty() {
            self.first_sequence = later.first_sequence;
        }
        self.lost += later.lost;
        self.last_sequence = later.last_sequence;
    }
}

/// Why a file was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Closing {
    /// The journal ends.
    Ended = 1,
    /// It goes on in another file.
    Rotated = 2,
}

/// Closes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct End {
    /// [`Closing`] as its value in a file.
    pub reason: u8,
    /// Zero.
    pub reserved: [u8; 7],
    /// Snapshots in this file.
    pub snapshots: u64,
}

const _: () = {
    assert!(HEADER_BYTES == 64 && align_of::<FileHeader>() == 8);
    assert!(offset_of!(FileHeader, version) == 8);
    assert!(offset_of!(FileHeader, header_len) == 10);
    assert!(offset_of!(FileHeader, wire_version) == 12);
    assert!(offset_of!(FileHeader, origin) == 14);
    assert!(offset_of!(FileHeader, epoch) == 16);
    assert!(offset_of!(FileHeader, file_number) == 24);
    assert!(offset_of!(FileHeader, levels) == 28);
    assert!(offset_of!(FileHeader, created_ns) == 32);
    assert!(offset_of!(FileHeader, snapshots_before) == 40);
    assert!(offset_of!(FileHeader, checksum) == 60);
    assert!(HEAD_BYTES == 24 && align_of::<RecordHead>() == 8);
    assert!(offset_of!(RecordHead, len) == 4);
    assert!(offset_of!(RecordHead, kind) == 8);
    assert!(offset_of!(RecordHead, stamp_ns) == 16);
    assert!(size_of::<Hole>() == 24 && size_of::<End>() == 16);
    assert!(INSTRUMENT_ENTRY_BYTES == 64);
    assert!(RECORD_BYTES_MAX == 4120 && END_RECORD_BYTES == 40);
};
