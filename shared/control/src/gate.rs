//! What every connection passes: who may, how it is refused, what is counted and logged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tapecast_telemetry::Counter;
use tapecast_wire::WireError;
use tapecast_wire::attach::{Message, Refusal};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::access::{Access, Verdict};
use crate::frame;
use crate::peer::{GroupsOfPeer, PeerCredentials};

/// What a listener has counted since it was bound.
///
/// `connections` that are not counted elsewhere are still being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStats {
    /// Connections taken from the socket.
    pub connections: u64,
    /// Requests handed on.
    pub requests: u64,
    /// Refused: user and groups may not attach.
    pub not_allowed: u64,
    /// Refused: not a request, or of another wire version.
    pub malformed: u64,
    /// Refused: no complete request in time.
    pub timed_out: u64,
    /// Refused: too many others were half open.
    pub crowded_out: u64,
    /// Closed by the peer before its request was complete.
    pub gone: u64,
    /// Times that a connection could not be taken, e.g. for want of descriptors.
    pub accept_failures: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: Counter,
    pub(crate) requests: Counter,
    not_allowed: Counter,
    malformed: Counter,
    timed_out: Counter,
    crowded_out: Counter,
    gone: Counter,
    pub(crate) accept_failures: Counter,
}

/// Why a connection does not become a request.
#[derive(Debug)]
pub(crate) enum Rejection {
    NotAllowed,
    Malformed(WireError),
    NotARequest,
    TimedOut,
    CrowdedOut,
    Closing,
    Gone,
}

#[derive(Debug)]
pub(crate) struct Gate {
    access: Mutex<Arc<Access>>,
    pub(crate) counters: Counters,
    pub(crate) timeout: Duration,
    log: Throttle,
}

impl Gate {
    pub(crate) fn new(access: Access, timeout: Duration) -> Self {
        let access = Mutex::new(Arc::new(access));
        Self { access, counters: Counters::default(), timeout, log: Throttle::default() }
    }

    pub(crate) fn set_access(&self, access: Access) {
        *lock(&self.access) = Arc::new(access);
    }

    pub(crate) fn verdict(&self, peer: &PeerCredentials) -> Verdict {
        lock(&self.access).verdict(peer)
    }

    /// Whether one of the peer's supplementary groups is admitted.
    pub(crate) async fn asks_groups(&self, stream: &UnixStream, peer: PeerCredentials) -> bool {
        let access = Arc::clone(&lock(&self.access));
        let groups = GroupsOfPeer::new(stream, peer);
        // A name service may take its time; nobody else waits for it.
        let asked = tokio::task::spawn_blocking(move || {
            groups.ask().into_iter().any(|gid| access.admits_group(gid))
        });
        asked.await.unwrap_or(false)
    }

    /// Counts, logs and answers.
    pub(crate) fn reject(&self, stream: &UnixStream, peer: PeerCredentials, why: &Rejection) {
        let counters = &self.counters;
        let (counter, refusal, reason) = match why {
            Rejection::Gone => {
                counters.gone.increment();
                tracing::debug!(%peer, "a connection ended without a request");
                return;
            }
            Rejection::NotAllowed => {
                let reason = format!(
                    "this process ({peer}) may not attach: have its user, or a group of it, added \
                     to those that the publisher's configuration admits"
                );
                (Some(&counters.not_allowed), Refusal::NotAllowed, reason)
            }
            Rejection::Malformed(error @ WireError::Version { .. }) => {
                let reason = format!("as seen by the publisher: {error}");
                (Some(&counters.malformed), Refusal::Version, reason)
            }
            Rejection::Malformed(error) => {
                let reason = format!("the request cannot be read: {error}");
                (Some(&counters.malformed), Refusal::Malformed, reason)
            }
            Rejection::NotARequest => {
                let reason = "a message arrived that is not a request".into();
                (Some(&counters.malformed), Refusal::Malformed, reason)
            }
            Rejection::TimedOut => {
                let reason = format!("no complete request within {:?}", self.timeout);
                (Some(&counters.timed_out), Refusal::Malformed, reason)
            }
            Rejection::CrowdedOut => {
                let reason = "too many connections without a request: try again".into();
                (Some(&counters.crowded_out), Refusal::Resources, reason)
            }
            Rejection::Closing => (None, Refusal::Closing, "the publisher is closing".into()),
        };
        if let Some(counter) = counter {
            counter.increment();
            self.log.warn(|unlogged| {
                tracing::warn!(%peer, ?refusal, %reason, unlogged, "refused a connection");
            });
        }
        answer_now(stream, &Message::Refused(refusal, reason));
    }

    pub(crate) fn warn(&self, write: impl FnOnce(u64)) {
        self.log.warn(write);
    }

    pub(crate) fn stats(&self) -> ListenerStats {
        let counters = &self.counters;
        ListenerStats {
            connections: counters.connections.get(),
            requests: counters.requests.get(),
            not_allowed: counters.not_allowed.get(),
            malformed: counters.malformed.get(),
            timed_out: counters.timed_out.get(),
            crowded_out: counters.crowded_out.get(),
            gone: counters.gone.get(),
            accept_failures: counters.accept_failures.get(),
        }
    }
}

/// Sends a short last word without waiting: it fits into the empty buffer of a peer that reads,
/// and a peer that does not read has no claim to it.
pub(crate) fn answer_now(stream: &UnixStream, message: &Message) {
    if let Ok(bytes) = message.encode() {
        let _ = frame::send(stream, &bytes, &[]);
    }
}

/// Lets a hostile peer fill no log: one line a second, with the number of those left out.
#[derive(Debug, Default)]
struct Throttle(Mutex<Throttled>);

#[derive(Debug, Default)]
struct Throttled {
    last: Option<Instant>,
    unlogged: u64,
}

const LOG_INTERVAL: Duration = Duration::from_secs(1);

impl Throttle {
    /// Calls `write` with the number of lines left out since the last, unless this is left out.
    fn warn(&self, write: impl FnOnce(u64)) {
        let mut state = lock(&self.0);
        if state.last.is_some_and(|last| last.elapsed() < LOG_INTERVAL) {
            state.unlogged += 1;
            return;
        }
        let unlogged = std::mem::take(&mut state.unlogged);
        state.last = Some(Instant::now());
        drop(state);
        write(unlogged);
    }
}

/// What is behind these locks is whole after every step, so a panic elsewhere spoils nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LOG_INTERVAL, Throttle, Throttled, lock};

    #[test]
    fn a_flood_is_one_line_and_a_number() {
        let throttle = Throttle::default();
        let mut lines = Vec::new();
        throttle.warn(|unlogged| lines.push(unlogged));
        // As if the last line were of a moment that stays recent however slow this test is.
        lock(&throttle.0).last = Some(tokio::time::Instant::now() + Duration::from_secs(3600));
        for _ in 0..5 {
            throttle.warn(|unlogged| lines.push(unlogged));
        }
        let Throttled { unlogged, .. } = *lock(&throttle.0);
        assert_eq!(unlogged, 5);
        lock(&throttle.0).last = tokio::time::Instant::now().checked_sub(LOG_INTERVAL);
        throttle.warn(|unlogged| lines.push(unlogged));
        assert_eq!(lines, [0, 5]);
    }
}
