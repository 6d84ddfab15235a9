//! One process.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::ChaosError;

/// Lines of what a process said that are shown.
const LINES_SHOWN: usize = 25;

/// A process that is killed when this is dropped, however that comes.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts it. What it says goes to `log`, what it writes to nobody unless `is_read`.
    pub(super) fn start(
        mut command: Command,
        log: PathBuf,
        is_read: bool,
    ) -> Result<Self, ChaosError> {
        let said = File::create(&log).map_err(|error| ChaosError::file(&log, error))?;
        let stdout = if is_read { Stdio::piped() } else { Stdio::null() };
        command.stdin(Stdio::null()).stdout(stdout).stderr(said);
        for variable in ["TAPECAST_SOCKET", "TAPECAST_CONFIG", "TAPECAST_CONNECT"] {
            command.env_remove(variable);
        }
        let program = PathBuf::from(command.get_program());
        let started = command.spawn();
        let child = started.map_err(|source| ChaosError::Start { program, source })?;
        Ok(Self { child, log, ended: None })
    }

    /// What it writes, for the first who asks.
    pub(super) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            // One that cannot be waited for counts as running: the next look decides.
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Whether it was killed, by whomever.
    pub(super) fn was_killed(&mut self) -> bool {
        self.ended().is_some_and(|status| status.signal() == Some(Signal::KILL.as_raw()))
    }

    /// Sends a signal. Whether there was anybody to receive it.
    pub(super) fn signal(&mut self, signal: Signal) -> bool {
        self.ended().is_none() && kill_process(Pid::from_child(&self.child), signal).is_ok()
    }

    /// Waits for one that has been told to end, or killed.
    pub(super) fn reap(&mut self) {
        // It has ended already when this fails.
        self.ended = self.child.wait().ok().or(self.ended);
    }

    /// The end of what it said.
    pub(super) fn said(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            // An error means that it has ended meanwhile.
            let _ = self.child.kill();
            self.reap();
        }
    }
}
