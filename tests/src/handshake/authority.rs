//! Certificates of one process: the publisher's, a good client's, and those of clients that are not
//! to be let in.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tapecast_control::{TlsFiles, TlsIdentity};

/// The good client's name.
pub(super) const CLIENT: &str = "risk.example";
const SERVER: &str = "feed.example";

/// Who a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// It does not speak TLS.
    Plain,
    /// Its certificate is of the authority.
    Good,
    Bare,
    Foreign,
    Expired,
    Nameless,
    /// It does not know the publisher's authority.
    Distrustful,
}

impl Who {
    pub(super) fn of(choice: usize) -> Self {
        match choice % 12 {
            0 => Self::Plain,
            1 => Self::Bare,
            2 => Self::Foreign,
            3 => Self::Expired,
            4 => Self::Nameless,
            5 => Self::Distrustful,
            _ => Self::Good,
        }
    }
}

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// An authority, and clients that it and others have made.
pub(super) struct Authority {
    files: TlsFiles,
    good: Arc<ClientConfig>,
    bare: Arc<ClientConfig>,
    foreign: Arc<ClientConfig>,
    expired: Arc<ClientConfig>,
    nameless: Arc<ClientConfig>,
    distrustful: Arc<ClientConfig>,
}

impl Authority {
    /// Leaves the publisher's files in `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        let (ours, theirs) = (issuer("our authority"), issuer("another authority"));
        let write = |name: &str, text: &str| -> PathBuf {
            let path = folder.join(name);
            fs::write(&path, text).expect("a file");
            path
        };
        let (certificate, key) = make(&ours, &[SERVER], ExtendedKeyUsagePurpose::ServerAuth, false);
        let key_path = write("server.key", &key.serialize_pem());
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&key_path, private).expect("a file of ours");
        let files = TlsFiles {
            certificate: write("server.pem", &certificate.pem()),
            key: key_path,
            client_ca: write("ca.pem", &ours.pem()),
        };
        let client = |issuer: &Issuer, names: &[&str], expired| {
            let made = make(issuer, names, ExtendedKeyUsagePurpose::ClientAuth, expired);
            config(&ours, Some(made))
        };
        Self {
            files,
            good: client(&ours, &[CLIENT], false),
            bare: config(&ours, None),
            foreign: client(&theirs, &[CLIENT], false),
            expired: client(&ours, &[CLIENT], true),
            nameless: client(&ours, &[], false),
            distrustful: config(&theirs, None),
        }
    }

    /// The publisher's.
    pub(super) fn identity(&self) -> TlsIdentity {
        TlsIdentity::load(self.files.clone()).expect("good files")
    }

    /// TLS at a client's end, before its first byte; none for one that does not speak it.
    pub(super) fn client(&self, who: Who) -> Option<ClientConnection> {
        let config = match who {
            Who::Plain => return None,
            Who::Good => &self.good,
            Who::Bare => &self.bare,
            Who::Foreign => &self.foreign,
            Who::Expired => &self.expired,
            Who::Nameless => &self.nameless,
            Who::Distrustful => &self.distrustful,
        };
        let server = ServerName::try_from(SERVER).expect("a name");
        Some(ClientConnection::new(Arc::clone(config), server).expect("a good configuration"))
    }
}

fn issuer(name: &str) -> Issuer {
    let mut params = CertificateParams::new(vec![]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("an authority")
}

fn make(
    issuer: &Issuer,
    names: &[&str],
    purpose: ExtendedKeyUsagePurpose,
    expired: bool,
) -> (rcgen::Certificate, KeyPair) {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("good names");
    params.extended_key_usages = vec![purpose];
    if expired {
        params.not_after = date_time_ymd(2020, 1, 1);
    }
    let key = KeyPair::generate().expect("a key");
    (params.signed_by(&key, issuer).expect("a certificate"), key)
}

fn config(trusted: &Issuer, own: Option<(rcgen::Certificate, KeyPair)>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.der().clone()).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version that there is")
        .with_root_certificates(roots);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
            let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
            config.with_client_auth_cert(chain, key).expect("a key of this certificate")
        }
    };
    config.resumption = Resumption::disabled();
    Arc::new(config)
}
