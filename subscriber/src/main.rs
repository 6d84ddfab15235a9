//! The command `tapecast-subscriber`: `tail`, `stats`, `top`, `record` and `diff`.

#![forbid(unsafe_code)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
