//! Benchmarks that compare within one run: tapecast beside the least that a home-made fan-out does.
//!
//! Speed is printed, never asserted. Rounds of the variants are interleaved, so that a change of
//! the
//! machine's mood meets all of them, and every figure is the median of its rounds.

mod bare_ring;
mod child;
mod machine;
mod rounds;
mod stage;

pub use bare_ring::{BareReader, BareRing, BareWait, BareWriter, create as create_bare_ring};
pub use child::{ChildArguments, ChildResult, Children, inherit, run_child};
pub use machine::{CpuTime, cpu_time_of, resident_bytes_of};
pub use rounds::{Distribution, median};
pub use stage::{Size, Stage, Traffic, unix_now};
