//! The shipped programs, together, as processes on this machine.

mod ab;
mod journal;
mod kept_ring;
mod known_results;
mod misuse;
#[expect(dead_code, reason = "only the tests over RDMA kill a process")]
mod programs;
mod restart;
mod silence;
mod terms;
