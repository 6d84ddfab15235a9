//! The control plane over TCP and TLS, with real sockets on the loopback interface.

#![expect(clippy::unwrap_used, reason = "a test may end where it is surprised")]

mod attach;
mod hostile;
mod lifeline;
mod place;
mod tls;
