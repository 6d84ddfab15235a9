//! What the publisher plays.

use std::path::{Path, PathBuf};

/// Messages of a synthetic day in a round.
const MESSAGES: u32 = 4_000;
/// Instruments of the synthetic exchange.
const INSTRUMENTS: u32 = 20;
/// Seed of the synthetic exchange. Always the same: chance decides about harm, not about data.
const SEED: u32 = 7;
/// Messages a second of the synthetic feed's own clock.
const RATE: u32 = 2_000;

/// A day that is the same in every life of the publisher.
#[derive(Clone, Debug)]
pub struct Day {
    words: Vec<String>,
    recording: Option<PathBuf>,
}

impl Day {
    /// A day of the simulated exchange.
    #[must_use]
    pub fn synthetic() -> Self {
        let rate = RATE.to_string();
        let numbers = [
            ("--instruments", &*INSTRUMENTS.to_string()),
            ("--seed", &*SEED.to_string()),
            // No burst: progress would jump, and harm that comes by progress with it.
            ("--burst-rate", &*rate),
            ("--steady-rate", &*rate),
        ];
        let words = numbers.iter().flat_map(|(flag, value)| [(*flag).into(), (*value).into()]);
        Self { words: words.collect(), recording: None }
    }

    /// A recording: DBN when its name says so, else ITCH.
    #[must_use]
    pub fn recording(file: &Path) -> Self {
        let is_dbn = file.file_name().is_some_and(|name| name.to_string_lossy().contains(".dbn"));
        let kind = if is_dbn { "dbn" } else { "itch" };
        let words = ["--source", kind, "--file", &file.display().to_string()];
        Self { words: words.map(str::to_owned).into(), recording: Some(file.to_owned()) }
    }

    /// Arguments of a publisher that plays it once.
    pub(super) fn once(&self) -> Vec<String> {
        let mut words = self.words.clone();
        if self.recording.is_none() {
            let length = format!("source.synthetic.length={MESSAGES} messages");
            words.extend(["--set".to_owned(), length]);
        }
        words
    }

    /// Arguments of a publisher that plays without end.
    pub(super) fn endless(&self) -> Vec<String> {
        let mut words = self.words.clone();
        if self.recording.is_some() {
            words.push("--loop".to_owned());
        }
        words
    }
}
