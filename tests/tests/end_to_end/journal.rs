//! Journals: written by a publisher, replayed, received, compared; and what happens to them and to
//! everybody else when the publisher is killed or the disk does not do its part.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::process::Signal;
use serde_json::Value;
use tapecast_journal::{Entry, How, Series, files_of};

use super::programs::{Processes, folder, json, run, stderr, wait_until};

const PUBLISHER: &str = "tapecast-publisher";
const SUBSCRIBER: &str = "tapecast-subscriber";

fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

fn args(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn borrowed(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// A simulated day of so many messages.
fn day(folder: &Path, messages: &str) -> String {
    let file = text(&folder.join("day.itch50"));
    let words = ["generate", "--out", &file, "--instruments", "5", "--messages", messages];
    let output = run(PUBLISHER, &[&words[..], &["--no-progress"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    file
}

/// Plays something to one lossless subscriber, which writes it down; both end by themselves.
fn play(folder: &Path, source: &[&str], record: &Path) {
    let socket = text(&folder.join("s"));
    let mut processes = Processes::default();
    let mut words = source.to_vec();
    words.extend(["--socket", &socket, "--wait-for", "1", "--exit-at-end", "--pace", "max"]);
    words.extend(["--lossless", "--no-progress", "--log-level", "warn"]);
    let publisher = processes.start(PUBLISHER, &words);
    let file = text(record);
    let recorder = processes.start(
        SUBSCRIBER,
        &[
            "record",
            &file,
            "--socket",
            &socket,
            "--policy",
            "lossless",
            "--until-end",
            "--no-reconnect",
            "--wait-for-publisher",
            "60",
        ],
    );
    let output = processes.finish(recorder);
    assert!(output.status.success(), "the recorder failed: {}", stderr(&output));
    let output = processes.finish(publisher);
    assert!(output.status.success(), "the publisher failed: {}", stderr(&output));
}

fn diff(a: &Path, b: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let (a, b) = (text(a), text(b));
    let output = run(SUBSCRIBER, &[&["diff", &a, &b, "--json"], more].concat());
    let parsed = serde_json::from_slice(&output.stdout);
    (output.status.code(), parsed.unwrap_or_else(|_| panic!("{}", stderr(&output))))
}

/// Channel sequences of all whole snapshots, how the last file ends, and what holes say is lost.
fn read(path: &Path) -> (Vec<u64>, How, u64) {
    let mut series = Series::open(path).expect("a journal");
    let (mut sequences, mut lost) = (Vec::new(), 0);
    loop {
        while series.advance().expect("a readable journal") {
            match series.record().expect("a record").entry {
                Entry::Snapshot { snapshot, instrument } => {
                    assert!(instrument.is_some(), "a snapshot without a name");
                    sequences.push(snapshot.channel_sequence().get());
                }
                Entry::Hole(hole) => lost += hole.lost,
                Entry::Instrument(_) => {}
            }
        }
        let how = series.ending().expect("an end").how;
        if !series.next_file().expect("a readable journal") {
            return (sequences, how, lost);
        }
    }
}

#[test]
fn a_run_its_replay_and_what_a_subscriber_received_of_both_say_the_same() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let day = day(folder.path(), "4000");
    let journal = text(&path("journal"));
    let source = ["run", "--source", "itch", "--file", &day, "--journal", &journal];
    let rotating = ["--journal-rotate", "256 KiB", "--report", &text(&path("report.json"))];
    play(folder.path(), &[&source[..], &rotating].concat(), &path("first"));
    play(folder.path(), &["replay", &journal], &path("second"));

    let report = json(&path("report.json"));
    let written = &report["journal"];
    assert_eq!(written["records"], report["totals"]["published"], "{report}");
    assert_eq!((&written["lost"], &written["error"]), (&Value::from(0), &Value::Null));
    let files = files_of(&path("journal")).expect("a folder");
    assert!(files.len() > 2 && written["files"] == files.len(), "{written}");
    assert_eq!(read(&path("journal")).1, How::Closed);

    for (a, b) in [("journal", "first"), ("journal", "second"), ("first", "second")] {
        let (status, found) = diff(&path(a), &path(b), &[]);
        assert_eq!((status, &found["same"]), (Some(0), &Value::Bool(true)), "{a} {b}: {found}");
        assert_eq!(found["totals"]["identical"], report["totals"]["published"], "{a} {b}");
    }
    let (status, found) = diff(&path("first"), &path("second"), &["--exact"]);
    assert_eq!(status, Some(1), "{found}");
    let first = found["first_difference"].as_str().expect("words");
    assert!(first.contains("epoch is"), "{first}");
}

#[test]
fn journals_of_two_days_differ_in_words_and_something_else_is_unusable() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let journal = |seed: &str| text(&path(&format!("j{seed}")));
    for seed in ["1", "2"] {
        let socket = text(&path("s"));
        let (journal, words) = (journal(seed), ["run", "--seed", seed, "--instruments", "2"]);
        let length = ["--set", "source.synthetic.length=2000 messages", "--pace", "max"];
        let rest = ["--exit-at-end", "--no-progress", "--socket", &socket, "--journal", &journal];
        let output = run(PUBLISHER, &[&words[..], &length, &rest].concat());
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let (status, found) = diff(&path("j1"), &path("j2"), &[]);
    assert_eq!((status, &found["same"]), (Some(1), &Value::Bool(false)), "{found}");
    assert!(found["first_difference"].as_str().is_some_and(|words| words.contains("TC000")));
    assert_eq!(found["instruments"].as_array().map(Vec::len), Some(2), "{found}");

    let output = run(SUBSCRIBER, &["diff", &journal("1"), "/etc/passwd"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/etc/passwd is not a tapecast journal"));
    damage(&files_of(&path("j2")).expect("files")[0]);
    let (status, found) = diff(&path("j1"), &path("j2"), &[]);
    assert_eq!((status, &found["b"]["ending"]), (Some(2), &Value::from("damaged")), "{found}");
}

/// Changes one byte in the middle.
fn damage(file: &Path) {
    let mut bytes = fs::read(file).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(file, bytes).expect("a file");
}

#[test]
fn a_publisher_that_is_killed_leaves_a_journal_that_is_good_to_its_last_whole_record() {
    let folder = folder();
    let journal = folder.path().join("journal");
    let socket = text(&folder.path().join("s"));
    let mut processes = Processes::default();
    let path = text(&journal);
    let words = ["run", "--socket", &socket, "--journal", &path, "--no-progress"];
    let publisher = processes.start(PUBLISHER, &words);
    let count = || files_of(&journal).map_or(0, |files| files.len());
    wait_until("a journal", || count() > 0);
    // A file that was just begun has no header yet.
    let is_begun = || Series::open(&journal).is_ok();
    wait_until("some snapshots", || is_begun() && read(&journal).0.len() > 1000);
    processes.signal(publisher, Signal::KILL);
    processes.finish(publisher);
    let (sequences, how, lost) = read(&journal);
    assert!(matches!(how, How::Open | How::Cut), "{how:?}");
    assert_eq!((sequences.len() as u64, lost), (*sequences.last().expect("snapshots"), 0));
    assert!(sequences.is_sorted());

    // The next one takes the reserved room off it and begins a file of its own.
    let before = fs::metadata(&files_of(&journal).expect("files")[0]).expect("a file").len();
    let next = processes.start(PUBLISHER, &words);
    wait_until("another file", || count() == 2);
    processes.signal(next, Signal::TERM);
    let output = processes.finish(next);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("good up to its last whole record"), "{}", stderr(&output));
    let old = &files_of(&journal).expect("files")[0];
    assert!(fs::metadata(old).expect("a file").len() < before);
    assert_eq!(read(old).0, sequences);
    assert_eq!(read(&files_of(&journal).expect("files")[1]).1, How::Closed);
}

/// A publisher with a journal, and a subscriber that reads everything, to their ends.
struct Ended {
    report: Value,
    summary: Value,
    said: String,
}

/// Runs both. `shell` is what the publisher's shell does before it becomes the publisher.
fn run_in_trouble(folder: &Path, shell: &str, journal: &Path) -> Ended {
    let socket = text(&folder.join("s"));
    let (report, summary) = (folder.join("report.json"), folder.join("summary.json"));
    let publisher = text(&super::programs::programs().join(PUBLISHER));
    let script = format!("{shell}; exec \"$0\" \"$@\"");
    let mut words = args(&["-c", &script, &publisher, "run", "--socket", &socket]);
    words.extend(args(&["--wait-for", "1", "--exit-at-end", "--pace", "max", "--no-progress"]));
    words.extend(args(&["--lossless", "--instruments", "5", "--journal", &text(journal)]));
    words.extend(args(&["--set", "source.synthetic.length=30000 messages"]));
    // The shared region is a file too, and has to stay below a limit on file sizes.
    words.extend(args(&["--ring-bytes", "256 KiB", "--set", "shm.instruments_max=16"]));
    words.extend(args(&["--report", &text(&report)]));
    let mut processes = Processes::default();
    let publisher = processes.start("/bin/sh", &borrowed(&words));
    let path = text(&summary);
    let mut words = vec!["tail", "--quiet", "--socket", &socket, "--policy", "lossless"];
    words.extend(["--until-end", "--no-reconnect", "--wait-for-publisher", "60"]);
    words.extend(["--summary-json", &path]);
    let tail = processes.start(SUBSCRIBER, &words);
    let output = processes.finish(tail);
    assert!(output.status.success(), "the subscriber was harmed: {}", stderr(&output));
    let output = processes.finish(publisher);
    let said = stderr(&output);
    assert!(output.status.success(), "the publisher was harmed: {said}");
    Ended { report: json(&report), summary: json(&summary), said }
}

fn check_trouble(ended: &Ended, journal: &Path, cause: &str) {
    let Ended { report, summary, said } = ended;
    assert_eq!(summary["balanced"], true, "{summary}");
    assert_eq!(summary["statistics"]["lost"], 0, "{summary}");
    assert_eq!(summary["statistics"]["conflated"], 0, "{summary}");
    let count = |value: &Value| value.as_u64().expect("a count");
    let published = count(&report["totals"]["published"]);
    assert_eq!(count(&summary["statistics"]["delivered"]), published);
    let written = &report["journal"];
    assert!(count(&written["lost"]) > 0, "{written}");
    assert_eq!(count(&written["records"]) + count(&written["lost"]), published, "{written}");
    let lines: Vec<&str> =
        said.lines().filter(|line| line.contains("the journal has a hole")).collect();
    assert_eq!(lines.len(), 1, "it is said once: {said}");
    assert!(lines[0].contains(cause) && lines[0].contains("publishing goes on"), "{}", lines[0]);
    let (sequences, how, _) = read(journal);
    assert_eq!((sequences.len() as u64, how), (count(&written["records"]), How::Closed));
}

#[test]
fn a_limit_on_file_sizes_costs_the_journal_its_rest_and_nobody_else_anything() {
    let folder = folder();
    let journal = folder.path().join("journal");
    // In units of 512 bytes: 2 MiB.
    let ended = run_in_trouble(folder.path(), "ulimit -f 4096", &journal);
    check_trouble(&ended, &journal, "LimitFSIZE");
}

#[test]
fn a_full_disk_costs_the_journal_its_rest_and_nobody_else_anything() {
    let folder = folder();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("a folder");
    let Some(_mount) = Mount::small(&disk) else { return };
    let journal = disk.join("journal");
    let ended = run_in_trouble(folder.path(), "true", &journal);
    check_trouble(&ended, &journal, "free some space");
}

/// A small disk, unmounted at the end.
struct Mount(PathBuf);

impl Mount {
    fn small(at: &Path) -> Option<Self> {
        let words = ["-t", "tmpfs", "-o", "size=2m", "tapecast-test"];
        let mounted = std::process::Command::new("mount").args(words).arg(at).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(at.to_owned()));
        }
        eprintln!("SKIPPED: a small disk cannot be mounted here");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _unmounted = std::process::Command::new("umount").arg(&self.0).output();
    }
}

fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
    stderr(output)
}

#[test]
fn a_folder_that_cannot_be_written_to_is_refused_at_the_start_with_what_to_do() {
    let folder = folder();
    let socket = text(&folder.path().join("s"));
    let file = folder.path().join("file");
    fs::write(&file, b"x").expect("a file");
    let missing = text(&folder.path().join("no/such"));
    // Where even root cannot write shows when it is tried, and check-config takes nothing.
    let run_only = ["/proc/journal", "/sys"].map(|journal| ("run", journal));
    let both = [missing, text(&file)];
    let both = both.iter().flat_map(|path| [("run", &**path), ("check-config", &**path)]);
    for (command, journal) in run_only.into_iter().chain(both) {
        let words = [command, "--socket", &socket, "--journal", journal];
        let said = refusal(&run(PUBLISHER, &words));
        assert!(said.contains("journal.path") && said.contains("--journal"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(!Path::new(&socket).exists(), "nothing may be left behind");
}

#[test]
fn a_folder_that_only_others_may_write_to_is_refused() {
    if rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: root may write everywhere");
        return;
    }
    let folder = folder();
    let journal = folder.path().join("journal");
    fs::create_dir(&journal).expect("a folder");
    fs::set_permissions(&journal, fs::Permissions::from_mode(0o555)).expect("permissions");
    let said = refusal(&run(PUBLISHER, &["check-config", "--journal", &text(&journal)]));
    assert!(said.contains("denied") && said.contains("--journal"), "{said}");
}

#[test]
fn a_journal_cannot_be_replayed_into_itself() {
    let folder = folder();
    let path = text(folder.path());
    let said = refusal(&run(PUBLISHER, &["replay", &path, "--journal", &path]));
    assert!(said.contains("journal.path") && said.contains("another folder"), "{said}");
}
