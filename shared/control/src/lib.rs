//! Control plane of tapecast: how a subscriber gets its session, over a Unix socket.
//!
//! ```text
//! subscriber                              publisher
//!   client::attach ──── Attach ─────────►  Listener ── credentials, request ─► Pending
//!                  ◄─── Accepted + fds ──  Pending::accept
//!   ClientLifeline ◄═══ lifeline ═══════►  Lifeline     open as long as the session lives
//!                  ◄─── Farewell ────────               ends by a word and EOF, or by EOF alone
//!                  ──── Detach ─────────►
//! ```
//!
//! The publisher's side runs on tokio, the subscriber's on nothing but the standard library.
//! Messages are those of [`tapecast_wire::attach`]; this crate decides *who* may ask, never *what*
//! is granted.
//!
//! # Invariants
//! - A peer is parsed, never trusted: a connection that says nothing, sends garbage or a gigabyte
//!   costs one descriptor, at most one bounded frame of memory, and a few seconds of waiting.
//! - Who a peer is comes from the kernel (`SO_PEERCRED`), never from the peer.
//! - Descriptors go from publisher to subscriber only. The publisher's side reads without room for
//!   ancillary data, so the kernel closes whatever a peer attaches. Received descriptors are
//!   close-on-exec, and owned from the first moment, so no error path leaks one.
//! - Nothing is left behind that a person must delete, not even by SIGKILL.
//! - Nothing here is on the path of market data.

#![forbid(unsafe_code)]

mod access;
mod accounts;
mod bind_error;
mod claim;
pub mod client;
mod frame;
mod gate;
mod handshake;
mod lifeline;
mod listener;
mod peer;
mod pending;
mod socket_path;

pub use access::{Access, AccessError};
pub use bind_error::BindError;
pub use frame::MAX_DESCRIPTORS;
pub use gate::ListenerStats;
pub use lifeline::{Ending, Lifeline};
pub use listener::{Listener, ListenerOptions};
pub use peer::PeerCredentials;
pub use pending::{AnswerError, Pending};
pub use socket_path::{PathError, SOCKET_PATH_BYTES_MAX};
