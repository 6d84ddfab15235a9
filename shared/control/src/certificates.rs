//! Makes a private authority and certificates of it: for a publisher and its subscribers.
//!
//! ```text
//! ca.pem  ca.key               the authority; its key stays where certificates are made
//! server.pem  server.key       the publisher's
//! client-NAME.pem  and .key    a subscriber's, with NAME as its DNS name
//! ```

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

/// Longest life in days: a hundred years.
pub const DAYS_MAX: u32 = 36_500;
/// What clocks of different hosts may differ by.
const CLOCK_SLACK: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What to make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// DNS names of the publisher's host.
    pub server_names: Vec<String>,
    /// Its IP addresses. There must be a name or an address.
    pub server_addresses: Vec<IpAddr>,
    /// DNS names of clients; one certificate each.
    pub clients: Vec<String>,
    /// Days that all of them are valid.
    pub days: u32,
    /// Replace what is there.
    pub force: bool,
}

/// Certificates that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// Files are there already. Nothing was written.
    #[error("{path:?} is there already: remove it, choose another folder, or use --force")]
    Exists {
        /// The first of them.
        path: PathBuf,
    },
    /// The publisher's certificate would be good for nothing.
    #[error("the publisher's certificate needs a name or an IP address of its host: give one")]
    Nowhere,
    /// What cannot be a DNS name, nor a part of a file's name.
    #[error(
        "{name:?} cannot be a name in a certificate: use letters, digits and hyphens, with dots \
         between"
    )]
    Name {
        /// As given.
        name: String,
    },
    /// Too short or too long.
    #[error("certificates cannot be valid for {days} days: give 1 to {DAYS_MAX}")]
    Days {
        /// As given.
        days: u32,
    },
    /// The authority's certificate is not the one that its key makes.
    #[error(
        "{certificate:?} and {key:?} are not an authority made here, so no certificate can be \
         added: make this one with the tool that made the authority"
    )]
    ForeignAuthority {
        /// `ca.pem`.
        certificate: PathBuf,
        /// `ca.key`.
        key: PathBuf,
    },
    /// The system refuses.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A certificate cannot be built.
    #[error("cannot make the certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// Makes an authority, a certificate for a publisher, and one for each client, with their keys
/// (mode 0600), in `folder`, which is made where it is missing. Hands out the files' paths.
///
/// # Errors
/// [`CertificateError`]; a file that is there is replaced only by force.
pub fn create(folder: &Path, plan: &Plan) -> Result<Vec<PathBuf>, CertificateError> {
    check_days(plan.days)?;
    if plan.server_names.is_empty() && plan.server_addresses.is_empty() {
        return Err(CertificateError::Nowhere);
    }
    plan.server_names.iter().chain(&plan.clients).try_for_each(|name| check_name(name))?;
    let mut stems = vec!["ca".to_owned(), "server".to_owned()];
    stems.extend(plan.clients.iter().map(|name| client_stem(name)));
    let missing = |stem: &String| check_missing(folder, stem, plan.force);
    stems.iter().try_for_each(missing)?;

    let key = KeyPair::generate()?;
    let params = authority(&key, plan.days)?;
    let certificate = params.self_signed(&key)?.pem();
    let mut made = write_pair(folder, "ca", &certificate, &key)?.to_vec();
    let issuer = Issuer::new(params, key);
    let (certificate, key) = make_server(&issuer, plan)?;
    made.extend(write_pair(folder, "server", &certificate, &key)?);
    for name in &plan.clients {
        let (certificate, key) = make_client(&issuer, name, plan.days)?;
        made.extend(write_pair(folder, &client_stem(name), &certificate, &key)?);
    }
    Ok(made)
}

/// Makes a certificate for one more client with the authority in `folder`. Hands out the paths of
/// certificate and key.
///
/// # Errors
/// [`CertificateError`]; a file that is there is replaced only by force.
pub fn add_client(
    folder: &Path,
    name: &str,
    days: u32,
    force: bool,
) -> Result<[PathBuf; 2], CertificateError> {
    check_days(days)?;
    check_name(name)?;
    check_missing(folder, &client_stem(name), force)?;
    let [certificate_path, key_path] = pair(folder, "ca");
    let read =
        |path: &Path| fs::read_to_string(path).map_err(|source| io_error("read", path, source));
    let foreign = || CertificateError::ForeignAuthority {
        certificate: certificate_path.clone(),
        key: key_path.clone(),
    };
    let key = KeyPair::from_pem(&read(&key_path)?).map_err(|_| foreign())?;
    // Everything that a certificate takes from its authority follows from the authority's key.
    let issuer = Issuer::new(authority(&key, days)?, key);
    let (certificate, key) = make_client(&issuer, name, days)?;
    if !is_of(&certificate, &read(&certificate_path)?) {
        return Err(foreign());
    }
    write_pair(folder, &client_stem(name), &certificate, &key)
}

fn authority(key: &KeyPair, days: u32) -> Result<CertificateParams, CertificateError> {
    let mut params = dated(Vec::new(), days)?;
    // The first byte only says in which form the rest is.
    let print: String =
        key.public_key_raw().iter().skip(1).take(4).map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name.push(DnType::CommonName, format!("tapecast authority {print}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn make_server(
    issuer: &Issuer<'_, KeyPair>,
    plan: &Plan,
) -> Result<(String, KeyPair), CertificateError> {
    let mut params = dated(plan.server_names.clone(), plan.days)?;
    params
        .subject_alt_names
        .extend(plan.server_addresses.iter().map(|address| SanType::IpAddress(*address)));
    params.distinguished_name.push(DnType::CommonName, "tapecast publisher");
    make(issuer, params, ExtendedKeyUsagePurpose::ServerAuth)
}

fn make_client(
    issuer: &Issuer<'_, KeyPair>,
    name: &str,
    days: u32,
) -> Result<(String, KeyPair), CertificateError> {
    let mut params = dated(vec![name.to_owned()], days)?;
    params.distinguished_name.push(DnType::CommonName, name);
    make(issuer, params, ExtendedKeyUsagePurpose::ClientAuth)
}

fn make(
    issuer: &Issuer<'_, KeyPair>,
    mut params: CertificateParams,
    purpose: ExtendedKeyUsagePurpose,
) -> Result<(String, KeyPair), CertificateError> {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, issuer)?.pem(), key))
}

fn dated(names: Vec<String>, days: u32) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    params.not_before = epoch + now.saturating_sub(CLOCK_SLACK);
    params.not_after = epoch + (now + DAY * days);
    Ok(params)
}

/// Whether a client's certificate is of the authority, as a publisher would see it.
fn is_of(certificate: &str, authority: &str) -> bool {
    let read = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).ok();
    let (Some(certificate), Some(authority)) = (read(certificate), read(authority)) else {
        return false;
    };
    let Ok(anchor) = anchor_from_trusted_cert(&authority) else { return false };
    let Ok(certificate) = EndEntityCert::try_from(&certificate) else { return false };
    let algorithms = webpki::ALL_VERIFICATION_ALGS;
    let now = UnixTime::now();
    let usage = KeyUsage::client_auth();
    certificate.verify_for_usage(algorithms, &[anchor], &[], now, usage, None, None).is_ok()
}

const fn check_days(days: u32) -> Result<(), CertificateError> {
    if days == 0 || days > DAYS_MAX {
        return Err(CertificateError::Days { days });
    }
    Ok(())
}

/// A DNS name, which is a safe part of a file's name too.
fn check_name(name: &str) -> Result<(), CertificateError> {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > 200 || !name.split('.').all(is_label) {
        return Err(CertificateError::Name { name: name.to_owned() });
    }
    Ok(())
}

fn client_stem(name: &str) -> String {
    format!("client-{name}")
}

fn pair(folder: &Path, stem: &str) -> [PathBuf; 2] {
    ["pem", "key"].map(|extension| folder.join(format!("{stem}.{extension}")))
}

fn check_missing(folder: &Path, stem: &str, force: bool) -> Result<(), CertificateError> {
    for path in pair(folder, stem) {
        if !force && path.symlink_metadata().is_ok() {
            return Err(CertificateError::Exists { path });
        }
    }
    Ok(())
}

/// Both are written beside their places and then moved there, so that a publisher that looks
/// meanwhile never reads half a file.
fn write_pair(
    folder: &Path,
    stem: &str,
    certificate: &str,
    key: &KeyPair,
) -> Result<[PathBuf; 2], CertificateError> {
    fs::create_dir_all(folder).map_err(|source| io_error("make the folder", folder, source))?;
    let paths = pair(folder, stem);
    let [certificate_path, key_path] = &paths;
    write(key_path, &key.serialize_pem(), 0o600)?;
    write(certificate_path, certificate, 0o644)?;
    Ok(paths)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        // The process's mask may have made it narrower than wanted.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    written.map_err(|source| {
        let _ = fs::remove_file(&beside);
        io_error("write", path, source)
    })
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> CertificateError {
    CertificateError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn plan(clients: &[&str]) -> Plan {
        Plan {
            server_names: vec!["feed.example".into()],
            server_addresses: vec!["192.0.2.7".parse().unwrap()],
            clients: clients.iter().map(|name| (*name).to_owned()).collect(),
            days: 30,
            force: false,
        }
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn keys_are_for_their_owner_alone_and_certificates_for_all() {
        let folder = TempDir::new().unwrap();
        let place = folder.path().join("made/here");
        let made = create(&place, &plan(&["risk-1.example"])).unwrap();
        let names: Vec<_> =
            made.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        let expected = ["ca", "server", "client-risk-1.example"]
            .map(|stem| [format!("{stem}.pem"), format!("{stem}.key")]);
        assert_eq!(names, expected.concat());
        for path in &made {
            let expected = if path.extension().unwrap() == "key" { 0o600 } else { 0o644 };
            assert_eq!(mode(path), expected, "{path:?}");
        }
        assert_eq!(fs::read_dir(&place).unwrap().count(), made.len());
    }

    #[test]
    fn nothing_is_overwritten_unless_forced() {
        let folder = TempDir::new().unwrap();
        create(folder.path(), &plan(&[])).unwrap();
        let before = fs::read(folder.path().join("ca.pem")).unwrap();
        let error = create(folder.path(), &plan(&["risk"])).unwrap_err();
        assert!(matches!(&error, CertificateError::Exists { path } if path.ends_with("ca.pem")));
        assert_eq!(fs::read(folder.path().join("ca.pem")).unwrap(), before);
        assert!(!folder.path().join("client-risk.pem").exists());
        create(folder.path(), &Plan { force: true, ..plan(&[]) }).unwrap();
        assert_ne!(fs::read(folder.path().join("ca.pem")).unwrap(), before);
    }

    #[test]
    fn a_client_that_is_added_later_is_of_the_same_authority() {
        let folder = TempDir::new().unwrap();
        create(folder.path(), &plan(&["risk"])).unwrap();
        let [certificate, key] = add_client(folder.path(), "desk.example", 7, false).unwrap();
        assert_eq!(mode(&key), 0o600);
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let authority = read(&folder.path().join("ca.pem"));
        assert!(is_of(&read(&certificate), &authority));
        assert!(is_of(&read(&folder.path().join("client-risk.pem")), &authority));
        assert!(!is_of(&read(&folder.path().join("server.pem")), &authority));
        let error = add_client(folder.path(), "desk.example", 7, false).unwrap_err();
        assert!(matches!(error, CertificateError::Exists { .. }), "{error}");
    }

    #[test]
    fn an_authority_of_another_kind_is_not_pretended_to() {
        let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        create(one.path(), &plan(&[])).unwrap();
        create(other.path(), &plan(&[])).unwrap();
        fs::copy(other.path().join("ca.key"), one.path().join("ca.key")).unwrap();
        let error = add_client(one.path(), "risk", 7, false).unwrap_err();
        assert!(matches!(error, CertificateError::ForeignAuthority { .. }), "{error}");
        assert!(!one.path().join("client-risk.pem").exists());
    }

    #[test]
    fn what_cannot_be_a_certificate_is_refused_before_anything_is_written() {
        let folder = TempDir::new().unwrap();
        let refused = |plan: Plan| create(folder.path(), &plan).unwrap_err();
        for name in ["", "../x", "a b", "a..b", "-a", "ä"] {
            let error = refused(plan(&[name]));
            assert!(matches!(error, CertificateError::Name { .. }), "{name:?}: {error}");
        }
        for days in [0, DAYS_MAX + 1] {
            let error = refused(Plan { days, ..plan(&[]) });
            assert!(matches!(error, CertificateError::Days { .. }), "{error}");
        }
        let nowhere = Plan { server_names: vec![], server_addresses: vec![], ..plan(&[]) };
        assert!(matches!(refused(nowhere), CertificateError::Nowhere));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
