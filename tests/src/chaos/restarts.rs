//! kill -9 of the publisher at any time, and another one at once in its place.
//!
//! Subscribers live through all of it. Each of them is read line by line: it is *back* with its
//! first snapshot of the new epoch, and *complete* when it has one of every instrument. Both are
//! timed from just before the new publisher is started, process start included. When the old one
//! is killed follows from progress: how many lines of the present epoch the first subscriber has
//! shown.
//!
//! Now and then the new publisher is killed too, as soon as it listens: who starts a publisher
//! again may do so in a loop.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tapecast_subscriber::Summary;

use super::process::Process;
use super::stage::{Setting, Stage, read};
use super::witness::{Testimony, follow};
use super::{ChaosError, Score, check};
use crate::simulator::dice::{Dice, mix};

/// Lines of an epoch after which the publisher is killed, at most.
const LINES_MAX: u64 = 1_000;
/// Restarts of a thousand of which the first is killed as soon as it listens.
const STILLBORN_PER_MILLE: u64 = 125;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Restarts {
    /// How often the publisher is killed and started again.
    pub rounds: u64,
    /// What chance follows from.
    pub seed: u64,
    /// Subscriber processes.
    pub subscribers: usize,
}

/// What it came to.
#[derive(Clone, Debug, Default)]
pub struct RestartTally {
    /// Restarts.
    pub restarts: u64,
    /// Publishers that were killed as soon as they listened.
    pub stillborn: u64,
    /// Times from the restart to the first snapshot, of each subscriber.
    pub back: Vec<Duration>,
    /// Times from the restart to a snapshot of every instrument, of each subscriber.
    pub complete: Vec<Duration>,
    /// What was wrong. Empty in health.
    pub complaints: Vec<String>,
    /// When something was wrong: what each process said.
    pub said: Vec<String>,
}

impl Restarts {
    /// Kills and restarts. `on_round` is told how many restarts there have been.
    ///
    /// # Errors
    /// [`ChaosError::Interrupted`], and when programs cannot be started. All else is a complaint.
    pub fn play(
        self,
        setting: &Setting,
        score: &Score,
        mut on_round: impl FnMut(u64),
    ) -> Result<RestartTally, ChaosError> {
        let mut troupe = Troupe::new(self, setting, score)?;
        let performed = troupe.perform(self, &mut on_round).and_then(|()| troupe.conclude());
        match performed {
            Ok(complaints) => troupe.tally.complaints = complaints,
            Err(error @ (ChaosError::Interrupted | ChaosError::Start { .. })) => return Err(error),
            Err(error) => {
                let at = troupe.tally.restarts;
                troupe.tally.complaints = vec![format!("restart {at}: {error}")];
            }
        }
        if !troupe.tally.complaints.is_empty() {
            troupe.tally.said = troupe.said();
        }
        Ok(std::mem::take(&mut troupe.tally))
    }
}

/// How a subscriber stands in the present epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    epoch: u64,
    lines: u64,
    back: Option<Instant>,
    complete: Option<Instant>,
}

#[derive(Debug)]
struct Reader {
    name: String,
    process: Process,
    standing: Arc<Mutex<Standing>>,
    testimony: Option<JoinHandle<Testimony>>,
}

impl Reader {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everybody.
#[derive(Debug)]
struct Troupe<'a> {
    /// Before the stage: what they write to goes last.
    readers: Vec<Reader>,
    stage: Stage<'a>,
    words: Vec<String>,
    tally: RestartTally,
}

impl<'a> Troupe<'a> {
    fn new(plan: Restarts, setting: &'a Setting, score: &Score) -> Result<Self, ChaosError> {
        let stage = Stage::new(setting)?;
        let mut words = vec!["--pace".to_owned(), score.pace(setting.day_length)];
        words.extend(setting.day.endless());
        let instruments = score.instruments.len();
        let start = |index| start(&stage, index, instruments);
        let readers = (0..plan.subscribers).map(start).collect::<Result<_, _>>()?;
        Ok(Self { stage, readers, words, tally: RestartTally::default() })
    }

    fn perform(
        &mut self,
        plan: Restarts,
        on_round: &mut impl FnMut(u64),
    ) -> Result<(), ChaosError> {
        let mut dice = Dice::new(mix(plan.seed));
        let started = self.start_publisher()?;
        self.await_all(0, started)?;
        while self.tally.restarts < plan.rounds {
            let lines = dice.below(LINES_MAX);
            let Self { stage, readers, .. } = self;
            stage.wait_until("progress", || readers[0].standing().lines >= lines)?;
            let epoch = self.readers[0].standing().epoch;
            let mut killed = vec![self.stage.kill_publisher()];
            if dice.chance(STILLBORN_PER_MILLE) {
                self.start_publisher()?;
                self.stage.await_listener()?;
                killed.push(self.stage.kill_publisher());
                self.tally.stillborn += 1;
            }
            let started = self.start_publisher()?;
            killed.iter_mut().flatten().for_each(Process::reap);
            self.await_all(epoch, started)?;
            self.tally.restarts += 1;
            self.note_times(started);
            on_round(self.tally.restarts);
        }
        Ok(())
    }

    /// Returns when that was.
    fn start_publisher(&mut self) -> Result<Instant, ChaosError> {
        let started = Instant::now();
        self.stage.publish(&self.words)?;
        Ok(started)
    }

    /// Waits until everybody is complete in one and the same epoch after `before`.
    fn await_all(&mut self, before: u64, started: Instant) -> Result<(), ChaosError> {
        let Self { stage, readers, .. } = self;
        let mut has_ended = None;
        stage.wait_until("all subscribers to be complete again", || {
            has_ended = readers.iter_mut().position(|reader| reader.process.ended().is_some());
            let epoch = readers[0].standing().epoch;
            let is_there = |reader: &Reader| {
                let standing = reader.standing();
                standing.epoch == epoch && standing.complete.is_some_and(|time| time >= started)
            };
            has_ended.is_some() || (epoch > before && readers.iter().all(is_there))
        })?;
        match has_ended {
            Some(index) => {
                let name = &readers[index].name;
                Err(ChaosError::InVain(format!("{name} to be back: it has ended")))
            }
            None => Ok(()),
        }
    }

    fn note_times(&mut self, started: Instant) {
        let Self { readers, tally, .. } = self;
        for reader in readers.iter() {
            let standing = *reader.standing();
            let since = |time: Option<Instant>| {
                time.map_or(Duration::ZERO, |time| time.saturating_duration_since(started))
            };
            tally.back.push(since(standing.back));
            tally.complete.push(since(standing.complete));
        }
    }

    /// Ends everybody and looks at what they say.
    fn conclude(&mut self) -> Result<Vec<String>, ChaosError> {
        let Self { stage, readers, .. } = self;
        for reader in readers.iter_mut() {
            reader.process.signal(Signal::TERM);
        }
        stage.wait_until("every subscriber to end", || {
            readers.iter_mut().all(|reader| reader.process.ended().is_some())
        })?;
        let report = stage.end_publisher()?;
        let mut complaints = check::pool_and_sessions(&report, &[]);
        for index in 0..self.readers.len() {
            let found = self.look_at(index)?;
            let name = &self.readers[index].name;
            complaints.extend(found.into_iter().map(|text| format!("{name}: {text}")));
        }
        complaints.extend(self.stage.leftovers());
        Ok(complaints)
    }

    /// What is wrong with a subscriber that has ended.
    fn look_at(&mut self, index: usize) -> Result<Vec<String>, ChaosError> {
        let reader = &mut self.readers[index];
        let path: PathBuf = self.stage.file(&format!("{}.json", reader.name));
        let testimony = reader.testimony.take().and_then(|thread| thread.join().ok());
        let testimony = testimony.unwrap_or_default();
        let mut complaints = testimony.complaints;
        let status = reader.process.ended();
        if !status.is_some_and(|status| status.success()) {
            complaints.push(format!("ended badly: {status:?}"));
            return Ok(complaints);
        }
        let summary: Summary = read(&path)?;
        complaints.extend(check::balance(&summary));
        complaints.extend(check::testimony(&summary, &testimony.delivered));
        let RestartTally { restarts, stillborn, .. } = self.tally;
        let reconnects = summary.statistics.reconnects;
        // One that was killed as soon as it listened may have let somebody in, or not.
        if !(restarts..=restarts + stillborn).contains(&reconnects) {
            complaints.push(format!(
                "attached again {reconnects} times in {restarts} restarts and {stillborn} of which \
                 nothing came"
            ));
        }
        Ok(complaints)
    }

    fn said(&mut self) -> Vec<String> {
        let mut said = vec![self.stage.said()];
        for reader in &mut self.readers {
            let standing = *reader.standing();
            let status = reader.process.ended();
            let (name, text) = (&reader.name, reader.process.said());
            said.push(format!("{name} ({status:?}, {standing:?}) said:\n{text}"));
        }
        said
    }
}

/// Starts a subscriber, which attaches again by itself.
fn start(stage: &Stage<'_>, index: usize, instruments: usize) -> Result<Reader, ChaosError> {
    let name = format!("r{index:02}");
    let mut process = stage.subscribe(&name, &["--levels", "1"], true)?;
    let standing = Arc::new(Mutex::new(Standing::default()));
    let shared = Arc::clone(&standing);
    let testimony = process.take_stdout().map(|stdout| {
        follow(stdout, move |line, order| {
            let mut standing = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if standing.epoch != line.epoch {
                let back = Some(Instant::now());
                *standing = Standing { epoch: line.epoch, lines: 0, back, complete: None };
            }
            standing.lines += 1;
            if standing.complete.is_none() && order.instruments() == instruments {
                standing.complete = Some(Instant::now());
            }
            Ok(())
        })
    });
    Ok(Reader { name, process, standing, testimony })
}
