//! The publisher: sources, books, sender, conductor. The binary `tapecast-publisher` is a thin shell.

#![forbid(unsafe_code)]

pub mod source;
