//! Files of the simulated exchange: complete under their name or not there at all.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use tapecast_publisher::source::itch::{ItchOptions, ItchSource};
use tapecast_publisher::source::synthetic::{
    GenerateError, GenerateRequest, Generated, SessionLength, SyntheticConfig,
};
use tapecast_publisher::source::{EventSink, FeedStamp, MarketEvent, Progress, Source};
use tapecast_wire::{Instrument, InstrumentId};

const MESSAGES: u64 = 30_000;

fn request(path: PathBuf) -> GenerateRequest {
    let length = SessionLength::Messages(MESSAGES);
    GenerateRequest {
        config: SyntheticConfig { length, ..SyntheticConfig::default() },
        path,
        overwrite: false,
    }
}

fn run(request: &GenerateRequest) -> Result<Generated, GenerateError> {
    request.run(|_| ControlFlow::Continue(()))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

struct Ignore;

impl EventSink for Ignore {
    fn on_instrument(&mut self, _: &Instrument) {}
    fn on_event(&mut self, _: InstrumentId, _: &FeedStamp, _: MarketEvent<'_>) {}
    fn on_event_end(&mut self) {}
}

fn messages_in(path: &Path) -> u64 {
    let mut source = ItchSource::open(path, ItchOptions::default()).unwrap();
    while source.advance(&mut Ignore).unwrap() != Progress::End {}
    source.stats().messages
}

#[test]
fn a_plain_and_a_gzip_file_hold_the_same_day_and_are_read_as_itch() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("day.itch50");
    let packed = folder.path().join("day.itch50.gz");
    let written = run(&request(plain.clone())).unwrap();
    let compressed = run(&request(packed.clone())).unwrap();
    assert_eq!((written.messages, compressed.messages), (MESSAGES, MESSAGES));
    assert_eq!(messages_in(&plain), MESSAGES);
    assert_eq!(messages_in(&packed), MESSAGES);

    let bytes = std::fs::read(&plain).unwrap();
    assert_eq!((written.bytes, written.file_bytes), (bytes.len() as u64, bytes.len() as u64));
    let mut unpacked = Vec::new();
    let file = std::fs::File::open(&packed).unwrap();
    assert_eq!(compressed.file_bytes, file.metadata().unwrap().len());
    flate2::read::GzDecoder::new(file).read_to_end(&mut unpacked).unwrap();
    assert!(unpacked == bytes, "the unpacked file differs from the plain one");
    assert_eq!(names(folder.path()).len(), 2, "nothing else is left behind");
}

#[test]
fn progress_is_reported_and_ends_at_the_total() {
    let folder = tempfile::tempdir().unwrap();
    let mut reports = Vec::new();
    let written = request(folder.path().join("day.itch50"))
        .run(|so_far| {
            reports.push(so_far.messages);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(reports.len() > 3 && reports.is_sorted(), "{reports:?}");
    assert_eq!(reports.last(), Some(&written.messages));
}

#[test]
fn a_file_that_is_there_is_replaced_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("day.itch50");
    std::fs::write(&path, "mine").unwrap();
    let mut request = request(path.clone());
    let error = run(&request).unwrap_err();
    assert!(matches!(error, GenerateError::Exists { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    request.overwrite = true;
    run(&request).unwrap();
    assert_eq!(messages_in(&path), MESSAGES);
}

#[test]
fn stopped_half_way_nothing_is_left_and_the_old_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("day.itch50.gz");
    std::fs::write(&path, "mine").unwrap();
    let mut request = request(path.clone());
    request.overwrite = true;
    let error = request.run(|_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(error, GenerateError::Stopped { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    assert_eq!(names(folder.path()), ["day.itch50.gz"]);
}

#[test]
fn a_full_disk_is_one_clear_line() {
    let full = PathBuf::from("/dev/full");
    if !full.exists() {
        eprintln!("SKIPPED: no /dev/full here");
        return;
    }
    let error = run(&request(full)).unwrap_err();
    assert!(matches!(error, GenerateError::DiskFull { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("/dev/full: no space left after"), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn a_place_that_cannot_be_written_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let missing = run(&request(folder.path().join("absent/day.itch50"))).unwrap_err();
    assert!(missing.to_string().contains("check the folder"), "{missing}");
    let directory = run(&request(folder.path().to_owned())).unwrap_err();
    assert!(directory.to_string().contains("is a directory"), "{directory}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn an_endless_day_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut request = request(folder.path().join("day.itch50"));
    request.config.length = SessionLength::Endless;
    let error = run(&request).unwrap_err();
    assert!(error.to_string().contains("number of messages or a duration"), "{error}");
    assert!(names(folder.path()).is_empty());
}
