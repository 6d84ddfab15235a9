//! Every mistake gets one line that names the cause and the remedy.

use std::fs;

use super::programs::{Lines, Processes, folder, run, stderr, wait_until};

/// The one line that a failing program says, log lines left out.
fn complaint(output: &std::process::Output) -> String {
    assert!(!output.status.success(), "it did not fail: {output:?}");
    let said = stderr(output);
    assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{said}");
    said
}

fn refuse_file(content: &[u8], name: &str, kind: &str, words: &[&str]) {
    let folder = folder();
    let file = folder.path().join(name);
    fs::write(&file, content).expect("a file");
    let socket = folder.path().join("s").display().to_string();
    let file = file.display().to_string();
    let arguments =
        ["run", "--socket", &socket, "--source", kind, "--file", &file, "--no-progress"];
    let said = complaint(&run("tapecast-publisher", &arguments));
    for word in words.iter().chain([&name]) {
        assert!(said.contains(word), "{word:?} is missing: {said}");
    }
}

#[test]
fn an_empty_file_is_named() {
    refuse_file(b"", "day.itch50", "itch", &["empty"]);
    refuse_file(b"", "day.dbn", "dbn", &["empty"]);
}

#[test]
fn a_file_of_another_format_names_the_source_that_fits() {
    refuse_file(b"DBN\x02 and so on", "day.dbn", "itch", &["dbn"]);
    refuse_file(b"\x00\x0cS\x00\x00\x00\x00\x0a\x2d\xf4\x92\x1dO\x00", "day", "dbn", &["itch"]);
}

#[test]
fn a_missing_file_and_a_folder_are_named() {
    let folder = folder();
    let socket = folder.path().join("s").display().to_string();
    for (path, word) in [("/nowhere/day.itch50", "/nowhere/day.itch50"), ("/tmp", "folder")] {
        let arguments = ["run", "--socket", &socket, "--source", "itch", "--file", path];
        let said = complaint(&run("tapecast-publisher", &arguments));
        assert!(said.contains(word) || said.contains("directory"), "{said}");
    }
}

#[test]
fn too_little_memory_is_said_before_the_start_with_the_number() {
    let folder = folder();
    let socket = folder.path().join("s").display().to_string();
    let arguments = [
        "run",
        "--socket",
        &socket,
        "--set",
        "shm.instruments_max=1048576",
        "--levels",
        "83",
        "--ring-bytes",
        "16GiB",
        "--no-progress",
    ];
    // 16 GiB of ring and 4 GiB of latest table: more than the machines that run this have free. One
    // that has more would start, so the test says so instead of passing for nothing.
    let available = fs::read_to_string("/proc/meminfo").expect("meminfo");
    let kibibytes: u64 = available
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .expect("MemAvailable");
    if kibibytes > 20 << 20 {
        eprintln!("SKIPPED: {} GiB are free on this machine", kibibytes >> 20);
        return;
    }
    let said = complaint(&run("tapecast-publisher", &arguments));
    assert!(said.contains("GiB") || said.contains("bytes"), "{said}");
}

#[test]
fn a_subscriber_without_a_publisher_is_told_how_to_start_one() {
    let folder = folder();
    let socket = folder.path().join("s").display().to_string();
    let said = complaint(&run("tapecast-subscriber", &["tail", "--socket", &socket]));
    assert!(said.contains(&socket), "{said}");
    assert!(said.contains("publisher"), "{said}");
}

#[test]
fn the_65th_subscriber_and_an_unknown_symbol_are_refused_with_the_reason() {
    let folder = folder();
    let socket = folder.path().join("s").display().to_string();
    let mut processes = Processes::default();
    let publisher = processes.start(
        "tapecast-publisher",
        &["run", "--socket", &socket, "--wait-for", "64", "--no-progress", "--log-level", "warn"],
    );
    wait_until("the socket", || std::path::Path::new(&socket).exists());

    let arguments = ["tail", "--socket", &socket, "--symbols", "TC9999", "--no-reconnect"];
    let said = complaint(&run("tapecast-subscriber", &arguments));
    assert!(said.contains("TC9999"), "{said}");

    // The day begins when 64 are attached: then the first of them gets a line.
    let first = processes.start("tapecast-subscriber", &["tail", "--socket", &socket]);
    for _ in 1..64 {
        processes.start("tapecast-subscriber", &["tail", "--quiet", "--socket", &socket]);
    }
    let mut lines = Lines::of(&mut processes, first);
    lines.next();
    lines.discard();
    let arguments = ["tail", "-n", "1", "--socket", &socket, "--no-reconnect"];
    let said = complaint(&run("tapecast-subscriber", &arguments));
    assert!(said.contains("64"), "{said}");
    processes.signal(publisher, rustix::process::Signal::TERM);
    assert!(processes.finish(publisher).status.success());
}
