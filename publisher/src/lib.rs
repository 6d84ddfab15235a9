//! The publisher: sources, books, sender, conductor. The binary `tapecast-publisher` is a thin
//! shell.

#![forbid(unsafe_code)]

pub mod book;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod conductor;
pub mod config;
pub mod doctor;
pub mod feed;
pub mod journal;
pub mod logging;
pub mod metrics;
pub mod plan;
pub mod report;
pub mod sender;
pub mod service;
pub mod source;
