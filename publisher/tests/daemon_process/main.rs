//! The daemon as a process: what it says, how it lives, whom it serves, how it ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod certificates;
mod config;
mod entitlements;
mod lag;
mod life;
mod metrics;
mod misuse;
mod receive_time;
mod reload;
mod service;
mod sessions;
mod support;
