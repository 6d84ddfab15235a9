//! Starting, watching and ending the processes of one run.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tapecast_subscriber::Summary;

use super::PublisherReport;

/// Seconds that a subscriber tries to attach. 64 at once take minutes on an emulated machine.
const PATIENCE_S: &str = "300";

/// What to run.
#[derive(Clone, Debug)]
pub struct FleetPlan {
    /// Folder with `tapecast-publisher` and `tapecast-subscriber`.
    pub programs: PathBuf,
    /// Folder for the socket and the results; the caller removes it.
    pub folder: PathBuf,
    /// Arguments for `tapecast-publisher run` that name the source and its pace.
    pub source: Vec<String>,
    /// Subscriber processes.
    pub subscribers: usize,
    /// Arguments for each `tapecast-subscriber tail`.
    pub tail: Vec<String>,
    /// Whether the publisher may draw its progress on this process's stderr.
    pub progress: bool,
    /// What they talk over.
    pub link: Link,
}

/// What publisher and subscribers talk over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Shared memory, handed over a socket in the plan's folder.
    SharedMemory,
    /// RDMA; the publisher's control plane listens at this address.
    Rdma(String),
}

/// A run that did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A program could not be started.
    #[error("cannot start {program}: {source}; build it with `make build`")]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A process ended with an error.
    #[error("{name} ended with {status}:\n{stderr}")]
    Failed {
        /// Which process.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        stderr: String,
    },
    /// A result is missing or cannot be read.
    #[error("cannot read the result {path}: {reason}")]
    Result {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The processes of one run. Dropping it kills what still runs.
#[derive(Debug)]
pub struct Fleet {
    plan: FleetPlan,
    publisher: Child,
    subscribers: Vec<Child>,
}

impl Fleet {
    /// Starts the publisher, which waits for all subscribers, and then them.
    ///
    /// # Errors
    /// [`FleetError::Start`]; what was started has been killed by then.
    pub fn start(plan: FleetPlan) -> Result<Self, FleetError> {
        let mut command = Command::new(plan.programs.join("tapecast-publisher"));
        command
            .arg("run")
            .args(plan.publisher_link())
            .args(["--wait-for", &plan.subscribers.to_string(), "--exit-at-end"])
            .args(["--report".as_ref(), plan.report().as_os_str()])
            .args(&plan.source)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if !plan.progress {
            command.arg("--no-progress").stderr(log(&plan.folder.join("publisher.log"))?);
        }
        let publisher = spawn(&mut command)?;
        let mut fleet = Self { plan, publisher, subscribers: Vec::new() };
        for index in 0..fleet.plan.subscribers {
            let child = fleet.start_subscriber(index)?;
            fleet.subscribers.push(child);
        }
        Ok(fleet)
    }

    fn start_subscriber(&self, index: usize) -> Result<Child, FleetError> {
        let plan = &self.plan;
        let mut command = Command::new(plan.programs.join("tapecast-subscriber"));
        command
            .args(["tail", "--quiet", "--until-end", "--no-reconnect"])
            .args(["--wait-for-publisher", PATIENCE_S, "--name", &name_of(index)])
            .args(plan.subscriber_link())
            .args(["--summary-json".as_ref(), plan.summary(index).as_os_str()])
            .args(&plan.tail)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log(&plan.log(index))?);
        spawn(&mut command)
    }

    /// Process ids of the subscribers.
    #[must_use]
    pub fn subscriber_pids(&self) -> Vec<u32> {
        self.subscribers.iter().map(Child::id).collect()
    }

    /// Waits until the publisher and every subscriber have ended, calling `tick` now and then.
    ///
    /// # Errors
    /// [`FleetError::Failed`] for the first process that ended with an error; the others have been
    /// killed by then.
    pub fn wait(mut self, mut tick: impl FnMut()) -> Result<FleetPlan, FleetError> {
        loop {
            let publisher = poll(&mut self.publisher);
            if let Some(status) = publisher.filter(|status| !status.success()) {
                let stderr = self.plan.folder.join("publisher.log");
                return Err(failed("the publisher", status, &stderr));
            }
            let mut running = publisher.is_none();
            for index in 0..self.subscribers.len() {
                match poll(&mut self.subscribers[index]) {
                    None => running = true,
                    Some(status) if status.success() => {}
                    Some(status) => {
                        return Err(failed(&name_of(index), status, &self.plan.log(index)));
                    }
                }
            }
            if !running {
                return Ok(self.plan.clone());
            }
            tick();
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in self.subscribers.iter_mut().chain([&mut self.publisher]) {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl FleetPlan {
    fn socket(&self) -> OsString {
        self.folder.join("publisher.sock").into()
    }

    fn publisher_link(&self) -> Vec<OsString> {
        match &self.link {
            Link::SharedMemory => vec!["--socket".into(), self.socket()],
            Link::Rdma(address) => {
                ["--fabric", "verbs", "--listen", address].map(OsString::from).into()
            }
        }
    }

    fn subscriber_link(&self) -> Vec<OsString> {
        match &self.link {
            Link::SharedMemory => vec!["--socket".into(), self.socket()],
            Link::Rdma(address) => ["--connect", address].map(OsString::from).into(),
        }
    }

    fn report(&self) -> PathBuf {
        self.folder.join("publisher.json")
    }

    fn summary(&self, index: usize) -> PathBuf {
        self.folder.join(format!("{}.json", name_of(index)))
    }

    fn log(&self, index: usize) -> PathBuf {
        self.folder.join(format!("{}.log", name_of(index)))
    }

    /// The publisher's report, after the run.
    ///
    /// # Errors
    /// [`FleetError::Result`].
    pub fn read_report(&self) -> Result<PublisherReport, FleetError> {
        read(&self.report())
    }

    /// Every subscriber's summary, after the run.
    ///
    /// # Errors
    /// [`FleetError::Result`].
    pub fn read_summaries(&self) -> Result<Vec<Summary>, FleetError> {
        (0..self.subscribers).map(|index| read(&self.summary(index))).collect()
    }
}

fn name_of(index: usize) -> String {
    format!("demo-{:02}", index + 1)
}

fn spawn(command: &mut Command) -> Result<Child, FleetError> {
    let program = PathBuf::from(command.get_program());
    command.spawn().map_err(|source| FleetError::Start { program, source })
}

fn log(path: &Path) -> Result<fs::File, FleetError> {
    fs::File::create(path)
        .map_err(|error| FleetError::Result { path: path.to_owned(), reason: error.to_string() })
}

/// How the child ended, if it has. A child that cannot be waited for counts as running: the next
/// look decides.
fn poll(child: &mut Child) -> Option<ExitStatus> {
    child.try_wait().ok().flatten()
}

fn failed(name: &str, status: ExitStatus, log: &Path) -> FleetError {
    let stderr = fs::read_to_string(log).unwrap_or_default();
    FleetError::Failed { name: name.to_owned(), status, stderr: stderr.trim().to_owned() }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, FleetError> {
    let error = |reason: String| FleetError::Result { path: path.to_owned(), reason };
    let bytes = fs::read(path).map_err(|cause| error(cause.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|cause| error(cause.to_string()))
}
