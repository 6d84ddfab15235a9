//! A deterministic simulator: publisher core and subscribers on the simulated network, one thread,
//! one clock, one seed.
//!
//! ```text
//! seed ─► Plan ─► World ── turn: weather, conductor, feed, flush, turn, polls ──► Event
//!                   │                                                              │
//!                   └── History: what was ordered ────────────► Checkers ◄─────────┘
//! ```
//!
//! A seed decides everything: sizes, subscribers and their habits, the feed, and which kinds of
//! faults this run has and how often (a swarm: no run has all of them, so that none hides another).
//! `World` gives orders and writes them down in the [`history`]; what is observed
//! goes out as [`event::Event`]s. [`checkers`] judge by these two and never ask the code under test
//! what should have happened.
//!
//! A run has three phases: faults; then none, and everybody who is past help is replaced; then
//! everybody must have everything within a number of turns that follows from the configuration.

mod book;
pub mod bounds;
pub mod checkers;
pub mod dice;
pub mod event;
mod feed;
pub mod history;
pub mod observers;
mod panics;
pub mod plan;
mod run;
mod seat;
mod swarm;
mod weather;
mod world;

pub use plan::Plan;
pub use run::{Options, Report, Runner};
pub use swarm::{Swarm, Tally};
