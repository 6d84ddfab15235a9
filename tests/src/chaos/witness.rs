//! Subscribers whose lines are read.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::ChildStdout;
use std::thread::{self, JoinHandle};

use super::line::{Line, Order};

/// Complaints that are kept: one thing that is wrong makes many lines wrong.
const COMPLAINTS_MAX: usize = 5;

/// What a witness has to say at the end.
#[derive(Debug, Default)]
pub(super) struct Testimony {
    /// Snapshots that it was handed, by symbol.
    pub(super) delivered: BTreeMap<String, u64>,
    /// What was wrong with them.
    pub(super) complaints: Vec<String>,
}

/// Reads a subscriber's lines to their end, on a thread of its own, and judges their order.
/// `on_line` sees each of them, and may complain.
pub(super) fn follow(
    stdout: ChildStdout,
    mut on_line: impl FnMut(&Line, &Order) -> Result<(), String> + Send + 'static,
) -> JoinHandle<Testimony> {
    thread::spawn(move || {
        let mut testimony = Testimony::default();
        let mut order = Order::default();
        let (mut lines, mut text) = (BufReader::new(stdout), String::new());
        // A line without an end is one of somebody who was killed while writing it.
        while lines.read_line(&mut text).is_ok_and(|_| text.ends_with('\n')) {
            match Line::parse(&text) {
                Ok(line) => {
                    let judged = order.on_line(&line);
                    testimony.note(judged);
                    testimony.note(on_line(&line, &order));
                    *testimony.delivered.entry(line.symbol).or_default() += 1;
                }
                Err(complaint) => testimony.note(Err(complaint)),
            }
            text.clear();
        }
        testimony
    })
}

impl Testimony {
    fn note(&mut self, judged: Result<(), String>) {
        if let Err(complaint) = judged
            && self.complaints.len() < COMPLAINTS_MAX
        {
            self.complaints.push(complaint);
        }
    }
}
