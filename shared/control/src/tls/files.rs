//! Certificates and keys in PEM files.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Largest file that is read: hundreds of certificates.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// What a private key's file must not allow: anything to others, writing to its group.
const KEY_MODE_FORBIDDEN: u32 = 0o037;

/// A certificate or key that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFileError {
    /// It cannot be read.
    #[error("cannot read {path:?}: {source}; correct the path or its permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// It cannot be a certificate or a key.
    #[error(
        "{path:?} has more than {FILE_BYTES_MAX} bytes, too many for certificates or a key: \
         correct the path"
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Others may read a private key.
    #[error(
        "the private key {path:?} has mode {mode:#05o}, so that others can use it: make it 0600, \
         or 0640 for a group (chmod 0600 {path:?})"
    )]
    KeyMode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It has no certificate.
    #[error("there is no certificate in {path:?}: a PEM file with BEGIN CERTIFICATE is wanted")]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// It has no private key.
    #[error(
        "there is no private key in {path:?}: a PEM file with BEGIN PRIVATE KEY is wanted, without \
         a password"
    )]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key do not belong together.
    #[error("the key {key:?} is not that of the certificate {certificate:?}: give its own key")]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// Its content is not understood.
    #[error("{path:?} cannot be used: {cause}; make or fetch it again")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
}

impl TlsFileError {
    pub(crate) fn unusable(path: &Path, cause: &impl ToString) -> Self {
        Self::Unusable { path: path.to_owned(), cause: cause.to_string() }
    }
}

/// What tells one content of a file from the next without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: (i64, i64),
    /// Changes with permissions too, which may be all that was wrong.
    changed: (i64, i64),
    bytes: u64,
    inode: u64,
}

impl Stamp {
    /// None when there is no such file.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            bytes: metadata.len(),
            inode: metadata.ino(),
        })
    }
}

/// The certificates in a PEM file, at least one, in its order.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let pem = read(path, 0)?;
    let certificates = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsFileError::unusable(path, &error))?;
    if certificates.is_empty() {
        return Err(TlsFileError::NoCertificate { path: path.to_owned() });
    }
    Ok(certificates)
}

/// The private key in a PEM file that nobody else may read.
pub(crate) fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    use rustls_pki_types::pem::Error;
    let pem = read(path, KEY_MODE_FORBIDDEN)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
        Error::NoItemsFound => TlsFileError::NoKey { path: path.to_owned() },
        error => TlsFileError::unusable(path, &error),
    })
}

fn read(path: &Path, forbidden: u32) -> Result<Vec<u8>, TlsFileError> {
    let failed = |source| TlsFileError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    // Of the open file: the name may mean another one by now.
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & forbidden != 0 {
        return Err(TlsFileError::KeyMode { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(TlsFileError::TooLarge { path: path.to_owned() });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::Stamp;

    #[test]
    fn a_stamp_changes_with_the_file_and_only_then() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("x");
        assert_eq!(Stamp::of(&path), None);
        fs::write(&path, "one").unwrap();
        let stamp = Stamp::of(&path);
        assert!(stamp.is_some());
        assert_eq!(Stamp::of(&path), stamp);
        fs::write(&path, "longer").unwrap();
        let longer = Stamp::of(&path);
        assert_ne!(longer, stamp);
        // Another file in its place, of the same length.
        let beside = folder.path().join("y");
        fs::write(&beside, "LONGER").unwrap();
        fs::set_permissions(&beside, Permissions::from_mode(0o600)).unwrap();
        fs::rename(&beside, &path).unwrap();
        assert_ne!(Stamp::of(&path), longer);
    }
}
