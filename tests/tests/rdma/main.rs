//! The shipped programs over RDMA, as processes on a machine with a verbs device. `tests/vm` boots
//! one with Soft-RoCE; elsewhere every test says that it is left out.

#[path = "../end_to_end/programs.rs"]
#[expect(dead_code, reason = "these tests read no process line by line")]
mod programs;

mod device;
mod harm;
mod known_results;
mod leaks;
mod metrics;
mod refusals;
mod stage;
