//! Chaos on real processes: the shipped programs, killed, stopped, slowed down, joined and left at
//! random, and their accounts afterwards.
//!
//! ```text
//! seed ─► RoundPlan ─► play ─ by progress: kill, stop, continue, start, ask to leave ─┐
//! Day  ─► Score ──────► │                                                             ▼
//!          (rehearsal)  └─► accounts, report, what witnesses read ─► check ─► complaints
//! ```
//!
//! **A round is a publisher's life with a finite day**, and the rounds loop over the same day.
//! A subscriber tells its whole account at the end of its life, and the publisher tells what it
//! published at the end of its own, so only there can the two be compared exactly, instrument by
//! instrument. Figures of a life that goes on (`stats`) lie some snapshots apart on both ends, and
//! a check of them would have to be loose. The day is over when every instrument is told to be, so
//! each subscriber ends by itself; the publisher stays until then, and a subscriber that was
//! stopped or that comes late finds everything even after the last snapshot. Nothing is timed.
//!
//! **The day is rehearsed** once, by one lossless reader and without harm. That gives the score:
//! how many snapshots it has, and what each of them holds. The same day is the same snapshots in
//! every life, so a few of the subscribers (witnesses, whose lines this program reads) are held to
//! the score snapshot by snapshot, whatever is done to them.
//!
//! **Harm comes by progress**, that is when the first witness has read so much of the day. So a
//! seed gives the same round again as far as processes allow: what is done to whom, and where in
//! the day.
//!
//! A slow subscriber is one that is stopped and continued in short bursts: `tail` has no option to
//! be slow, and a process that gets no processor is what a slow one looks like from outside.

mod check;
mod day;
mod error;
mod figures;
mod leftovers;
mod line;
mod plan;
mod process;
mod report;
mod restarts;
mod round;
mod score;
mod stage;
mod witness;

pub use day::Day;
pub use error::ChaosError;
pub use figures::Spread;
pub use plan::{Deed, Fate, Harm, RoundPlan};
pub use restarts::{RestartTally, Restarts};
pub use round::{Round, Tally, play};
pub use score::Score;
pub use stage::{Setting, Stop, free_address};
