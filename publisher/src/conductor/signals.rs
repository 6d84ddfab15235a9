//! SIGTERM and SIGINT.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout_at};

/// A second signal this soon after the first says nothing new.
const ECHO: Duration = Duration::from_secs(1);

/// The signals that end the publisher.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
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
        })
    }

    /// Waits for a signal and names it.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// From here on a signal ends the process at once, as it would without a handler. What comes
    /// within a second of the first is the same request: wrappers signal a process and its group.
    pub fn exit_at_once_from_now_on(mut self) {
        tokio::spawn(async move {
            let echo = Instant::now() + ECHO;
            while timeout_at(echo, self.next()).await.is_ok() {}
            let code = match self.next().await {
                "SIGTERM" => 128 + 15,
                _ => 128 + 2,
            };
            tracing::warn!("a second signal: leaving at once");
            std::process::exit(code);
        });
    }
}
