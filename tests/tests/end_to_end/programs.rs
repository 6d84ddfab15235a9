//! Starting the programs under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A folder with a program of each kind, built from this checkout.
pub(crate) fn programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder =
            Path::new(env!("CARGO_BIN_EXE_tapecast-tape")).parent().expect("a folder").to_owned();
        // Where nothing can be built, in a virtual machine, that was done before.
        if std::env::var_os("TAPECAST_PROGRAMS_ARE_BUILT").is_some() {
            return folder;
        }
        // The other packages' programs; cargo finds nothing to do when they are there already.
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "-q", "-p", "tapecast-publisher", "-p", "tapecast-subscriber"]);
        build.args(["--bins"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        if folder.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo").success(), "the programs do not build");
        folder
    })
}

/// A recording that tests may read, or `None`, said aloud, where it is absent.
pub(crate) fn recording(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} is not on this machine", path.display());
    None
}

/// A folder for one test's socket and results.
pub(crate) fn folder() -> TempDir {
    TempDir::with_prefix("tapecast-e2e-").expect("a folder")
}

/// Processes that are killed at the end of a test, however it ends.
#[derive(Default)]
pub(crate) struct Processes(Vec<Child>);

impl Processes {
    /// Starts a program and keeps its output.
    pub(crate) fn start(&mut self, program: &str, arguments: &[&str]) -> usize {
        self.spawn(&mut command(program, arguments))
    }

    /// Starts what [`command`] has made and a test has changed.
    pub(crate) fn spawn(&mut self, command: &mut Command) -> usize {
        self.0.push(command.spawn().expect("a process"));
        self.0.len() - 1
    }

    /// Waits for one process and returns all that it said.
    pub(crate) fn finish(&mut self, index: usize) -> Output {
        let child = &mut self.0[index];
        let stdout = drain(child.stdout.take());
        let stderr = drain(child.stderr.take());
        let status = child.wait().expect("a process that ends");
        let text = |thread: std::thread::JoinHandle<Vec<u8>>| thread.join().expect("a reader");
        Output { status, stdout: text(stdout), stderr: text(stderr) }
    }

    /// Sends a signal to one process.
    pub(crate) fn signal(&self, index: usize, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0[index]);
        rustix::process::kill_process(pid, signal).expect("a living process");
    }

    /// Ends one process at once, if it has not ended already.
    pub(crate) fn kill(&mut self, index: usize) {
        let _ = self.0[index].kill();
    }

    /// Whether one process has ended by itself.
    pub(crate) fn has_ended(&mut self, index: usize) -> bool {
        self.0[index].try_wait().expect("a process of this test").is_some()
    }

    /// Process id of one process.
    pub(crate) fn pid(&self, index: usize) -> u32 {
        self.0[index].id()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn drain(stream: Option<impl std::io::Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            stream.read_to_end(&mut bytes).expect("a readable pipe");
        }
        bytes
    })
}

/// A program that is ready to start.
pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(programs().join(program));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for variable in ["TAPECAST_SOCKET", "TAPECAST_CONFIG", "TAPECAST_CONNECT"] {
        command.env_remove(variable);
    }
    command
}

/// Runs a program to its end.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    command(program, arguments).output().expect("a process")
}

/// What a program wrote to standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// After this a test that waits in vain fails. An emulated machine starts 64 processes in minutes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Waits until `condition` holds.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let looked = Instant::now();
        if condition() {
            return;
        }
        // Looking must not take the processor from those that are waited for.
        std::thread::sleep((4 * looked.elapsed()).max(Duration::from_millis(10)));
    }
    panic!("waited in vain: {what}");
}

/// Reads a JSON file.
pub(crate) fn json(path: &Path) -> serde_json::Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// Standard output of a process, line by line.
pub(crate) struct Lines(std::io::Lines<std::io::BufReader<std::process::ChildStdout>>);

impl Lines {
    /// Takes the output of a process that was just started.
    pub(crate) fn of(processes: &mut Processes, index: usize) -> Self {
        let stdout = processes.0[index].stdout.take().expect("an output that nobody has taken");
        Self(std::io::BufRead::lines(std::io::BufReader::new(stdout)))
    }

    /// The next line, or `None` when the process has closed its output.
    pub(crate) fn next_if_any(&mut self) -> Option<String> {
        self.0.next().map(|line| line.expect("UTF-8"))
    }

    /// The next line; the process must not have ended.
    pub(crate) fn next(&mut self) -> String {
        self.0.next().expect("a line").expect("UTF-8")
    }

    /// Reads the rest and forgets it, so that the process never waits for a reader.
    pub(crate) fn discard(self) {
        std::thread::spawn(move || self.0.map_while(Result::ok).for_each(drop));
    }
}
