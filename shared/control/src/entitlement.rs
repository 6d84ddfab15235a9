//! What each client may ask for.

use std::collections::HashSet;
use std::fmt;

use tapecast_wire::attach::{AttachRequest, Policy};

use crate::accounts;
use crate::remote::Peer;

/// Symbols that a refusal lists before it only counts.
const LISTED_MAX: usize = 12;

/// Whom an entitlement is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientPattern {
    /// A client over the network with this DNS name in its verified certificate.
    Certificate(String),
    /// A user of the publisher's host.
    User {
        /// Its number.
        uid: u32,
        /// As configured, for messages.
        name: String,
    },
}

/// What is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// Neither form.
    #[error(
        "{text:?} names no client: give the DNS name in its certificate, `uid:1001` or `user:NAME`"
    )]
    Form {
        /// As configured.
        text: String,
    },
    /// No such user.
    #[error("there is no user {user:?}: correct the entitlement's client, or create the user")]
    UnknownUser {
        /// As configured.
        user: String,
    },
    /// The account databases did not answer.
    #[error("cannot look up the user {user:?}: {source}; give `uid:` and the number instead")]
    LookUp {
        /// As configured.
        user: String,
        /// What the name service said.
        source: std::io::Error,
    },
}

impl ClientPattern {
    /// From `uid:1001`, `user:NAME`, or the DNS name in a certificate. May wait for a name
    /// service, so call it at start or reload.
    ///
    /// # Errors
    /// [`PatternError`] for anything else, and for an unknown user.
    pub fn resolve(text: &str) -> Result<Self, PatternError> {
        let form = || PatternError::Form { text: text.to_owned() };
        if let Some(uid) = text.strip_prefix("uid:") {
            return Ok(Self::User { uid: uid.parse().map_err(|_| form())?, name: text.to_owned() });
        }
        if let Some(user) = text.strip_prefix("user:") {
            let uid = accounts::user_id(user).map_err(|error| PatternError::LookUp {
                user: user.to_owned(),
                source: error.into(),
            })?;
            let uid = uid.ok_or_else(|| PatternError::UnknownUser { user: user.to_owned() })?;
            return Ok(Self::User { uid, name: text.to_owned() });
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if text.is_empty() || !text.bytes().all(is_name) {
            return Err(form());
        }
        Ok(Self::Certificate(text.to_ascii_lowercase()))
    }

    fn matches(&self, peer: &Peer) -> bool {
        match (self, peer) {
            (Self::User { uid, .. }, Peer::Local(credentials)) => *uid == credentials.uid,
            (Self::Certificate(wanted), Peer::Remote { client: Some(client), .. }) => {
                client.names().iter().any(|name| name.eq_ignore_ascii_case(wanted))
            }
            _ => false,
        }
    }
}

impl fmt::Display for ClientPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(name) | Self::User { name, .. } => f.write_str(name),
        }
    }
}

/// What one client may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entitlement {
    /// Whom it is for.
    pub client: ClientPattern,
    /// Sessions that it may have at once; none for as many as there are.
    pub sessions_max: Option<usize>,
    /// Symbols that it may ask for; none for all. This limits requests. Whoever is attached through
    /// shared memory can read the whole ring, whatever it asked for; over RDMA only what was
    /// granted is ever sent.
    pub symbols: Option<Vec<String>>,
    /// Policies that it may ask for; none for those that the publisher allows at all.
    pub policies: Option<Vec<Policy>>,
}

/// A request for more than its client may ask for: a sentence for the client's user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NotEntitled {
    reason: String,
}

impl NotEntitled {
    const fn new(reason: String) -> Self {
        Self { reason }
    }
}

/// What all clients may ask for.
///
/// Without an entitlement, whoever may attach may ask for everything: users of this host as
/// [`Access`](crate::Access) says, clients over the network by a verified certificate, and without
/// one from a loopback address only. With at least one, every client needs its own; the
/// publisher's own user and root need none, as with [`Access`](crate::Access).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entitlements {
    own_uid: u32,
    list: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    entitlement: Entitlement,
    symbols: Option<HashSet<String>>,
}

impl Default for Entitlements {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Entitlements {
    /// The first entitlement that is for a client counts.
    #[must_use]
    pub fn new(list: Vec<Entitlement>) -> Self {
        let list = list.into_iter().map(|entitlement| {
            let symbols = entitlement.symbols.as_ref();
            Rule { symbols: symbols.map(|symbols| symbols.iter().cloned().collect()), entitlement }
        });
        Self { own_uid: nix::unistd::Uid::effective().as_raw(), list: list.collect() }
    }

    /// Whether nobody is restricted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether `peer`, which has `sessions_now_of_client` sessions (see
    /// [`Peer::same_client`]), may have what it asks for.
    ///
    /// # Errors
    /// [`NotEntitled`], whose text names what is missing.
    pub fn check(
        &self,
        peer: &Peer,
        request: &AttachRequest,
        sessions_now_of_client: usize,
    ) -> Result<(), NotEntitled> {
        match self.list.iter().find(|rule| rule.entitlement.client.matches(peer)) {
            Some(rule) => rule.check(request, sessions_now_of_client),
            None => self.check_unlisted(peer),
        }
    }

    fn check_unlisted(&self, peer: &Peer) -> Result<(), NotEntitled> {
        let reason = match peer {
            Peer::Local(peer) if self.is_empty() || peer.uid == 0 || peer.uid == self.own_uid => {
                return Ok(());
            }
            Peer::Local(peer) => format!(
                "the publisher has no entitlement for uid {}: have one with the client `uid:{}` \
                 added to its configuration",
                peer.uid, peer.uid
            ),
            Peer::Remote { client: Some(_), .. } if self.is_empty() => return Ok(()),
            Peer::Remote { client: Some(client), .. } => format!(
                "the publisher has no entitlement for {client}: have one with this client added \
                 to its configuration"
            ),
            Peer::Remote { address, client: None } => {
                if self.is_empty() && address.ip().to_canonical().is_loopback() {
                    return Ok(());
                }
                format!(
                    "{address} has no certificate, so there can be no entitlement for it: connect \
                     with TLS and a client certificate"
                )
            }
        };
        Err(NotEntitled::new(reason))
    }
}

impl Rule {
    fn check(&self, request: &AttachRequest, sessions_now: usize) -> Result<(), NotEntitled> {
        let Entitlement { client, sessions_max, policies, .. } = &self.entitlement;
        if let Some(max) = sessions_max
            && sessions_now >= *max
        {
            return Err(NotEntitled::new(format!(
                "{client} may have {max} sessions at once and has {sessions_now}: end one of them, \
                 or have `sessions_max` raised"
            )));
        }
        if let Some(policies) = policies
            && !policies.contains(&request.policy)
        {
            let allowed: Vec<_> = policies.iter().copied().map(Policy::word).collect();
            return Err(NotEntitled::new(format!(
                "{client} may not have the policy {}, but only: {}; ask for that, or have the \
                 entitlement widened",
                request.policy.word(),
                allowed.join(", ")
            )));
        }
        self.check_symbols(&request.symbols)
    }

    fn check_symbols(&self, asked: &[String]) -> Result<(), NotEntitled> {
        let Some(allowed) = &self.symbols else { return Ok(()) };
        let client = &self.entitlement.client;
        if asked.is_empty() {
            let listed = list(self.entitlement.symbols.iter().flatten());
            return Err(NotEntitled::new(format!(
                "{client} may not ask for all symbols: ask for {listed}"
            )));
        }
        let missing: Vec<_> = asked.iter().filter(|symbol| !allowed.contains(*symbol)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(NotEntitled::new(format!(
            "{client} may not have {}: leave that out, or have the entitlement widened",
            list(missing.into_iter())
        )))
    }
}

/// The first few, and how many more: a sentence must fit its message.
fn list<'a>(symbols: impl Iterator<Item = &'a String> + Clone) -> String {
    let count = symbols.clone().count();
    let mut text: String =
        symbols.take(LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    if count > LISTED_MAX {
        text += &format!(" and {} more", count - LISTED_MAX);
    }
    if text.is_empty() { "nothing, for it is entitled to no symbol".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientName, PeerCredentials};

    fn local(uid: u32) -> Peer {
        Peer::from(PeerCredentials { pid: Some(7), uid, gid: 1 })
    }

    fn remote(address: &str, names: &[&str]) -> Peer {
        let address = format!("{address}:1024").parse().unwrap();
        Peer::Remote { address, client: ClientName::new(names) }
    }

    fn request(symbols: &[&str]) -> AttachRequest {
        let symbols = symbols.iter().map(|symbol| (*symbol).to_owned()).collect();
        AttachRequest { symbols, ..AttachRequest::default() }
    }

    fn entitlement(client: &str) -> Entitlement {
        let client = ClientPattern::resolve(client).unwrap();
        Entitlement { client, sessions_max: None, symbols: None, policies: None }
    }

    /// Those of a publisher that runs as user 990.
    fn entitlements(list: Vec<Entitlement>) -> Entitlements {
        Entitlements { own_uid: 990, ..Entitlements::new(list) }
    }

    fn refusal(entitlements: &Entitlements, peer: &Peer, request: &AttachRequest) -> String {
        entitlements.check(peer, request, 0).unwrap_err().to_string()
    }

    #[test]
    fn without_a_list_all_who_may_attach_may_everything() {
        let open = entitlements(vec![]);
        for peer in [
            local(1001),
            remote("192.0.2.7", &["risk"]),
            remote("127.0.0.1", &[]),
            remote("[::1]", &[]),
            remote("[::ffff:127.0.0.1]", &[]),
        ] {
            assert_eq!(open.check(&peer, &request(&[]), 1000), Ok(()), "{peer}");
        }
        let text = refusal(&open, &remote("192.0.2.7", &[]), &request(&[]));
        assert!(text.contains("192.0.2.7") && text.contains("client certificate"), "{text}");
    }

    #[test]
    fn with_a_list_every_client_needs_its_own() {
        let list = entitlements(vec![entitlement("risk.example"), entitlement("uid:1001")]);
        for peer in [
            local(1001),
            remote("192.0.2.7", &["other", "Risk.Example"]),
            // The publisher's own user, and root.
            local(990),
            local(0),
        ] {
            assert_eq!(list.check(&peer, &request(&[]), 0), Ok(()), "{peer}");
        }
        let text = refusal(&list, &local(1002), &request(&[]));
        assert!(text.contains("`uid:1002`"), "{text}");
        let text = refusal(&list, &remote("192.0.2.7", &["desk.example"]), &request(&[]));
        assert!(text.contains("no entitlement for desk.example"), "{text}");
        let text = refusal(&list, &remote("127.0.0.1", &[]), &request(&[]));
        assert!(text.contains("has no certificate"), "{text}");
    }

    #[test]
    fn a_users_entitlement_is_for_nobody_over_the_network() {
        let list = entitlements(vec![entitlement("uid:1001")]);
        assert!(list.check(&remote("192.0.2.7", &["1001"]), &request(&[]), 0).is_err());
        let list = entitlements(vec![entitlement("risk")]);
        assert!(list.check(&local(1001), &request(&[]), 0).is_err());
    }

    #[test]
    fn one_session_more_than_allowed_is_refused_with_both_numbers() {
        let two = Entitlement { sessions_max: Some(2), ..entitlement("risk") };
        let (list, risk) = (entitlements(vec![two]), remote("192.0.2.7", &["risk"]));
        assert_eq!(list.check(&risk, &request(&[]), 1), Ok(()));
        let text = list.check(&risk, &request(&[]), 2).unwrap_err().to_string();
        assert!(text.contains("may have 2 sessions at once and has 2"), "{text}");
    }

    #[test]
    fn symbols_beyond_the_entitlement_are_named() {
        let symbols = Some(vec!["AAPL".to_owned(), "MSFT".to_owned()]);
        let list = entitlements(vec![Entitlement { symbols, ..entitlement("risk") }]);
        let risk = remote("192.0.2.7", &["risk"]);
        assert_eq!(list.check(&risk, &request(&["MSFT"]), 0), Ok(()));
        let text = refusal(&list, &risk, &request(&["MSFT", "IBM", "TSLA"]));
        assert!(text.contains("may not have IBM, TSLA:"), "{text}");
        let text = refusal(&list, &risk, &request(&[]));
        assert!(text.ends_with("may not ask for all symbols: ask for AAPL, MSFT"), "{text}");
    }

    #[test]
    fn a_long_list_of_symbols_is_counted_rather_than_cut() {
        let symbols: Vec<_> = (0..500).map(|number| format!("SYM{number:021}")).collect();
        let all = Entitlement { symbols: Some(symbols), ..entitlement("risk") };
        let text =
            refusal(&entitlements(vec![all]), &remote("192.0.2.7", &["risk"]), &request(&[]));
        assert!(text.ends_with("and 488 more"), "{text}");
        assert!(text.len() <= tapecast_wire::attach::MAX_REASON_BYTES, "{}", text.len());
        let none = Entitlement { symbols: Some(vec![]), ..entitlement("risk") };
        let text =
            refusal(&entitlements(vec![none]), &remote("192.0.2.7", &["risk"]), &request(&[]));
        assert!(text.contains("entitled to no symbol"), "{text}");
    }

    #[test]
    fn a_policy_beyond_the_entitlement_is_named_with_those_allowed() {
        let policies = Some(vec![Policy::Conflate]);
        let list = entitlements(vec![Entitlement { policies, ..entitlement("risk") }]);
        let risk = remote("192.0.2.7", &["risk"]);
        assert_eq!(list.check(&risk, &request(&[]), 0), Ok(()));
        let lossless = AttachRequest { policy: Policy::Lossless, ..AttachRequest::default() };
        let text = refusal(&list, &risk, &lossless);
        assert!(text.contains("the policy lossless, but only: conflate"), "{text}");
    }

    #[test]
    fn the_first_entitlement_for_a_client_counts() {
        let none = Entitlement { sessions_max: Some(0), ..entitlement("risk") };
        let list = entitlements(vec![none, entitlement("risk")]);
        assert!(list.check(&remote("192.0.2.7", &["risk"]), &request(&[]), 0).is_err());
    }

    #[test]
    fn clients_are_named_in_three_ways() {
        let pattern = |text: &str| ClientPattern::resolve(text);
        assert_eq!(
            pattern("Risk-1.example").unwrap(),
            ClientPattern::Certificate("risk-1.example".into())
        );
        let user = |name: &str| ClientPattern::User { uid: 0, name: name.into() };
        assert_eq!(pattern("uid:0").unwrap(), user("uid:0"));
        assert_eq!(pattern("user:root").unwrap(), user("user:root"));
        for text in ["", "uid:x", "uid:", "a b", "group:7"] {
            let error = pattern(text).unwrap_err();
            assert!(matches!(error, PatternError::Form { .. }), "{error}");
        }
        let error = pattern("user:no-such-user-here").unwrap_err();
        assert!(matches!(error, PatternError::UnknownUser { .. }), "{error}");
    }
}
