//! Who is at the other end: a process of this host, or a client over the network.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;

use crate::peer::PeerCredentials;

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this host, as the kernel tells it.
    Local(PeerCredentials),
    /// A client over the network.
    Remote {
        /// Where it connects from.
        address: SocketAddr,
        /// Its name in a verified certificate; none over plain TCP.
        client: Option<ClientName>,
    },
}

impl Peer {
    /// Process, user and group; none over the network.
    #[must_use]
    pub const fn local(&self) -> Option<PeerCredentials> {
        match self {
            Self::Local(credentials) => Some(*credentials),
            Self::Remote { .. } => None,
        }
    }

    /// Where it connects from; none on this host's Unix socket.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Local(_) => None,
            Self::Remote { address, .. } => Some(*address),
        }
    }

    /// Its name in a verified certificate.
    #[must_use]
    pub const fn client(&self) -> Option<&ClientName> {
        match self {
            Self::Remote { client: Some(client), .. } => Some(client),
            Self::Local(_) | Self::Remote { client: None, .. } => None,
        }
    }

    /// Whether both are connections of one client: of one user on this host, of one certificate's
    /// names, or without a certificate of one IP address.
    #[must_use]
    pub fn same_client(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(one), Self::Local(other)) => one.uid == other.uid,
            (
                Self::Remote { address: one, client: None },
                Self::Remote { address: other, client: None },
            ) => one.ip() == other.ip(),
            (Self::Remote { client: one, .. }, Self::Remote { client: other, .. }) => one == other,
            _ => false,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(credentials) => credentials.fmt(f),
            Self::Remote { address, client: Some(client) } => write!(f, "{client} from {address}"),
            Self::Remote { address, client: None } => address.fmt(f),
        }
    }
}

impl From<PeerCredentials> for Peer {
    fn from(credentials: PeerCredentials) -> Self {
        Self::Local(credentials)
    }
}

/// What a client is called in its verified certificate: the DNS names of it, at least one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientName {
    names: Arc<[String]>,
}

impl ClientName {
    /// The names, in lower case, in the certificate's order.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// None where there are no names.
    pub(crate) fn new(names: impl IntoIterator<Item = impl AsRef<str>>) -> Option<Self> {
        let names: Arc<[String]> =
            names.into_iter().map(|name| name.as_ref().to_ascii_lowercase()).collect();
        (!names.is_empty()).then_some(Self { names })
    }

    /// Of a certificate that has been verified. None where it has no DNS name.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        Self::new(certificate.valid_dns_names())
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.names.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::{ClientName, Peer};
    use crate::PeerCredentials;

    fn remote(address: &str, names: &[&str]) -> Peer {
        let address: SocketAddr = address.parse().unwrap();
        Peer::Remote { address, client: ClientName::new(names) }
    }

    #[test]
    fn a_peer_reads_as_a_sentence_part() {
        let local = Peer::from(PeerCredentials { pid: Some(7), uid: 1001, gid: 100 });
        assert_eq!(local.to_string(), "pid 7, uid 1001, gid 100");
        let named = remote("192.0.2.7:1024", &["Risk.example", "risk-1.example"]);
        assert_eq!(named.to_string(), "risk.example, risk-1.example from 192.0.2.7:1024");
        assert_eq!(remote("[::1]:9", &[]).to_string(), "[::1]:9");
    }

    #[test]
    fn one_client_is_one_user_one_certificate_or_one_address() {
        let user = |uid, pid| Peer::from(PeerCredentials { pid: Some(pid), uid, gid: 1 });
        assert!(user(1, 7).same_client(&user(1, 8)));
        assert!(!user(1, 7).same_client(&user(2, 7)));
        let risk = remote("192.0.2.7:1", &["risk"]);
        assert!(risk.same_client(&remote("192.0.2.8:2", &["RISK"])));
        assert!(!risk.same_client(&remote("192.0.2.7:1", &["desk"])));
        assert!(!risk.same_client(&remote("192.0.2.7:1", &[])));
        assert!(remote("192.0.2.7:1", &[]).same_client(&remote("192.0.2.7:2", &[])));
        assert!(!remote("192.0.2.7:1", &[]).same_client(&remote("192.0.2.8:1", &[])));
        assert!(!risk.same_client(&user(1, 7)));
    }
}
