//! `pages`: manual pages and shell completions, for a package.

use std::fs::create_dir_all;
use std::io;

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

use super::args::{Cli, PagesArgs};

/// Writes a manual page for each command, and completions for each shell.
pub(super) fn pages(args: &PagesArgs) -> io::Result<()> {
    let mut command = Cli::command();
    create_dir_all(&args.out)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command, "tapecast-subscriber", &args.out)?;
    }
    clap_mangen::generate_to(command, &args.out)
}
