//! The publisher's certificate, read again when its files change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls_pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

use super::files::Stamp;
use super::{TlsFileError, VERSIONS, provider, read_certificates, read_key, roots_of};
use crate::gate::lock;

/// The files are looked at again no more often than this.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Where a publisher's certificate and its clients' authority are, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, followed by those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key, which nobody else may read (mode 0600 or 0640).
    pub key: PathBuf,
    /// The authorities whose certificates clients must have.
    pub client_ca: PathBuf,
}

/// When the certificates in use end, in Unix seconds. Of several in one file it is the first to
/// end; `None` where none says so in a way that is understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateEnds {
    /// The publisher's, and those between it and its authority.
    pub certificate: Option<i64>,
    /// The authorities of its clients.
    pub client_ca: Option<i64>,
}

/// A publisher's certificate and the authority of its clients. Clones share it.
///
/// The files are looked at as connections arrive, at most once a second. A set that cannot be used
/// is warned of once, and the one before it stays.
#[derive(Clone, Debug)]
pub struct TlsIdentity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    files: TlsFiles,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    config: Arc<ServerConfig>,
    ends: CertificateEnds,
    stamps: [Option<Stamp>; 3],
    looked: Instant,
}

impl TlsIdentity {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsFileError`], which names the file, the cause and the remedy.
    pub fn load(files: TlsFiles) -> Result<Self, TlsFileError> {
        // Before they are read: what changes meanwhile is seen the next time.
        let stamps = files.stamps();
        let (config, ends) = files.read()?;
        let state = Mutex::new(State { config, ends, stamps, looked: Instant::now() });
        Ok(Self(Arc::new(Inner { files, state })))
    }

    /// Reads the files again, changed or not, for connections from now on. Sessions stay.
    ///
    /// # Errors
    /// [`TlsFileError`]; what was in use before stays in use.
    pub fn reload(&self) -> Result<(), TlsFileError> {
        self.0.reload(&mut lock(&self.0.state))
    }

    /// What the next connection is to use, for another server with the same files. Looks whether
    /// they have changed, at most once a second.
    #[must_use]
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.config()
    }

    /// When the certificates end that the next connection is to use. Looks whether the files have
    /// changed, at most once a second.
    #[must_use]
    pub fn ends(&self) -> CertificateEnds {
        let _looked = self.config();
        lock(&self.0.state).ends
    }

    /// The files.
    #[must_use]
    pub fn files(&self) -> &TlsFiles {
        &self.0.files
    }

    /// What the next connection is to use, where the files need no look for it. Never waits.
    pub(crate) fn recent(&self) -> Option<Arc<ServerConfig>> {
        let state = self.0.state.try_lock().ok()?;
        (state.looked.elapsed() < LOOK_INTERVAL).then(|| Arc::clone(&state.config))
    }

    /// What the next connection is to use. Reads files, so it is called where that may take time.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        let mut state = lock(&self.0.state);
        if state.looked.elapsed() >= LOOK_INTERVAL {
            state.looked = Instant::now();
            if self.0.files.stamps() != state.stamps {
                match self.0.reload(&mut state) {
                    Ok(()) => tracing::info!(
                        certificate = ?self.0.files.certificate,
                        "the certificate's files have changed and are in use"
                    ),
                    Err(error) => tracing::warn!(
                        "the certificate's files have changed, but cannot be used, so those \
                         before them stay in use: {error}"
                    ),
                }
            }
        }
        Arc::clone(&state.config)
    }
}

impl Inner {
    fn reload(&self, state: &mut State) -> Result<(), TlsFileError> {
        // Kept in either case, so that a broken set is warned of once.
        state.stamps = self.files.stamps();
        (state.config, state.ends) = self.files.read()?;
        Ok(())
    }
}

impl TlsFiles {
    fn stamps(&self) -> [Option<Stamp>; 3] {
        [&self.certificate, &self.key, &self.client_ca].map(|path| Stamp::of(path))
    }

    fn read(&self) -> Result<(Arc<ServerConfig>, CertificateEnds), TlsFileError> {
        let chain = read_certificates(&self.certificate)?;
        let authorities = read_certificates(&self.client_ca)?;
        let ends = CertificateEnds { certificate: end(&chain), client_ca: end(&authorities) };
        Ok((Arc::new(self.config(chain, authorities)?), ends))
    }

    fn config(
        &self,
        chain: Vec<CertificateDer<'static>>,
        authorities: Vec<CertificateDer<'static>>,
    ) -> Result<ServerConfig, TlsFileError> {
        let key = read_key(&self.key)?;
        let roots = Arc::new(roots_of(&self.client_ca, authorities)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| TlsFileError::unusable(&self.client_ca, &error))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(|error| TlsFileError::unusable(&self.certificate, &error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| self.unusable(&error))?;
        // A resumed session would outlive its certificate, and a reload.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn unusable(&self, error: &rustls::Error) -> TlsFileError {
        match error {
            rustls::Error::InconsistentKeys(_) => TlsFileError::Mismatch {
                certificate: self.certificate.clone(),
                key: self.key.clone(),
            },
            error => TlsFileError::unusable(&self.certificate, error),
        }
    }
}

/// When the first of them ends, in Unix seconds.
fn end(certificates: &[CertificateDer<'_>]) -> Option<i64> {
    let ends = certificates.iter().filter_map(|certificate| {
        let (_, parsed) = parse_x509_certificate(certificate).ok()?;
        Some(parsed.validity().not_after.timestamp())
    });
    ends.min()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::SystemTime;

    use super::*;
    use crate::certificates::{Plan, create};

    const DAY_S: i64 = 24 * 3600;

    fn made(folder: &Path, days: u32) -> TlsFiles {
        let plan = Plan {
            server_names: vec!["localhost".to_owned()],
            server_addresses: Vec::new(),
            clients: Vec::new(),
            days,
            force: true,
        };
        create(folder, &plan).unwrap();
        let file = |name: &str| folder.join(name);
        TlsFiles {
            certificate: file("server.pem"),
            key: file("server.key"),
            client_ca: file("ca.pem"),
        }
    }

    fn days_left(end: Option<i64>) -> i64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        // Whole days, with an hour for whoever runs this slowly.
        (end.unwrap() - now.as_secs() as i64 + 3_600) / DAY_S
    }

    #[test]
    fn the_end_that_is_told_is_that_of_the_certificates_in_use() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let files = made(old.path(), 30);
        let identity = TlsIdentity::load(files.clone()).unwrap();
        let told =
            || (days_left(identity.ends().certificate), days_left(identity.ends().client_ca));
        assert_eq!(told(), (30, 30));
        made(old.path(), 90);
        identity.reload().unwrap();
        assert_eq!(told(), (90, 90));

        // One authority more, which ends sooner; and files that are no use change nothing.
        let sooner = fs::read(made(new.path(), 7).client_ca).unwrap();
        let authorities = [fs::read(&files.client_ca).unwrap(), sooner].concat();
        fs::write(&files.client_ca, authorities).unwrap();
        identity.reload().unwrap();
        assert_eq!(told(), (90, 7));
        fs::write(&files.certificate, "nothing").unwrap();
        assert!(identity.reload().is_err());
        assert_eq!(told(), (90, 7));
    }
}
