//! Start, end, and what is left behind.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;

use rustix::fs::Mode;
use rustix::process::Signal;
use serde_json::Value;
use tapecast_fabric::Delivery;
use tapecast_wire::Flags;
use tapecast_wire::attach::{Farewell, Policy};

use crate::support::{Bench, Subscriber, error_line, request, stderr};

/// Goes on until it is stopped.
const ENDLESS: [&str; 4] = ["--instruments", "5", "--steady-rate", "2000"];

#[test]
fn sigterm_and_sigint_end_it_in_order_and_nothing_is_left_behind() {
    for signal in [Signal::TERM, Signal::INT] {
        let bench = Bench::new();
        let mut daemon = bench.start(ENDLESS);
        let conflate = request("one", Policy::Conflate, &[]);
        let mut subscriber = Subscriber::attach(&bench.socket(), &conflate).unwrap();
        daemon.signal(signal);
        let (farewell, _) = subscriber.read_to_end(|_| {});
        assert_eq!(farewell, Farewell::Closing);
        assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
        assert_eq!(bench.files(), ["log"], "neither the socket nor its lock may stay");
    }
}

#[test]
fn a_signal_that_comes_again_after_a_second_ends_it_at_once() {
    let bench = Bench::new();
    let mut daemon =
        bench.start(["--instruments", "5", "--pace", "max", "--lossless", "--ring-bytes", "65536"]);
    let lossless = request("stuck", Policy::Lossless, &[]);
    let _reads_nothing = Subscriber::attach(&bench.socket(), &lossless).unwrap();
    daemon.until("it is attached", |daemon| daemon.log().contains(" attached "));
    // The subscriber keeps the daemon from publishing what is queued, so the end takes its time.
    daemon.signal(Signal::TERM);
    daemon.until("it closes", |daemon| daemon.log().contains("closing: "));
    // Somebody insists. The first repetitions may still be echoes of the one request.
    while daemon.child.try_wait().unwrap().is_none() {
        daemon.signal(Signal::TERM);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(daemon.wait().code(), Some(128 + 15), "{}", daemon.log());
}

#[test]
fn a_subscriber_that_reads_nothing_does_not_keep_it_from_ending() {
    let bench = Bench::new();
    let mut daemon =
        bench.start(["--instruments", "5", "--pace", "max", "--lossless", "--ring-bytes", "65536"]);
    let lossless = request("stuck", Policy::Lossless, &[]);
    let _reads_nothing = Subscriber::attach(&bench.socket(), &lossless).unwrap();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
}

#[test]
fn a_second_publisher_on_the_socket_is_refused_by_name_and_the_first_goes_on() {
    let bench = Bench::new();
    let daemon = bench.start(ENDLESS);
    let output = bench.run(ENDLESS).output().unwrap();
    let line = error_line(&output);
    let pid = daemon.child.id().to_string();
    assert!(line.contains("s.sock") && line.contains(&pid), "{line}");
    let conflate = request("one", Policy::Conflate, &[]);
    Subscriber::attach(&bench.socket(), &conflate).unwrap();
}

#[test]
fn the_stale_socket_of_a_killed_publisher_is_taken_over() {
    let bench = Bench::new();
    let mut daemon = bench.start(ENDLESS);
    let conflate = request("one", Policy::Conflate, &[]);
    let before = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    daemon.signal(Signal::KILL);
    assert_eq!(daemon.wait().signal(), Some(9));
    assert!(bench.socket().exists(), "a killed process cannot clean up");
    let _successor = bench.start(ENDLESS);
    let after = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    assert!(after.receiver.epoch() > before.receiver.epoch());
}

#[test]
fn at_the_end_of_its_source_it_marks_every_book_and_serves_the_last_ones_until_it_is_stopped() {
    let bench = Bench::new();
    let day = bench.generate("day.itch50", 5_000);
    let arguments = ["--pace", "max", "--source", "itch", "--file", day.to_str().unwrap()];
    let mut daemon = bench.start(arguments);
    let conflate = request("early", Policy::Conflate, &[]);
    let mut early = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    let mut ended = [false; 5];
    while ended != [true; 5] {
        let note = |snapshot: Delivery<'_>| {
            let id = snapshot.instrument_id().index();
            assert!(!ended[id], "nothing may follow the end");
            ended[id] = snapshot.flags().contains(Flags::END_OF_SESSION);
        };
        early.receiver.poll(256, note).unwrap();
    }
    let mut late = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    let mut images = 0;
    while images < 5 {
        let last_book = |snapshot: Delivery<'_>| {
            let flags = Flags::END_OF_SESSION.with(Flags::INITIAL_IMAGE);
            assert!(snapshot.flags().contains(flags), "{:?}", snapshot.flags());
        };
        images += late.receiver.poll(256, last_book).unwrap();
    }
    daemon.signal(Signal::TERM);
    assert_eq!(late.read_to_end(|_| images += 1).0, Farewell::Closing);
    assert_eq!((images, daemon.wait().code()), (5, Some(0)));
}

#[test]
fn a_generated_day_is_published_to_its_end_and_reported() {
    let bench = Bench::new();
    let day = bench.generate("day.itch50", 20_000);
    let output = bench
        .run(["--pace", "max", "--exit-at-end", "--source", "itch", "--report"])
        .arg(bench.path("report.json"))
        .arg("--file")
        .arg(&day)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = bench.report();
    assert_eq!(report["source"]["messages"], 20_000);
    assert_eq!(report["source"]["outcome"], "ended");
    assert_eq!(report["source"]["bytes_read"], std::fs::metadata(&day).unwrap().len());
    let published: u64 = counts(&report).iter().sum();
    assert!(published > 5_000, "{report}");
    assert_eq!(report["totals"]["published"], published);
    assert_eq!(report["totals"]["discarded"], 0);
    assert_eq!(report["publish_cost"]["count"], published);
    assert_eq!(bench.files(), ["day.itch50", "report.json"]);
}

/// What was published of each instrument.
pub(crate) fn counts(report: &Value) -> Vec<u64> {
    let instruments = report["instruments"].as_array().unwrap();
    instruments.iter().map(|instrument| instrument["published"].as_u64().unwrap()).collect()
}

#[test]
fn the_same_day_gives_the_same_counts_from_a_file_as_from_the_exchange_itself() {
    let bench = Bench::new();
    let day = bench.generate("day.itch50", 8_000);
    let report = bench.path("report.json");
    let report = ["--pace", "max", "--exit-at-end", "--report", report.to_str().unwrap()];
    let file = ["--source", "itch", "--file", day.to_str().unwrap()];
    let length = "source.synthetic.length=8000 messages";
    let exchange = ["--instruments", "5", "--set", length];
    let all = [&file[..], &exchange[..]].map(|source| {
        let output = bench.run(report.iter().chain(source)).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        counts(&bench.report())
    });
    assert_eq!(all[0], all[1]);
}

#[test]
fn a_truncated_input_has_a_status_of_its_own_unless_that_is_allowed() {
    let bench = Bench::new();
    let day = std::fs::read(bench.generate("day.itch50", 2_000)).unwrap();
    let cut = bench.write("cut.itch50", &day[..day.len() - 3]);
    let mut published = Vec::new();
    for (flag, status, outcome) in
        [("--allow-truncated=false", 3, "failed"), ("--allow-truncated", 0, "ended")]
    {
        let output = bench
            .run(["--pace", "max", "--exit-at-end", "--source", "itch", flag, "--report"])
            .arg(bench.path("report.json"))
            .arg("--file")
            .arg(&cut)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
        let told = stderr(&output).lines().any(|line| {
            line.starts_with("tapecast-publisher: ") && line.contains("cut.itch50 is cut at byte")
        });
        assert_eq!(told, status == 3, "{}", stderr(&output));
        let report = bench.report();
        assert_eq!(report["source"]["outcome"], outcome);
        assert_eq!(report["source"]["messages"], 1_999);
        published.push(counts(&report));
    }
    assert_eq!(published[0], published[1], "what was good is published either way");
}

#[test]
fn a_loop_plays_the_input_again_until_it_is_stopped() {
    let bench = Bench::new();
    let day = bench.generate("day.itch50", 500);
    let report = bench.path("report.json");
    let mut daemon = bench.start([
        "--pace",
        "max",
        "--loop",
        "--source",
        "itch",
        "--file",
        day.to_str().unwrap(),
        "--report",
        report.to_str().unwrap(),
    ]);
    let conflate = request("one", Policy::Conflate, &[]);
    let mut subscriber = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    let mut sequence = 0;
    while sequence < 5_000 {
        let newest = |snapshot: Delivery<'_>| {
            sequence = sequence.max(snapshot.channel_sequence().0);
        };
        subscriber.receiver.poll(256, newest).unwrap();
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    let report = bench.report();
    assert_eq!(report["source"]["outcome"], "stopped");
    assert!(report["totals"]["published"].as_u64().unwrap() >= 5_000);
}

#[test]
fn log_lines_can_be_json() {
    let bench = Bench::new();
    let output = bench
        .run(["--pace", "max", "--exit-at-end", "--instruments", "2", "--log-format", "json"])
        .args(["--set", "source.synthetic.length=500 messages"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stderr(&output);
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let first = &lines[0];
    assert_eq!((&first["level"], &first["message"]), (&"INFO".into(), &"publishing".into()));
    assert_eq!(first["instruments"], 2);
}

#[test]
fn a_publisher_that_waits_for_the_writer_of_its_pipe_says_so_and_can_be_stopped() {
    for has_writer in [false, true] {
        let bench = Bench::new();
        let pipe = bench.path("feed");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        let writer =
            has_writer.then(|| File::options().read(true).write(true).open(&pipe).unwrap());
        let arguments = ["--source", "itch", "--file", pipe.to_str().unwrap()];
        let mut daemon = bench.start_until("waiting for the writer", arguments);
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
        assert!(!bench.files().contains(&"s.sock".to_owned()), "{:?}", bench.files());
        drop(writer);
    }
}

#[test]
fn a_feed_that_is_a_silent_pipe_is_stopped_in_order_and_reported() {
    let bench = Bench::new();
    let day = std::fs::read(bench.generate("day.itch50", 500)).unwrap();
    let pipe = bench.path("feed");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    // Also open for reading, so that opening it waits for nobody.
    let mut writer = File::options().read(true).write(true).open(&pipe).unwrap();
    writer.write_all(&day).unwrap();
    let report = bench.path("report.json");
    let files = ["--file", pipe.to_str().unwrap(), "--report", report.to_str().unwrap()];
    let arguments = ["--pace", "max", "--source", "itch", "--set", "source.event_end=message"];
    let mut daemon = bench.start([&arguments[..], &files].concat());
    let conflate = request("one", Policy::Conflate, &[]);
    let mut subscriber = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    while subscriber.receiver.poll(256, |_| {}).unwrap() == 0 {
        std::thread::yield_now();
    }
    daemon.signal(Signal::TERM);
    assert_eq!(subscriber.read_to_end(|_| {}).0, Farewell::Closing);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    let source = &bench.report()["source"];
    assert_eq!(source["outcome"], "stopped", "{}", daemon.log());
    assert!(source["messages"].as_u64() > Some(0), "{source}");
    assert!(!daemon.log().contains("left behind"), "{}", daemon.log());
    drop(writer);
}
