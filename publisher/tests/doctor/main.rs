//! `tapecast-publisher doctor` on the trees of five machines, in order and spoiled.

mod findings;
mod malformed;
mod mending;
mod program;
mod support;
mod trees;
