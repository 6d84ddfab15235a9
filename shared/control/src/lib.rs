//! Control plane of tapecast: how a subscriber gets its session.
//!
//! ```text
//! over a Unix socket                      publisher
//!   client::attach ──── Attach ─────────►  Listener ── credentials, request ─► Pending
//!                  ◄─── Accepted + fds ──  Pending::accept
//!   ClientLifeline ◄═══ lifeline ═══════►  Lifeline     open as long as the session lives
//!                  ◄─── Farewell ────────               ends by a word and EOF, or by EOF alone
//!                  ──── Detach ─────────►
//!
//! over TCP and TLS, for RDMA
//!   client::connect ─── Attach ─────────►  TcpListener ── certificate, request ─► Pending
//!                  ◄─── Connect ─────────  Pending::connect
//!   Opening::ready ──── Ready ──────────►
//!                  ◄─── Accepted ────────  Pending::accept
//!   and the lifeline as above
//! ```
//!
//! The publisher's side runs on tokio, the subscriber's on no runtime. Messages are those of
//! [`tapecast_wire::attach`]; this crate decides *who* may ask ([`Access`], TLS) and for how much
//! ([`Entitlements`]), never *what* is granted.
//!
//! # Invariants
//! - A peer is parsed, never trusted: a connection that says nothing, sends garbage or a gigabyte
//!   costs one descriptor, at most one bounded frame of memory, and a few seconds of waiting.
//! - Who a peer is comes from the kernel (`SO_PEERCRED`) or from a verified certificate, never from
//!   the peer's word.
//! - Beyond the loopback addresses there is no TCP without TLS 1.3 and certificates on both sides.
//! - Descriptors go from publisher to subscriber only. The publisher's side reads without room for
//!   ancillary data, so the kernel closes whatever a peer attaches. Received descriptors are
//!   close-on-exec, and owned from the first moment, so no error path leaks one.
//! - Nothing is left behind that a person must delete, not even by SIGKILL.
//! - Nothing here is on the path of market data.

#![forbid(unsafe_code)]

mod access;
mod accounts;
mod bind_error;
pub mod certificates;
mod claim;
pub mod client;
mod clock;
mod entitlement;
mod frame;
mod gate;
mod handshake;
mod intake;
mod keepalive;
mod lifeline;
mod listener;
mod peer;
mod pending;
mod remote;
mod socket_path;
mod stream;
mod tcp;
mod tls;

pub use access::{Access, AccessError};
pub use bind_error::BindError;
pub use clock::{ClockEstimate, ClockFilter};
pub use entitlement::{ClientPattern, Entitlement, Entitlements, NotEntitled, PatternError};
pub use frame::MAX_DESCRIPTORS;
pub use gate::ListenerStats;
pub use lifeline::{Ending, Lifeline};
pub use listener::{Listener, ListenerOptions};
pub use peer::PeerCredentials;
pub use pending::{AnswerError, Pending};
pub use remote::{ClientName, Peer};
pub use socket_path::{PathError, SOCKET_PATH_BYTES_MAX};
pub use tcp::{AnyListener, TcpListener, TcpListenerOptions};
pub use tls::{CertificateEnds, TlsFileError, TlsFiles, TlsIdentity};
