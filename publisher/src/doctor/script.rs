//! The remedies as a script that a person can read and run.

use std::fmt;

use super::finding::{Act, Finding, Section, clean};
use super::{Report, lasting};

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
        writeln!(f, "# Read it, then run it as root.")?;
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
        let lost = commands.iter().any(|(_, step)| lasting::is_lost(step));
        to_last(f, report, lost)?;
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

/// What no file of the system's configuration can set.
const OF_CARD: [&str; 3] = [
    "Card, interface and interrupts are there only once the driver is: let a unit",
    "(Type=oneshot, After=network-online.target) run the same command with --fix --apply at each",
    "start. It does again what is not as wanted, and nothing else.",
];

/// How it is as well after a restart.
fn to_last(f: &mut fmt::Formatter<'_>, report: &Report, lost: bool) -> fmt::Result {
    if report.lasting.is_empty() && !lost {
        return Ok(());
    }
    writeln!(f, "\n# --- To make it last: files of the kernel forget at a restart")?;
    for keep in &report.lasting {
        writeln!(f, "# {}", keep.what)?;
        writeln!(f, "cat > {} <<'END'", keep.path)?;
        keep.lines.iter().try_for_each(|line| writeln!(f, "{}", clean(line)))?;
        writeln!(f, "END")?;
    }
    if lost {
        for line in OF_CARD {
            writeln!(f, "# {line}")?;
        }
    }
    Ok(())
}

fn state(finding: &Finding) -> String {
    match &finding.seen {
        Some(seen) => format!("{seen}; wanted {}", finding.wanted),
        None => format!("not known; wanted {}", finding.wanted),
    }
}
