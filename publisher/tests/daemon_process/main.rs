//! The daemon as a process: what it says, how it lives, whom it serves, how it ends.

mod config;
mod life;
mod misuse;
mod sessions;
mod support;
