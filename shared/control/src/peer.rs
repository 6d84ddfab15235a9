//! Who is at the other end of a socket, as the kernel tells it.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::socket::{getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::accounts;

/// Process, user and group at the other end, taken by the kernel when it connected (or, seen by a
/// subscriber, when the publisher began to listen).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process; none when it lives in a process namespace that this one cannot see.
    pub pid: Option<u32>,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

impl PeerCredentials {
    /// Asks the kernel (`SO_PEERCRED`).
    ///
    /// Not through `rustix`: its process id cannot be zero, which is what an invisible process has.
    pub(crate) fn of(socket: &impl AsFd) -> io::Result<Self> {
        let credentials = getsockopt(socket, sockopt::PeerCredentials)?;
        Ok(Self {
            pid: u32::try_from(credentials.pid()).ok().filter(|pid| *pid != 0),
            uid: credentials.uid(),
            gid: credentials.gid(),
        })
    }
}

impl fmt::Display for PeerCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "pid {pid}, ")?,
            None => f.write_str("pid unknown, ")?,
        }
        write!(f, "uid {}, gid {}", self.uid, self.gid)
    }
}

/// A peer whose supplementary groups can be asked for, without the socket.
#[derive(Debug)]
pub(crate) struct GroupsOfPeer {
    peer: PeerCredentials,
    /// Holds the process that connected, so that its number cannot come to mean another one
    /// unnoticed. None before Linux 6.5.
    process: Option<OwnedFd>,
}

impl GroupsOfPeer {
    pub(crate) fn new(socket: &impl AsFd, peer: PeerCredentials) -> Self {
        Self { peer, process: getsockopt(socket, sockopt::PeerPidfd).ok() }
    }

    /// The peer's supplementary groups. May wait for a name service.
    ///
    /// The kernel would tell them at once (`SO_PEERGROUPS`), but no safe crate asks it. So they are
    /// read from `/proc/<pid>/status` of the process that connected, and believed only if that
    /// process, held by its pidfd, still lives afterwards: then the number meant no other process
    /// meanwhile. Where that cannot be had (it is gone, `/proc` hides it, an old kernel), the
    /// account databases say which groups its *user* is in.
    pub(crate) fn ask(&self) -> Vec<u32> {
        self.of_process().unwrap_or_else(|| accounts::groups_of(self.peer.uid, self.peer.gid))
    }

    fn of_process(&self) -> Option<Vec<u32>> {
        let process = self.process.as_ref()?;
        let status = fs::read_to_string(format!("/proc/{}/status", self.peer.pid?)).ok()?;
        lives(process).then(|| groups_in(&status))?
    }
}

/// Whether the process has not ended: a pidfd becomes readable when it does.
fn lives(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&Timespec::default())), Ok(0))
}

/// The `Groups:` line of `/proc/<pid>/status`.
fn groups_in(status: &str) -> Option<Vec<u32>> {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    groups.split_whitespace().map(|gid| gid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::{GroupsOfPeer, PeerCredentials, groups_in, lives};

    #[test]
    fn the_kernel_says_who_is_there() {
        let (near, _far) = UnixStream::pair().unwrap();
        let peer = PeerCredentials::of(&near).unwrap();
        assert_eq!(peer.pid, Some(std::process::id()));
        assert_eq!(peer.uid, nix::unistd::Uid::effective().as_raw());
    }

    #[test]
    fn groups_come_from_the_status_of_the_process() {
        let status = "Name:\tx\nUid:\t1\t1\t1\t1\nGroups:\t4 24 1000 \nNStgid:\t9\n";
        assert_eq!(groups_in(status), Some(vec![4, 24, 1000]));
        assert_eq!(groups_in("Groups:\t \n"), Some(vec![]));
        assert_eq!(groups_in("Groups:\t4 x\n"), None);
        assert_eq!(groups_in("Name:\tx\n"), None);
    }

    #[test]
    fn a_process_that_cannot_be_held_is_looked_up_by_its_user() {
        let peer = PeerCredentials { pid: None, uid: 0, gid: 0 };
        assert!(GroupsOfPeer { peer, process: None }.ask().contains(&0));
    }

    #[test]
    fn a_process_that_has_ended_is_not_believed() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let flags = rustix::process::PidfdFlags::empty();
        let held = rustix::process::pidfd_open(pid, flags).unwrap();
        child.wait().unwrap();
        assert!(!lives(&held));
        let peer = PeerCredentials { pid: Some(std::process::id()), uid: 4_000_000_001, gid: 7 };
        assert_eq!(GroupsOfPeer { peer, process: Some(held) }.of_process(), None);
    }

    #[test]
    fn credentials_read_as_a_sentence_part() {
        let mut peer = PeerCredentials { pid: Some(7), uid: 1001, gid: 100 };
        assert_eq!(peer.to_string(), "pid 7, uid 1001, gid 100");
        peer.pid = None;
        assert_eq!(peer.to_string(), "pid unknown, uid 1001, gid 100");
    }
}
