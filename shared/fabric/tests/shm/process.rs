//! Subscribers in processes of their own: the test binary starts itself again.
//!
//! The child runs the one test named in the command; it connects to a socket in a directory of its
//! parent's, receives its session's descriptors there, and both sides speak lines of text.

use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, Signal, kill_process};
use tapecast_fabric::shm::SessionDescriptors;

const SOCKET: &str = "TAPECAST_TEST_SOCKET";

/// A child process with a session. Dropping it kills the process.
pub(crate) struct Subscriber {
    child: Child,
    lines: BufReader<UnixStream>,
    thread: String,
}

impl Subscriber {
    /// Starts the test `name` of this binary in a process of its own.
    pub(crate) fn start(name: &str, role: &str, descriptors: SessionDescriptors) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(SOCKET, &path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (stream, _) = listener.accept().unwrap();
        send(&stream, &descriptors);
        let lines = BufReader::new(stream);
        let mut subscriber = Self { child, lines, thread: String::new() };
        subscriber.tell(role);
        subscriber.thread = subscriber.hear();
        subscriber
    }

    /// Says one line.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.lines.get_mut(), "{line}").unwrap();
    }

    /// The next line that the child says.
    pub(crate) fn hear(&mut self) -> String {
        hear(&mut self.lines).expect("the subscriber's process failed")
    }

    /// Waits until the child's thread sleeps in the kernel.
    pub(crate) fn until_asleep(&self) {
        self.until_state('S');
    }

    /// Stops the process and waits until it has stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        self.until_state('T');
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits until the child's thread is gone, killed by the kernel.
    pub(crate) fn until_killed(&self) {
        while self.state().is_some_and(|state| state != 'Z' && state != 'X') {
            std::thread::yield_now();
        }
    }

    fn until_state(&self, state: char) {
        while self.state().expect("the subscriber's thread has ended") != state {
            std::thread::yield_now();
        }
    }

    /// What the kernel says the child's thread is doing; `None` when there is no such thread.
    fn state(&self) -> Option<char> {
        let path = format!("/proc/{}/task/{}/stat", self.child.id(), self.thread);
        let stat = std::fs::read_to_string(path).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        rest.chars().next()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether the process ended well.
    pub(crate) fn ended_well(mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The other side of a [`Subscriber`], inside the child.
pub(crate) struct Parent {
    pub(crate) lines: BufReader<UnixStream>,
    pub(crate) role: String,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Parent {
    /// `None` in a process that is no child.
    pub(crate) fn find() -> Option<Self> {
        let stream = UnixStream::connect(std::env::var_os(SOCKET)?).unwrap();
        let descriptors = receive(&stream);
        let mut lines = BufReader::new(stream);
        let role = hear(&mut lines).unwrap();
        let mut parent = Self { lines, role, descriptors };
        parent.tell(&rustix::thread::gettid().as_raw_nonzero().to_string());
        Some(parent)
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.lines.get_mut(), "{line}").unwrap();
    }
}

fn hear(lines: &mut BufReader<UnixStream>) -> Option<String> {
    let mut line = String::new();
    lines.read_line(&mut line).ok()?;
    line.strip_suffix('\n').map(str::to_owned)
}

fn send(stream: &UnixStream, descriptors: &SessionDescriptors) {
    let fds = descriptors.as_fds();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    let sent = sendmsg(stream, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(1));
}

fn receive(stream: &UnixStream) -> Vec<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
    ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect()
}
