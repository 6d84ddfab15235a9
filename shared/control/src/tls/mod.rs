//! TLS 1.3 with certificates on both sides, and nothing else.

mod files;
mod identity;
mod refused;

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::CertificateDer;

pub use files::TlsFileError;
pub(crate) use files::{read_certificates, read_key};
pub use identity::{CertificateEnds, TlsFiles, TlsIdentity};
pub(crate) use refused::{Kind, Refused, secure};

/// The only version that is spoken.
pub(crate) static VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The authorities in a PEM file.
pub(crate) fn roots(path: &Path) -> Result<RootCertStore, TlsFileError> {
    roots_of(path, read_certificates(path)?)
}

/// The authorities that were read from a PEM file.
fn roots_of(
    path: &Path,
    authorities: Vec<CertificateDer<'static>>,
) -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|source| TlsFileError::unusable(path, &source))?;
    }
    Ok(roots)
}
