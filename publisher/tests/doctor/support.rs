//! Reports as short texts, and the program itself.

use std::process::{Command, Output};

use tapecast_publisher::doctor::Report;

use crate::trees::Tree;

/// One word of status and the name of each finding.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let line = |finding: &tapecast_publisher::doctor::Finding| {
        format!("{} {}", finding.status.word(), finding.id)
    };
    report.findings.iter().map(line).collect()
}

/// The findings that are not ok.
pub(crate) fn troubles(report: &Report) -> Vec<String> {
    lines(report).into_iter().filter(|line| !line.starts_with("ok ")).collect()
}

/// The program, on a tree.
pub(crate) fn doctor(tree: &Tree, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapecast-publisher"));
    command.args(["doctor", "--sysroot"]).arg(tree.path()).args(arguments);
    command.output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
