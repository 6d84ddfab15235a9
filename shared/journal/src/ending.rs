//! How a file ends, and where.

use std::fmt;

/// Where the last whole record of a file ends, and what comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Byte offset of the first thing that is not a whole record.
    pub at: u64,
    /// What is there.
    pub how: How,
}

/// What comes after the last whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Nothing: the writer closed the file.
    Closed,
    /// Nothing, but the writer did not close it: it was killed, or still writes, or the file was
    /// cut exactly there.
    Open,
    /// A part of a record: the writer was killed, or the file was cut there.
    Cut,
    /// Something that is no record, with more behind it. What follows cannot be trusted.
    Damaged(&'static str),
}

impl Ending {
    /// Whether every record that the writer wrote before the end can be there: nothing is damaged.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        !matches!(self.how, How::Damaged(_))
    }
}

impl How {
    /// One word, for JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Cut => "cut",
            Self::Damaged(_) => "damaged",
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match self.how {
            How::Closed => write!(f, "closed in good order at byte {at}"),
            How::Open => write!(f, "not closed: its last whole record ends at byte {at}"),
            How::Cut => write!(f, "cut inside a record that begins at byte {at}"),
            How::Damaged(what) => write!(f, "damaged at byte {at}: {what}"),
        }
    }
}
