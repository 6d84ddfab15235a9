//! `doctor`: looks at the machine, prints what it found, mends it where that is asked for.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::cli::DoctorArgs;
use crate::doctor::{Act, Human, Outcome, Progress, Report, Script, Step, Wishes};
use crate::doctor::{examine, perform};

use super::print;

/// Something is asked for that is not there.
const WRONG_USAGE: u8 = 2;

/// Looks, and mends with `--fix --apply`.
///
/// # Errors
/// When it may not mend, or its output cannot be written.
pub fn doctor(args: &DoctorArgs) -> Result<ExitCode> {
    let report = match look(args) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("tapecast-publisher: {error:#}");
            return Ok(ExitCode::from(WRONG_USAGE));
        }
    };
    if args.apply {
        return mend(args, &report);
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
    } else if args.fix {
        print(&Script(&report))?;
    } else {
        print(&Human { report: &report, colour: colour() })?;
    }
    Ok(status(&report, args.strict))
}

fn look(args: &DoctorArgs) -> Result<Report> {
    let wishes = Wishes {
        device: args.device.clone(),
        interface: args.interface.clone(),
        cpus: args.cpus.clone(),
    };
    examine(&args.sysroot, &args.profile, &wishes)
}

fn status(report: &Report, strict: bool) -> ExitCode {
    if report.is_bad(strict) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn colour() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stdout().is_terminal() && !refused
}

fn mend(args: &DoctorArgs, report: &Report) -> Result<ExitCode> {
    if args.sysroot.is_this_machine() && !rustix::process::geteuid().is_root() {
        bail!("--apply changes this machine: run it as root, or without --apply to see the script");
    }
    let (mut failed, mut printed) = (false, Ok(()));
    perform(&args.sysroot, report, |step, progress| match progress {
        Progress::Begun(patience) => {
            let minutes = patience.as_secs() / 60;
            // As below.
            let _ = writeln!(stderr(), "running  {} (it has {minutes} min)", step.command);
        }
        Progress::Ended(outcome) => {
            failed |= matches!(outcome, Outcome::Failed(_));
            // What is begun is gone through with, whether somebody reads about it or not.
            let now = print(&line(step, &outcome));
            printed = std::mem::replace(&mut printed, Ok(())).and(now);
        }
    });
    printed?;
    let after = look(args)?;
    print(&format!("\n{}", Human { report: &after, colour: colour() }))?;
    Ok(if failed { ExitCode::FAILURE } else { status(&after, args.strict) })
}

/// What became of a step.
fn line(step: &Step, outcome: &Outcome) -> String {
    let command = &step.command;
    match outcome {
        Outcome::Skipped(_) if step.act == Act::ByHand => format!("by hand  {command}\n"),
        Outcome::Done => format!("done     {command}\n"),
        Outcome::Failed(reason) => format!("FAILED   {command}\n         {reason}\n"),
        Outcome::Skipped(reason) => format!("skipped  {command}\n         {reason}\n"),
    }
}
