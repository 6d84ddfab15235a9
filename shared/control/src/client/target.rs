//! Where a publisher is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a publisher was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Its Unix socket.
    Socket(PathBuf),
    /// Its TCP port.
    Tcp {
        /// Name or IP address.
        host: String,
        /// Port.
        port: u16,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{path:?}"),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// A publisher's TCP port, and how to prove who one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpTarget {
    /// Name or IP address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Certificates; none for plain TCP.
    pub tls: Option<ClientTls>,
}

/// A subscriber's certificate and the authority of its publisher: PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// The authorities whose certificate the publisher must have.
    pub ca: PathBuf,
    /// This subscriber's certificate.
    pub certificate: PathBuf,
    /// Its private key, which nobody else may read (mode 0600 or 0640).
    pub key: PathBuf,
    /// Name or IP address that must be in the publisher's certificate; none for that of the host.
    pub server_name: Option<String>,
}

/// What is no address of a TCP port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not HOST:PORT: give e.g. feed.example:7411, 192.0.2.7:7411 or [2001:db8::7]:7411"
)]
pub struct TargetError {
    /// As given.
    pub text: String,
}

impl TcpTarget {
    /// Without TLS.
    #[must_use]
    pub fn plain(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port, tls: None }
    }

    pub(super) fn target(&self) -> Target {
        Target::Tcp { host: self.host.clone(), port: self.port }
    }
}

impl FromStr for TcpTarget {
    type Err = TargetError;

    /// `HOST:PORT`, without TLS. An IPv6 address is in brackets.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let wrong = || TargetError { text: text.to_owned() };
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_wrong = match bracketed {
            Some(host) => host.parse::<std::net::Ipv6Addr>().is_err(),
            None => host.is_empty() || host.contains([':', '[', ']', ' ', '/']),
        };
        if is_wrong {
            return Err(wrong());
        }
        Ok(Self::plain(bracketed.unwrap_or(host), port))
    }
}

#[cfg(test)]
mod tests {
    use super::{TargetError, TcpTarget};

    #[test]
    fn names_and_addresses_have_a_port_behind_them() {
        for (text, host) in [
            ("feed.example:7411", "feed.example"),
            ("192.0.2.7:7411", "192.0.2.7"),
            ("[2001:db8::7]:7411", "2001:db8::7"),
        ] {
            let target: TcpTarget = text.parse().unwrap();
            assert_eq!(target, TcpTarget::plain(host, 7411));
            assert_eq!(target.target().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_port_of_a_host_is_refused_with_examples() {
        for text in
            ["", "feed", "feed:", ":7411", "feed:0", "feed:65536", "::1:7411", "[feed]:1", "a b:1"]
        {
            let error = text.parse::<TcpTarget>().unwrap_err();
            assert_eq!(error, TargetError { text: text.to_owned() });
            assert!(error.to_string().contains("feed.example:7411"), "{error}");
        }
    }
}
