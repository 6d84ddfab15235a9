//! The house rules that a machine can check.

use std::fs;
use std::path::{Path, PathBuf};

const MAX_FILE_LINES: usize = 800;
const MAX_COLUMNS: usize = 100;
/// Crates that may contain `unsafe`, and single files of tests that need it to observe the process.
const UNSAFE_HOMES: [&str; 2] = ["shared/ring/", "shared/fabric/"];
/// The one file elsewhere that may: it maps a file, which no safe call does.
const UNSAFE_FILE: &str = "shared/journal/src/mapping.rs";
const UNSAFE_TESTS: [&str; 2] = ["tests/tests/sender_alloc.rs", "tests/src/bench/bare_ring.rs"];
/// Homes of atomics: everything else shares data through these crates or through channels.
const ATOMIC_HOMES: [&str; 3] = ["shared/ring/", "shared/fabric/", "shared/telemetry/"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace root").to_owned()
}

/// Every Rust file of the workspace as (path from the root, text), this one left out because it
/// names what it forbids.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for top in ["shared", "publisher", "subscriber", "tests"] {
        collect(&root().join(top), &mut found);
    }
    assert!(found.len() > 30, "the walk found only {} files", found.len());
    found
}

fn collect(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let name = path.strip_prefix(root()).expect("below the root").display().to_string();
            if name != "tests/tests/tidy.rs" {
                found.push((name, fs::read_to_string(&path).expect("UTF-8")));
            }
        }
    }
}

fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

/// Whether `word` stands in `line` with no identifier character on either side.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(is_part)
            && !line[at + word.len()..].chars().next().is_some_and(is_part)
    })
}

fn complain(rule: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{rule}:\n  {}", offences.join("\n  "));
}

/// Lines of the file before its unit-test module.
fn without_tests(text: &str) -> usize {
    text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count()
}

#[test]
fn files_stay_small() {
    let offences: Vec<_> = sources()
        .iter()
        .map(|(name, text)| (name, without_tests(text)))
        .filter(|(_, lines)| *lines > MAX_FILE_LINES)
        .map(|(name, lines)| format!("{name}: {lines} lines, at most {MAX_FILE_LINES}"))
        .collect();
    complain("split the file by state or by phase", &offences);
}

#[test]
fn lines_stay_short() {
    let mut offences = Vec::new();
    for (name, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            // What cannot be broken may be longer: literals, addresses, drawings, tables, and the
            // expected output of a program, which begins in the first column.
            let is_whole =
                ["\"", "://", "─", "//! |", "/// |"].iter().any(|mark| line.contains(mark));
            let is_output = name.contains("/tests/") && !line.starts_with([' ', '/']);
            if columns > MAX_COLUMNS && !is_whole && !is_output {
                offences.push(format!("{name}:{}: {columns} columns", number + 1));
            }
        }
    }
    complain("lines have at most 100 columns", &offences);
}

#[test]
fn unsafe_code_lives_in_ring_and_fabric_alone() {
    let mut offences = Vec::new();
    for (name, text) in sources() {
        if UNSAFE_HOMES.iter().any(|home| name.starts_with(home))
            || UNSAFE_TESTS.contains(&&*name)
            || name == UNSAFE_FILE
        {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if has_word(code_of(line), "unsafe") {
                offences.push(format!("{name}:{}", number + 1));
            }
        }
    }
    complain("unsafe outside its fence", &offences);
}

#[test]
fn every_safety_comment_is_an_argument() {
    let mut offences = Vec::new();
    for (name, text) in sources() {
        let lines: Vec<_> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let Some((_, argument)) = line.split_once("// SAFETY:") else { continue };
            let more = lines[number + 1..].iter().take_while(|next| next.trim().starts_with("//"));
            let words = argument.split_whitespace().count()
                + more.map(|next| next.split_whitespace().count()).sum::<usize>();
            if words < 5 {
                offences.push(format!("{name}:{}: {}", number + 1, argument.trim()));
            }
        }
    }
    complain("a SAFETY comment of fewer than five words proves nothing", &offences);
}

#[test]
fn atomics_live_where_memory_is_shared() {
    let mut offences = Vec::new();
    for (name, text) in sources() {
        let is_test = name.contains("/tests/") || name.starts_with("tests/");
        if is_test || ATOMIC_HOMES.iter().any(|home| name.starts_with(home)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if code_of(line).contains("sync::atomic") && !line.contains("AtomicBool") {
                offences.push(format!("{name}:{}", number + 1));
            }
        }
    }
    complain("atomics outside ring, fabric and telemetry (a stop flag may be one)", &offences);
}

#[test]
fn nothing_is_left_for_later() {
    let words = ["TODO", "FIXME", "XXX", "HACK", "todo!", "unimplemented!"];
    let mut offences = Vec::new();
    for (name, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                offences.push(format!("{name}:{}: {word}", number + 1));
            }
            // `now` may be a loop's variable, so the phrase is looked for in comments alone.
            let comment = line.split_once("//").map_or("", |(_, comment)| comment);
            if has_word(comment, "for now") {
                offences.push(format!("{name}:{}: for now", number + 1));
            }
            // The one good reason to ignore a test: it is a part that another test starts.
            if line.contains("#[ignore") && !line.contains("started by the other tests") {
                offences.push(format!("{name}:{}: an ignored test", number + 1));
            }
        }
    }
    complain("finish it or say it in an issue", &offences);
}

#[test]
fn modules_are_named_for_what_they_hold() {
    let banned = ["utils", "util", "common", "helpers", "helper", "misc", "manager", "types"];
    let offences: Vec<_> = sources()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| {
            let path = Path::new(name);
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("");
            let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
            banned.contains(&stem) || folder.is_some_and(|folder| banned.contains(&folder))
        })
        .collect();
    complain("a module that can hold anything holds everything", &offences);
}

/// Dependencies on crates of this workspace that a crate's manifest declares, tests excluded.
fn arrows(manifest: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(manifest)).expect("a manifest");
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            inside = line == "[dependencies]";
        } else if inside && let Some(rest) = line.strip_prefix("tapecast-") {
            found.push(rest.split(['.', ' ', '=']).next().unwrap_or("").to_owned());
        }
    }
    found.sort();
    found
}

#[test]
fn crates_know_only_what_the_architecture_allows() {
    let allowed: [(&str, &[&str]); 7] = [
        ("shared/wire/Cargo.toml", &[]),
        ("shared/telemetry/Cargo.toml", &[]),
        ("shared/ring/Cargo.toml", &["wire"]),
        ("shared/core/Cargo.toml", &["wire"]),
        ("shared/fabric/Cargo.toml", &["core", "ring", "telemetry", "wire"]),
        ("shared/control/Cargo.toml", &["telemetry", "wire"]),
        ("shared/journal/Cargo.toml", &["wire"]),
    ];
    for (manifest, names) in allowed {
        let found = arrows(manifest);
        let extra: Vec<_> = found.iter().filter(|name| !names.contains(&&***name)).collect();
        assert!(extra.is_empty(), "{manifest} may not depend on {extra:?}");
    }
    for binary in ["publisher/Cargo.toml", "subscriber/Cargo.toml"] {
        let found = arrows(binary);
        let other = ["publisher", "subscriber", "tests"];
        let extra: Vec<_> = found.iter().filter(|name| other.contains(&&***name)).collect();
        assert!(extra.is_empty(), "{binary} may not depend on {extra:?}");
    }
}

#[test]
fn safe_crates_forbid_unsafe_code() {
    let safe = [
        "shared/wire/src/lib.rs",
        "shared/core/src/lib.rs",
        "shared/control/src/lib.rs",
        "shared/telemetry/src/lib.rs",
        "publisher/src/lib.rs",
        "subscriber/src/lib.rs",
    ];
    for name in safe {
        let text = fs::read_to_string(root().join(name)).expect("a crate root");
        assert!(text.contains("#![forbid(unsafe_code)]"), "{name} does not forbid unsafe code");
    }
    // A crate with one exception can only deny it, and the exception says so in its file.
    let text = fs::read_to_string(root().join("shared/journal/src/lib.rs")).expect("a crate root");
    assert!(text.contains("#![deny(unsafe_code)]"), "the journal does not deny unsafe code");
}
