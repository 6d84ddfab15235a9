//! The remedies as a script that a person can read and run.

use std::fmt;

use super::Report;
use super::finding::{Act, Finding, Section, clean};

/// The remedies of a report, as a script for `sh`.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a>(pub &'a Report);

impl fmt::Display for Script<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(report) = self;
        let steps = report.steps();
        let (by_hand, commands): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|(_, step)| step.act == Act::ByHand);
        writeln!(f, "#!/bin/sh")?;
        writeln!(f, "# From `tapecast-publisher doctor --fix`, profile {}.", report.profile)?;
        if commands.is_empty() && by_hand.is_empty() {
            return writeln!(f, "# Nothing to do.");
        }
        writeln!(f, "# Read it, then run it as root. Files of the kernel forget at a restart.")?;
        let mut section: Option<Section> = None;
        for (finding, step) in &commands {
            if section != Some(finding.section) {
                writeln!(f, "\n# --- {}", finding.section.heading())?;
                section = Some(finding.section);
            }
            writeln!(f, "# {}: {}", clean(&finding.title), clean(&step.what))?;
            writeln!(f, "#   {}", clean(&state(finding)))?;
            writeln!(f, "{}", clean(&step.command))?;
        }
        if !by_hand.is_empty() {
            writeln!(f, "\n# --- Left to you")?;
        }
        for (finding, step) in &by_hand {
            writeln!(f, "# {}: {}", clean(&finding.title), clean(&state(finding)))?;
            writeln!(f, "#   {}: {}", clean(&step.what), clean(&step.command))?;
        }
        Ok(())
    }
}

fn state(finding: &Finding) -> String {
    match &finding.seen {
        Some(seen) => format!("{seen}; wanted {}", finding.wanted),
        None => format!("not known; wanted {}", finding.wanted),
    }
}
