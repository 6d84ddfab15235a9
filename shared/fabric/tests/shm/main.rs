//! Shared memory from end to end: publisher and subscribers in one process and in many.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod delivery;
mod model;
mod process;
mod processes;
mod resume;
mod sealing;
mod sender_path;
mod support;
