//! What each subcommand does.

mod certificates;
mod check;
mod doctor;
mod generate;
mod kept_ring;
mod open;
mod pages;
mod plan;
mod plant;
mod reread;
mod run;
#[cfg(feature = "verbs")]
mod verbs_plant;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};

pub use certificates::certificates;
pub use doctor::doctor;
pub use generate::generate;
pub use pages::pages;
pub use plan::plan;
pub use run::run;

use crate::cli::{CheckArgs, ConfigArgs};
use crate::config::{self, Effective, Layers};

/// `check-config`: prints the effective configuration.
///
/// # Errors
/// When the configuration cannot be used.
pub fn check_config(args: &CheckArgs) -> Result<ExitCode> {
    let effective = load(&args.config)?;
    check::check(&effective)?;
    if !args.quiet {
        print(&effective)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(text: &impl std::fmt::Display) -> Result<()> {
    match write!(std::io::stdout().lock(), "{text}") {
        // A reader such as `head` that has seen enough is no error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to the standard output"),
    }
}

fn load(args: &ConfigArgs) -> Result<Effective> {
    Ok(config::load(&layers(args))?)
}

/// What the configuration is made of.
fn layers(args: &ConfigArgs) -> Layers {
    // Names and values that are not text cannot be ours; a key's value that is not shows up as
    // wrong, with its name.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()));
    args.layers(environment)
}
