//! Starts the real daemon in a folder of its own, and subscribers that attach to it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tapecast_control::client::{self, AttachError, ClientLifeline, LifelineStatus};
use tapecast_core::Interest;
use tapecast_fabric::shm::ShmEndpoint;
use tapecast_fabric::{ChannelState, Delivery, Receiver, WaitStrategy};
use tapecast_wire::attach::{AttachRequest, Farewell, Policy, Refusal};
use tempfile::TempDir;

/// Generous: only a daemon that hangs comes near it.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A folder for one test, with the daemon's socket in it.
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::with_prefix("tapecast-").unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("s.sock")
    }

    /// Everything that lies in the folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn write_gzip(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let mut encoder =
            GzEncoder::new(File::create(self.path(name)).unwrap(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap();
        self.path(name)
    }

    /// A simulated day of so many messages.
    pub(crate) fn generate(&self, name: &str, messages: u64) -> PathBuf {
        let path = self.path(name);
        let count = messages.to_string();
        let output = program()
            .args(["generate", "--instruments", "5", "--no-progress", "--messages", &count])
            .arg("--out")
            .arg(&path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        path
    }

    /// The program, to be run with these arguments, on this folder's socket.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = program();
        command.arg("run").arg("--socket").arg(self.socket()).args(arguments);
        command
    }

    /// Starts the daemon and waits until it listens.
    pub(crate) fn start<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Daemon {
        self.start_until("publishing", arguments)
    }

    /// Starts the daemon and waits until it says so.
    pub(crate) fn start_until<A: AsRef<OsStr>>(
        &self,
        says: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Daemon {
        self.start_command(self.run(arguments), says)
    }

    /// Starts what [`Self::run`] made, and waits until it says so.
    pub(crate) fn start_command(&self, mut command: Command, says: &str) -> Daemon {
        let log = File::create(self.path("log")).unwrap();
        let child = command.stdin(Stdio::null()).stderr(log).spawn().unwrap();
        let mut daemon = Daemon { child, log: self.path("log") };
        daemon.until(says, |daemon| daemon.log().contains(says));
        daemon
    }

    pub(crate) fn report(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("report.json")).unwrap()).unwrap()
    }
}

/// The program, without what the environment of the test run says about configuration.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapecast-publisher"));
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"TAPECAST_") {
            command.env_remove(name);
        }
    }
    command
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The one line that the program says when it cannot do what it was asked for.
pub(crate) fn error_line(output: &Output) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "more than one line: {text}");
    assert!(text.starts_with("tapecast-publisher: "), "{text}");
    text.trim_end().to_owned()
}

/// A running daemon. It is killed when the test ends before it does.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    log: PathBuf,
}

impl Daemon {
    pub(crate) fn log(&self) -> String {
        let mut text = String::new();
        File::open(&self.log).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// Looks again and again until it comes true; fails when the daemon ends or hangs.
    pub(crate) fn until(&mut self, what: &str, is_true: impl Fn(&Self) -> bool) {
        let looks = PATIENCE.as_nanos() / LOOK_EVERY.as_nanos();
        for _ in 0..looks {
            if is_true(self) {
                return;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the daemon ended ({status}) before {what}: {}", self.log());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        panic!("the daemon hangs before {what}: {}", self.log());
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let looks = PATIENCE.as_nanos() / LOOK_EVERY.as_nanos();
        for _ in 0..looks {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        panic!("the daemon does not end: {}", self.log());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A subscriber in this process.
pub(crate) struct Subscriber {
    pub(crate) receiver: Receiver<ShmEndpoint>,
    pub(crate) lifeline: ClientLifeline,
}

pub(crate) fn request(name: &str, policy: Policy, symbols: &[&str]) -> AttachRequest {
    let symbols = symbols.iter().map(|symbol| (*symbol).to_owned()).collect();
    AttachRequest { name: name.to_owned(), policy, symbols, ..AttachRequest::default() }
}

/// Why somebody was not let in.
pub(crate) fn refused(outcome: Result<Subscriber, AttachError>) -> (Refusal, String) {
    match outcome {
        Err(AttachError::Refused { refusal, reason, .. }) => (refusal, reason),
        Err(other) => panic!("not refused: {other}"),
        Ok(_) => panic!("attached"),
    }
}

impl Subscriber {
    pub(crate) fn attach(socket: &Path, request: &AttachRequest) -> Result<Self, AttachError> {
        let granted = client::attach(socket, request, PATIENCE)?;
        let endpoint =
            ShmEndpoint::open(granted.descriptors, request.policy, WaitStrategy::Block).unwrap();
        let interest = match request.symbols.is_empty() {
            true => Interest::All,
            false => Interest::Only(granted.accepted.instruments),
        };
        let receiver = Receiver::new(endpoint, &interest);
        Ok(Self { receiver, lifeline: granted.lifeline })
    }

    /// Takes what there is, until the publisher says farewell and nothing is left.
    pub(crate) fn read_to_end(
        &mut self,
        mut deliver: impl FnMut(Delivery<'_>),
    ) -> (Farewell, String) {
        loop {
            let told = match self.lifeline.status() {
                LifelineStatus::Farewell(farewell, text) => Some((farewell, text)),
                LifelineStatus::Alive => None,
                LifelineStatus::Gone => panic!("the publisher went without a word"),
            };
            while self.receiver.is_ready() {
                self.receiver.poll(256, &mut deliver).unwrap();
            }
            if let Some(told) = told {
                assert_ne!(self.receiver.state(), ChannelState::Running);
                return told;
            }
            self.receiver.wait(Duration::from_millis(10)).unwrap();
        }
    }
}
