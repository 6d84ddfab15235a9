//! The control plane over real sockets and threads.
//!
//! No process is started here: for an instant a child holds copies of all descriptors, which would
//! make a socket look alive, or a pipe open, that is not.

#![expect(clippy::unwrap_used, reason = "a test may end where it is surprised")]

mod attach;
mod bare;
mod hostile;
mod lifeline;
#[path = "../support/mod.rs"]
mod support;
mod takeover;
