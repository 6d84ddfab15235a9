//! Paths that can name a Unix socket.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::net::SocketAddrUnix;

/// Longest path of a socket in bytes: `sun_path` has 108, and the last is a zero.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A path that cannot name a socket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// No path at all.
    #[error("the socket's path is empty: set `socket`, e.g. to /run/tapecast/publisher.sock")]
    Empty,
    /// Longer than the kernel's address.
    #[error(
        "the socket's path has {bytes} bytes, but a Unix socket's can have \
         {SOCKET_PATH_BYTES_MAX}: set `socket` to a shorter one than {}", path.display()
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// A zero byte ends a path.
    #[error("the socket's path {path:?} contains a zero byte: correct `socket`")]
    ZeroByte {
        /// The path.
        path: PathBuf,
    },
}

/// The address that `path` is.
pub(crate) fn address(path: &Path) -> Result<SocketAddrUnix, PathError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(PathError::Empty);
    }
    if bytes.contains(&0) {
        return Err(PathError::ZeroByte { path: path.to_owned() });
    }
    // Whatever else the conversion might object to, it comes down to the length.
    let too_long = || PathError::TooLong { path: path.to_owned(), bytes: bytes.len() };
    if bytes.len() > SOCKET_PATH_BYTES_MAX {
        return Err(too_long());
    }
    SocketAddrUnix::new(path).map_err(|_| too_long())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{PathError, SOCKET_PATH_BYTES_MAX, address};

    #[test]
    fn the_longest_path_is_accepted_and_one_byte_more_is_not() {
        let longest = "x".repeat(SOCKET_PATH_BYTES_MAX);
        assert!(address(Path::new(&longest)).is_ok());
        let error = address(Path::new(&(longest + "x"))).unwrap_err();
        assert!(matches!(error, PathError::TooLong { bytes: 108, .. }), "{error}");
        assert!(error.to_string().contains("108 bytes"), "{error}");
    }

    #[test]
    fn empty_and_zero_bytes_are_refused() {
        assert_eq!(address(Path::new("")), Err(PathError::Empty));
        assert!(matches!(address(Path::new("a\0b")), Err(PathError::ZeroByte { .. })));
    }
}
