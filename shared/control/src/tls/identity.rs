//! The publisher's certificate, read again when its files change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};

use super::files::Stamp;
use super::{TlsFileError, VERSIONS, provider, read_certificates, read_key, roots};
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
        let config = Arc::new(files.config()?);
        let state = Mutex::new(State { config, stamps, looked: Instant::now() });
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
        state.config = Arc::new(self.files.config()?);
        Ok(())
    }
}

impl TlsFiles {
    fn stamps(&self) -> [Option<Stamp>; 3] {
        [&self.certificate, &self.key, &self.client_ca].map(|path| Stamp::of(path))
    }

    fn config(&self) -> Result<ServerConfig, TlsFileError> {
        let chain = read_certificates(&self.certificate)?;
        let key = read_key(&self.key)?;
        let roots = Arc::new(roots(&self.client_ca)?);
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
