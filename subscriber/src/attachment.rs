//! One handshake, from the publisher's address to memory that it writes.

use core::time::Duration;
use std::path::Path;
use std::time::Instant;

use tapecast_control::client::{self, AttachError, ClientLifeline};
use tapecast_core::Interest;
use tapecast_fabric::shm::{RegionLife, ShmEndpoint};
use tapecast_wire::attach::Accepted;
use tapecast_wire::{Epoch, SessionId};

use crate::builder::SubscriberBuilder;
use crate::endpoint::AnyEndpoint;
use crate::error::ConnectError;
use crate::target::{Target, tcp_target};

/// Pause between attempts while nobody is there yet.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// The same over RDMA, where an attempt makes a queue pair and registers memory.
const RETRY_PAUSE_RDMA: Duration = Duration::from_millis(100);

/// A session that has begun, without the connection that keeps it alive.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) endpoint: AnyEndpoint,
    pub(crate) accepted: Accepted,
    /// Number of the session in this subscription, from 0.
    pub(crate) generation: u64,
}

impl Attachment {
    /// What a subscription has that begins before its publisher.
    pub(crate) fn none() -> Self {
        let accepted =
            Accepted { session_id: SessionId(0), epoch: Epoch(0), instruments: Vec::new() };
        Self { endpoint: AnyEndpoint::none(), accepted, generation: 0 }
    }

    /// Asks for a session and opens its endpoint. What a failed attempt has taken, it gives back.
    /// `before` is the life that the last session was one of.
    pub(crate) fn open(
        choices: &SubscriberBuilder,
        generation: u64,
        before: Option<RegionLife>,
    ) -> Result<(Self, ClientLifeline), ConnectError> {
        match &choices.target {
            Target::Socket(path) => Self::open_shm(choices, path, generation, before),
            Target::Remote(address) => Self::open_rdma(choices, address, generation),
        }
    }

    fn open_shm(
        choices: &SubscriberBuilder,
        path: &Path,
        generation: u64,
        before: Option<RegionLife>,
    ) -> Result<(Self, ClientLifeline), ConnectError> {
        let request = choices.request(generation > 0);
        let granted = client::attach(path, &request, choices.connect_timeout)?;
        let (policy, wait) = (choices.policy, choices.wait);
        let endpoint = ShmEndpoint::open_after(granted.descriptors, policy, wait, before)?;
        let endpoint = AnyEndpoint::Shm(endpoint.with_min_interval(choices.min_interval));
        Ok((Self { endpoint, accepted: granted.accepted, generation }, granted.lifeline))
    }

    /// Makes a queue pair, lets the publisher connect it, and is granted the session. The queue
    /// pair and its memory live as long as the endpoint.
    #[cfg(feature = "verbs")]
    fn open_rdma(
        choices: &SubscriberBuilder,
        address: &str,
        generation: u64,
    ) -> Result<(Self, ClientLifeline), ConnectError> {
        use tapecast_fabric::verbs::{EndpointConfig, Offered};

        let target = tcp_target(address, choices.tls.as_ref())?;
        let config = EndpointConfig {
            policy: choices.policy,
            wait: choices.wait,
            ..choices.rdma.to_config()
        };
        config.check()?;
        let deadline = Deadline::after(choices.connect_timeout);
        let offered = Offered::open(&config)?;
        let mut request = choices.request(generation > 0);
        request.rdma = Some(offered.offer());
        let opening = deadline.keep(|left| client::connect(&target, &request, left))?;
        let connected = offered.connect(opening.answer())?;
        let granted = deadline.keep(|left| opening.ready(left))?;
        let accepted = granted.accepted;
        let endpoint = connected.start(accepted.session_id, accepted.epoch)?;
        let endpoint = AnyEndpoint::Verbs(endpoint);
        Ok((Self { endpoint, accepted, generation }, granted.lifeline))
    }

    #[cfg(not(feature = "verbs"))]
    fn open_rdma(
        choices: &SubscriberBuilder,
        address: &str,
        _generation: u64,
    ) -> Result<(Self, ClientLifeline), ConnectError> {
        tcp_target(address, choices.tls.as_ref())?;
        Err(ConnectError::NoRdma { address: address.to_owned() })
    }

    /// The first session: tries on while nobody is there, as long as the application is patient.
    pub(crate) fn open_patiently(
        choices: &SubscriberBuilder,
    ) -> Result<(Self, ClientLifeline), ConnectError> {
        let started = Instant::now();
        loop {
            let error = match Self::open(choices, 0, None) {
                Err(ConnectError::Attach(error)) if error.is_transient() => error,
                outcome => return outcome,
            };
            if started.elapsed() >= choices.wait_for_publisher {
                return Err(impatient(choices, error));
            }
            std::thread::sleep(match choices.target {
                Target::Socket(_) => RETRY_PAUSE,
                Target::Remote(_) => RETRY_PAUSE_RDMA,
            });
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

/// One deadline over the steps of a handshake.
#[cfg(feature = "verbs")]
struct Deadline {
    timeout: Duration,
    started: Instant,
}

#[cfg(feature = "verbs")]
impl Deadline {
    fn after(timeout: Duration) -> Self {
        Self { timeout, started: Instant::now() }
    }

    /// Takes a step in the time that is left. When that is over, the error tells the whole time.
    fn keep<T>(
        &self,
        step: impl FnOnce(Duration) -> Result<T, AttachError>,
    ) -> Result<T, AttachError> {
        let left = self.timeout.saturating_sub(self.started.elapsed());
        step(left).map_err(|error| match error {
            AttachError::TimedOut { target, step, .. } => {
                AttachError::TimedOut { target, step, timeout: self.timeout }
            }
            other => other,
        })
    }
}
