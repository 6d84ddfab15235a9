//! Opens the configured source.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::generate::session_length;
use crate::config::{EventEnd, FeedDate, SourceConfig, SourceKind, SyntheticConfig as Settings};
use crate::feed::{StopFlag, near_symbols};
use crate::source::Source;
use crate::source::dbn::{DbnOptions, DbnSource};
use crate::source::itch::{self, ItchError, ItchOptions, ItchSource};
use crate::source::journal::{JournalOptions, JournalSource};
use crate::source::synthetic::{SyntheticConfig, SyntheticSource};

/// Receives the source that the configuration asks for, whatever its type.
pub(super) trait WithSource {
    /// What comes of it.
    type Output;

    /// Goes on with the source.
    fn with_source<S: Source + 'static>(self, source: S) -> Self::Output;
}

/// Opens the source and hands it on. The type of source is chosen here, once. `stop` ends its waits
/// for a pipe's writer.
///
/// # Errors
/// When it cannot be opened; the text names cause and remedy.
pub(super) fn open_source<W: WithSource>(
    config: &SourceConfig,
    levels_max: usize,
    stop: &StopFlag,
    then: W,
) -> Result<W::Output> {
    match config.kind {
        SourceKind::Itch => Ok(then.with_source(open_itch(config, stop)?)),
        SourceKind::Dbn => Ok(then.with_source(open_dbn(config, stop)?)),
        SourceKind::Journal => Ok(then.with_source(open_journal(config, levels_max)?)),
        SourceKind::Synthetic => Ok(then.with_source(open_synthetic(config)?)),
    }
}

fn open_itch(config: &SourceConfig, stop: &StopFlag) -> Result<ItchSource> {
    let options = ItchOptions {
        date: match config.date {
            FeedDate::Auto => None,
            FeedDate::Day(day) => Some(day),
        },
        event_end: match config.event_end {
            EventEnd::Timestamp => itch::EventEnd::Timestamp,
            EventEnd::Message => itch::EventEnd::Message,
        },
        symbols: config.symbols.0.clone(),
        allow_truncated: config.allow_truncated.0,
        stop: stop.clone(),
    };
    let path = file(config)?;
    ItchSource::open(&path, options.clone()).map_err(|error| match &error {
        ItchError::NotListed { missing, .. } => {
            let near = near_in_file(&path, options, missing);
            anyhow!("source.symbols: {error}{near}")
        }
        _ => error.into(),
    })
}

fn open_dbn(config: &SourceConfig, stop: &StopFlag) -> Result<DbnSource> {
    let options = DbnOptions {
        symbols: config.symbols.0.clone(),
        allow_truncated: config.allow_truncated.0,
        stop: stop.clone(),
    };
    Ok(DbnSource::open(&file(config)?, options)?)
}

fn open_journal(config: &SourceConfig, levels_max: usize) -> Result<JournalSource> {
    let options = JournalOptions {
        symbols: config.symbols.0.clone(),
        allow_truncated: config.allow_truncated.0,
        levels_max,
    };
    Ok(JournalSource::open(&file(config)?, options)?)
}

fn open_synthetic(config: &SourceConfig) -> Result<SyntheticSource> {
    Ok(SyntheticSource::new(synthetic_config(&config.synthetic), &config.symbols.0)?)
}

fn synthetic_config(settings: &Settings) -> SyntheticConfig {
    let steady_rate = settings.steady_rate.get();
    SyntheticConfig {
        seed: settings.seed.get(),
        instruments: settings.instruments.count(),
        length: session_length(settings.length),
        orders_per_instrument: settings.orders_per_instrument.get() as u32,
        burst_rate: settings.burst_rate.get().max(steady_rate),
        burst: Duration::from_millis(settings.burst_ms.get()),
        steady_rate,
        halt_every: Duration::from_secs(settings.halt_every_s.get()),
        quiet_every: Duration::from_secs(settings.quiet_every_s.get()),
        ..SyntheticConfig::default()
    }
}

fn file(config: &SourceConfig) -> Result<PathBuf> {
    let missing = || anyhow!("source.file is not set: give --file PATH");
    config.file.clone().ok_or_else(missing)
}

/// The listed symbols most like the missing ones, as the end of a sentence.
fn near_in_file(path: &Path, options: ItchOptions, missing: &str) -> String {
    let everything = ItchOptions { symbols: Vec::new(), ..options };
    let Ok(source) = ItchSource::open(path, everything) else { return String::new() };
    let near: Vec<String> = missing
        .split(", ")
        .map(|symbol| (symbol, near_symbols(symbol, source.instruments())))
        .filter(|(_, near)| !near.is_empty())
        .map(|(symbol, near)| format!("{symbol}: {}", near.join(", ")))
        .collect();
    match near.is_empty() {
        true => String::new(),
        false => format!("; near matches: {}", near.join("; ")),
    }
}
