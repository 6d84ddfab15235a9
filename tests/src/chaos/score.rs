//! What a day holds, found out in a rehearsal.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::line::Line;
use super::report::LifeReport;
use super::stage::{Setting, Stage};
use super::witness::follow;
use super::{ChaosError, check};

/// Levels that witnesses print: enough to tell one book from the next.
pub(super) const LEVELS: &str = "3";

/// What the day holds.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// Snapshots that are published, by symbol.
    pub instruments: BTreeMap<String, u64>,
    /// Content of each snapshot, by its channel sequence.
    contents: HashMap<u64, u64>,
    /// First and last time of the feed's own clock.
    span_ns: (u64, u64),
}

impl Score {
    /// Plays the day to one lossless reader, unharmed.
    ///
    /// # Errors
    /// [`ChaosError`]; also when the rehearsal itself does not balance.
    pub fn rehearse(setting: &Setting) -> Result<Self, ChaosError> {
        let mut stage = Stage::new(setting)?;
        let mut words: Vec<String> =
            ["--wait-for", "1", "--lossless", "--pace", "max"].map(str::to_owned).into();
        words.extend(setting.day.once());
        stage.publish(&words)?;
        let words = ["--until-end", "--no-reconnect", "--policy", "lossless", "--levels", LEVELS];
        let mut reader = stage.subscribe("rehearsal", &words, true)?;
        let read = Arc::new(Mutex::new(Self::default()));
        let reads = Arc::clone(&read);
        let thread = reader.take_stdout().map(|stdout| {
            follow(stdout, move |line, _| {
                reads.lock().unwrap_or_else(PoisonError::into_inner).write_down(line);
                Ok(())
            })
        });
        let ended = stage.wait_until("the rehearsal to end", || reader.ended().is_some());
        let report = ended.and_then(|()| stage.end_publisher());
        let report = report.map_err(|error| match error {
            ChaosError::Interrupted => error,
            _ => ChaosError::InVain(format!("the rehearsal, {error}\n{}", stage.said())),
        })?;
        let testimony = thread.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let mut score = std::mem::take(&mut *read.lock().unwrap_or_else(PoisonError::into_inner));
        score.instruments = published(&report);
        let mut complaints = testimony.complaints;
        complaints.extend(check::life(&report, &score, &[]));
        if testimony.delivered != score.instruments {
            complaints.push(format!("{:?} is not all of {:?}", testimony.delivered, report));
        }
        match complaints.is_empty() {
            true => Ok(score),
            false => Err(ChaosError::InVain(format!("a good rehearsal: {complaints:?}"))),
        }
    }

    fn write_down(&mut self, line: &Line) {
        self.contents.insert(line.channel_sequence, line.content);
        let (first, last) = self.span_ns;
        let first = if first == 0 { line.ts_event_ns } else { first.min(line.ts_event_ns) };
        self.span_ns = (first, last.max(line.ts_event_ns));
    }

    /// Snapshots of the day.
    #[must_use]
    pub fn snapshots(&self) -> u64 {
        self.instruments.values().sum()
    }

    /// How much of the day is over with this snapshot, in thousandths.
    pub(super) fn per_mille(&self, channel_sequence: u64) -> u64 {
        channel_sequence.saturating_mul(1000) / self.snapshots().max(1)
    }

    /// Whether this line is what the day has there.
    pub(super) fn judge(&self, line: &Line) -> Result<(), String> {
        let Line { symbol, channel_sequence, instrument_sequence, .. } = line;
        match self.contents.get(channel_sequence) {
            Some(content) if *content == line.content => Ok(()),
            Some(_) => Err(format!(
                "{symbol} {instrument_sequence}, snapshot {channel_sequence}, is not what it was \
                 in the rehearsal"
            )),
            None => Err(format!("the day has no snapshot {channel_sequence} ({symbol})")),
        }
    }

    /// The pace that makes the day as long as this.
    pub(super) fn pace(&self, length: Duration) -> String {
        let span = self.span_ns.1.saturating_sub(self.span_ns.0) as f64;
        let multiple = span / (length.as_nanos() as f64).max(1.0);
        format!("{:.3}x", multiple.clamp(0.001, 1e6))
    }
}

fn published(report: &LifeReport) -> BTreeMap<String, u64> {
    let instruments = report.instruments.iter().filter(|instrument| instrument.published > 0);
    instruments.map(|instrument| (instrument.symbol.clone(), instrument.published)).collect()
}
