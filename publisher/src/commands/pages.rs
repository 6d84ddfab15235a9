//! `pages`: manual pages and shell completions, for a package.

use std::fs::create_dir_all;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;
use clap_complete::Shell;

use crate::cli::{Cli, PagesArgs};

/// Writes a manual page for each command, and completions for each shell.
///
/// # Errors
/// When a file cannot be written.
pub fn pages(args: &PagesArgs) -> Result<ExitCode> {
    let failed = || format!("cannot write pages in {}", args.out.display());
    let mut command = Cli::shaped();
    create_dir_all(&args.out).with_context(failed)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command, "tapecast-publisher", &args.out)
            .with_context(failed)?;
    }
    clap_mangen::generate_to(command, &args.out).with_context(failed)?;
    Ok(ExitCode::SUCCESS)
}
