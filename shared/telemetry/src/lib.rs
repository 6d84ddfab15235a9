//! What tapecast measures about itself: counters, latency, jitter and skew.
//!
//! A leaf: it knows no layout, does no I/O and never reads a clock; every time is handed in, in
//! nanoseconds. Recording never allocates, so a receiver may record for every snapshot.
//!
//! # Conventions for counters
//! - A counter only rises. It starts at 0 with the process and nothing resets it, so a reader that
//!   samples twice may subtract.
//! - A thread that counts on the hot path owns a plain struct of `u64`, adds to its fields, and
//!   hands out copies between batches. It never shares a cell.
//! - Elsewhere, where several tasks count the same thing, the cell is a [`Counter`].
//! - What one thread keeps showing to another, and is no count for a reader, is a [`Gauge`]: a
//!   plain store.
//! - How long something has lasted in all, the present spell included, is told by [`Spells`].
//! - Latencies that are to be summed over time go into [`SharedBuckets`], by the same rule.
//! - Both are read as a plain struct of `u64` named `…Stats`, with a field for each fact and
//!   `serde`, so that tests, reports and metrics name a fact by one word. The words are those of
//!   the metric: field `timed_out` of the listener's stats is `…_timed_out_total`.
//! - Units go last (`_ns`, `_bytes`); a field without a unit is a count.

#![forbid(unsafe_code)]

mod buckets;
mod counter;
#[cfg(feature = "prometheus")]
pub mod families;
mod gauge;
mod human;
mod jitter;
mod latency;
mod skew;
mod spells;

pub use buckets::{BOUNDS_NS, BUCKETS, LatencyBuckets, SharedBuckets};
pub use counter::Counter;
pub use gauge::Gauge;
pub use human::HumanNanos;
pub use jitter::{InterarrivalJitter, Jitter};
pub use latency::{HIGHEST_NS, LatencyFigures, LatencySummary};
pub use skew::{SkewError, SkewFigures, SkewRecord, SkewSampler};
pub use spells::{Highest, Spells};
