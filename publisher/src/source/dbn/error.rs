//! What can go wrong with a DBN input, in the words of whoever has to fix it.

use std::io;

/// A DBN input that cannot be read, or not to its end.
///
/// Every text names the input, the cause and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DbnError {
    /// The file cannot be opened.
    #[error("{path}: {source}: check the path and its permissions")]
    Open {
        /// Input as the user named it.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The path is a directory.
    #[error("{path} is a directory: name one DBN file in it")]
    Directory {
        /// Input as the user named it.
        path: String,
    },
    /// There is no byte in it.
    #[error("{path} is empty: a DBN file holds at least its metadata; fetch it again")]
    Empty {
        /// Input as the user named it.
        path: String,
    },
    /// The bytes are of another format.
    #[error("{path} is not DBN but looks like {found}: {remedy}")]
    Format {
        /// Input as the user named it.
        path: String,
        /// What the first bytes look like.
        found: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A DBN version that this release does not read.
    #[error(
        "{path} is DBN version {version}, this release reads versions 1 to 3: \
         convert it with Databento's `dbn` command or update tapecast"
    )]
    Version {
        /// Input as the user named it.
        path: String,
        /// Version in its header.
        version: u8,
    },
    /// A schema without an order book.
    #[error(
        "{path} holds DBN schema `{schema}`, which carries no order book to publish: \
         supported are `mbo` and `mbp-10`"
    )]
    Schema {
        /// Input as the user named it.
        path: String,
        /// Schema found.
        schema: String,
    },
    /// A chosen symbol that the file does not have.
    #[error("{path} has no symbol `{symbol}`: it has {known}")]
    UnknownSymbol {
        /// Input as the user named it.
        path: String,
        /// Symbol asked for.
        symbol: String,
        /// Some of the symbols there are.
        known: String,
    },
    /// The input ends before it is complete.
    #[error(
        "{path}: truncated at byte {offset}: it ends inside {inside}; {records} records before \
         that are good: fetch it again, or set allow_truncated to accept what is there"
    )]
    Truncated {
        /// Input as the user named it.
        path: String,
        /// Byte of the file where it ends.
        offset: u64,
        /// What was being read there.
        inside: String,
        /// Complete records before the cut.
        records: u64,
    },
    /// The bytes contradict the format.
    #[error("{path}: damaged near byte {offset}: {reason}: fetch it again")]
    Damaged {
        /// Input as the user named it.
        path: String,
        /// Byte of the file up to which it was read.
        offset: u64,
        /// What does not fit.
        reason: String,
    },
    /// Reading failed.
    #[error("{path}: reading at byte {offset}: {source}: check the disk or mount")]
    Read {
        /// Input as the user named it.
        path: String,
        /// Byte of the file up to which it was read.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// More instruments than a directory can hold.
    #[error("{path} has more than {limit} instruments: choose symbols")]
    TooManyInstruments {
        /// Input as the user named it.
        path: String,
        /// Most instruments there can be.
        limit: usize,
    },
}
