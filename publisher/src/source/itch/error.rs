//! What can go wrong with an ITCH input, in one line each: the cause and the remedy.

use std::io;

use thiserror::Error;

use super::message::MessageError;

/// Why an ITCH input cannot be read (on). Offsets are in bytes of the unpacked data, and point at
/// the length prefix of the message in question. What was good before it has been delivered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ItchError {
    /// No such file.
    #[error("{input}: no such file; check the path")]
    Missing {
        /// Path of the input.
        input: String,
    },
    /// A directory.
    #[error("{input} is a directory; give one ITCH file in it")]
    Directory {
        /// Path of the input.
        input: String,
    },
    /// Nothing in it.
    #[error("{input} is empty; was its download or copy finished?")]
    NoData {
        /// Path of the input.
        input: String,
    },
    /// The first bytes are those of another format.
    #[error("{input} is not an ITCH file: it is {what}; {remedy}")]
    WrongFormat {
        /// Path of the input.
        input: String,
        /// What it is.
        what: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The operating system cannot read it.
    #[error(
        "{input}: cannot read on at byte {offset}: {error}; check the permissions and the disk"
    )]
    Unreadable {
        /// Path of the input.
        input: String,
        /// Where reading stopped.
        offset: u64,
        /// The operating system's reason.
        error: io::Error,
    },
    /// It ends inside a message.
    #[error(
        "{input} is cut at byte {offset}: message {next} needs {need} bytes there and has {have}; \
         {messages} messages before it were good; fetch the file again, or set allow_truncated",
        next = .messages + 1
    )]
    Truncated {
        /// Path of the input.
        input: String,
        /// Start of the cut message.
        offset: u64,
        /// Bytes that the message needs, its length prefix included.
        need: usize,
        /// Bytes that are there.
        have: usize,
        /// Good messages before.
        messages: u64,
    },
    /// The gzip data ends before its end.
    #[error(
        "{input} is a gzip file cut short: its data ends in message {next} at unpacked byte \
         {offset}; {messages} messages before it were good; fetch the file again, or set \
         allow_truncated",
        next = .messages + 1
    )]
    TruncatedGzip {
        /// Path of the input.
        input: String,
        /// Start of the first message that is not whole.
        offset: u64,
        /// Good messages before.
        messages: u64,
    },
    /// The gzip data is not valid.
    #[error(
        "{input}: the gzip data is damaged ({error}) in message {next} at unpacked byte {offset}; \
         {messages} messages before it were good; fetch the file again",
        next = .messages + 1
    )]
    DamagedGzip {
        /// Path of the input.
        input: String,
        /// Start of the first message that is not whole.
        offset: u64,
        /// Good messages before.
        messages: u64,
        /// What the decompressor says.
        error: io::Error,
    },
    /// A length prefix of zero, and not at the end.
    #[error(
        "{input}: message {next} at byte {offset} has a length prefix of 0; {messages} messages \
         before it were good; the file is damaged or its messages have no length prefixes",
        next = .messages + 1
    )]
    ZeroLength {
        /// Path of the input.
        input: String,
        /// Where.
        offset: u64,
        /// Good messages before.
        messages: u64,
    },
    /// A message that is shorter than its type.
    #[error(
        "{input}: message {next} at byte {offset} is {error}; {messages} messages before it were \
         good; the file is damaged or is not ITCH 5.0",
        next = .messages + 1
    )]
    Message {
        /// Path of the input.
        input: String,
        /// Where.
        offset: u64,
        /// Good messages before.
        messages: u64,
        /// What is wrong with it.
        error: MessageError,
    },
    /// Symbols were asked for that the directory at the start of the file does not list.
    #[error("{input} lists {listed} symbols, but not {missing}; check the spelling (upper case)")]
    NotListed {
        /// Path of the input.
        input: String,
        /// Number of symbols in the file's directory.
        listed: usize,
        /// The symbols that are not there.
        missing: String,
    },
    /// The date cannot be expressed in Unix nanoseconds.
    #[error("the date {date} is outside 1970 to 2554; give the date of the recording")]
    Date {
        /// The date.
        date: jiff::civil::Date,
    },
    /// A pipe cannot be read a second time.
    #[error("{input} is a pipe and cannot be read again; give a file to play it in a loop")]
    NotRepeatable {
        /// Path of the input.
        input: String,
    },
}
