//! `[[entitlement]]`: what each client may ask for.

use serde::{Deserialize, Serialize};
use tapecast_control::{ClientPattern, Entitlement, Entitlements};
use tapecast_wire::attach::Policy;
use tapecast_wire::limits::MAX_SUBSCRIBERS;

use super::choice::{FabricKind, PolicyWord};
use super::value::{Names, Whole};
use super::{Config, ConfigError, Effective};

/// Key of the list.
pub(super) const ENTITLEMENT: &str = "entitlement";

/// What may stand in one entitlement, for people.
pub(super) const FIELDS: [(&str, &str); 4] = [
    ("client", "the DNS name in a client's certificate, uid:NUMBER or user:NAME"),
    ("sessions_max", "1 to 64"),
    ("symbols", "a list of symbols"),
    ("policies", "a list of conflate, lossless, disconnect"),
];

/// One `[[entitlement]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntitlementConfig {
    /// Whom it is for.
    pub client: String,
    /// Sessions at once; unset for as many as there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions_max: Option<Whole<1, { MAX_SUBSCRIBERS as u64 }>>,
    /// Symbols; unset for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbols: Option<Names>,
    /// Policies; unset for all that the publisher allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<Vec<PolicyWord>>,
}

impl EntitlementConfig {
    fn resolve(&self) -> Result<Entitlement, String> {
        if self.symbols.as_ref().is_some_and(|symbols| symbols.0.is_empty()) {
            return Err("symbols: the list is empty: name some, or leave symbols out to allow all"
                .to_owned());
        }
        if self.policies.as_ref().is_some_and(Vec::is_empty) {
            let text = "policies: the list is empty: name some, or leave policies out to allow all";
            return Err(text.to_owned());
        }
        let client = ClientPattern::resolve(&self.client);
        let policies = self.policies.as_ref();
        Ok(Entitlement {
            client: client.map_err(|error| format!("client: {error}"))?,
            sessions_max: self.sessions_max.map(Whole::count),
            symbols: self.symbols.as_ref().map(|symbols| symbols.0.clone()),
            policies: policies.map(|words| words.iter().map(|word| Policy::from(*word)).collect()),
        })
    }
}

impl From<PolicyWord> for Policy {
    fn from(word: PolicyWord) -> Self {
        match word {
            PolicyWord::Conflate => Self::Conflate,
            PolicyWord::Lossless => Self::Lossless,
            PolicyWord::Disconnect => Self::Disconnect,
        }
    }
}

impl Effective {
    /// The entitlements. May wait for a name service.
    ///
    /// # Errors
    /// [`ConfigError::Contradiction`] for a client that cannot be, or can never attach here.
    pub fn entitlements(&self) -> Result<Entitlements, ConfigError> {
        let all = self.config.entitlement.iter().enumerate().map(|(index, config)| {
            let resolved = config.resolve().and_then(|entitlement| {
                check_reach(&self.config, &entitlement.client).map(|()| entitlement)
            });
            let origin = self.origin(ENTITLEMENT).to_owned();
            resolved.map_err(|problem| {
                let key = numbered(index, "");
                ConfigError::Contradiction { origin, key, problem }
            })
        });
        Ok(Entitlements::new(all.collect::<Result<_, _>>()?))
    }
}

/// An entitlement, or a field of it, as errors name it; counted from 1.
pub(super) fn numbered(index: usize, field: &str) -> String {
    let dot = if field.is_empty() { "" } else { ": " };
    format!("[[entitlement]] {}{dot}{field}", index + 1)
}

/// Whether such a client can attach at all. One that cannot would be refused for a reason that its
/// entitlement hides.
fn check_reach(config: &Config, client: &ClientPattern) -> Result<(), String> {
    match (config.fabric.kind, client) {
        (FabricKind::Shm, ClientPattern::Certificate(name)) => Err(format!(
            "client: {name} is a name in a certificate, but with fabric.kind = \"shm\" clients \
             attach through the Unix socket: give uid:NUMBER or user:NAME"
        )),
        (FabricKind::Verbs, ClientPattern::User { name, .. }) => Err(format!(
            "client: {name} is a user of this host, but with fabric.kind = \"verbs\" clients \
             attach over the network: give the DNS name in the client's certificate"
        )),
        (FabricKind::Verbs, ClientPattern::Certificate(name))
            if !config.tls.is_on(config.listen.address) =>
        {
            Err(format!(
                "client: without TLS no client has a certificate, so {name} could never attach: \
                 set tls.mode = \"on\", or remove the entitlements"
            ))
        }
        _ => Ok(()),
    }
}
