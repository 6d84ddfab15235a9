//! One round: a publisher's life, and what is done to its subscribers meanwhile.

use std::fmt;
use std::ops::AddAssign;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::process::Signal;
use tapecast_subscriber::Summary;

use super::ChaosError;
use super::check::{self, Attendance};
use super::plan::{AFTER_THE_DAY, Deed, Fate, Harm, RoundPlan};
use super::process::Process;
use super::score::{LEVELS, Score};
use super::stage::{Setting, Stage, read};
use super::witness::{Testimony, follow};
use crate::demo::Link;

/// What was done, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rounds.
    pub rounds: u64,
    /// Subscribers that were killed.
    pub kills: u64,
    /// Times that one was stopped.
    pub stops: u64,
    /// Subscribers that came late.
    pub joins: u64,
    /// Subscribers that left early.
    pub leaves: u64,
    /// Attempts to attach that were given up and made again.
    pub retries: u64,
    /// Snapshots delivered to those who told their account.
    pub delivered: u64,
    /// Snapshots conflated for them.
    pub conflated: u64,
    /// Rounds in which something was wrong.
    pub failures: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.kills += other.kills;
        self.stops += other.stops;
        self.joins += other.joins;
        self.leaves += other.leaves;
        self.retries += other.retries;
        self.delivered += other.delivered;
        self.conflated += other.conflated;
        self.failures += other.failures;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, kills, stops, joins, leaves, failures, .. } = self;
        write!(f, "rounds {rounds}, kills {kills}, stops {stops}, joins {joins}, leaves {leaves}")?;
        write!(f, ", delivered {}, conflated {}", self.delivered, self.conflated)?;
        write!(f, ", retries {}", self.retries)?;
        write!(f, ", failures {failures}")
    }
}

/// What a round came to.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// What was done.
    pub tally: Tally,
    /// What was wrong. Empty in health.
    pub complaints: Vec<String>,
    /// When something was wrong: what each process said.
    pub said: Vec<String>,
}

/// Plays a round.
///
/// # Errors
/// [`ChaosError::Interrupted`], and when programs cannot be started. All else is a complaint.
pub fn play(setting: &Setting, score: &Arc<Score>, plan: &RoundPlan) -> Result<Round, ChaosError> {
    let mut cast = Cast::new(setting, score, plan)?;
    let performed = cast.perform(plan).and_then(|()| cast.conclude());
    let complaints = match performed {
        Ok(complaints) => complaints,
        Err(error @ (ChaosError::Interrupted | ChaosError::Start { .. })) => return Err(error),
        Err(error) => vec![error.to_string()],
    };
    let mut tally = cast.tally;
    (tally.rounds, tally.failures) = (1, u64::from(!complaints.is_empty()));
    let said = if complaints.is_empty() { Vec::new() } else { cast.said() };
    Ok(Round { tally, complaints, said })
}

/// One subscriber of a round.
#[derive(Debug)]
struct Seat {
    name: String,
    fate: Fate,
    is_witness: bool,
    process: Option<Process>,
    testimony: Option<JoinHandle<Testimony>>,
}

impl Seat {
    fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(|process| process.ended().is_some())
    }
}

/// Everybody in a round.
#[derive(Debug)]
struct Cast<'a> {
    /// Before the stage: what they write to goes last.
    seats: Vec<Seat>,
    stage: Stage<'a>,
    score: &'a Arc<Score>,
    /// How much of the day the first witness has read.
    per_mille: Arc<AtomicU64>,
    tally: Tally,
}

impl<'a> Cast<'a> {
    fn new(
        setting: &'a Setting,
        score: &'a Arc<Score>,
        plan: &RoundPlan,
    ) -> Result<Self, ChaosError> {
        let seat = |(index, fate): (usize, &Fate)| Seat {
            name: format!("s{index:02}"),
            fate: *fate,
            is_witness: plan.witnesses.contains(&index),
            process: None,
            testimony: None,
        };
        Ok(Self {
            stage: Stage::new(setting)?,
            score,
            seats: plan.fates.iter().enumerate().map(seat).collect(),
            per_mille: Arc::default(),
            tally: Tally::default(),
        })
    }

    /// The day and all that happens in it, until every subscriber has ended.
    fn perform(&mut self, plan: &RoundPlan) -> Result<(), ChaosError> {
        let setting = self.stage.setting();
        let mut words: Vec<String> = vec!["--wait-for".into(), plan.first_to_come().to_string()];
        words.extend(["--pace".into(), self.score.pace(setting.day_length)]);
        if setting.link == Link::SharedMemory {
            words.extend(["--ring-bytes".into(), plan.ring_bytes.to_string()]);
        }
        words.extend(setting.day.once());
        self.stage.publish(&words)?;
        for index in 0..self.seats.len() {
            if !self.seats[index].fate.comes_late() {
                self.seat(index)?;
            }
        }
        for harm in &plan.harms {
            self.await_progress(harm.at_per_mille)?;
            self.harm(*harm)?;
        }
        let Self { stage, seats, .. } = self;
        stage.wait_until("every subscriber to end", || seats.iter_mut().all(Seat::has_ended))
    }

    /// Starts a subscriber.
    fn seat(&mut self, index: usize) -> Result<(), ChaosError> {
        let seat = &mut self.seats[index];
        let words = ["--until-end", "--no-reconnect", "--levels", LEVELS];
        let mut process = self.stage.subscribe(&seat.name, &words, seat.is_witness)?;
        seat.testimony = process.take_stdout().map(|stdout| {
            let (score, per_mille) = (Arc::clone(self.score), Arc::clone(&self.per_mille));
            follow(stdout, move |line, _| {
                if index == 0 {
                    let now = score.per_mille(line.channel_sequence);
                    per_mille.fetch_max(now, Ordering::Relaxed);
                }
                score.judge(line)
            })
        });
        seat.process = Some(process);
        Ok(())
    }

    /// Waits until the first witness has read so much of the day, or has ended.
    fn await_progress(&mut self, at_per_mille: u64) -> Result<(), ChaosError> {
        let Self { stage, seats, per_mille, .. } = self;
        let what = if at_per_mille < AFTER_THE_DAY { "progress" } else { "the end of the day" };
        stage.wait_until(what, || {
            per_mille.load(Ordering::Relaxed) >= at_per_mille || seats[0].has_ended()
        })
    }

    fn harm(&mut self, harm: Harm) -> Result<(), ChaosError> {
        let signal = match harm.deed {
            Deed::Kill => Signal::KILL,
            Deed::Stop => Signal::STOP,
            Deed::Continue => Signal::CONT,
            Deed::Leave => Signal::TERM,
            Deed::Start => {
                self.tally.joins += 1;
                return self.seat(harm.subscriber);
            }
        };
        let process = self.seats[harm.subscriber].process.as_mut();
        // One that has come to the end of the day before its time is past harm.
        let done = u64::from(process.is_some_and(|process| process.signal(signal)));
        match harm.deed {
            Deed::Stop => self.tally.stops += done,
            Deed::Leave => self.tally.leaves += done,
            Deed::Kill | Deed::Continue | Deed::Start => {}
        }
        Ok(())
    }

    /// Ends the publisher and looks at what everybody says.
    fn conclude(&mut self) -> Result<Vec<String>, ChaosError> {
        let report = self.stage.end_publisher()?;
        let mut complaints = Vec::new();
        let mut killed = Vec::new();
        for index in 0..self.seats.len() {
            let found = self.look_at(index)?;
            let seat = &mut self.seats[index];
            if seat.process.as_mut().is_some_and(Process::was_killed) {
                killed.push(seat.name.clone());
            }
            let whom = |text: String| format!("{} ({:?}): {text}", seat.name, seat.fate);
            complaints.extend(found.into_iter().map(whom));
        }
        self.tally.kills = killed.len() as u64;
        self.tally.retries = check::retries(&report);
        // Only an emulated machine is so slow that an attempt to attach may come to nothing.
        if self.stage.setting().link == Link::SharedMemory && self.tally.retries > 0 {
            complaints.push(format!("{} attempts to attach came to nothing", self.tally.retries));
        }
        complaints.extend(check::life(&report, self.score, &killed));
        complaints.extend(self.stage.leftovers());
        Ok(complaints)
    }

    /// What is wrong with a subscriber that has ended.
    fn look_at(&mut self, index: usize) -> Result<Vec<String>, ChaosError> {
        let path = self.path_of(index);
        let seat = &mut self.seats[index];
        let Some(process) = &mut seat.process else {
            return Ok(vec!["was never started".to_owned()]);
        };
        let testimony = seat.testimony.take().map(|thread| thread.join().unwrap_or_default());
        let mut complaints =
            testimony.as_ref().map(|told| told.complaints.clone()).unwrap_or_default();
        match process.ended() {
            // It has no account to tell.
            _ if seat.fate.may_be_killed() && process.was_killed() => return Ok(complaints),
            Some(status) if status.success() => {}
            other => {
                complaints.push(format!("ended badly: {other:?}"));
                return Ok(complaints);
            }
        }
        let summary: Summary = read(&path)?;
        let attendance = match seat.fate {
            Fate::Late | Fate::Brief => Attendance::FromSomewhere,
            Fate::Leaving => Attendance::UntilSomewhere,
            Fate::Spared | Fate::Killed | Fate::Stopped | Fate::Slow => Attendance::Whole,
        };
        complaints.extend(check::account(&summary, &self.score.instruments, attendance));
        if let Some(told) = testimony {
            complaints.extend(check::testimony(&summary, &told.delivered));
        }
        self.tally.delivered += summary.statistics.delivered;
        self.tally.conflated += summary.statistics.conflated;
        Ok(complaints)
    }

    fn path_of(&self, index: usize) -> PathBuf {
        self.stage.file(&format!("{}.json", self.seats[index].name))
    }

    fn said(&mut self) -> Vec<String> {
        let mut said = vec![self.stage.said()];
        for seat in &mut self.seats {
            let Seat { name, fate, process, .. } = seat;
            said.push(match process {
                Some(process) => {
                    let status = process.ended();
                    format!("{name} ({fate:?}, {status:?}) said:\n{}", process.said())
                }
                None => format!("{name} ({fate:?}) was not there"),
            });
        }
        said
    }
}
