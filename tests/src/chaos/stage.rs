//! The place of one round: a folder, a publisher, and the arguments of everybody.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::de::DeserializeOwned;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tempfile::TempDir;

use super::leftovers::Leftovers;
use super::process::Process;
use super::report::LifeReport;
use super::{ChaosError, Day};
use crate::demo::Link;

/// After this, who waits in vain gives up. An emulated machine starts 64 processes in minutes.
const PATIENCE: Duration = Duration::from_secs(600);
/// Pause between two looks, at least.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What is the same in every round.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Folder with the shipped programs.
    pub programs: PathBuf,
    /// What publisher and subscribers talk over.
    pub link: Link,
    /// What is played.
    pub day: Day,
    /// How long the day is made to take.
    pub day_length: Duration,
    /// Whether to end.
    pub stop: Stop,
}

/// Set by a signal that asks this program to end.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes over the signals by which one asks a program to end.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A loopback address that nobody listens at now.
///
/// # Errors
/// When there is none.
pub fn free_address() -> io::Result<String> {
    // Below the ports that the system gives to outgoing connections: subscribers that try to
    // connect before the publisher listens must not be given its port.
    let first = 10_000 + std::process::id() % 20_000;
    let mut addresses = (first..first + 2_000).map(|port| format!("127.0.0.1:{port}"));
    let free = addresses.find(|address| TcpListener::bind(address).is_ok());
    free.ok_or_else(|| io::Error::other("no free port on the loopback interface"))
}

/// A publisher's place. The publisher is killed and the folder removed when this is dropped.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    setting: &'a Setting,
    publisher: Option<Process>,
    lives: usize,
    leftovers: Leftovers,
    folder: TempDir,
}

impl<'a> Stage<'a> {
    pub(super) fn new(setting: &'a Setting) -> Result<Self, ChaosError> {
        let folder = TempDir::with_prefix("tapecast-chaos-");
        let folder = folder.map_err(|error| ChaosError::file(std::env::temp_dir(), error))?;
        let stage =
            Self { setting, publisher: None, lives: 0, leftovers: Leftovers::before(), folder };
        let run = stage.run_folder();
        fs::create_dir(&run).map_err(|error| ChaosError::file(&run, error))?;
        Ok(stage)
    }

    pub(super) const fn setting(&self) -> &'a Setting {
        self.setting
    }

    /// Where publishers have their sockets and nobody else has anything.
    fn run_folder(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a publisher. The one before it has ended or was killed.
    pub(super) fn publish(&mut self, words: &[String]) -> Result<(), ChaosError> {
        let mut command = Command::new(self.setting.programs.join("tapecast-publisher"));
        command.args(["run", "--no-progress", "--log-level", "warn"]);
        match &self.setting.link {
            Link::SharedMemory => command.arg("--socket").arg(self.socket()),
            // An emulated machine may stand still for longer than a real one.
            Link::Rdma(address) => command
                .args(["--fabric", "verbs", "--listen", address])
                .args(["--set", "rdma.timeout=18"]),
        };
        command.arg("--report").arg(self.file("report.json")).args(words);
        self.lives += 1;
        let log = self.file(&format!("publisher-{}.log", self.lives));
        self.publisher = Some(Process::start(command, log, false)?);
        Ok(())
    }

    /// Starts a subscriber that writes its account to `NAME.json` at its end.
    pub(super) fn subscribe(
        &self,
        name: &str,
        words: &[&str],
        is_read: bool,
    ) -> Result<Process, ChaosError> {
        let mut command = Command::new(self.setting.programs.join("tapecast-subscriber"));
        command.args(["tail", "--name", name, "--wait-for-publisher", "600"]);
        match &self.setting.link {
            Link::SharedMemory => command.arg("--socket").arg(self.socket()),
            Link::Rdma(address) => command.args(["--connect", address]),
        };
        command.arg(if is_read { "--json" } else { "--quiet" });
        command.arg("--summary-json").arg(self.file(&format!("{name}.json"))).args(words);
        Process::start(command, self.file(&format!("{name}.log")), is_read)
    }

    fn socket(&self) -> OsString {
        self.run_folder().join("publisher.sock").into()
    }

    /// Waits until the publisher lets somebody connect.
    pub(super) fn await_listener(&mut self) -> Result<(), ChaosError> {
        let socket = self.socket();
        let link = &self.setting.link;
        self.wait_until("the publisher to listen", || match link {
            Link::SharedMemory => UnixStream::connect(&socket).is_ok(),
            Link::Rdma(address) => TcpStream::connect(address).is_ok(),
        })
    }

    /// Waits until `condition` holds, while the publisher lives.
    pub(super) fn wait_until(
        &mut self,
        what: &str,
        mut condition: impl FnMut() -> bool,
    ) -> Result<(), ChaosError> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let looked = Instant::now();
            if condition() {
                return Ok(());
            }
            if self.setting.stop.is_asked() {
                return Err(ChaosError::Interrupted);
            }
            if let Some(publisher) = &mut self.publisher
                && let Some(status) = publisher.ended()
            {
                return Err(ChaosError::PublisherEnded(status.to_string()));
            }
            // Looking must not take the processor from those that are waited for.
            std::thread::sleep((4 * looked.elapsed()).max(LOOK_EVERY));
        }
        Err(ChaosError::InVain(what.to_owned()))
    }

    /// Kills the publisher and does not wait for its end.
    pub(super) fn kill_publisher(&mut self) -> Option<Process> {
        let mut publisher = self.publisher.take()?;
        publisher.signal(Signal::KILL);
        Some(publisher)
    }

    /// Asks the publisher to end and returns what it reports.
    pub(super) fn end_publisher(&mut self) -> Result<LifeReport, ChaosError> {
        let Some(mut publisher) = self.publisher.take() else {
            return Err(ChaosError::PublisherEnded("it was never started".to_owned()));
        };
        if !publisher.signal(Signal::TERM) {
            return Err(ChaosError::PublisherEnded("before it was asked to".to_owned()));
        }
        let ended = self.wait_until("the publisher to end", || publisher.ended().is_some());
        let status = publisher.ended();
        // Kept, so that what it said can still be told.
        self.publisher = Some(publisher);
        ended?;
        match status {
            Some(status) if status.success() => read(&self.file("report.json")),
            other => Err(ChaosError::PublisherEnded(format!("{other:?} when asked to end"))),
        }
    }

    /// What should have gone with the processes and has not. All of them must have ended.
    pub(super) fn leftovers(&self) -> Vec<String> {
        self.leftovers.found(&self.run_folder(), self.folder.path(), &self.setting.link)
    }

    /// What the publisher said.
    pub(super) fn said(&self) -> String {
        let said = self.publisher.as_ref().map(Process::said).unwrap_or_default();
        format!("the publisher said:\n{said}")
    }
}

/// Reads a JSON file.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, ChaosError> {
    let bytes = fs::read(path).map_err(|error| ChaosError::file(path, error))?;
    serde_json::from_slice(&bytes).map_err(|error| ChaosError::file(path, error))
}
