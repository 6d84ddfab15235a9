//! The shipped programs, together, as processes on this machine.

mod known_results;
mod misuse;
mod programs;
mod restart;
mod terms;
