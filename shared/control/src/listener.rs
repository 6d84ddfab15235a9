//! The publisher's socket.

use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, chmod};
use tokio::net::UnixListener;

use crate::access::Access;
use crate::bind_error::BindError;
use crate::claim::Claim;
use crate::gate::{Gate, ListenerStats};
use crate::intake::{Intake, Limits, Socket};
use crate::pending::Pending;

/// How to listen.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// Where the socket is to be.
    pub path: PathBuf,
    /// Mode of the socket's file; none for the narrowest that does not contradict `access`: 0600
    /// where only the publisher's own user (and root) may attach, 0660 where the socket has a
    /// `group`, and 0666 otherwise.
    ///
    /// 0666 gives nobody a session: each connection is checked against `access` before a byte of
    /// it is read. A fixed 0660 would shut out an admitted user who is not in the socket's group,
    /// with a bare "permission denied" from the kernel.
    pub mode: Option<u32>,
    /// Group of the socket's file, by name or number; none for that of the directory or process.
    pub group: Option<String>,
    /// Who may attach.
    pub access: Access,
    /// Time for a request to arrive, and for an answer to be taken. Default 5 s.
    pub handshake_timeout: Duration,
    /// Connections that may be without a complete request at once; beyond it, the oldest is closed
    /// in favour of the newest. Default 64.
    pub half_open_max: usize,
}

impl ListenerOptions {
    /// The defaults.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, access: Access) -> Self {
        Self {
            path: path.into(),
            mode: None,
            group: None,
            access,
            handshake_timeout: Duration::from_secs(5),
            half_open_max: 64,
        }
    }

    fn mode(&self) -> Result<Mode, BindError> {
        let mode = self.mode.unwrap_or_else(|| narrowest(self.group.is_some(), &self.access));
        if mode & !0o777 != 0 {
            return Err(BindError::Mode { mode });
        }
        Ok(Mode::from_raw_mode(mode))
    }
}

/// The narrowest mode that does not contradict `access`.
fn narrowest(has_group: bool, access: &Access) -> u32 {
    match (has_group, access.admits_others()) {
        (true, _) => 0o660,
        (false, true) => 0o666,
        (false, false) => 0o600,
    }
}

/// The publisher's socket: takes connections in the background, and hands out the requests of
/// those who may ask. Dropping it closes it.
#[derive(Debug)]
pub struct Listener {
    // Before the claim: requests that wait are refused while the socket is still there.
    intake: Intake,
    claim: Claim,
    /// Whether the socket has a group of its own; none where its mode was given.
    has_group: Option<bool>,
}

impl Listener {
    /// Begins to listen. Takes over the socket of a publisher that was killed; refuses while one
    /// lives.
    ///
    /// # Errors
    /// [`BindError`], whose text says what to do.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub fn bind(options: ListenerOptions) -> Result<Self, BindError> {
        let mode = options.mode()?;
        let has_group = options.mode.is_none().then_some(options.group.is_some());
        let mut claim = Claim::take(&options.path)?;
        let socket = claim.listen(mode, options.group.as_deref())?;
        let socket = UnixListener::from_std(StdUnixListener::from(socket)).map_err(|source| {
            BindError::Io { action: "watch", path: options.path.clone(), source }
        })?;
        let gate = Gate::new(options.access, options.handshake_timeout);
        let limits = Limits { half_open: options.half_open_max, half_open_per_address: usize::MAX };
        Ok(Self { intake: Intake::start(Socket::Unix(socket), gate, limits), claim, has_group })
    }

    /// Waits for the next request. Cancel-safe.
    ///
    /// # Panics
    /// When the accepting task has ended, which only a defect in it can bring about.
    pub async fn accept(&mut self) -> Pending {
        self.intake.accept().await
    }

    /// Changes who may attach, for connections from now on, and the socket's mode with it unless
    /// that was given. Sessions stay.
    ///
    /// # Errors
    /// When the mode cannot be changed; nothing has changed then.
    pub fn set_access(&self, access: Access) -> io::Result<()> {
        if let Some(has_group) = self.has_group {
            chmod(self.path(), Mode::from_raw_mode(narrowest(has_group, &access)))?;
        }
        self.intake.gate().set_access(access);
        Ok(())
    }

    /// Where the socket is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.claim.path()
    }

    /// Counts since it was bound.
    #[must_use]
    pub fn stats(&self) -> ListenerStats {
        self.intake.gate().stats()
    }

    /// Takes no more connections, tells those whose requests wait that the publisher is closing,
    /// and removes the socket. Lifelines stay.
    pub fn close(self) {}
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{Listener, ListenerOptions};
    use crate::{Access, BindError};

    fn mode(access: Access, group: Option<&str>, mode: Option<u32>) -> Result<u32, BindError> {
        let options = ListenerOptions {
            group: group.map(str::to_owned),
            mode,
            ..ListenerOptions::new("p.sock", access)
        };
        options.mode().map(|mode| mode.as_raw_mode())
    }

    #[test]
    fn the_mode_is_the_narrowest_that_does_not_contradict_the_access() {
        let others = || Access::resolve(&["4000000001".into()], &[]).unwrap();
        assert_eq!(mode(Access::own(), None, None).unwrap(), 0o600);
        assert_eq!(mode(others(), None, None).unwrap(), 0o666);
        assert_eq!(mode(others(), Some("feed"), None).unwrap(), 0o660);
        assert_eq!(mode(others(), Some("feed"), Some(0o600)).unwrap(), 0o600);
    }

    #[test]
    fn the_mode_follows_the_access_unless_it_was_given() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _context = runtime.enter();
        let folder = tempfile::tempdir().unwrap();
        let others = || Access::resolve(&["4000000001".into()], &[]).unwrap();
        for (given, modes) in [(None, [0o600, 0o666, 0o600]), (Some(0o660), [0o660; 3])] {
            let path = folder.path().join("p.sock");
            let options =
                ListenerOptions { mode: given, ..ListenerOptions::new(&path, Access::own()) };
            let listener = Listener::bind(options).unwrap();
            let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            let first = mode();
            listener.set_access(others()).unwrap();
            let second = mode();
            listener.set_access(Access::own()).unwrap();
            assert_eq!([first, second, mode()], modes);
        }
    }

    #[test]
    fn what_is_not_a_mode_is_refused() {
        let error = mode(Access::own(), None, Some(0o1660)).unwrap_err();
        assert!(error.to_string().contains("0o1660"), "{error}");
    }
}
