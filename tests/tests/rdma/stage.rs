//! A publisher over RDMA and its subscribers.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use super::programs::{Processes, folder, json, stderr, wait_until};

/// An address that nobody listens at. Its port is not one of those that the system gives to
/// outgoing connections: 64 subscribers that try to connect before the publisher listens would
/// sooner or later have been given that very port, and it could not listen any more.
fn free_address() -> String {
    let first = 10_000 + std::process::id() % 20_000;
    let addresses = (first..first + 2_000).map(|port| format!("127.0.0.1:{port}"));
    let mut free = addresses.filter(|address| TcpListener::bind(address).is_ok());
    free.next().expect("a free port")
}

/// A publisher's place, and the processes around it.
pub(crate) struct Stage {
    pub(crate) processes: Processes,
    pub(crate) address: String,
    folder: TempDir,
    publisher: Option<usize>,
}

impl Stage {
    /// An address that is free, and a folder for results.
    pub(crate) fn new() -> Self {
        let address = free_address();
        let (processes, folder) = (Processes::default(), folder());
        Self { processes, address, folder, publisher: None }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// Starts the publisher.
    pub(crate) fn publish(&mut self, arguments: &[&str]) -> usize {
        let (address, report) = (self.address.clone(), self.text("report.json"));
        let mut all = vec!["run", "--fabric", "verbs", "--listen", &address, "--report", &report];
        // An emulated machine may stand still for longer than a real one.
        all.extend(["--set", "rdma.timeout=18", "--no-progress"]);
        if !arguments.contains(&"--log-level") {
            all.extend(["--log-level", "warn"]);
        }
        all.extend(arguments);
        let publisher = self.processes.start("tapecast-publisher", &all);
        self.publisher = Some(publisher);
        publisher
    }

    /// Starts a subscriber that writes its account to `NAME.json` at its end.
    pub(crate) fn subscribe(&mut self, name: &str, arguments: &[&str]) -> usize {
        let (address, path) = (self.address.clone(), self.text(&format!("{name}.json")));
        let mut all = vec!["tail", "--quiet", "--until-end", "--connect", &address, "--name", name];
        all.extend(["--wait-for-publisher", "600", "--summary-json", &path]);
        all.extend(arguments);
        self.processes.start("tapecast-subscriber", &all)
    }

    /// The account that a subscriber has written.
    pub(crate) fn summary(&self, name: &str) -> Value {
        json(&self.file(&format!("{name}.json")))
    }

    /// Waits for the publisher's end and returns its report.
    pub(crate) fn report(&mut self) -> Value {
        self.report_and_log().0
    }

    /// The report, and what the publisher has logged.
    pub(crate) fn report_and_log(&mut self) -> (Value, String) {
        let publisher = self.publisher.take().expect("a publisher that was started");
        let output = self.processes.finish(publisher);
        assert!(output.status.success(), "the publisher failed: {}", stderr(&output));
        (json(&self.file("report.json")), stderr(&output))
    }

    /// Waits for a process that must end well. When it does not, what the publisher said is told
    /// as well.
    pub(crate) fn succeed(&mut self, index: usize) -> Output {
        let output = self.processes.finish(index);
        if output.status.success() {
            return output;
        }
        let publisher = self.publisher.take().map(|publisher| {
            self.processes.kill(publisher);
            stderr(&self.processes.finish(publisher))
        });
        panic!("a subscriber failed: {}\nthe publisher: {publisher:?}", stderr(&output));
    }

    /// Waits until the publisher's control plane answers.
    pub(crate) fn await_publisher(&mut self) {
        let publisher = self.publisher.expect("a publisher that was started");
        let mut has_ended = false;
        wait_until("the publisher to listen", || {
            has_ended = self.processes.has_ended(publisher);
            has_ended || TcpStream::connect(&self.address).is_ok()
        });
        if has_ended {
            panic!("the publisher failed: {}", stderr(&self.processes.finish(publisher)));
        }
    }
}

/// A subscriber that was there from the first snapshot to the last has an account of all of them.
pub(crate) fn assert_complete(summary: &Value, report: &Value) {
    let figures = &summary["statistics"];
    assert_eq!(summary["balanced"], true, "{summary}");
    assert_eq!(figures["lost"], 0, "{summary}");
    let accounts = summary["instruments"].as_array().expect("accounts");
    let account_of = |symbol: &Value| {
        accounts.iter().find(|account| account["symbol"] == *symbol).unwrap_or(&Value::Null)
    };
    for instrument in report["instruments"].as_array().expect("instruments") {
        if instrument["published"] == 0 {
            continue;
        }
        let account = account_of(&instrument["symbol"]);
        assert_eq!(account["published"], instrument["published"], "{account} {instrument}");
        assert_eq!(account["last_sequence"], instrument["published"], "{account} {instrument}");
    }
}

/// The session with this name in the publisher's report.
pub(crate) fn session<'a>(report: &'a Value, name: &str) -> &'a Value {
    let sessions = report["sessions"].as_array().expect("sessions");
    sessions.iter().find(|session| session["name"] == name).expect("a session of this name")
}

/// All pages of the pool were free at the end.
pub(crate) fn assert_pool_whole(report: &Value) {
    assert_eq!(report["pool"]["free_pages"], report["pool"]["pages"], "{}", report["pool"]);
    assert_eq!(report["pool"]["pages"], 1024);
}
