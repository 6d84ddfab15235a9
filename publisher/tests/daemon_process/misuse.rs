//! Bad input and misuse: one clear line that names the cause and the remedy.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::support::{Bench, error_line, program, stderr};

fn refusal(bench: &Bench, kind: &str, file: &Path) -> String {
    let file = file.to_str().unwrap();
    error_line(&bench.run(["--source", kind, "--file", file, "--exit-at-end"]).output().unwrap())
}

fn assert_says(line: &str, words: &[&str]) {
    for word in words {
        assert!(line.contains(word), "{word:?} is not in: {line}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let bench = Bench::new();
    for kind in ["itch", "dbn"] {
        let line = refusal(&bench, kind, &bench.path("missing"));
        assert_says(&line, &["missing", "o such file"]);
    }
    assert_eq!(bench.files(), [""; 0], "a refused start leaves nothing behind");
}

#[test]
fn check_config_refuses_a_source_file_that_cannot_be_opened() {
    let bench = Bench::new();
    let folder = bench.path("folder");
    std::fs::create_dir(&folder).unwrap();
    for (path, word) in [(bench.path("missing"), "o such file"), (folder, "directory")] {
        let output =
            program().args(["check-config", "--source", "itch", "--file"]).arg(&path).output();
        let line = error_line(&output.unwrap());
        assert_says(&line, &["flag --file: source.file: ", path.to_str().unwrap(), word, "--file"]);
    }
    let there = bench.write("day.itch50", b"");
    let output = program().args(["check-config", "--source", "itch", "--file"]).arg(there).output();
    assert!(output.unwrap().status.success(), "what is in it shows when it is played");
}

#[test]
fn a_configuration_without_end_is_refused() {
    for command in ["check-config", "run"] {
        let output = program().args([command, "--config", "/dev/zero"]).output().unwrap();
        assert_says(&error_line(&output), &["/dev/zero", "not a file", "--config"]);
    }
}

#[cfg(not(feature = "verbs"))]
#[test]
fn a_fabric_that_is_not_built_in_is_refused_with_how_to_build_it() {
    for command in ["check-config", "run"] {
        let output = program().args([command, "--fabric", "verbs"]).output().unwrap();
        let words = ["flag --fabric: fabric.kind: ", "no RDMA", "--features verbs"];
        assert_says(&error_line(&output), &words);
    }
}

#[cfg(feature = "verbs")]
#[test]
fn an_rdma_device_that_is_not_there_is_told_with_its_key() {
    let arguments = ["run", "--fabric", "verbs", "--listen", "127.0.0.1:0", "--rdma-device"];
    let output = program().args(arguments).arg("no-such-device").output().unwrap();
    assert_says(&error_line(&output), &["rdma.device", "RDMA device"]);
}

#[cfg(feature = "verbs")]
#[test]
fn an_address_that_cannot_be_listened_on_is_told_with_its_key() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = program().args(["run", "--fabric", "verbs", "--listen", &address]).output();
    assert_says(&error_line(&output.unwrap()), &["listen.address", "--listen", &address]);
    let arguments = ["check-config", "--fabric", "verbs", "--listen", "0.0.0.0:1"];
    let output = program().args(arguments).output().unwrap();
    let words = ["tls.certificate: not set", "tapecast-publisher certificates"];
    assert_says(&error_line(&output), &words);
}

#[test]
fn an_empty_file_is_called_empty() {
    let bench = Bench::new();
    let file = bench.write("empty.itch50", b"");
    for kind in ["itch", "dbn"] {
        assert_says(&refusal(&bench, kind, &file), &["empty.itch50", "empty"]);
    }
}

#[test]
fn a_directory_is_called_a_directory() {
    let bench = Bench::new();
    let folder = bench.path("folder");
    std::fs::create_dir(&folder).unwrap();
    for kind in ["itch", "dbn"] {
        assert_says(&refusal(&bench, kind, &folder), &["folder", "directory"]);
    }
}

#[test]
fn a_file_of_another_format_is_told_apart() {
    let bench = Bench::new();
    let text =
        bench.write("notes.txt", b"These are notes, and nothing else. They go on for a bit.\n");
    assert_says(&refusal(&bench, "itch", &text), &["notes.txt", "not"]);
    assert_says(&refusal(&bench, "dbn", &text), &["notes.txt", "not"]);
    let itch = bench.generate("day.itch50", 200);
    assert_says(&refusal(&bench, "dbn", &itch), &["day.itch50"]);
    let zstd = bench.write("x.zst", &[0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0, 0, 0]);
    assert_says(&refusal(&bench, "itch", &zstd), &["x.zst", "zst"]);
}

#[test]
fn a_gzip_that_is_cut_short_is_told_and_what_was_good_is_published() {
    let bench = Bench::new();
    let day = std::fs::read(bench.generate("day.itch50", 20_000)).unwrap();
    let whole = std::fs::read(bench.write_gzip("whole.gz", &day)).unwrap();
    let cut = bench.write("cut.itch50.gz", &whole[..whole.len() / 2]);
    let report = bench.path("report.json");
    let arguments = ["--pace", "max", "--exit-at-end", "--source", "itch", "--file"];
    let output = bench.run(arguments).arg(&cut).arg("--report").arg(&report).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let last = stderr(&output).lines().last().unwrap().to_owned();
    assert_says(&last, &["cut.itch50.gz", "cut short", "byte", "allow_truncated"]);
    let report = bench.report();
    assert_eq!(report["source"]["outcome"], "failed");
    assert!(report["totals"]["published"].as_u64().unwrap() > 1000, "{report}");
}

#[test]
fn an_unknown_symbol_is_named_with_those_that_are_near() {
    let bench = Bench::new();
    let day = bench.generate("day.itch50", 200);
    let output = bench
        .run(["--symbols", "TC0001,TC00O2", "--source", "itch", "--file"])
        .arg(&day)
        .output()
        .unwrap();
    assert_says(&error_line(&output), &["source.symbols", "TC00O2", "near", "TC0002"]);
    let output = bench.run(["--symbols", "AAPL"]).output().unwrap();
    assert_says(&error_line(&output), &["AAPL", "TC0001"]);
}

#[test]
fn too_many_instruments_for_the_directory_are_told_with_the_key() {
    let bench = Bench::new();
    let output = bench.run(["--set", "shm.instruments_max=5"]).output().unwrap();
    assert_says(&error_line(&output), &["100 instruments", "shm.instruments_max is 5"]);
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_work() {
    let bench = Bench::new();
    for path in ["/nonexistent/report.json", "/"] {
        let output = bench.run(["--report", path, "--exit-at-end"]).output().unwrap();
        assert_says(&error_line(&output), &["report", path, "--report"]);
    }
}

#[test]
fn a_socket_that_cannot_be_made_is_named() {
    let bench = Bench::new();
    let socket = bench.path("no/such/folder/s.sock");
    let output = program().args(["run", "--socket"]).arg(&socket).output().unwrap();
    assert_says(&error_line(&output), &["no/such/folder"]);
    let taken = bench.write("file", b"x");
    let output = program().args(["run", "--socket"]).arg(&taken).output().unwrap();
    assert_says(&error_line(&output), &[taken.to_str().unwrap()]);
    assert_eq!(std::fs::read(&taken).unwrap(), b"x", "somebody's file must not be touched");
}

#[test]
fn a_generated_file_never_replaces_one_that_is_there() {
    let bench = Bench::new();
    let day = bench.generate("day.itch50", 200);
    let before = std::fs::read(&day).unwrap();
    let generate = ["generate", "--seed", "2", "--messages", "300", "--no-progress", "--out"];
    let output = program().args(generate).arg(&day).output().unwrap();
    assert_says(&error_line(&output), &["day.itch50", "exists"]);
    assert_eq!(std::fs::read(&day).unwrap(), before);
    let output = program().args(generate).arg(&day).arg("--force").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_ne!(std::fs::read(&day).unwrap(), before);
}

/// In a mount namespace of its own, where `/proc/meminfo` says that there is little memory.
#[test]
fn too_little_memory_is_told_before_anything_runs_with_the_number_that_is_needed() {
    let bench = Bench::new();
    let meminfo = bench.path("meminfo");
    let mut file = std::fs::File::create(&meminfo).unwrap();
    writeln!(file, "MemTotal: 65536 kB\nMemAvailable: 16384 kB").unwrap();
    let script = "mount --bind \"$0\" /proc/meminfo || exit 77; shift 0; exec \"$@\"";
    let run = bench.run(["--ring-bytes", "64 MiB", "--exit-at-end"]);
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(&meminfo)
        .arg(run.get_program())
        .args(run.get_args())
        .output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: there is no unshare on this machine");
        return;
    };
    if output.status.code() == Some(77) || stderr(&output).contains("unshare") {
        eprintln!("SKIPPED: mounting is not allowed here: {}", stderr(&output));
        return;
    }
    let line = error_line(&output);
    assert_says(&line, &["shm.ring_bytes", "MiB) are needed", "16777216 (16 MiB) are available"]);
    assert_says(&line, &["make the ring smaller"]);
}
