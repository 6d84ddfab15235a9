//! The publisher: sources, books, sender, conductor. The binary `tapecast-publisher` is a thin shell.

#![forbid(unsafe_code)]

pub mod cli;
pub mod config;
pub mod book;
pub mod source;
