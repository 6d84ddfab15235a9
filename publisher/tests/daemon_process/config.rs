//! What the program says about its configuration and its command line.

use crate::support::{Bench, error_line, program, stderr};

#[test]
fn check_config_prints_every_value_with_its_origin() {
    let bench = Bench::new();
    let file = bench.write("p.toml", b"[shm]\nring_bytes = \"1 MiB\"\n[book]\nlevels = 5\n");
    let output = program()
        .args(["check-config", "--idle", "spin", "--set", "log.level=warn", "--config"])
        .arg(&file)
        .env("TAPECAST_BOOK_LEVELS", "7")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |start: &str| {
        let found = text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no {start} in {text}")).to_owned()
    };
    assert!(line("ring_bytes = \"1 MiB\"").ends_with(&format!("# {}", file.display())));
    assert!(line("levels = 7").ends_with("# environment variable TAPECAST_BOOK_LEVELS"));
    assert!(line("idle = \"spin\"").ends_with("# flag --idle"));
    assert!(line("level = \"warn\"").ends_with("# flag --set log.level=…"));
    assert!(line("sessions_max = 64").ends_with("# default"));
}

#[test]
fn the_configuration_file_can_be_named_by_a_variable() {
    let bench = Bench::new();
    let file = bench.write("p.toml", b"[book]\nlevels = 3\n");
    let output = program().arg("check-config").env("TAPECAST_CONFIG", &file).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("levels = 3"));
}

#[test]
fn check_config_and_run_refuse_the_same_with_one_line() {
    let bench = Bench::new();
    let file = bench.write("p.toml", b"[shm]\nring_bytes = \"3 MiB\"\n");
    let expected = format!(
        "tapecast-publisher: {}: shm.ring_bytes: \"3 MiB\" is not a power of two; allowed: a \
         power of two, 64 KiB to 16 GiB",
        file.display()
    );
    for command in ["check-config", "run"] {
        let output = program().args([command, "--config"]).arg(&file).output().unwrap();
        assert_eq!(error_line(&output), expected);
    }
}

#[test]
fn check_config_refuses_to_keep_a_ring_that_the_seal_locks_and_says_what_to_do() {
    let bench = Bench::new();
    let file = bench.write("p.toml", b"[shm]\nkeep = true\n");
    let output = program().args(["check-config", "--config"]).arg(&file).output().unwrap();
    let expected = format!(
        "tapecast-publisher: {}: shm.keep: true, but shm.seal is \"future-write\", with which no \
         later publisher could write in the ring: set shm.seal = \"owner\", or shm.keep = false",
        file.display()
    );
    assert_eq!(error_line(&output), expected);
    let owner = ["check-config", "--set", "shm.seal=owner", "--config"];
    let output = program().args(owner).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn a_core_that_may_not_be_used_is_refused_with_those_that_may() {
    let output = program().args(["check-config", "--cpu", "1023"]).output().unwrap();
    let line = error_line(&output);
    assert!(line.contains("flag --cpu: sender.cpu: core 1023 may not be used"), "{line}");
    assert!(line.contains("this process may use"), "{line}");
}

#[test]
fn an_unknown_user_or_group_is_named() {
    for (key, name) in [("access.users", "nobody-of-that-name"), ("access.groups", "no-such-group")]
    {
        let setting = format!("{key}={name}");
        let output = program().args(["check-config", "--set", &setting]).output().unwrap();
        let line = error_line(&output);
        assert!(line.contains(key) && line.contains(name), "{line}");
    }
}

#[test]
fn wrong_usage_has_a_status_of_its_own_and_points_to_the_help() {
    for arguments in [&["run", "--nonsense"][..], &["rum"], &[], &["run", "--set", "levels"]] {
        let output = program().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains("--help") || arguments.is_empty(), "{}", stderr(&output));
    }
}

#[test]
fn the_help_teaches_with_examples_units_and_defaults() {
    let help = |arguments: &[&str]| {
        let output = program().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(help(&["--help"]).contains("Examples:") && help(&["--help"]).contains("Exit status"));
    let run = help(&["run", "--help"]);
    for taught in ["Examples:", "[default: 16 MiB]", "64 KiB to 16 GiB", "TAPECAST_", "--wait-for"]
    {
        assert!(run.contains(taught), "{taught} is not in {run}");
    }
    assert!(help(&["generate", "--help"]).contains("Example:"));
    assert!(help(&["check-config", "--help"]).contains("Examples:"));
}
