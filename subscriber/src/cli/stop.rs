//! Ending on SIGINT and SIGTERM.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Set by SIGINT or SIGTERM. A second signal ends the process at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    asked: Arc<AtomicBool>,
}

impl Stop {
    /// Takes the signals over.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset and sets it, the second one
            // exits.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop.asked))?;
            flag::register(signal, Arc::clone(&stop.asked))?;
        }
        Ok(stop)
    }

    /// Whether to end.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}
