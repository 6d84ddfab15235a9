//! The subscriber's side: asks for a session and holds its lifeline. Synchronous: no runtime.

mod channel;
mod deadline;
mod error;
mod exchange;
mod lifeline;
mod target;
mod tcp;
mod tls;
mod unix;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use tapecast_wire::attach::{Accepted, AttachRequest, Message};
use tapecast_wire::rdma::RdmaAnswer;

use crate::peer::PeerCredentials;
use crate::remote::Peer;
use channel::Channel;
use deadline::Deadline;
use exchange::Attempt;

pub use error::AttachError;
pub use lifeline::{ClientLifeline, LifelineStatus};
pub use target::{ClientTls, Target, TargetError, TcpTarget};
pub use tls::TlsProblem;

/// A session, granted.
#[derive(Debug)]
pub struct Granted {
    /// The publisher's answer.
    pub accepted: Accepted,
    /// What came with it, in the publisher's order, at most [`crate::MAX_DESCRIPTORS`]; none over
    /// TCP. How many there should be, and what they are, is for the caller to check.
    pub descriptors: Vec<OwnedFd>,
    /// Lives as long as the session.
    pub lifeline: ClientLifeline,
    /// Who listens: on a Unix socket as the kernel tells it, over TCP the address.
    pub publisher: Peer,
}

/// Asks the publisher at the Unix socket `path` for a session. Blocks, all steps together, at most
/// `timeout`.
///
/// # Errors
/// [`AttachError`]; [`AttachError::is_transient`] says whether trying again makes sense.
pub fn attach(
    path: &Path,
    request: &AttachRequest,
    timeout: Duration,
) -> Result<Granted, AttachError> {
    let frame = Message::Attach(request.clone()).encode().map_err(AttachError::Request)?;
    let target = Target::Socket(path.to_owned());
    let attempt = Attempt { target, deadline: Deadline::after(timeout) };
    let socket = unix::open(&attempt, path)?;
    let publisher =
        PeerCredentials::of(&socket).map_err(|source| attempt.io("ask who listens on", source))?;
    let mut channel = Channel::Bare(socket);
    attempt.send(&mut channel, &frame)?;
    granted(&attempt, channel, publisher.into(), "for the publisher's answer")
}

/// Asks the publisher at a TCP port for a session over RDMA: `request` has an
/// [`RdmaOffer`](tapecast_wire::rdma::RdmaOffer). Blocks, all steps together, at most `timeout`.
///
/// # Errors
/// [`AttachError`]; [`AttachError::is_transient`] says whether trying again makes sense.
pub fn connect(
    target: &TcpTarget,
    request: &AttachRequest,
    timeout: Duration,
) -> Result<Opening, AttachError> {
    let frame = Message::Attach(request.clone()).encode().map_err(AttachError::Request)?;
    let attempt = Attempt { target: target.target(), deadline: Deadline::after(timeout) };
    // Before anybody is troubled: what is wrong with the files is known at once.
    let tls = target.tls.as_ref().map(|tls| tls::begin(target, tls)).transpose()?;
    let (socket, publisher) = tcp::open(&attempt, target)?;
    let mut channel = match tls {
        Some(tls) => Channel::tls(socket, tls),
        None => Channel::Bare(socket),
    };
    attempt.secure(&mut channel)?;
    attempt.send(&mut channel, &frame)?;
    match attempt.receive(&mut channel, "for the publisher's answer")? {
        (Message::Connect(answer), _) => Ok(Opening { attempt, channel, publisher, answer }),
        (Message::Accepted(_), _) => Err(AttachError::Fabric { target: attempt.target }),
        _ => Err(attempt.not_an_answer()),
    }
}

/// A session over RDMA that is not granted yet: the publisher has said where to connect to.
/// Dropped, it closes the connection, and the publisher takes everything back.
#[derive(Debug)]
#[must_use = "the publisher waits to hear that this subscriber is ready"]
pub struct Opening {
    attempt: Attempt,
    channel: Channel,
    publisher: SocketAddr,
    answer: RdmaAnswer,
}

impl Opening {
    /// Where to connect to.
    #[must_use]
    pub const fn answer(&self) -> &RdmaAnswer {
        &self.answer
    }

    /// The publisher's address on the control plane.
    #[must_use]
    pub const fn publisher(&self) -> SocketAddr {
        self.publisher
    }

    /// Says that this subscriber is connected and ready to receive, and waits for the grant.
    /// Blocks at most `timeout`.
    ///
    /// # Errors
    /// [`AttachError`]; [`AttachError::is_transient`] says whether trying again makes sense.
    pub fn ready(self, timeout: Duration) -> Result<Granted, AttachError> {
        let Self { attempt, mut channel, publisher, .. } = self;
        let attempt = Attempt { deadline: Deadline::after(timeout), ..attempt };
        let frame = Message::Ready.encode().map_err(AttachError::Request)?;
        attempt.send(&mut channel, &frame)?;
        let publisher = Peer::Remote { address: publisher, client: None };
        granted(&attempt, channel, publisher, "for the publisher to grant the session")
    }
}

fn granted(
    attempt: &Attempt,
    mut channel: Channel,
    publisher: Peer,
    step: &'static str,
) -> Result<Granted, AttachError> {
    let (message, descriptors) = attempt.receive(&mut channel, step)?;
    match message {
        Message::Accepted(accepted) => {
            let lifeline = ClientLifeline::new(channel);
            Ok(Granted { accepted, descriptors, lifeline, publisher })
        }
        Message::Connect(_) => Err(AttachError::Fabric { target: attempt.target.clone() }),
        _ => Err(attempt.not_an_answer()),
    }
}
