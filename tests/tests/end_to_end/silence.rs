//! A feed that is connected and silent: here a pipe whose writer keeps it open and writes nothing.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, Mode, mkfifoat};
use tapecast_subscriber::{Event, FeedState, PollError, State, Subscriber};

use super::programs::{Processes, folder, json, run, stderr, wait_until};

/// Messages of the day: it must fit into a pipe that nobody reads yet.
const MESSAGES: usize = 1_000;
/// How long one wait may last before the test looks again; nothing depends on its length.
const AWHILE: Duration = Duration::from_secs(10);

/// A recorded day, in two pieces that are cut between two messages.
fn day_in_two(folder: &Path) -> [Vec<u8>; 2] {
    let file = folder.join("day.itch50");
    let (path, count) = (file.display().to_string(), MESSAGES.to_string());
    let words = ["generate", "--instruments", "3", "--messages", &count, "--no-progress", "--out"];
    let output = run("tapecast-publisher", &[&words[..], &[&path]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let day = std::fs::read(&file).expect("a day");
    let mut cut = 0;
    for _ in 0..MESSAGES / 2 {
        cut += 2 + usize::from(u16::from_be_bytes([day[cut], day[cut + 1]]));
    }
    let (first, second) = day.split_at(cut);
    [first.to_vec(), second.to_vec()]
}

/// A pipe and its writing end. Also open for reading, so that opening it waits for nobody.
fn pipe(path: &Path) -> File {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).expect("a pipe");
    OpenOptions::new().read(true).write(true).open(path).expect("its end")
}

fn subscriber(socket: &Path) -> Subscriber {
    // An overloaded machine must not make the publisher look silent: here only the feed is.
    let builder = Subscriber::builder().socket(socket).heartbeat_timeout(Duration::from_secs(600));
    builder.wait_for_publisher(AWHILE).connect().expect("a session")
}

/// Receives until an event fits; how many snapshots came with it.
fn until_event(subscriber: &mut Subscriber, fits: impl Fn(&Event) -> bool) -> usize {
    let mut delivered = 0;
    loop {
        if subscriber.events().any(|event| fits(&event)) {
            return delivered;
        }
        match subscriber.poll(|_| {}) {
            Ok(0) => drop(subscriber.wait(AWHILE).expect("a wait")),
            Ok(count) => delivered += count,
            // The event says the same.
            Err(PollError::Ended(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_feed_that_is_connected_and_silent_is_shown_until_it_goes_on_and_is_reported() {
    let folder = folder();
    let [first, second] = day_in_two(folder.path());
    let (socket, input) = (folder.path().join("s"), folder.path().join("feed"));
    let mut writer = pipe(&input);
    writer.write_all(&first).expect("room in the pipe");
    let report = folder.path().join("report.json");
    let [socket_word, input, report_word] =
        [&socket, &input, &report].map(|path| path.display().to_string());
    let mut processes = Processes::default();
    let places = ["run", "--socket", &socket_word, "--file", &input, "--report", &report_word];
    let feed = ["--source", "itch", "--pace", "max", "--set", "source.event_end=message"];
    let terms = ["--set", "source.silent_after_s=1", "--wait-for", "1", "--exit-at-end"];
    let words = [&places[..], &feed, &terms, &["--no-progress"]].concat();
    let publisher = processes.start("tapecast-publisher", &words);
    wait_until("the publisher's socket", || socket.exists());

    let mut early = subscriber(&socket);
    let delivered = until_event(&mut early, |event| matches!(event, Event::FeedSilent { .. }));
    assert!(delivered > 0, "what was written before the silence is published");
    let FeedState::Silent { since } = early.feed() else { panic!("{}", early.feed()) };
    assert_eq!(early.state(), &State::Live, "the publisher lives");
    let ids: Vec<_> = early.instruments().map(|instrument| instrument.instrument_id).collect();
    assert!(!ids.is_empty() && ids.iter().all(|id| !early.is_stale(*id)));

    // Those that attach meanwhile are told, too.
    let mut late = subscriber(&socket);
    until_event(&mut late, |event| *event == Event::FeedSilent { since });
    let stats = ["stats", "--socket", &socket_word, "-t", "0.05", "-n", "2"];
    let output = run("tapecast-subscriber", &stats);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("live, feed silent since "), "{text}{}", stderr(&output));

    writer.write_all(&second).expect("a publisher that reads");
    for subscriber in [&mut early, &mut late] {
        until_event(subscriber, |event| *event == Event::FeedHeard);
    }
    // The end waits for all that read, and from here on only one does.
    drop(late);
    drop(writer);
    until_event(&mut early, |event| matches!(event, Event::Farewell(..)));
    assert!(early.source_ended());
    let output = processes.finish(publisher);
    let log = stderr(&output);
    assert!(output.status.success(), "{log}");
    assert!(log.contains("the feed is silent") && log.contains("the feed is heard again"), "{log}");
    let source = &json(&report)["source"];
    assert_eq!((&source["messages"], &source["outcome"]), (&MESSAGES.into(), &"ended".into()));
    let silence = &source["silence"];
    assert!(silence["spells"].as_u64() >= Some(1), "{silence}");
    assert!(silence["total_ns"].as_u64() >= Some(1_000_000_000), "{silence}");
}
