//! Who watches a run. Each checker keeps a model of its own, made from orders and observations,
//! and asks the code under test for nothing.

mod balance;
mod content;
mod credit;
mod delay;
mod directory;
mod disconnect;
mod fairness;
mod gate;
mod justice;
mod liveness;
mod newest;
mod order;
mod pages;
mod prompt;
mod queues;
mod rest;

use super::event::Event;
use super::history::History;

/// Watches for one promise.
pub trait Checker: std::fmt::Debug {
    /// What it is called in a report.
    fn name(&self) -> &'static str;

    /// Something has happened; `history` has it already.
    ///
    /// # Errors
    /// How the promise was broken.
    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String>;
}

/// All of them.
#[must_use]
pub fn all() -> Vec<Box<dyn Checker>> {
    vec![
        Box::<content::Content>::default(),
        Box::<order::Order>::default(),
        Box::<newest::Newest>::default(),
        Box::<balance::Balance>::default(),
        Box::<fairness::Fairness>::default(),
        Box::<delay::Delay>::default(),
        Box::<prompt::Prompt>::default(),
        Box::<credit::Credit>::default(),
        Box::<queues::Queues>::default(),
        Box::<pages::Pages>::default(),
        Box::<gate::Gate>::default(),
        Box::<disconnect::Disconnect>::default(),
        Box::<rest::Rest>::default(),
        Box::<justice::Justice>::default(),
        Box::<directory::Directory>::default(),
        Box::<liveness::Liveness>::default(),
    ]
}

/// Complains unless something holds.
fn ensure(holds: bool, complaint: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(complaint()) }
}

/// Something for each attachment and instrument, made when it is first asked for.
#[derive(Clone, Debug, Default)]
struct Cells<T> {
    rows: Vec<Vec<T>>,
}

impl<T: Clone + Default> Cells<T> {
    fn at(&mut self, attachment: usize, instrument: usize) -> &mut T {
        if self.rows.len() <= attachment {
            self.rows.resize(attachment + 1, Vec::new());
        }
        let row = &mut self.rows[attachment];
        if row.len() <= instrument {
            row.resize(instrument + 1, T::default());
        }
        &mut row[instrument]
    }

    fn get(&self, attachment: usize, instrument: usize) -> Option<&T> {
        self.rows.get(attachment)?.get(instrument)
    }
}
