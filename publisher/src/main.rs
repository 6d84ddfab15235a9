//! The program `tapecast-publisher`: a thin shell around the library.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use tapecast_publisher::cli::{Cli, Command};
use tapecast_publisher::commands;
use tapecast_publisher::logging::error_mark;

fn main() -> ExitCode {
    end_process_on_panic();
    let outcome = match Cli::read().command {
        Command::Run(args) => commands::run(&args),
        Command::Replay(args) => commands::run(&args.into_run()),
        Command::Generate(args) => commands::generate(&args),
        Command::CheckConfig(args) => commands::check_config(&args),
        Command::Certificates(args) => commands::certificates(&args),
        Command::Doctor(args) => commands::doctor(&args),
        Command::Plan(args) => commands::plan(&args),
        Command::Pages(args) => commands::pages(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}tapecast-publisher: {}", error_mark(), one_line(&error));
            ExitCode::FAILURE
        }
    }
}

/// Exit status after a defect of this program.
const PANICKED: i32 = 101;

/// A thread that panics takes the process with it: a publisher without its sender or feed would
/// only look alive. Subscribers notice the end of the process at once.
fn end_process_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed");
        let what = panic.to_string().replace('\n', " ");
        // Where nobody reads that any more, this process ends all the same.
        let _ = writeln!(
            std::io::stderr(),
            "tapecast-publisher: defect in thread {name}: {what}; please report this"
        );
        std::process::exit(PANICKED);
    }));
}

/// The error and its causes, as far as a cause says something new.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !line.contains(&cause) {
            line = if line.is_empty() { cause } else { format!("{line}: {cause}") };
        }
    }
    line.replace('\n', " ")
}
