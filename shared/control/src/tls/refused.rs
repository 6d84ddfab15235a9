//! A TLS handshake at the publisher's end, and why it comes to nothing.

use std::io;

use rustls::{CertificateError, Error, PeerIncompatible};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::TlsIdentity;
use crate::remote::ClientName;

/// First byte of a TLS handshake. A frame's head may begin with it too; then the handshake fails.
const TLS_HANDSHAKE: u8 = 0x16;

/// How refused handshakes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Expired,
    UnknownCa,
    NoCertificate,
    Other,
}

/// A connection that did not come to TLS with a named client.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The client has gone.
    Gone,
    /// It does not speak TLS.
    Plain(TcpStream),
    /// TLS has failed, and has told the client so.
    Failed { stream: TcpStream, kind: Kind, reason: String },
    /// Its certificate has no DNS name.
    Nameless(Box<TlsStream<TcpStream>>),
}

/// Does the handshake.
pub(crate) async fn secure(
    stream: TcpStream,
    identity: &TlsIdentity,
) -> Result<(Box<TlsStream<TcpStream>>, ClientName), Refused> {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1..) if first == [TLS_HANDSHAKE] => {}
        Ok(1..) => return Err(Refused::Plain(stream)),
        Ok(0) | Err(_) => return Err(Refused::Gone),
    }
    let config = match identity.recent() {
        Some(config) => config,
        None => {
            let identity = identity.clone();
            // Files may be slow; nobody else waits for them.
            let config = tokio::task::spawn_blocking(move || identity.config());
            config.await.map_err(|_| Refused::Gone)?
        }
    };
    let accepted = TlsAcceptor::from(config).accept(stream).into_fallible().await;
    let stream = Box::new(accepted.map_err(|(error, stream)| failed(&error, stream))?);
    let certificates = stream.get_ref().1.peer_certificates();
    match certificates.and_then(|chain| ClientName::of(chain.first()?)) {
        Some(name) => Ok((stream, name)),
        None => Err(Refused::Nameless(stream)),
    }
}

fn failed(error: &io::Error, stream: TcpStream) -> Refused {
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return Refused::Gone;
    };
    let (kind, reason) = explain(error);
    Refused::Failed { stream, kind, reason }
}

fn explain(error: &Error) -> (Kind, String) {
    let (kind, reason) = match error {
        Error::NoCertificatesPresented => (Kind::NoCertificate, "it has shown no certificate"),
        Error::InvalidCertificate(error) => return explain_certificate(error),
        Error::PeerIncompatible(
            PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        ) => (Kind::Other, "it does not speak TLS 1.3"),
        Error::AlertReceived(alert) => {
            return (Kind::Other, format!("it does not accept this publisher's: {alert:?}"));
        }
        other => return (Kind::Other, other.to_string()),
    };
    (kind, reason.to_owned())
}

fn explain_certificate(error: &CertificateError) -> (Kind, String) {
    let (kind, reason) = match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            (Kind::Expired, "its certificate has expired: make it a new one")
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            (Kind::UnknownCa, "its certificate is not of this publisher's authority for clients")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            (Kind::Other, "its certificate is not valid yet: compare the clocks of both hosts")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            (Kind::Other, "its certificate is not made for clients (extended key usage)")
        }
        other => return (Kind::Other, format!("its certificate is refused: {other}")),
    };
    (kind, reason.to_owned())
}
