//! What every connection passes: who may, how it is refused, what is counted and logged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tapecast_telemetry::Counter;
use tapecast_wire::WireError;
use tapecast_wire::attach::{Message, Refusal};
use tokio::time::Instant;

use crate::access::{Access, Verdict};
use crate::peer::{GroupsOfPeer, PeerCredentials};
use crate::remote::Peer;
use crate::stream::Stream;
use crate::tls::Kind;

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
    /// Refused by TLS: the client's certificate has expired.
    #[serde(default)]
    pub tls_expired: u64,
    /// Refused by TLS: the client's certificate is of an unknown authority.
    #[serde(default)]
    pub tls_unknown_ca: u64,
    /// Refused by TLS: the client has no certificate.
    #[serde(default)]
    pub tls_no_certificate: u64,
    /// Refused by TLS for another reason: no TLS 1.3, another use of the certificate, no name.
    #[serde(default)]
    pub tls_other: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: Counter,
    pub(crate) requests: Counter,
    not_allowed: Counter,
    malformed: Counter,
    timed_out: Counter,
    crowded_out: Counter,
    pub(crate) gone: Counter,
    pub(crate) accept_failures: Counter,
    tls_expired: Counter,
    tls_unknown_ca: Counter,
    tls_no_certificate: Counter,
    tls_other: Counter,
}

impl Counters {
    const fn of_tls(&self, kind: Kind) -> &Counter {
        match kind {
            Kind::Expired => &self.tls_expired,
            Kind::UnknownCa => &self.tls_unknown_ca,
            Kind::NoCertificate => &self.tls_no_certificate,
            Kind::Other => &self.tls_other,
        }
    }
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
    /// A client without TLS at a publisher with it.
    Plain,
    /// A client with TLS at a publisher without it.
    NotPlain,
    /// A verified certificate without a DNS name.
    Nameless,
    /// TLS has refused, and has said so.
    Tls(Kind, String),
}

#[derive(Debug)]
pub(crate) struct Gate {
    access: Mutex<Arc<Access>>,
    pub(crate) counters: Counters,
    pub(crate) timeout: Duration,
    log: Log,
}

/// A throttle for each kind of line, so that a flood of one kind hides no other.
#[derive(Debug, Default)]
struct Log {
    handshakes: Throttle,
    requests: Throttle,
    accepting: Throttle,
}

impl Gate {
    pub(crate) fn new(access: Access, timeout: Duration) -> Self {
        let access = Mutex::new(Arc::new(access));
        Self { access, counters: Counters::default(), timeout, log: Log::default() }
    }

    pub(crate) fn set_access(&self, access: Access) {
        *lock(&self.access) = Arc::new(access);
    }

    pub(crate) fn verdict(&self, peer: &PeerCredentials) -> Verdict {
        lock(&self.access).verdict(peer)
    }

    /// Whether one of the peer's supplementary groups is admitted.
    pub(crate) async fn asks_groups(&self, groups: GroupsOfPeer) -> bool {
        let access = Arc::clone(&lock(&self.access));
        // A name service may take its time; nobody else waits for it.
        let asked = tokio::task::spawn_blocking(move || {
            groups.ask().into_iter().any(|gid| access.admits_group(gid))
        });
        asked.await.unwrap_or(false)
    }

    /// Counts, logs and answers.
    pub(crate) fn reject(&self, stream: &mut Stream, peer: &Peer, why: &Rejection) {
        if let Some(answer) = self.turn_away(peer, why) {
            stream.answer_now(&answer);
        }
    }

    /// Counts and logs; hands out the answer, where there is one.
    pub(crate) fn turn_away(&self, peer: &Peer, why: &Rejection) -> Option<Message> {
        if let Some(counter) = self.counter(why) {
            counter.increment();
        }
        let (refusal, reason) = match why {
            Rejection::Gone => {
                tracing::debug!(%peer, "a connection ended without a request");
                return None;
            }
            Rejection::Tls(_, reason) => {
                self.log.handshakes.warn(|unlogged| {
                    tracing::warn!(%peer, %reason, unlogged, "refused a TLS handshake");
                });
                return None;
            }
            why => self.words(peer, why),
        };
        if !matches!(why, Rejection::Closing) {
            self.log.requests.warn(|unlogged| {
                tracing::warn!(%peer, ?refusal, %reason, unlogged, "refused a connection");
            });
        }
        Some(Message::Refused(refusal, reason))
    }

    const fn counter(&self, why: &Rejection) -> Option<&Counter> {
        let counters = &self.counters;
        Some(match why {
            Rejection::NotAllowed => &counters.not_allowed,
            Rejection::Malformed(_) | Rejection::NotARequest | Rejection::NotPlain => {
                &counters.malformed
            }
            Rejection::TimedOut => &counters.timed_out,
            Rejection::CrowdedOut => &counters.crowded_out,
            Rejection::Closing => return None,
            Rejection::Gone => &counters.gone,
            Rejection::Plain | Rejection::Nameless => counters.of_tls(Kind::Other),
            Rejection::Tls(kind, _) => counters.of_tls(*kind),
        })
    }

    /// What the peer is told.
    fn words(&self, peer: &Peer, why: &Rejection) -> (Refusal, String) {
        match why {
            Rejection::NotAllowed => {
                let reason = format!(
                    "this process ({peer}) may not attach: have its user, or a group of it, added \
                     to those that the publisher's configuration admits"
                );
                (Refusal::NotAllowed, reason)
            }
            Rejection::Malformed(error @ WireError::Version { .. }) => {
                (Refusal::Version, format!("as seen by the publisher: {error}"))
            }
            Rejection::Malformed(error) => {
                (Refusal::Malformed, format!("the request cannot be read: {error}"))
            }
            Rejection::NotARequest => {
                (Refusal::Malformed, "a message arrived that is not a request".into())
            }
            Rejection::TimedOut => {
                let reason = format!("no complete request within {:?}", self.timeout);
                (Refusal::Malformed, reason)
            }
            Rejection::CrowdedOut => {
                let reason = "too many connections without a request: try again".into();
                (Refusal::Resources, reason)
            }
            Rejection::Plain => {
                let reason = "this publisher takes connections with TLS only: give the subscriber \
                              the authority (CA), a certificate and its key"
                    .into();
                (Refusal::NotAllowed, reason)
            }
            Rejection::NotPlain => {
                let reason = "this publisher takes connections without TLS only: leave the \
                              certificates out, or have TLS configured at the publisher"
                    .into();
                (Refusal::NotAllowed, reason)
            }
            Rejection::Nameless => {
                let reason = "the client's certificate has no DNS name among its subject \
                              alternative names, so nobody can be admitted by it: make it one"
                    .into();
                (Refusal::NotAllowed, reason)
            }
            Rejection::Closing | Rejection::Gone | Rejection::Tls(..) => {
                (Refusal::Closing, "the publisher is closing".into())
            }
        }
    }

    pub(crate) fn warn_of_accepting(&self, write: impl FnOnce(u64)) {
        self.log.accepting.warn(write);
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
            tls_expired: counters.tls_expired.get(),
            tls_unknown_ca: counters.tls_unknown_ca.get(),
            tls_no_certificate: counters.tls_no_certificate.get(),
            tls_other: counters.tls_other.get(),
        }
    }
}

/// Lets a hostile peer fill no log: one line of a kind a second, with the number of those
/// left out.
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
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
