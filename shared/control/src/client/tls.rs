//! TLS at the subscriber's end: its certificate, and why it comes to nothing.

use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, Error};
use rustls_pki_types::ServerName;

use super::error::AttachError;
use super::target::{ClientTls, TcpTarget};
use crate::tls::{TlsFileError, VERSIONS, provider, read_certificates, read_key, roots};

/// Why there is no TLS with a publisher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsProblem {
    /// The publisher's certificate has expired.
    #[error("the publisher's certificate has expired: give the publisher a new one")]
    Expired,
    /// The publisher's certificate begins later.
    #[error("the publisher's certificate is not valid yet: compare the clocks of both hosts")]
    NotValidYet,
    /// The publisher's certificate is of another authority.
    #[error(
        "the publisher's certificate is not of the authority that this subscriber trusts: give the \
         authority (CA) of this publisher"
    )]
    UnknownCa,
    /// The publisher's certificate is another's.
    #[error("the publisher's certificate is not for {name}: {detail}")]
    NameMismatch {
        /// The name that was looked for.
        name: String,
        /// What it is for, and what to do.
        detail: String,
    },
    /// The name to look for is none.
    #[error("{name:?} is neither a DNS name nor an IP address: correct the server name")]
    Name {
        /// As given.
        name: String,
    },
    /// The publisher does not speak TLS.
    #[error(
        "what listens there does not speak TLS: leave the certificates out for a publisher on this \
         host's loopback address, or have TLS configured at the publisher"
    )]
    NotTls,
    /// The publisher speaks TLS only.
    #[error(
        "the publisher takes connections with TLS only: give the authority (CA), a certificate and \
         its key"
    )]
    TlsWanted,
    /// The publisher wants a certificate, and has seen none that it wants.
    #[error("the publisher demands a certificate of its authority for clients: give one")]
    CertificateWanted,
    /// This subscriber's certificate has expired.
    #[error("the publisher says that this subscriber's certificate has expired: get a new one")]
    OwnExpired,
    /// This subscriber's certificate is of another authority.
    #[error(
        "the publisher says that this subscriber's certificate is of an unknown authority: get one \
         of the publisher's authority for clients"
    )]
    OwnUnknownCa,
    /// This subscriber's certificate is not accepted.
    #[error(
        "the publisher does not accept this subscriber's certificate ({alert}): is it made for \
         clients? The publisher's log says why"
    )]
    OwnRefused {
        /// TLS's word for it.
        alert: String,
    },
    /// Anything else.
    #[error("{cause}; the publisher's log says more")]
    Other {
        /// What TLS says.
        cause: String,
    },
}

/// Whether these are the first bytes of a TLS alert, which is how a publisher with TLS answers a
/// subscriber without. No frame begins so: it would be too long.
pub(super) fn is_alert(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x15, 0x03, 0x03]) || bytes.starts_with(&[0x15, 0x03, 0x01])
}

/// The connection's TLS, before its first byte.
pub(super) fn begin(target: &TcpTarget, tls: &ClientTls) -> Result<ClientConnection, AttachError> {
    let name = tls.server_name.as_ref().unwrap_or(&target.host);
    let problem = |problem| AttachError::Tls { target: target.target(), problem };
    let server = ServerName::try_from(name.clone())
        .map_err(|_| problem(TlsProblem::Name { name: name.clone() }))?;
    ClientConnection::new(Arc::new(config(tls)?), server)
        .map_err(|error| problem(TlsProblem::Other { cause: error.to_string() }))
}

fn config(tls: &ClientTls) -> Result<ClientConfig, TlsFileError> {
    let chain = read_certificates(&tls.certificate)?;
    let key = read_key(&tls.key)?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)
        .map_err(|error| TlsFileError::unusable(&tls.certificate, &error))?
        .with_root_certificates(roots(&tls.ca)?)
        .with_client_auth_cert(chain, key)
        .map_err(|error| match error {
            Error::InconsistentKeys(_) => TlsFileError::Mismatch {
                certificate: tls.certificate.clone(),
                key: tls.key.clone(),
            },
            error => TlsFileError::unusable(&tls.certificate, &error),
        })?;
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// What TLS says through an error of reading; none where it is none of TLS.
pub(super) fn problem(error: &io::Error) -> Option<TlsProblem> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidMessage(_) => TlsProblem::NotTls,
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::AlertReceived(alert) => of_alert(*alert),
        other => TlsProblem::Other { cause: other.to_string() },
    })
}

fn of_certificate(error: &CertificateError) -> TlsProblem {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsProblem::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            TlsProblem::NotValidYet
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsProblem::UnknownCa,
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented =
                if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") };
            TlsProblem::NameMismatch {
                name: expected.to_str().into_owned(),
                detail: format!(
                    "it has {presented}; connect by a name of it, or give that as server name"
                ),
            }
        }
        other => TlsProblem::Other { cause: format!("the publisher's certificate: {other}") },
    }
}

fn of_alert(alert: AlertDescription) -> TlsProblem {
    match alert {
        AlertDescription::CertificateRequired => TlsProblem::CertificateWanted,
        AlertDescription::CertificateExpired => TlsProblem::OwnExpired,
        AlertDescription::UnknownCA | AlertDescription::DecryptError => TlsProblem::OwnUnknownCa,
        AlertDescription::AccessDenied
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => {
            TlsProblem::OwnRefused { alert: format!("{alert:?}") }
        }
        AlertDescription::ProtocolVersion => {
            TlsProblem::Other { cause: "the publisher does not speak TLS 1.3".to_owned() }
        }
        other => TlsProblem::Other { cause: format!("the publisher ended it: {other:?}") },
    }
}

#[cfg(test)]
mod tests {
    use rustls::AlertDescription;

    use super::{TlsProblem, is_alert, of_alert};

    #[test]
    fn what_a_publisher_says_of_a_certificate_becomes_advice() {
        assert_eq!(of_alert(AlertDescription::CertificateRequired), TlsProblem::CertificateWanted);
        assert_eq!(of_alert(AlertDescription::CertificateExpired), TlsProblem::OwnExpired);
        assert_eq!(of_alert(AlertDescription::UnknownCA), TlsProblem::OwnUnknownCa);
        let refused = of_alert(AlertDescription::AccessDenied);
        assert_eq!(refused, TlsProblem::OwnRefused { alert: "AccessDenied".into() });
        let text = of_alert(AlertDescription::ProtocolVersion).to_string();
        assert!(text.contains("does not speak TLS 1.3"), "{text}");
        let text = of_alert(AlertDescription::InternalError).to_string();
        assert!(text.contains("InternalError") && text.contains("log"), "{text}");
    }

    #[test]
    fn an_alert_is_known_by_its_first_three_bytes() {
        assert!(is_alert(&[0x15, 3, 3, 0, 2, 2, 10]));
        for bytes in [&[][..], &[0x15], &[0x15, 3], &[0x16, 3, 3], &[0x15, 3, 0]] {
            assert!(!is_alert(bytes), "{bytes:?}");
        }
    }
}
