//! Options that do not go together, and what to do about it.

use std::path::PathBuf;

/// Options that do not go together.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misuse {
    #[error(
        "--socket and --connect exclude each other: --socket attaches over shared memory to a \
         publisher on this machine, --connect over RDMA; leave one out, or name a \
         second publisher of the same feed with --socket-b or --connect-b"
    )]
    TwoPublishers,
    #[error(
        "side A and side B are both {publisher}: give --socket-b or --connect-b another publisher \
         of the same feed, or leave it out"
    )]
    SamePublisher { publisher: String },
    #[error(
        "{flag} is for sessions over RDMA, but this one would be over the socket {}: add \
         --connect HOST:PORT, or leave {flag} out",
        socket.display()
    )]
    NotOverRdma { flag: &'static str, socket: PathBuf },
    #[error("{flag} is for --policy disconnect: add that, or leave {flag} out")]
    NotToBeDisconnected { flag: &'static str },
    #[error(
        "{flag} 0 would end the session at once: give more, or leave {flag} out for the \
         publisher's own limit"
    )]
    NoLag { flag: &'static str },
    #[error(
        "--min-interval leaves snapshots out, which only --policy conflate does: leave one of the \
         two out"
    )]
    IntervalAndPolicy,
    #[error(
        "{given} comes without {missing}: TLS takes --ca, --cert and --key together; add \
         {missing}, or leave all of them out for a loopback address"
    )]
    PartOfTls { given: &'static str, missing: &'static str },
}
