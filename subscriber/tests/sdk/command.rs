//! The command line, as a process.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tapecast_subscriber::Summary;
use tapecast_wire::attach::Farewell;
use tapecast_wire::{Flags, TradingStatus};

use crate::place;
use crate::stage::{Book, CENT, Setup, Stage};

const PRICE: i64 = 18_995 * CENT;

pub(crate) fn command(socket: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapecast-subscriber"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TAPECAST_") {
            command.env_remove(name);
        }
    }
    command.args(words).env("TAPECAST_SOCKET", socket).env_remove("NO_COLOR");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn run(socket: &Path, words: &[&str]) -> Output {
    command(socket, words).output().expect("the command runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Waits for the first line of output.
fn first_line(child: &mut Child) -> (String, BufReader<impl Read + use<>>) {
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    (line, out)
}

fn interrupt(child: &Child) {
    let id = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("a process");
}

/// One quiet book and one that has everything.
fn two_books(stage: &Stage) {
    let halted = Book {
        flags: Flags::HALTED.with(Flags::SUSPECT),
        status: TradingStatus::Halted,
        ..Book::of(1, 1_234_567 * CENT)
    };
    stage.publish_all(vec![Book::of(0, PRICE), halted]);
}

#[test]
fn tail_prints_aligned_lines_under_a_heading() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL", "ESH4"]);
    two_books(&stage);
    let output = run(&socket, &["tail", "--count", "2", "--levels", "2"]);
    assert!(output.status.success(), "{output:?}");
    let expected = "\
EVENT (UTC)      SYMBOL    BID SIZE        BID         ASK ASK SIZE   SPREAD    LATENCY  STATUS      FLAGS
14:30:00.000001  AAPL           300     189.95      189.96      200     0.01          -  trading     initial-image
                               1200     189.94           -        -
14:30:00.000002  ESH4           300   12345.67    12345.68      200     0.01          -  halted      initial-image  suspect  halted
                               1200   12345.66           -        -
";
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn tail_json_is_one_exact_object_per_line() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup { epoch: 5, ..Setup::default() }, &["AAPL"]);
    stage.publish(0, PRICE);
    let output = run(&socket, &["tail", "--json", "-n", "1"]);
    assert!(output.status.success(), "{output:?}");
    let line = text(&output.stdout);
    let publish = line.split("\"ts_publish\":\"").nth(1).unwrap().split('"').next().unwrap();
    let expected = format!(
        "{{\"symbol\":\"AAPL\",\"venue\":\"XTST\",\"instrument_id\":0,\"epoch\":\"5\",\
         \"channel_sequence\":1,\"instrument_sequence\":1,\"feed_sequence\":1,\
         \"ts_event\":\"1709303400000001000\",\"ts_recv\":\"1709303400000001500\",\
         \"ts_publish\":\"{publish}\",\"latency_ns\":null,\"status\":\"trading\",\
         \"flags\":[\"initial-image\"],\"conflated_count\":0,\"last_trade\":[\"189.95\",\"7\"],\
         \"bids\":[[\"189.95\",\"300\",2],[\"189.94\",\"1200\",5]],\
         \"asks\":[[\"189.96\",\"200\",1]]}}\n"
    );
    assert_eq!(line, expected);
    assert_eq!(text(&output.stderr), "", "programs get nothing but objects");
}

#[test]
fn tail_ends_with_the_source_and_writes_an_account_that_adds_up() {
    let (folder, socket) = place();
    let stage = Stage::open(&socket, Setup { epoch: 3, ..Setup::default() }, &["AAPL", "MSFT"]);
    stage.publish_all(vec![Book::of(0, PRICE), Book::of(1, PRICE)]);
    let file = folder.path().join("summary.json");
    let words = ["tail", "--quiet", "--until-end", "--no-reconnect", "--summary-json"];
    let mut child = command(&socket, &words).arg(&file).spawn().expect("the command runs");
    // Attached when the file is there and the initial images are taken; what comes after that is
    // received live or, on a slow machine, as the initial image. The account adds up either way.
    let mut published = 2;
    while !stage.is_attended() {
        std::thread::yield_now();
    }
    for round in 0..200 {
        stage.publish_all(vec![Book::of(0, PRICE + round), Book::of(1, PRICE - round)]);
        published += 2;
    }
    stage.close(Farewell::EndOfSource, "all of it");
    let status = child.wait().expect("its end");
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(status.success(), "{told}");
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(printed, "", "quiet");
    assert!(told.contains("the source has ended"), "{told}");
    assert!(told.contains("lost 0"), "{told}");

    let summary: Summary = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(summary.balanced && summary.source_ended);
    assert_eq!((summary.epoch, summary.instruments.len()), (3, 2));
    let last: u64 = summary.instruments.iter().map(|i| i.last_sequence).sum();
    assert_eq!(last, published);
    let Summary { statistics, latency, .. } = summary;
    assert_eq!(statistics.published, statistics.delivered + statistics.conflated);
    assert_eq!(latency.count(), statistics.latency.count);
    assert_eq!(latency.figures(), statistics.latency);
}

#[test]
fn tail_ends_when_the_feed_has_ended_every_instrument_although_the_publisher_stays() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL", "MSFT", "NEVER"]);
    let ended = |id| Book { flags: Flags::END_OF_SESSION, ..Book::of(id, PRICE) };
    stage.publish_all(vec![ended(0), Book::of(1, PRICE), ended(1)]);
    let output = run(&socket, &["tail", "--until-end"]);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains("the source has ended"), "{output:?}");
    assert_eq!(text(&output.stdout).matches("end-of-session").count(), 2);
}

#[test]
fn an_interrupt_ends_tail_with_a_summary_and_success() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    stage.publish(0, PRICE);
    let mut child = command(&socket, &["tail"]).spawn().expect("the command runs");
    let (line, _out) = first_line(&mut child);
    assert!(line.starts_with("EVENT"), "{line}");
    interrupt(&child);
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.starts_with("1 snapshot of 1 instrument in "), "{told}");
    assert!(told.contains("stopped by a signal"), "{told}");
    assert!(told.contains("published 1 = delivered 1 + conflated 0 + lost 0"), "{told}");
}

#[test]
fn a_reader_that_goes_away_ends_tail_quietly() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    stage.publish(0, PRICE);
    let mut child = command(&socket, &["tail"]).spawn().expect("the command runs");
    let (_, out) = first_line(&mut child);
    drop(out);
    while child.try_wait().expect("a process").is_none() {
        stage.publish(0, PRICE);
    }
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_crash_without_reconnection_is_a_failure_with_its_reason() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    stage.publish(0, PRICE);
    let mut child =
        command(&socket, &["tail", "--no-reconnect"]).spawn().expect("the command runs");
    let (_, _out) = first_line(&mut child);
    drop(stage);
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.contains("error: the subscription ended: the publisher went away"), "{told}");
}

#[test]
fn stats_prints_one_line_per_interval_or_one_object() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    stage.publish(0, PRICE);
    let output = run(&socket, &["stats", "-t", "0.02", "-n", "3"]);
    assert!(output.status.success(), "{output:?}");
    let printed = text(&output.stdout);
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 4, "{printed}");
    assert!(lines[0].contains("SNAP/S") && lines[0].ends_with("STATE"), "{printed}");
    assert!(lines[1..].iter().all(|line| line.ends_with("live")), "{printed}");

    let output = run(&socket, &["stats", "-t", "0.02", "-n", "2", "--json"]);
    let objects: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 2);
    assert_eq!(objects[1]["totals"]["delivered"], 1);
    assert_eq!(objects[1]["state"], "live");

    let output = run(&socket, &["stats", "-t", "0.02", "-n", "1", "--by-instrument"]);
    let printed = text(&output.stdout);
    let row = printed.lines().find(|line| line.contains("AAPL")).unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!((cells[0], cells[1], cells[4], cells[6]), ("AAPL", "XTST", "1", "0"), "{printed}");
}

#[test]
fn misuse_gets_one_clear_line_and_the_right_status() {
    let (_folder, socket) = place();
    let output = run(&socket, &["tail"]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with("error: ") && told.contains(socket.to_str().unwrap()), "{told}");

    for words in [&["tail", "--levels", "0"][..], &["tale"], &["tail", "--json", "--quiet"], &[]] {
        assert_eq!(run(&socket, words).status.code(), Some(2), "{words:?}");
    }

    let _stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    let output = run(&socket, &["tail", "-i", "APPL"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("APPL"), "{output:?}");
    let output = run(&socket, &["top"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("top draws on a terminal"), "{output:?}");
    let output = run(&socket, &["tail", "--summary-json", "/nowhere/at/all.json"]);
    assert!(text(&output.stderr).contains("cannot create /nowhere/at/all.json"), "{output:?}");
}
