//! Where the publisher's socket lives when nothing says otherwise.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// `/run/tapecast/publisher.sock` for root, `$XDG_RUNTIME_DIR/tapecast/publisher.sock` for others.
///
/// Without `XDG_RUNTIME_DIR` a user's socket goes to a folder of their own below `/tmp`.
#[must_use]
pub fn default_socket() -> PathBuf {
    let user = rustix::process::geteuid();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user.is_root() => PathBuf::from("/run/tapecast"),
        Some(runtime) if !runtime.is_empty() => PathBuf::from(runtime).join("tapecast"),
        _ => PathBuf::from(format!("/tmp/tapecast-{}", user.as_raw())),
    };
    folder.join("publisher.sock")
}

/// Makes the folder of the default socket, if `socket` is that. A socket that was configured goes
/// into a folder that must be there: making it would hide a mistyped path.
///
/// # Errors
/// When the folder cannot be made.
pub fn prepare_socket_folder(socket: &Path) -> io::Result<()> {
    if socket != default_socket() {
        return Ok(());
    }
    let Some(folder) = socket.parent() else { return Ok(()) };
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_owner(folder),
        outcome => outcome,
    }
}

/// Below `/tmp` anybody could have made the folder first, and would own the socket's place.
fn check_owner(folder: &Path) -> io::Result<()> {
    let owner = fs::metadata(folder)?.uid();
    let own = rustix::process::geteuid().as_raw();
    if owner == own || owner == 0 || own == 0 {
        return Ok(());
    }
    let text = format!("{} belongs to another user (uid {owner})", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}
