//! Log lines: to stderr, as text or JSON.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogConfig, LogFormat, LogLevel};

/// Starts logging as configured. Does nothing when somebody has started it before.
pub fn start(config: &LogConfig) {
    let level = match config.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = fmt().with_max_level(level).with_writer(std::io::stderr);
    // The only failure is that a logger is there already, which then gets the lines.
    let _started = match config.format {
        LogFormat::Text => {
            lines.with_target(false).with_ansi(stderr_is_a_terminal()).finish().try_init()
        }
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init(),
    };
}

fn stderr_is_a_terminal() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stderr())
}
