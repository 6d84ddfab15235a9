//! The right to listen on a path, held against other publishers and released by any death.
//!
//! The right is a lock (`flock`) on `<path>.lock`: the kernel releases it when the holder dies, so
//! a socket that is there without its lock is stale, whatever killed its publisher. Two publishers
//! that start at once therefore never take the socket from each other.
//!
//! ```text
//! lock ─► look at the path ─► unlink if stale ─► bind ─► owner, mode ─► listen   (nobody can
//!                                                                      connect before this)
//! release: unlink socket ─► unlink lock ─► close lock
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Gid, Mode, OFlags, Stat, chmod, chownat, fchmod, flock,
    fstat, ftruncate, lstat, open, unlink,
};
use rustix::io::{Errno, pread, pwrite};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use crate::bind_error::BindError;
use crate::peer::PeerCredentials;
use crate::{accounts, socket_path};

/// Connections the kernel queues while none is accepted, e.g. when all subscribers come back to a
/// restarted publisher at once. The kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 1024;

/// Times that the lock file may be replaced under us before we say so. Each is a publisher that
/// closed in the instant between our open and our lock.
const LOCK_ATTEMPTS: usize = 100;

/// Owner's eyes only: whoever can open the lock file can hold the lock.
const LOCK_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// How long any holder is waited for, how long one that is dying, and how often it is looked at.
const HOLDER_GRACE: Duration = Duration::from_millis(250);
const DYING_HOLDER_PATIENCE: Duration = Duration::from_secs(5);
const HOLDER_LOOK: Duration = Duration::from_millis(5);
/// SIGKILL in the signal masks of `/proc/<pid>/status`.
const SIGKILL_BIT: u64 = 1 << (9 - 1);

/// A file's identity: device and inode.
type Identity = (u64, u64);

/// The right to listen on a path. Dropping it removes socket and lock, if they are still ours.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    address: SocketAddrUnix,
    lock_path: PathBuf,
    lock: OwnedFd,
    /// The socket that we bound.
    bound: Option<Identity>,
}

impl Claim {
    /// Takes the lock, and removes a stale socket.
    pub(crate) fn take(path: &Path) -> Result<Self, BindError> {
        let address = socket_path::address(path)?;
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let lock = take_lock(&lock_path, path)?;
        let claim = Self { path: path.to_owned(), address, lock_path, lock, bound: None };
        claim.write_pid()?;
        claim.clear_the_way()?;
        Ok(claim)
    }

    /// Listens on the path: the socket has its group and mode before the first connection.
    pub(crate) fn listen(&mut self, mode: Mode, group: Option<&str>) -> Result<OwnedFd, BindError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|errno| self.failed("make a socket for", errno))?;
        match bind(&socket, &self.address) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => {
                return Err(BindError::InUse { path: self.path.clone(), pid: None });
            }
            Err(errno) => return Err(self.failed("create", errno)),
        }
        let made = lstat(&self.path).map_err(|errno| self.failed("look at", errno))?;
        self.bound = Some(identity(&made));
        if let Some(group) = group {
            self.give_to(group)?;
        }
        chmod(&self.path, mode).map_err(|errno| self.failed("set the mode of", errno))?;
        listen(&socket, BACKLOG).map_err(|errno| self.failed("listen on", errno))?;
        Ok(socket)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves our process id for the message that a second publisher gives.
    fn write_pid(&self) -> Result<(), BindError> {
        let pid = format!("{}\n", std::process::id());
        ftruncate(&self.lock, 0)
            .and_then(|()| pwrite(&self.lock, pid.as_bytes(), 0))
            .map(drop)
            .map_err(|errno| failed(&self.lock_path, "write", errno))
    }

    fn clear_the_way(&self) -> Result<(), BindError> {
        let there = match lstat(&self.path) {
            Ok(there) => there,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(self.failed("look at", errno)),
        };
        let kind = FileType::from_raw_mode(there.st_mode);
        if kind != FileType::Socket {
            return Err(BindError::NotASocket { path: self.path.clone(), kind: name_of(kind) });
        }
        if self.is_stale()? {
            unlink(&self.path).map_err(|errno| self.failed("remove the stale socket", errno))?;
            tracing::info!(path = %self.path.display(), "took over a stale socket");
        }
        Ok(())
    }

    /// Whether nobody listens. That no publisher does is certain, for we have the lock; but the
    /// path may be another program's.
    fn is_stale(&self) -> Result<bool, BindError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|errno| self.failed("make a socket for", errno))?;
        match connect(&probe, &self.address) {
            Err(Errno::CONNREFUSED) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Ok(()) => {
                let pid = PeerCredentials::of(&probe).ok().and_then(|peer| peer.pid);
                Err(BindError::InUse { path: self.path.clone(), pid })
            }
            // Its queue is full, or it speaks in datagrams.
            Err(Errno::AGAIN | Errno::PROTOTYPE) => {
                Err(BindError::InUse { path: self.path.clone(), pid: None })
            }
            Err(errno) => Err(self.failed("connect to", errno)),
        }
    }

    fn give_to(&self, group: &str) -> Result<(), BindError> {
        let unknown = || BindError::UnknownGroup { group: group.to_owned() };
        let gid = accounts::group_id(group)
            .map_err(|errno| self.io("look up the group for", errno.into()))?
            .ok_or_else(unknown)?;
        match chownat(CWD, &self.path, None, Some(Gid::from_raw(gid)), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) => Ok(()),
            Err(Errno::PERM) => Err(BindError::GroupDenied {
                user: accounts::own_user(),
                path: self.path.clone(),
                group: group.to_owned(),
            }),
            Err(errno) => Err(self.failed("set the group of", errno)),
        }
    }

    fn failed(&self, action: &'static str, errno: Errno) -> BindError {
        failed(&self.path, action, errno)
    }

    fn io(&self, action: &'static str, source: io::Error) -> BindError {
        BindError::Io { action, path: self.path.clone(), source }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Whatever fails here has been removed or replaced by somebody, which is their right.
        if self.bound.is_some() && lstat(&self.path).is_ok_and(|s| Some(identity(&s)) == self.bound)
        {
            let _ = unlink(&self.path);
        }
        // The lock goes last and is still held: whoever opened it meanwhile notices that its file
        // is no longer the one at the path.
        if is_at(&self.lock, &self.lock_path) {
            let _ = unlink(&self.lock_path);
        }
    }
}

/// Opens and locks the lock file. A holder that is being killed still holds it while the kernel
/// takes its memory apart, so one that is on its way out is waited for: a restart right after
/// kill -9 must not fail.
fn take_lock(lock_path: &Path, path: &Path) -> Result<OwnedFd, BindError> {
    let begun = Instant::now();
    loop {
        let (path, pid) = match try_lock(lock_path, path) {
            Err(BindError::Held { path, pid }) => (path, pid),
            taken => return taken,
        };
        let waited = begun.elapsed();
        // The first moment is given to every holder: just killed, it may not look like it yet.
        let is_patient =
            waited < HOLDER_GRACE || (waited < DYING_HOLDER_PATIENCE && pid.is_none_or(is_dying));
        if !is_patient {
            return Err(BindError::Held { path, pid });
        }
        std::thread::sleep(HOLDER_LOOK);
    }
}

/// Whether a process has been killed, or is gone: what `/proc` says of its state and of a pending
/// SIGKILL.
fn is_dying(pid: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return true };
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    let pending = |name: &str| u64::from_str_radix(field(name), 16).unwrap_or(0);
    let is_killed = (pending("SigPnd:") | pending("ShdPnd:")) & SIGKILL_BIT != 0;
    // A process that exits has given up its memory, and shows no size any more.
    is_killed || field("State:").starts_with(['Z', 'X']) || field("VmSize:").is_empty()
}

fn try_lock(lock_path: &Path, path: &Path) -> Result<OwnedFd, BindError> {
    for _ in 0..LOCK_ATTEMPTS {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = open(lock_path, flags, LOCK_MODE).map_err(|errno| match errno {
            Errno::LOOP => BindError::NotASocket { path: lock_path.into(), kind: "symbolic link" },
            errno => failed(lock_path, "open", errno),
        })?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&lock, lock_path) => {
                // A mask or an older file may have made it wider.
                fchmod(&lock, LOCK_MODE).map_err(|e| failed(lock_path, "set the mode of", e))?;
                return Ok(lock);
            }
            // Its holder removed it when closing, just now; another is at the path, or will be.
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(BindError::Held { path: path.to_owned(), pid: pid_in(&lock) });
            }
            Err(errno) => return Err(failed(lock_path, "lock", errno)),
        }
    }
    Err(BindError::Held { path: path.to_owned(), pid: None })
}

/// Whether the open file is still the one at this path.
fn is_at(file: &OwnedFd, path: &Path) -> bool {
    matches!((fstat(file), lstat(path)), (Ok(a), Ok(b)) if identity(&a) == identity(&b))
}

fn pid_in(lock: &OwnedFd) -> Option<u32> {
    let mut text = [0; 16];
    let len = pread(lock, &mut text, 0).ok()?;
    std::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
}

fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "pipe",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        FileType::Socket | FileType::Unknown => "file of another kind",
    }
}

fn failed(path: &Path, action: &'static str, errno: Errno) -> BindError {
    let path = path.to_owned();
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    match errno {
        Errno::NOENT => BindError::NoDirectory { directory, path },
        Errno::NOTDIR => BindError::NotADirectory { directory, path },
        Errno::ACCESS | Errno::PERM => {
            BindError::PermissionDenied { user: accounts::own_user(), action, path }
        }
        errno => BindError::Io { action, path, source: errno.into() },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::path::{Path, PathBuf};

    use rustix::fs::Mode;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
    use tempfile::TempDir;

    use super::Claim;
    use crate::BindError;

    fn place() -> (TempDir, PathBuf) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("p.sock");
        (directory, path)
    }

    fn mode(bits: u32) -> Mode {
        Mode::from_raw_mode(bits)
    }

    fn refused(path: &Path) -> BindError {
        Claim::take(path).map(drop).unwrap_err()
    }

    fn names(directory: &TempDir) -> Vec<String> {
        let entries = fs::read_dir(directory.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_missing_directory_is_named_with_what_to_do() {
        let (directory, _) = place();
        let path = directory.path().join("absent/p.sock");
        let error = refused(&path);
        assert!(matches!(error, BindError::NoDirectory { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("create it") && text.contains("change `socket`"), "{text}");
        assert!(text.contains(path.parent().unwrap().to_str().unwrap()), "{text}");
    }

    #[test]
    fn a_file_where_a_directory_should_be_is_named() {
        let (_directory, file) = place();
        fs::write(&file, "").unwrap();
        assert!(matches!(refused(&file.join("p.sock")), BindError::NotADirectory { .. }));
    }

    #[test]
    fn a_regular_file_is_refused_and_not_deleted() {
        let (directory, path) = place();
        fs::write(&path, "precious").unwrap();
        let error = refused(&path);
        assert!(matches!(error, BindError::NotASocket { kind: "regular file", .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(names(&directory), ["p.sock"]);
    }

    #[test]
    fn links_and_directories_are_refused_and_not_deleted() {
        let (directory, path) = place();
        symlink(directory.path().join("elsewhere"), &path).unwrap();
        assert!(matches!(refused(&path), BindError::NotASocket { kind: "symbolic link", .. }));
        assert!(path.symlink_metadata().is_ok());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(refused(&path), BindError::NotASocket { kind: "directory", .. }));
        assert!(path.is_dir());
    }

    #[test]
    fn a_lock_file_that_is_a_link_is_refused() {
        let (directory, path) = place();
        let target = directory.path().join("target");
        symlink(&target, directory.path().join("p.sock.lock")).unwrap();
        let error = refused(&path);
        assert!(matches!(error, BindError::NotASocket { kind: "symbolic link", .. }), "{error}");
        assert!(!target.exists());
    }

    #[test]
    fn the_second_claim_names_the_holder() {
        let (_directory, path) = place();
        let mut first = Claim::take(&path).unwrap();
        let _socket = first.listen(mode(0o600), None).unwrap();
        let error = refused(&path);
        let own_pid = std::process::id();
        assert!(matches!(error, BindError::Held { pid: Some(pid), .. } if pid == own_pid));
        assert!(error.to_string().contains(&format!("(pid {own_pid})")), "{error}");
        assert!(path.exists(), "the failed second must not disturb the first");
    }

    #[test]
    fn a_released_claim_leaves_nothing_and_can_be_taken_again() {
        let (directory, path) = place();
        for _ in 0..2 {
            let mut claim = Claim::take(&path).unwrap();
            let _socket = claim.listen(mode(0o600), None).unwrap();
            assert_eq!(names(&directory).len(), 2);
            drop(claim);
            assert_eq!(names(&directory), [""; 0]);
        }
    }

    #[test]
    fn a_stale_socket_is_taken_over() {
        let (_directory, path) = place();
        let dead = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None);
        bind(dead.unwrap(), &SocketAddrUnix::new(&path).unwrap()).unwrap();
        let before = fs::symlink_metadata(&path).unwrap();
        assert!(before.file_type().is_socket());
        let mut claim = Claim::take(&path).unwrap();
        let _socket = claim.listen(mode(0o600), None).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_socket_that_another_program_listens_on_is_left_alone() {
        let (directory, path) = place();
        let _other = UnixListener::bind(&path).unwrap();
        let error = refused(&path);
        let own_pid = std::process::id();
        assert!(matches!(error, BindError::InUse { pid: Some(pid), .. } if pid == own_pid));
        assert_eq!(names(&directory), ["p.sock"]);

        fs::remove_file(&path).unwrap();
        let _datagrams = UnixDatagram::bind(&path).unwrap();
        assert!(matches!(refused(&path), BindError::InUse { pid: None, .. }));
    }

    #[test]
    fn a_socket_that_replaced_ours_is_not_removed() {
        let (_directory, path) = place();
        let mut claim = Claim::take(&path).unwrap();
        let _socket = claim.listen(mode(0o600), None).unwrap();
        fs::remove_file(&path).unwrap();
        let _theirs = UnixListener::bind(&path).unwrap();
        drop(claim);
        assert!(path.exists());
    }

    #[test]
    fn the_socket_has_its_mode_whatever_the_mask_and_the_lock_is_private() {
        let (directory, path) = place();
        for bits in [0o600, 0o660, 0o666] {
            let mut claim = Claim::take(&path).unwrap();
            let _socket = claim.listen(mode(bits), None).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, bits);
            let lock = fs::metadata(directory.path().join("p.sock.lock")).unwrap();
            assert_eq!(lock.permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn the_socket_can_be_given_to_a_group() {
        let (_directory, path) = place();
        let mut claim = Claim::take(&path).unwrap();
        let own_gid = nix::unistd::Gid::effective().as_raw();
        let _socket = claim.listen(mode(0o660), Some(&own_gid.to_string())).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().gid(), own_gid);
    }

    #[test]
    fn an_unknown_group_is_refused_and_leaves_nothing() {
        let (directory, path) = place();
        let mut claim = Claim::take(&path).unwrap();
        let error = claim.listen(mode(0o660), Some("no-such-group-here")).unwrap_err();
        assert!(matches!(error, BindError::UnknownGroup { .. }), "{error}");
        drop(claim);
        assert_eq!(names(&directory), [""; 0]);
    }
}
