//! Real recordings over 64 queue pairs give the results that others' code computed.

use std::collections::BTreeMap;
use std::path::Path;

use tapecast_tests::tape::TapeResult;

use super::device::{Before, device};
use super::programs::{json, recording};
use super::stage::{Stage, assert_pool_whole};

type Tapes = BTreeMap<String, TapeResult>;

const SUBSCRIBERS: usize = 64;

/// Plays a recording to 64 processes. Returns what the first one hashed, after having seen that all
/// the others received exactly the same.
fn play(device: &str, source: &[&str], reader: &[&str]) -> Tapes {
    let before = Before::of(device);
    let mut stage = Stage::new();
    let count = SUBSCRIBERS.to_string();
    let mut arguments = vec!["--wait-for", &count, "--exit-at-end", "--lossless", "--pace", "max"];
    arguments.extend(["--set", "access.stall_max_s=600"]);
    arguments.extend(source);
    stage.publish(&arguments);
    let address = stage.address.clone();
    let readers: Vec<_> = (0..SUBSCRIBERS)
        .map(|number| {
            let mut arguments = vec!["--connect", &*address, "--lossless"];
            arguments.extend(reader);
            if number > 0 {
                arguments.push("--only-fingerprint");
            }
            stage.processes.start("tapecast-tape", &arguments)
        })
        .collect();
    let result = |index| serde_json::from_slice(&stage.succeed(index).stdout).expect("a result");
    let all: Vec<Tapes> = readers.into_iter().map(result).collect();
    let fingerprints = |tapes: &Tapes| -> Vec<(String, String)> {
        tapes.iter().map(|(symbol, tape)| (symbol.clone(), tape.fingerprint.clone())).collect()
    };
    for tapes in &all {
        assert_eq!(fingerprints(tapes), fingerprints(&all[0]));
    }
    assert_eq!(all.len(), SUBSCRIBERS);
    let report = stage.report();
    assert_pool_whole(&report);
    before.assert_health();
    all.into_iter().next().expect("64 of them")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn each_of_64_queue_pairs_carries_the_es_futures_night_as_databento_computes_it() {
    let Some(device) = device() else { return };
    let Some(file) = recording("dbn/esh4-glbx-mdp3-20231225.mbo.dbn.zst") else { return };
    let Some(key) = recording("dbn/esh4-glbx-mdp3-20231225.mbo.reference.json") else { return };
    let key = json(&key);
    let source = ["--source", "dbn", "--file", text(&file)];
    let tapes = play(&device, &source, &["--format", "dbn-on-change"]);
    let tape = &tapes["ESH4"];
    assert_eq!(tape.sha256, key["top10_stream_sha256"]);
    assert_eq!(tape.entries, 37_064);
}

#[test]
fn each_of_64_queue_pairs_tells_aapls_book_after_each_of_10_000_events() {
    let Some(device) = device() else { return };
    let Some(file) = recording("itch/aapl_20190130_093000_reencoded.itch50") else { return };
    let Some(key) = recording("itch/aapl_20190130_093000_reencoded.reference.json") else { return };
    let key = json(&key);
    let set = ["--set", "source.event_end=message"];
    let source = ["--source", "itch", "--file", text(&file), set[0], set[1]];
    // The reference counts messages from 0, feed sequences begin with 1.
    let first = key["first_event_msg_index"].as_u64().expect("a number") + 1;
    let events = [first.to_string(), key["messages"].to_string()];
    let reader = ["--format", "itch-every-event", "--events", &events[0], &events[1]];
    let tapes = play(&device, &source, &reader);
    let tape = &tapes["AAPL"];
    assert_eq!(tape.sha256, key["stream_sha256"]);
    assert_eq!(tape.entries, 10_000);
}
