//! The protocol of tapecast without I/O: sessions, credit, conflation, fan-out, accounting.
//!
//! Everything here is a state machine that is told what happened (`on_*`), given commands, and
//! asked what to do next. It never reads a clock, never touches memory that another process can
//! write, never logs, and allocates only when it is made (or in methods that say so). Policies
//! return a decision; the fabric performs it.
//!
//! ```text
//! publisher   FanOut ── 64 × Session ── CreditWindow   bytes, receives, send queue
//!                                   ├── DirtyQueue     longest dirty first
//!                                   ├── Pace           least time between two snapshots
//!                                   └── Liveness       heartbeat
//! conductor   LagGauge                                 bytes and time behind
//! subscriber  Account                                  deliver, conflated, lost
//! ```
//!
//! # Invariants
//! - For each session and instrument: published = delivered + conflated (+ what is still dirty).
//! - Nothing that a peer says is believed before it is checked; a lie is a typed error.

#![forbid(unsafe_code)]

pub mod account;
pub mod credit;
mod dirty;
mod eviction;
pub mod fan_out;
mod interest;
pub mod lag;
mod liveness;
mod pace;
pub mod planted;
pub mod session;
mod set;
mod signal;

pub use dirty::DirtyQueue;
pub use fan_out::FanOut;
pub use interest::Interest;
pub use liveness::Liveness;
pub use pace::Pace;
pub use session::Session;
pub use set::InstrumentSet;
pub use signal::SignalRule;
