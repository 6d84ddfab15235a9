//! One handshake, from the socket to mapped memory.

use std::time::Instant;

use tapecast_control::client::{self, AttachError, ClientLifeline};
use tapecast_core::Interest;
use tapecast_fabric::shm::ShmEndpoint;
use tapecast_wire::attach::Accepted;

use crate::builder::SubscriberBuilder;
use crate::error::ConnectError;

/// A session that has begun, without the connection that keeps it alive.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) endpoint: ShmEndpoint,
    pub(crate) accepted: Accepted,
}

impl Attachment {
    /// Asks for a session and maps its memory.
    pub(crate) fn open(
        choices: &SubscriberBuilder,
        again: bool,
    ) -> Result<(Self, ClientLifeline), ConnectError> {
        let request = choices.request(again);
        let granted = client::attach(&choices.socket, &request, choices.connect_timeout)?;
        let endpoint = ShmEndpoint::open(granted.descriptors, choices.policy, choices.wait)?;
        Ok((Self { endpoint, accepted: granted.accepted }, granted.lifeline))
    }

    /// The first session: tries on while nobody is there, as long as the application is patient.
    pub(crate) fn open_patiently(
        choices: &SubscriberBuilder,
    ) -> Result<(Self, ClientLifeline), ConnectError> {
        let started = Instant::now();
        loop {
            let error = match Self::open(choices, false) {
                Err(ConnectError::Attach(error)) if error.is_transient() => error,
                outcome => return outcome,
            };
            if started.elapsed() >= choices.wait_for_publisher {
                return Err(impatient(choices, error));
            }
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    /// What the session asked for, in this session's ids.
    pub(crate) fn interest(&self, choices: &SubscriberBuilder) -> Interest {
        if choices.symbols.is_empty() {
            Interest::All
        } else {
            Interest::Only(self.accepted.instruments.clone())
        }
    }
}

fn impatient(choices: &SubscriberBuilder, source: AttachError) -> ConnectError {
    if choices.wait_for_publisher.is_zero() {
        ConnectError::Attach(source)
    } else {
        ConnectError::NoPublisher { waited: choices.wait_for_publisher, source }
    }
}

/// Pause between attempts while nobody is there yet.
const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
