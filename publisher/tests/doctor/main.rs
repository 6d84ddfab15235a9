//! `tapecast-publisher doctor` on the trees of five machines, in order and spoiled.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod absence;
mod findings;
mod firmware;
mod lasting;
mod malformed;
mod mending;
mod ports;
mod program;
mod spoiled_card;
mod spoiled_host;
mod support;
mod trees;
