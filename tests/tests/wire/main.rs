//! Publisher and subscribers on two machines, joined by a wire that loses, delays and goes dark.
//!
//! The machines are virtual (`tests/vm/pair.sh`), the programs are the shipped ones, the control
//! plane is TLS. All wires are played in one run of both machines; what came of it is checked here.

mod capture;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

const SUBSCRIBERS: usize = 4;

/// What a run has left in its folder, by name of the file: a folder kept for all tests would be
/// removed by none.
type Files = BTreeMap<String, Vec<u8>>;

/// Results of one run, made once for all tests. `None`, said aloud, where it cannot be made.
fn results() -> Option<&'static Files> {
    static RESULTS: OnceLock<Result<Option<Files>, String>> = OnceLock::new();
    match RESULTS.get_or_init(play) {
        Ok(files) => files.as_ref(),
        Err(why) => panic!("{why}"),
    }
}

fn vm(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vm").join(script)
}

fn play() -> Result<Option<Files>, String> {
    if std::env::var_os("TAPECAST_VM_TESTS").is_none() {
        eprintln!("SKIPPED: tests/vm/run.sh runs these, with two virtual machines");
        return Ok(None);
    }
    let out = TempDir::with_prefix("tapecast-wire-").expect("a folder");
    let programs = Path::new(env!("CARGO_BIN_EXE_tapecast-tape")).parent().expect("a folder");
    let made = Command::new(programs.join("tapecast-publisher"))
        .args(["certificates", "--server", "10.8.0.1", "--client", "wire", "--out"])
        .arg(out.path().join("certificates"))
        .output()
        .expect("the publisher");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let line = |script: &str| {
        format!("{} {} {}", vm(script).display(), programs.display(), out.path().display())
    };
    let output = Command::new(vm("pair.sh"))
        .args(["--timeout", "420", "--out"])
        .arg(out.path())
        .args(["--a", &line("wire-a.sh"), "--b", &line("wire-b.sh")])
        .output()
        .expect("bash");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("the run failed ({}):\n{said}\n{errors}", output.status));
    }
    Ok(Some(read(out.path())))
}

fn read(folder: &Path) -> Files {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file"));
    entries
        .filter(|entry| entry.path().is_file())
        .map(|entry| {
            let name = entry.file_name().into_string().expect("a name in UTF-8");
            (name, std::fs::read(entry.path()).expect("a readable file"))
        })
        .collect()
}

fn file<'a>(files: &'a Files, name: &str) -> &'a [u8] {
    files.get(name).unwrap_or_else(|| panic!("the run has not written {name}"))
}

fn json(files: &Files, name: &str) -> Value {
    serde_json::from_slice(file(files, name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The publisher's report and every subscriber's account of one wire.
fn accounts(wire: &str) -> Option<(Value, Vec<Value>)> {
    let files = results()?;
    let summary = |number| json(files, &format!("{wire}-{number}.json"));
    let report = json(files, &format!("{wire}-report.json"));
    Some((report, (1..=SUBSCRIBERS).map(summary).collect()))
}

/// Every snapshot arrived or is accounted as conflated, and the newest of each instrument arrived.
fn assert_exact(report: &Value, summary: &Value) {
    assert_eq!(summary["balanced"], true, "{summary}");
    assert_eq!(summary["statistics"]["lost"], 0, "{summary}");
    assert_eq!(report["pool"]["free_pages"], report["pool"]["pages"]);
    for (instrument, account) in pairs(report, summary) {
        assert_eq!(account["last_sequence"], instrument["published"], "{account}");
    }
}

/// And the account is of every snapshot that was ever published.
fn assert_complete(report: &Value, summary: &Value) {
    assert_exact(report, summary);
    assert_eq!(summary["statistics"]["reconnects"], 0, "{summary}");
    for (instrument, account) in pairs(report, summary) {
        assert_eq!(account["published"], instrument["published"], "{account}");
    }
}

/// Each instrument that was published, with the subscriber's account of it.
fn pairs<'a>(report: &'a Value, summary: &'a Value) -> Vec<(&'a Value, &'a Value)> {
    let accounts = summary["instruments"].as_array().expect("accounts");
    let instruments = report["instruments"].as_array().expect("instruments");
    let published: Vec<_> = instruments.iter().filter(|each| each["published"] != 0).collect();
    assert!(published.len() >= 10, "a day that is worth the name: {report}");
    let account = |symbol: &Value| {
        let found = accounts.iter().find(|account| account["symbol"] == *symbol);
        found.unwrap_or_else(|| panic!("no account of {symbol}"))
    };
    published.into_iter().map(|each| (each, account(&each["symbol"]))).collect()
}

fn assert_wire_is_survived(wire: &str) {
    let Some((report, summaries)) = accounts(wire) else { return };
    for summary in summaries {
        assert_complete(&report, &summary);
    }
}

#[test]
fn with_2_ms_delay_and_1_percent_loss_every_snapshot_arrives_or_is_accounted_for() {
    assert_wire_is_survived("loss-1");
}

#[test]
fn with_2_ms_delay_and_5_percent_loss_every_snapshot_arrives_or_is_accounted_for() {
    assert_wire_is_survived("loss-5");
}

#[test]
fn a_wire_that_is_dark_for_a_second_ends_no_session() {
    assert_wire_is_survived("blackout");
}

#[test]
fn a_wire_that_is_dark_for_longer_than_is_retried_costs_a_session_which_comes_back_by_itself() {
    let Some((report, summaries)) = accounts("outage") else { return };
    for summary in summaries {
        assert_exact(&report, &summary);
        assert!(summary["statistics"]["reconnects"].as_u64() >= Some(1), "{summary}");
        let images = summary["statistics"]["initial_images"].as_u64();
        let instruments = summary["instruments"].as_array().expect("accounts").len() as u64;
        assert!(images >= Some(instruments + 1), "a second image: {summary}");
    }
}

#[test]
fn packets_carry_the_configured_traffic_class_and_each_queue_pair_has_its_own_source_port() {
    let Some(files) = results() else { return };
    let packets = capture::read(file(files, "capture.pcap"));
    let sent: Vec<_> = packets.iter().filter(|each| each.source == [10, 8, 0, 1]).collect();
    assert!(sent.len() > 100, "{} packets of the publisher", sent.len());
    // DSCP 26 and ECN capable, as configured by default.
    assert!(sent.iter().all(|each| each.traffic_class == 106), "{:?}", sent.first());
    let mut ports = BTreeMap::new();
    for packet in &sent {
        ports.entry(packet.queue_pair).or_insert_with(BTreeSet::new).insert(packet.source_port);
    }
    assert!(ports.len() >= SUBSCRIBERS, "{ports:?}");
    assert!(ports.values().all(|each| each.len() == 1), "a queue pair keeps its port: {ports:?}");
    let distinct: BTreeSet<_> = ports.values().flatten().collect();
    assert_eq!(distinct.len(), ports.len(), "{ports:?}");
}
