//! The command `tapecast-subscriber`: `tail`, `stats` and `top`.

#![forbid(unsafe_code)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
