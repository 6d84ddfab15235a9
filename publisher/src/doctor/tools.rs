//! Programs that tell what no file does: asked on this machine, read from what was recorded of
//! another.

use std::io::{ErrorKind, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::finding::excerpt;
use super::root::{Gap, Root};

/// Where the programs of an administrator are, also for those who do not have it in their PATH.
const SYSTEM_PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// A program that takes longer to tell hangs in its driver or firmware.
const ASKING: Duration = Duration::from_secs(15);
/// A program that changes something is not to be ended half-way: swap may take minutes to come back
/// into memory, firmware to be written.
pub(crate) const PERFORMING: Duration = Duration::from_secs(600);
/// Folder of a recorded tree with what programs printed; a file is named like the command.
const RECORDED: &str = "/tool-output";
/// More than this is not read.
const OUTPUT_BYTES: u64 = 4 * 1024 * 1024;

/// The programs of the machine that is examined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tools<'a> {
    root: &'a Root,
}

impl<'a> Tools<'a> {
    pub(crate) const fn of(root: &'a Root) -> Self {
        Self { root }
    }

    /// What a command prints, or why that is not known. The command must change nothing.
    pub(crate) fn ask(self, command: &str) -> Result<String, String> {
        if self.root.is_this_machine() {
            return run(&command.split(' ').collect::<Vec<_>>(), ASKING);
        }
        self.root.read(&format!("{RECORDED}/{command}")).map_err(|gap| match gap {
            Gap::Absent(_) => format!("the output of `{command}` was not recorded"),
            _ => gap.reason(""),
        })
    }
}

/// A command with nothing of this process but its standard error and output.
fn prepared(words: &[&str]) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("LC_ALL", "C").env("PATH", format!("{path}:{SYSTEM_PATH}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command to its end, if that comes in time, and gives what it prints.
///
/// # Errors
/// A sentence's middle, when it is not there, hangs, or fails.
pub(crate) fn run(words: &[&str], patience: Duration) -> Result<String, String> {
    let name = words[0];
    let mut child = prepared(words).spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => not_installed(name),
        _ => format!("{name} cannot be started: {error}"),
    })?;
    let printed = drain(&mut child, patience);
    let Some((output, complaint)) = printed else {
        // It may be gone by now; then there is nothing to end.
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("`{}` did not end within {patience:?}", words.join(" ")));
    };
    let status = child.wait().map_err(|error| format!("{name}: {error}"))?;
    if status.success() {
        return Ok(output);
    }
    let said = complaint.lines().chain(output.lines()).find(|line| !line.trim().is_empty());
    let said = said.map_or_else(|| status.to_string(), excerpt);
    Err(format!("`{}` failed: {said}", words.join(" ")))
}

/// Where programs come from that a host may be without.
const PACKAGES: [(&str, &str); 3] = [
    ("ethtool", "the package ethtool"),
    ("dcb", "the package iproute2"),
    ("mlxconfig", "NVIDIA's firmware tools; the package mstflint has its like"),
];

/// How a sentence begins about a program that is not there.
fn not_installed(name: &str) -> String {
    let package = PACKAGES.iter().find(|(program, _)| *program == name);
    let package = package.map_or_else(String::new, |(_, from)| format!(" (it comes with {from})"));
    format!("{name} is not installed{package}")
}

/// Everything that it prints, on both streams, unless it hangs.
fn drain(child: &mut Child, patience: Duration) -> Option<(String, String)> {
    let output = reader(child.stdout.take());
    let complaint = reader(child.stderr.take());
    Some((output.recv_timeout(patience).ok()?, complaint.recv_timeout(patience).ok()?))
}

fn reader(stream: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            // What came before an error is what there is.
            let _ = stream.take(OUTPUT_BYTES).read_to_end(&mut bytes);
        }
        // Nobody waits any more when the program took too long.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_prints_is_given_back() {
        assert_eq!(run(&["printf", "%s", "rx off"], ASKING).as_deref(), Ok("rx off"));
    }

    #[test]
    fn a_program_that_fails_is_told_with_its_complaint() {
        let said = run(&["sh", "-c", "echo; echo no such device >&2; exit 3"], ASKING).unwrap_err();
        assert!(said.contains("failed: no such device"), "{said}");
        let said = run(&["sh", "-c", "exit 3"], ASKING).unwrap_err();
        assert!(said.contains("exit status: 3"), "{said}");
    }

    #[test]
    fn a_program_that_is_not_there_is_told_with_where_it_comes_from() {
        let said = not_installed("ethtool");
        assert_eq!(said, "ethtool is not installed (it comes with the package ethtool)");
        let said = run(&["tapecast-no-such-program"], ASKING).unwrap_err();
        assert_eq!(said, "tapecast-no-such-program is not installed");
    }

    #[test]
    fn a_program_is_ended_when_the_patience_with_it_is_over_and_not_before() {
        let said = run(&["sleep", "3600"], Duration::from_millis(20)).unwrap_err();
        assert_eq!(said, "`sleep 3600` did not end within 20ms");
        assert_eq!(run(&["sleep", "0.1"], PERFORMING).as_deref(), Ok(""));
    }

    #[test]
    fn changing_something_may_take_far_longer_than_asking() {
        assert!(PERFORMING >= ASKING * 20, "{PERFORMING:?}");
    }
}
