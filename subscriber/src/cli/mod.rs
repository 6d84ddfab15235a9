//! The command line.

mod account;
mod args;
mod diff;
mod failure;
mod figures;
mod interval;
mod json;
mod line;
mod misuse;
mod over_rdma;
mod pages;
mod paint;
mod record;
mod second;
mod sides;
mod stats;
mod stop;
mod subscription;
mod tail;
mod top;

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, ColorArg, Command};
use failure::Failure;
use paint::{Paint, Tone};
use stop::Stop;

/// Runs the command line of this process.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.command) {
        Ok(code) => code,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            let paint = Paint::choose(ColorArg::Auto, &io::stderr());
            drop(writeln!(io::stderr(), "{} {failure}", paint.tint(Tone::Bad, "error:")));
            failure.exit_code()
        }
    }
}

fn run(command: &Command) -> Result<ExitCode, Failure> {
    if let Command::Diff(args) = command {
        return diff::diff(args);
    }
    if let Command::Pages(args) = command {
        let failed = |error| Failure::file("write pages in", &args.out, error);
        pages::pages(args).map_err(failed)?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = Stop::on_signals()?;
    match command {
        Command::Tail(args) => tail::tail(args, &stop),
        Command::Record(args) => record::record(args, &stop),
        Command::Diff(_) | Command::Pages(_) => Ok(()),
        Command::Stats(args) => stats::stats(args, &stop),
        Command::Top(args) => top::top(args, &stop),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Says on the error stream what happened to the subscription.
fn tell(paint: Paint, event: &impl Display) {
    drop(writeln!(io::stderr(), "{}", paint.tint(Tone::Warning, format!("-- {event}"))));
}

/// Says on the error stream what went wrong although it goes on.
fn warn(paint: Paint, what: &impl Display) {
    drop(writeln!(io::stderr(), "{} {what}", paint.tint(Tone::Bad, "warning:")));
}
