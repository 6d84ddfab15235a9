//! Log lines: to the journal, with their fields, where that is what stderr is; else to stderr, as
//! text or JSON.

mod sentences;

use std::env;
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use tracing::{Subscriber, warn};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload::{Handle, Layer as Changeable};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt};

use sentences::Sentences;

use crate::config::{LogConfig, LogFormat, LogLevel};

/// Changes the level of the logger of this process.
static LEVEL: OnceLock<Handle<LevelFilter, Registry>> = OnceLock::new();

/// Where the service manager says which file the journal gave a service as its stderr.
const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";
/// Begins the names of the fields of log lines in the journal: `epoch` is `TAPECAST_EPOCH`.
const FIELD_PREFIX: &str = "TAPECAST";

/// Starts logging as configured. Does nothing when somebody has started it before.
pub fn start(config: &LogConfig) {
    let (level, handle) = Changeable::new(filter(config.level));
    let (lines, problem) = lines(config.format);
    // The only failure is that a logger is there already, which then gets the lines.
    if tracing_subscriber::registry().with(level).with(lines).try_init().is_ok() {
        let _first = LEVEL.set(handle);
    }
    if let Some(error) = problem {
        warn!("log lines go to stderr, because the journal does not take them: {error}");
    }
}

/// Changes the least severe line that is written. What `change` says is written when either level
/// lets it through.
pub fn change_level(level: LogLevel, change: impl FnOnce()) {
    let level = filter(level);
    modify(|present| *present = level.max(*present));
    change();
    modify(|present| *present = level);
}

fn modify(change: impl FnOnce(&mut LevelFilter)) {
    if let Some(handle) = LEVEL.get()
        && let Err(error) = handle.modify(change)
    {
        warn!("the log level cannot be changed: {error}");
    }
}

/// Begins a line on stderr that is an error, where the journal would take it for information.
#[must_use]
pub fn error_mark() -> &'static str {
    if stderr_is_the_journal() { "<3>" } else { "" }
}

const fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// What writes lines, and why that is not the journal where it should be.
fn lines<S>(format: LogFormat) -> (Box<dyn Layer<S> + Send + Sync>, Option<io::Error>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let stderr = fmt::layer().with_writer(io::stderr);
    if format == LogFormat::Json {
        return (stderr.json().flatten_event(true).boxed(), None);
    }
    let problem = match stderr_is_the_journal().then(journal) {
        Some(Ok(journal)) => return (Sentences(journal).boxed(), None),
        Some(Err(error)) => Some(error),
        None => None,
    };
    (stderr.with_target(false).with_ansi(stderr_is_a_terminal()).boxed(), problem)
}

fn journal() -> io::Result<tracing_journald::Layer> {
    let priorities = PriorityMappings {
        error: Priority::Error,
        warn: Priority::Warning,
        info: Priority::Informational,
        debug: Priority::Debug,
        trace: Priority::Debug,
    };
    let layer = tracing_journald::layer()?;
    Ok(layer.with_field_prefix(Some(FIELD_PREFIX.to_owned())).with_priority_mappings(priorities))
}

/// Whether stderr is the very file that the service manager names. The variable alone says little:
/// a program that was started from a service's shell has it too.
fn stderr_is_the_journal() -> bool {
    let Ok(named) = env::var(JOURNAL_VARIABLE) else { return false };
    let Ok(stderr) = rustix::fs::fstat(io::stderr().as_fd()) else { return false };
    named == format!("{}:{}", stderr.st_dev, stderr.st_ino)
}

fn stderr_is_a_terminal() -> bool {
    io::IsTerminal::is_terminal(&io::stderr())
}
