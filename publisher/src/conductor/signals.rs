//! SIGTERM, SIGINT and SIGHUP.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout_at};

/// A second signal this soon after the first says nothing new.
const ECHO: Duration = Duration::from_secs(1);

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// To end. The name of the signal.
    End(&'static str),
    /// To read the configuration and the files of certificates again (SIGHUP).
    Reload,
}

/// The signals that the publisher takes over. SIGHUP is one of them, so that the end of a terminal
/// does not end it.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Takes the signals over. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal.
    pub async fn next(&mut self) -> Notice {
        tokio::select! {
            _ = self.terminate.recv() => Notice::End("SIGTERM"),
            _ = self.interrupt.recv() => Notice::End("SIGINT"),
            _ = self.hangup.recv() => Notice::Reload,
        }
    }

    /// Waits for a signal that asks to end, and names it.
    async fn next_end(&mut self) -> &'static str {
        loop {
            if let Notice::End(name) = self.next().await {
                return name;
            }
        }
    }

    /// From here on a signal ends the process at once, as it would without a handler. What comes
    /// within a second of the first is the same request: wrappers signal a process and its group.
    pub fn exit_at_once_from_now_on(mut self) {
        tokio::spawn(async move {
            let echo = Instant::now() + ECHO;
            while timeout_at(echo, self.next_end()).await.is_ok() {}
            let code = match self.next_end().await {
                "SIGTERM" => 128 + 15,
                _ => 128 + 2,
            };
            tracing::warn!("a second signal: leaving at once");
            std::process::exit(code);
        });
    }
}
