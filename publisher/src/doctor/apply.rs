//! Performs the remedies: writes files, runs programs, leaves the rest to a person.

use super::finding::{Act, Step};
use super::root::Root;
use super::{Report, tools};

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

/// A step and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Performed {
    /// The step.
    pub step: Step,
    /// What became of it.
    pub outcome: Outcome,
}

/// Does everything that can be done by a program. With a recorded tree only files inside it are
/// written, and no program is run.
#[must_use]
pub fn perform(root: &Root, report: &Report) -> Vec<Performed> {
    let steps = report.steps().into_iter();
    steps.map(|(_, step)| Performed { step: step.clone(), outcome: try_step(root, step) }).collect()
}

fn try_step(root: &Root, step: &Step) -> Outcome {
    match &step.act {
        Act::ByHand => Outcome::Skipped("left to you".to_owned()),
        Act::Run(_) if !root.is_this_machine() => {
            Outcome::Skipped("it changes a running machine, not a recorded tree".to_owned())
        }
        Act::Run(words) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match tools::run(&words) {
                Ok(_) => Outcome::Done,
                Err(reason) if reason.contains(" is not installed") => Outcome::Skipped(reason),
                Err(reason) => Outcome::Failed(reason),
            }
        }
        Act::Write(files) => write_all(root, files),
    }
}

/// Writes as many as it can, and tells about the first that it could not.
fn write_all(root: &Root, files: &[(String, String)]) -> Outcome {
    let errors = files.iter().filter_map(|(path, value)| {
        root.write(path, value).err().map(|error| format!("{path}: {error}"))
    });
    errors.collect::<Vec<_>>().into_iter().next().map_or(Outcome::Done, Outcome::Failed)
}
