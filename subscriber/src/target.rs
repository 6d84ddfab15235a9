//! Where the publisher is, and how to be sure that it is the right one.

use core::fmt;
use std::env;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use tapecast_control::client::{ClientTls, TcpTarget};

use crate::error::ConnectError;

/// Environment variable that names the publisher's socket.
pub const SOCKET_VARIABLE: &str = "TAPECAST_SOCKET";
/// Environment variable that names a publisher to attach to over RDMA, as `HOST:PORT`. Where it is
/// set, [`SOCKET_VARIABLE`] is not looked at.
pub const CONNECT_VARIABLE: &str = "TAPECAST_CONNECT";

/// Where a publisher listens unless it is told otherwise: `$TAPECAST_SOCKET`, else
/// `/run/tapecast/publisher.sock` for root, else `$XDG_RUNTIME_DIR/tapecast/publisher.sock`, else
/// `/tmp/tapecast-<uid>/publisher.sock`.
#[must_use]
pub fn default_socket() -> PathBuf {
    let set = |name| variable(name).map(PathBuf::from);
    let uid = rustix::process::geteuid();
    set(SOCKET_VARIABLE).unwrap_or_else(|| {
        let folder = match set("XDG_RUNTIME_DIR") {
            _ if uid.is_root() => "/run/tapecast".into(),
            Some(runtime) => runtime.join("tapecast"),
            None => format!("/tmp/tapecast-{}", uid.as_raw()).into(),
        };
        folder.join("publisher.sock")
    })
}

/// An environment variable that says something.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Where the publisher is, and with that which fabric is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// On this machine, over shared memory: its Unix socket.
    Socket(PathBuf),
    /// Over RDMA: host and port of its TCP listener, `HOST:PORT` or `[V6]:PORT`.
    Remote(String),
}

impl Target {
    /// Whether it is on this host.
    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::Socket(_))
    }

    /// What the environment names: `$TAPECAST_CONNECT`, else [`default_socket`].
    pub(crate) fn from_environment() -> Self {
        match variable(CONNECT_VARIABLE) {
            // What is not UTF-8 is no address either; the error then shows it.
            Some(address) => Self::Remote(address.to_string_lossy().into_owned()),
            None => Self::Socket(default_socket()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Remote(address) => f.write_str(address),
        }
    }
}

/// Certificates of a session over TCP: both ends prove who they are. All files are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsChoices {
    /// Certificates of the authority that the publisher's certificate must come from.
    pub ca: PathBuf,
    /// This subscriber's certificate, with those between it and its authority.
    pub certificate: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
    /// Name that the publisher's certificate must bear, where it is not the host connected to.
    pub server_name: Option<String>,
}

impl TlsChoices {
    fn to_client(&self) -> ClientTls {
        ClientTls {
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            server_name: self.server_name.clone(),
        }
    }
}

/// What the control connection needs to know of a publisher at `address`.
pub(crate) fn tcp_target(
    address: &str,
    tls: Option<&TlsChoices>,
) -> Result<TcpTarget, ConnectError> {
    let mut target: TcpTarget = address.parse()?;
    if tls.is_none() && !is_loopback(&target.host) {
        return Err(ConnectError::Unprotected { address: address.to_owned() });
    }
    target.tls = tls.map(TlsChoices::to_client);
    Ok(target)
}

/// Whether a host is this machine whatever a name server says.
fn is_loopback(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificates() -> TlsChoices {
        TlsChoices {
            ca: "ca.pem".into(),
            certificate: "me.pem".into(),
            key: "me.key".into(),
            server_name: Some("feed.example".into()),
        }
    }

    #[test]
    fn only_a_host_that_cannot_be_another_machine_goes_without_certificates() {
        for address in ["127.0.0.1:7411", "127.8.9.1:1", "[::1]:7411", "LocalHost:7411"] {
            assert!(tcp_target(address, None).is_ok(), "{address}");
        }
        for address in ["10.9.0.1:7411", "[fe80::1]:7411", "localhost.example:1", "feed:7411"] {
            let error = tcp_target(address, None).unwrap_err();
            assert!(matches!(error, ConnectError::Unprotected { .. }), "{error}");
            let told = error.to_string();
            for part in [address, "TLS", ".tls(", "--ca", "--cert", "--key"] {
                assert!(told.contains(part), "{part:?} is missing: {told}");
            }
            assert!(tcp_target(address, Some(&certificates())).is_ok(), "{address}");
        }
    }

    #[test]
    fn certificates_are_used_also_where_they_are_not_required() {
        let target = tcp_target("127.0.0.1:7411", Some(&certificates())).unwrap();
        assert_eq!((target.host.as_str(), target.port), ("127.0.0.1", 7411));
        let tls = target.tls.unwrap();
        assert_eq!(tls.ca, PathBuf::from("ca.pem"));
        assert_eq!(tls.certificate, PathBuf::from("me.pem"));
        assert_eq!(tls.key, PathBuf::from("me.key"));
        assert_eq!(tls.server_name.as_deref(), Some("feed.example"));
    }

    #[test]
    fn an_address_without_a_port_is_no_address() {
        for bad in ["feed.example", "127.0.0.1", ":7411", "feed:port", "feed:70000", ""] {
            let error = tcp_target(bad, Some(&certificates())).unwrap_err();
            assert!(matches!(error, ConnectError::Address(_)), "{bad:?}: {error}");
        }
    }
}
