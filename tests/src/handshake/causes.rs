//! How a connection can have come to its end, by what its peer has said; and what that makes of the
//! listener's counts.

use tapecast_control::ListenerStats;
use tapecast_wire::attach::{FrameHead, MAX_FRAME_BYTES, Message};

use super::authority::Who;
use super::peer::{Peer, Reading, frame};
use super::{HALF_OPEN_MAX, HALF_OPEN_PER_ADDRESS_MAX};

/// First byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Request,
    Malformed,
    Gone,
    Expired,
    UnknownCa,
    NoCertificate,
    OtherTls,
}

impl Cause {
    const ALL: [Self; 7] = [
        Self::Request,
        Self::Malformed,
        Self::Gone,
        Self::Expired,
        Self::UnknownCa,
        Self::NoCertificate,
        Self::OtherTls,
    ];

    fn count(self, stats: &ListenerStats) -> u64 {
        match self {
            Self::Request => stats.requests,
            Self::Malformed => stats.malformed,
            Self::Gone => stats.gone,
            Self::Expired => stats.tls_expired,
            Self::UnknownCa => stats.tls_unknown_ca,
            Self::NoCertificate => stats.tls_no_certificate,
            Self::OtherTls => stats.tls_other,
        }
    }
}

/// Connections that have come to an end.
pub(super) fn ended(stats: &ListenerStats) -> u64 {
    stats.crowded_out + Cause::ALL.iter().map(|cause| cause.count(stats)).sum::<u64>()
}

/// What has been counted since.
pub(super) fn since(now: &ListenerStats, before: &ListenerStats) -> ListenerStats {
    ListenerStats {
        connections: now.connections - before.connections,
        requests: now.requests - before.requests,
        not_allowed: now.not_allowed - before.not_allowed,
        malformed: now.malformed - before.malformed,
        timed_out: now.timed_out - before.timed_out,
        crowded_out: now.crowded_out - before.crowded_out,
        gone: now.gone - before.gone,
        accept_failures: now.accept_failures - before.accept_failures,
        tls_expired: now.tls_expired - before.tls_expired,
        tls_unknown_ca: now.tls_unknown_ca - before.tls_unknown_ca,
        tls_no_certificate: now.tls_no_certificate - before.tls_no_certificate,
        tls_other: now.tls_other - before.tls_other,
    }
}

/// Checks the counts of connections that have all ended against what each can have ended by.
pub(super) fn check(peers: &[Peer], stats: &ListenerStats) {
    let is_crowded = is_crowded(peers);
    assert!(is_crowded || stats.crowded_out == 0, "nobody was in anybody's way: {stats:?}");
    let causes: Vec<_> = peers.iter().map(causes).collect();
    for cause in Cause::ALL {
        let count = cause.count(stats) as usize;
        let at_most = causes.iter().filter(|causes| causes.contains(&cause)).count();
        let sure = causes.iter().filter(|causes| ***causes == [cause]).count();
        let at_least = if is_crowded { 0 } else { sure };
        assert!((at_least..=at_most).contains(&count), "{cause:?}: {stats:?} of {causes:?}");
    }
}

/// Whether there were ever so many that one had to go for another.
fn is_crowded(peers: &[Peer]) -> bool {
    let of_home = |ip| peers.iter().filter(|peer| peer.address.map(|it| it.ip()) == ip).count();
    let is_home_crowded = |peer: &Peer| {
        let ip = peer.address.map(|address| address.ip());
        ip.is_some() && of_home(ip) > HALF_OPEN_PER_ADDRESS_MAX
    };
    peers.len() > HALF_OPEN_MAX || peers.iter().any(is_home_crowded)
}

/// Every cause that a peer's end can have had, but that of having been crowded out.
fn causes(peer: &Peer) -> Vec<Cause> {
    let mut causes = match peer.read {
        Reading::Plain => vec![of_words(&peer.raw)],
        // It is looked at before TLS is tried.
        Reading::Nowhere | Reading::Inside
            if peer.raw.first().is_some_and(|first| *first != TLS_HANDSHAKE) =>
        {
            vec![Cause::OtherTls]
        }
        Reading::Nowhere if peer.raw.is_empty() => vec![Cause::Gone],
        Reading::Nowhere => vec![Cause::OtherTls, Cause::Gone],
        Reading::Inside => inside(peer),
    };
    if peer.has_reset && !causes.contains(&Cause::Gone) {
        causes.push(Cause::Gone);
    }
    causes
}

fn inside(peer: &Peer) -> Vec<Cause> {
    let mut causes = vec![match peer.who {
        Who::Good => of_words(peer.said()),
        Who::Bare => Cause::NoCertificate,
        Who::Foreign => Cause::UnknownCa,
        Who::Expired => Cause::Expired,
        Who::Plain | Who::Nameless | Who::Distrustful => Cause::OtherTls,
    }];
    let more: &[Cause] = match (peer.is_spoiled, peer.has_said_all()) {
        (true, _) => &[Cause::Gone, Cause::OtherTls],
        (false, false) => &[Cause::Gone],
        (false, true) => &[],
    };
    causes.extend(more.iter().filter(|cause| **cause != causes[0]).copied().collect::<Vec<_>>());
    causes
}

/// What the first words are, when nothing follows.
fn of_words(said: &[u8]) -> Cause {
    let Some((head, payload)) = said.split_first_chunk() else { return Cause::Gone };
    let Ok(head) = FrameHead::parse(*head) else { return Cause::Malformed };
    assert!(head.payload_bytes <= MAX_FRAME_BYTES, "a head that is out of bounds");
    let Some(payload) = payload.get(..head.payload_bytes) else { return Cause::Gone };
    match Message::decode(head, payload) {
        Ok(Message::Attach(_)) => Cause::Request,
        Ok(_) | Err(_) => Cause::Malformed,
    }
}

/// Checks that a peer was told nothing out of turn.
pub(super) fn check_heard(index: usize, peer: &Peer) {
    let mut heard = &*peer.heard;
    let mut before = Heard::Nothing;
    while let Some((head, rest)) = heard.split_first_chunk() {
        let Ok(head) = FrameHead::parse(*head) else {
            // To a client without TLS, TLS has no words but its own.
            let is_alert = peer.read == Reading::Nowhere && before == Heard::Nothing;
            assert!(is_alert, "peer {index} was sent {heard:?}");
            return;
        };
        let Some(payload) = rest.get(..head.payload_bytes) else { return };
        let message = Message::decode(head, payload).expect("a message of the publisher");
        before = before.and_then(peer, &message);
        heard = &rest[head.payload_bytes..];
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    Where,
    Granted,
    End,
}

impl Heard {
    fn and_then(self, peer: &Peer, message: &Message) -> Self {
        if matches!(message, Message::Accepted(_)) {
            // Over a Unix socket it may have asked in another's name.
            assert!(peer.is_granted || peer.address.is_none(), "nobody has granted it a session");
        }
        match (self, message) {
            (Self::Nothing | Self::Where, Message::Refused(..)) => Self::End,
            (Self::Nothing, Message::Connect(_)) => {
                assert!(of_words(peer.said()) == Cause::Request, "it has not asked");
                Self::Where
            }
            (Self::Nothing, Message::Accepted(_)) => {
                assert!(of_words(peer.said()) == Cause::Request, "it has not asked");
                Self::Granted
            }
            (Self::Where, Message::Accepted(_)) => {
                let ready = frame(&Message::Ready);
                let is_ready = peer.said().windows(ready.len()).any(|words| words == ready);
                assert!(is_ready, "it was never ready");
                Self::Granted
            }
            (Self::Granted, Message::Farewell(..)) => Self::End,
            (Self::Granted, Message::Pong(_)) => Self::Granted,
            (before, message) => panic!("{message:?} after {before:?}"),
        }
    }
}
