//! Performs the remedies: writes files, runs programs, leaves the rest to a person.

use std::time::Duration;

use super::finding::{Act, Step};
use super::root::Root;
use super::{Report, lasting, tools};

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// Tried, and refused by the system: why.
    Failed(String),
    /// Not tried: why.
    Skipped(String),
}

/// How far a step has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A program is started that may take so long.
    Begun(Duration),
    /// It is over.
    Ended(Outcome),
}

/// Does everything that can be done by a program, and tells about it as it goes. With a recorded
/// tree only files inside it are written, and no program is run.
pub fn perform(root: &Root, report: &Report, mut told: impl FnMut(&Step, Progress)) {
    let mut done = Vec::new();
    for (_, step) in report.steps() {
        if matches!(step.act, Act::Run(_)) && root.is_this_machine() {
            told(step, Progress::Begun(tools::PERFORMING));
        }
        let outcome = try_step(root, step);
        if outcome == Outcome::Done {
            done.push(step);
        }
        told(step, Progress::Ended(outcome));
    }
    // What the system has refused now it need not be told at each start.
    for keep in lasting::files(root, &done) {
        let step = keep.step();
        told(&step, Progress::Ended(try_step(root, &step)));
    }
}

fn try_step(root: &Root, step: &Step) -> Outcome {
    match &step.act {
        Act::ByHand => Outcome::Skipped("left to you".to_owned()),
        Act::Run(_) if !root.is_this_machine() => {
            Outcome::Skipped("it changes a running machine, not a recorded tree".to_owned())
        }
        Act::Run(words) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match tools::run(&words, tools::PERFORMING) {
                Ok(_) => Outcome::Done,
                Err(reason) if reason.contains(" is not installed") => Outcome::Skipped(reason),
                Err(reason) => Outcome::Failed(reason),
            }
        }
        Act::Write(files) => write_all(root, files),
        Act::Keep(path, text) => keep(root, path, text),
    }
}

/// Writes as many as it can, and tells about the first that it could not.
fn write_all(root: &Root, files: &[(String, String)]) -> Outcome {
    let errors = files.iter().filter_map(|(path, value)| {
        root.write(path, value).err().map(|error| format!("{path}: {error}"))
    });
    errors.collect::<Vec<_>>().into_iter().next().map_or(Outcome::Done, Outcome::Failed)
}

/// Makes a file of the system's configuration, where the system has a folder for it.
fn keep(root: &Root, path: &str, text: &str) -> Outcome {
    let folder = super::root::folder_of(path);
    if !root.holds(folder) {
        return Outcome::Skipped(format!("there is no {folder}"));
    }
    match root.make(path, text) {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::Failed(format!("{path}: {error}")),
    }
}
