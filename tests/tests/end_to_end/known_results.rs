//! Real recordings through publisher, ring and subscriber processes give the results that others'
//! code computed from the same files.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tapecast_tests::tape::TapeResult;

use super::programs::{Processes, folder, json, recording, run, stderr};

type Tapes = BTreeMap<String, TapeResult>;

/// Plays a recording to `subscribers` processes and returns what each of them hashed.
fn play(subscribers: usize, source: &[&str], reader: &[&str]) -> Vec<Tapes> {
    let folder = folder();
    let socket = folder.path().join("s").display().to_string();
    let mut processes = Processes::default();
    let count = subscribers.to_string();
    let mut arguments = vec!["run", "--socket", &socket, "--wait-for", &count, "--exit-at-end"];
    arguments.extend(["--pace", "max", "--no-progress", "--lossless", "--log-level", "warn"]);
    arguments.extend(source);
    let publisher = processes.start("tapecast-publisher", &arguments);
    let readers: Vec<_> = (0..subscribers)
        .map(|_| {
            let mut arguments = vec!["--socket", &*socket, "--lossless"];
            arguments.extend(reader);
            processes.start("tapecast-tape", &arguments)
        })
        .collect();
    let tapes = readers
        .into_iter()
        .map(|index| {
            let output = processes.finish(index);
            assert!(output.status.success(), "a subscriber failed: {}", stderr(&output));
            serde_json::from_slice(&output.stdout).expect("a result")
        })
        .collect();
    let output = processes.finish(publisher);
    assert!(output.status.success(), "the publisher failed: {}", stderr(&output));
    tapes
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn esh4(subscribers: usize) {
    let Some(file) = recording("dbn/esh4-glbx-mdp3-20231225.mbo.dbn.zst") else { return };
    let Some(key) = recording("dbn/esh4-glbx-mdp3-20231225.mbo.reference.json") else { return };
    let key = json(&key);
    let source = ["--source", "dbn", "--file", text(&file)];
    for tapes in play(subscribers, &source, &["--format", "dbn-on-change"]) {
        let tape = &tapes["ESH4"];
        assert_eq!(tape.sha256, key["top10_stream_sha256"]);
        assert_eq!(tape.entries, key["top10_changes"]);
        assert_eq!(tape.entries, 37_064);
    }
}

#[test]
fn one_subscriber_receives_the_es_futures_night_as_databento_computes_it() {
    esh4(1);
}

#[test]
fn each_of_64_subscribers_receives_the_es_futures_night_as_databento_computes_it() {
    esh4(64);
}

fn aapl(subscribers: usize) {
    let Some(file) = recording("itch/aapl_20190130_093000_reencoded.itch50") else { return };
    let Some(key) = recording("itch/aapl_20190130_093000_reencoded.reference.json") else { return };
    let key = json(&key);
    let set = ["--set", "source.event_end=message"];
    let source = ["--source", "itch", "--file", text(&file), set[0], set[1]];
    // The reference counts messages from 0, feed sequences begin with 1.
    let first = key["first_event_msg_index"].as_u64().expect("a number") + 1;
    let events = [first.to_string(), key["messages"].to_string()];
    let reader = ["--format", "itch-every-event", "--events", &events[0], &events[1]];
    for tapes in play(subscribers, &source, &reader) {
        let tape = &tapes["AAPL"];
        assert_eq!(tape.sha256, key["stream_sha256"]);
        assert_eq!(tape.entries, 10_000);
    }
}

#[test]
fn one_subscriber_can_tell_aapls_book_after_each_of_10_000_events() {
    aapl(1);
}

#[test]
fn each_of_64_subscribers_can_tell_aapls_book_after_each_of_10_000_events() {
    aapl(64);
}

#[test]
fn three_symbols_of_a_simulated_day_have_their_known_streams_and_final_books() {
    let Some(file) = recording("itch/ritch_ex20101224.lenprefixed.itch50") else { return };
    let Some(key) = recording("itch/ritch_ex20101224.reference.json") else { return };
    let key = json(&key);
    let set = ["--set", "source.event_end=message"];
    let source = ["--source", "itch", "--file", text(&file), set[0], set[1]];
    for tapes in play(3, &source, &["--format", "itch-on-change"]) {
        for (symbol, expected) in key["symbols"].as_object().expect("symbols") {
            let tape = &tapes[symbol];
            assert_eq!(tape.sha256, expected["stream_sha256"], "{symbol}");
            assert_eq!(tape.entries, expected["top10_changes"], "{symbol}");
            assert_eq!(tape.last, final_line(&expected["final_top10"]), "{symbol}");
        }
    }
}

fn final_line(book: &Value) -> String {
    let side = |name: &str| {
        let levels = book[name].as_array().expect("levels");
        let words: Vec<_> =
            levels.iter().map(|level| format!("{}:{}:{}", level[0], level[1], level[2])).collect();
        words.join(",")
    };
    format!("{};{}\n", side("bids"), side("asks"))
}

#[test]
fn a_recording_that_is_cut_short_is_reported_with_its_offset_and_what_was_good_is_published() {
    let Some(file) = recording("itch/nasdaq_head4096_truncated.itch50") else { return };
    let folder = folder();
    let socket = folder.path().join("s").display().to_string();
    let report = folder.path().join("report.json");
    let arguments = [
        "run",
        "--socket",
        &socket,
        "--source",
        "itch",
        "--file",
        text(&file),
        "--pace",
        "max",
        "--exit-at-end",
        "--no-progress",
        "--report",
        text(&report),
    ];
    let output = run("tapecast-publisher", &arguments);
    assert!(!output.status.success(), "a cut file is not fine");
    let said = stderr(&output);
    assert!(said.contains("101 messages"), "{said}");
    assert!(said.lines().any(|line| line.contains("offset") || line.contains("byte")), "{said}");
    assert_eq!(json(&report)["source"]["messages"], 101);

    let mut forgiving = arguments.to_vec();
    forgiving.push("--allow-truncated");
    let output = run("tapecast-publisher", &forgiving);
    assert!(output.status.success(), "{}", stderr(&output));
}
