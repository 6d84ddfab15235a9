//! `generate`: writes a simulated day to a file.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use signal_hook::consts::TERM_SIGNALS;

use crate::cli::GenerateArgs;
use crate::config::SessionSpan;
use crate::source::progress::{Progress, ProgressCount, ProgressDisplay, ProgressTotal};
use crate::source::synthetic::{GenerateRequest, Generated, SessionLength, SyntheticConfig};

/// Writes the file.
///
/// # Errors
/// When the exchange cannot be as asked for, or the file cannot be written. Nothing is left behind.
pub fn generate(args: &GenerateArgs) -> Result<ExitCode> {
    let config = SyntheticConfig {
        seed: args.seed,
        instruments: args.instruments,
        length: args.messages.map_or_else(
            || SessionLength::Duration(Duration::from_secs(args.seconds)),
            SessionLength::Messages,
        ),
        date: args.date,
        steady_rate: args.steady_rate,
        burst_rate: args.burst_rate.max(args.steady_rate),
        ..SyntheticConfig::default()
    };
    let request = GenerateRequest { config, path: args.out.clone(), overwrite: args.force };
    let total = args.messages.map_or(ProgressTotal::Unknown, ProgressTotal::Messages);
    let display = ProgressDisplay::for_stderr(args.no_progress);
    let mut progress = Progress::start(display, &args.out.display().to_string(), total);
    let stop = stop_on_signals()?;
    let generated = request.run(|written| {
        progress.update(count(written));
        if stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    progress.finish(count(generated));
    println!(
        "{}: {} messages, {} bytes ({} in the file)",
        args.out.display(),
        generated.messages,
        generated.bytes,
        generated.file_bytes
    );
    Ok(ExitCode::SUCCESS)
}

/// A flag that SIGINT and SIGTERM set, so that a half-written file is removed; a second one ends
/// the process at once.
fn stop_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in TERM_SIGNALS {
        signal_hook::flag::register_conditional_default(*signal, Arc::clone(&stop))?;
        signal_hook::flag::register(*signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

const fn count(written: Generated) -> ProgressCount {
    ProgressCount { messages: written.messages, bytes: written.bytes }
}

/// The exchange's form of a configured length.
pub(super) const fn session_length(span: SessionSpan) -> SessionLength {
    match span {
        SessionSpan::Endless => SessionLength::Endless,
        SessionSpan::Seconds(seconds) => SessionLength::Duration(Duration::from_secs(seconds)),
        SessionSpan::Messages(count) => SessionLength::Messages(count),
    }
}
