//! What can be wrong with bytes that claim to be a tapecast record.

/// A record, directory entry or attach message that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer bytes than the layout needs.
    #[error("{what}: {have} bytes, but {need} are needed")]
    Short {
        /// The layout being read.
        what: &'static str,
        /// Bytes present.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// The peer speaks another version of the layouts.
    #[error(
        "wire version {theirs}, but this side speaks {ours}: run the same release on both ends"
    )]
    Version {
        /// Version in the bytes.
        theirs: u16,
        /// Version of this build.
        ours: u16,
    },
    /// A field holds a value that the layout does not allow.
    #[error("{field} is {value}, which the layout does not allow")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The bytes are not aligned to eight.
    #[error("record is not aligned to 8 bytes")]
    Misaligned,
    /// The buffer cannot hold the record.
    #[error("record needs {need} bytes, the buffer has {have}")]
    NoRoom {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
}
