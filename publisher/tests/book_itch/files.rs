//! Files as people have them: packed, cut, empty, wrong.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::civil::date;
use proptest::prelude::*;
use tapecast_publisher::book::BookBuilder;
use tapecast_publisher::source::itch::{ItchError, ItchOptions, ItchSource};
use tapecast_publisher::source::{Progress, Source};

use crate::support::{Recorder, Tape, play};

fn tape() -> Tape {
    let mut tape = Tape::new();
    tape.system(b'O').list("AAPL");
    for id in 0..500 {
        tape.at(10 + id).add(id, b'B', 100, "AAPL", 1000 + id as u32);
    }
    tape
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A directory of its own, and a file of this content in it.
fn file(name: &str, content: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, content).unwrap();
    (directory, path)
}

fn open(content: &[u8]) -> Result<ItchSource, ItchError> {
    let (_directory, path) = file("day.itch", content);
    ItchSource::open(path, ItchOptions::default())
}

/// Opens and plays; returns what was good and how it ended.
fn outcome(content: &[u8], allow_truncated: bool) -> (usize, Result<Option<u64>, ItchError>) {
    let options = ItchOptions { allow_truncated, ..ItchOptions::default() };
    let (_directory, path) = file("day.itch", content);
    let mut source = match ItchSource::open(path, options) {
        Ok(source) => source,
        Err(error) => return (0, Err(error)),
    };
    let mut builder = BookBuilder::new(10, Recorder::default());
    let ended = play(&mut source, &mut builder).map(|()| source.truncated_at());
    (builder.live_orders(), ended)
}

/// The error's text: one line, with these words.
fn assert_says(error: &ItchError, words: &[&str]) {
    let text = error.to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    for word in words {
        assert!(text.contains(word), "{word:?} in: {text}");
    }
}

#[test]
fn a_plain_and_a_packed_file_give_the_same_whatever_they_are_called() {
    let plain = tape().bytes;
    let (half, rest) = plain.split_at(plain.len() / 2);
    let members = [packed(half), packed(rest)].concat();
    for content in [plain.clone(), packed(&plain), members] {
        assert!(matches!(outcome(&content, false), (500, Ok(None))));
    }
}

#[test]
fn a_file_cut_inside_a_message_is_reported_with_the_offset_and_what_was_good_counts() {
    let plain = tape().bytes;
    let last = plain.len() as u64 - 38;
    for cut in [1, 36, 37] {
        let (good, ended) = outcome(&plain[..plain.len() - cut], false);
        assert_eq!(good, 499);
        let error = ended.unwrap_err();
        assert!(
            matches!(&error, ItchError::Truncated { offset, messages: 501, .. } if *offset == last)
        );
        assert_says(
            &error,
            &["day.itch", &format!("byte {last}"), "501 messages", "allow_truncated"],
        );
    }
    assert!(matches!(outcome(&plain[..plain.len() - 38], false), (499, Ok(None))));
}

#[test]
fn a_cut_file_just_ends_when_that_is_allowed_and_says_where() {
    let plain = tape().bytes;
    let last = plain.len() as u64 - 38;
    let (good, ended) = outcome(&plain[..plain.len() - 1], true);
    assert_eq!((good, ended.unwrap()), (499, Some(last)));
    let gzip = packed(&plain);
    let (good, ended) = outcome(&gzip[..gzip.len() / 2], true);
    assert!(good > 0 && ended.unwrap().is_some());
}

#[test]
fn a_packed_file_cut_short_is_reported_as_such_wherever_it_is_cut() {
    let plain = tape().bytes;
    let gzip = packed(&plain);
    for keep in [3, 12, gzip.len() / 2, gzip.len() - 9, gzip.len() - 1] {
        let (good, ended) = outcome(&gzip[..keep], false);
        let error = ended.unwrap_err();
        assert!(matches!(error, ItchError::TruncatedGzip { .. }), "{keep}: {error}");
        assert_says(&error, &["day.itch", "gzip", "cut short", "allow_truncated"]);
        assert!(keep < gzip.len() / 2 || good > 0);
    }
}

#[test]
fn a_damaged_packed_file_is_reported_as_damaged() {
    let mut gzip = packed(&tape().bytes);
    let end = gzip.len();
    gzip[end - 6] ^= 0xff; // its checksum
    let (good, ended) = outcome(&gzip, true);
    let error = ended.unwrap_err();
    assert!(matches!(error, ItchError::DamagedGzip { messages: 502, .. }), "{error}");
    assert_eq!(good, 500);
}

#[test]
fn a_length_prefix_of_zero_is_an_error_with_its_offset_unless_it_ends_the_file() {
    let mut bytes = tape().bytes;
    let offset = bytes.len() as u64;
    bytes.extend([0, 0]);
    assert!(matches!(outcome(&bytes, false), (500, Ok(None))), "the format's end mark");
    bytes.extend([0, 1, b'z']);
    let (good, ended) = outcome(&bytes, true);
    let error = ended.unwrap_err();
    assert_eq!(good, 500);
    assert!(
        matches!(error, ItchError::ZeroLength { offset: at, messages: 502, .. } if at == offset)
    );
    assert_says(&error, &[&format!("byte {offset}"), "length prefix of 0"]);

    let no_prefixes = [&[0, 0][..], &tape().bytes[2..]].concat();
    let (_, ended) = outcome(&no_prefixes, false);
    assert!(matches!(ended, Err(ItchError::ZeroLength { offset: 0, messages: 0, .. })));
}

#[test]
fn what_is_no_file_or_no_itch_file_is_named_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let missing = ItchSource::open(directory.path().join("none.itch"), ItchOptions::default());
    assert_says(&missing.unwrap_err(), &["none.itch", "no such file", "check the path"]);
    let a_directory = ItchSource::open(directory.path(), ItchOptions::default());
    assert_says(&a_directory.unwrap_err(), &["is a directory", "give one ITCH file"]);
    for (content, words) in [
        (&b""[..], &["is empty"][..]),
        (&packed(b""), &["is empty"]),
        (b"DBN\x01XNAS", &["a DBN file", "source dbn"]),
        (&[0x28, 0xb5, 0x2f, 0xfd, 4, 0], &["zstd", "source dbn", "zstd -d"]),
        (&[0x4d, 0x3c, 0xb2, 0xa1, 2, 0], &["pcap capture", "BinaryFILE"]),
        (b"timestamp,price\n1,2\n", &["it is text", "BinaryFILE"]),
        (&packed(b"timestamp,price\n1,2\n"), &["it is text"]),
        (&packed(&packed(&tape().bytes)), &["gzip twice"]),
        (b"\x7fELF\x02\x01\x01\0\0\0", &["no length-prefixed ITCH", "BinaryFILE"]),
    ] {
        assert_says(&open(content).unwrap_err(), words);
    }
}

#[test]
fn a_symbol_that_the_file_does_not_list_is_named_when_it_is_opened() {
    let symbols = vec!["AAPL".to_owned(), "aapl".to_owned(), "MUCHTOOLONG".to_owned()];
    let options = ItchOptions { symbols, ..ItchOptions::default() };
    let error = ItchSource::from_bytes(tape().bytes, options).unwrap_err();
    assert_says(&error, &["lists 1 symbols", "aapl, MUCHTOOLONG"]);
}

#[test]
fn times_count_from_midnight_in_new_york_on_the_day_in_the_options_or_the_name() {
    let first_time = |name: &str, options: ItchOptions| {
        let (_directory, path) = file(name, &tape().bytes);
        let mut source = ItchSource::open(path, options).unwrap();
        let mut builder = BookBuilder::new(10, Recorder::default());
        play(&mut source, &mut builder).unwrap();
        builder.sink().seen[0].draft.ts_event
    };
    const HOUR: u64 = 3_600_000_000_000;
    let january = 1_548_806_400_000_000_000 + 5 * HOUR; // 2019-01-30, UTC-5
    let july = 1_564_444_800_000_000_000 + 4 * HOUR; // 2019-07-30, UTC-4
    let none = ItchOptions::default;
    assert_eq!(first_time("01302019.NASDAQ_ITCH50", none()), january + 10);
    assert_eq!(first_time("07302019.NASDAQ_ITCH50.gz", none()), july + 10);
    let dated = ItchOptions { date: Some(date(2019, 7, 30)), ..none() };
    assert_eq!(first_time("01302019.NASDAQ_ITCH50", dated), july + 10, "the option counts");
    assert_eq!(first_time("day.itch", none()), 10, "without a date, from the Unix epoch");
    let (_directory, path) = file("day.itch", &tape().bytes);
    let too_late = ItchOptions { date: Some(date(9999, 1, 1)), ..none() };
    assert_says(&ItchSource::open(path, too_late).unwrap_err(), &["9999-01-01", "1970 to 2554"]);
}

#[test]
fn progress_tells_the_feeds_clock_and_how_much_of_the_file_is_read() {
    let tape = tape();
    let (_directory, path) = file("day.itch", &tape.bytes);
    let mut source = ItchSource::open(path, ItchOptions::default()).unwrap();
    let mut builder = BookBuilder::new(10, Recorder::default());
    let first = source.advance(&mut builder).unwrap();
    assert_eq!(first, Progress::Event { feed_time_ns: 10 });
    assert_eq!(builder.sink().seen.len(), 1);
    play(&mut source, &mut builder).unwrap();
    let stats = source.stats();
    let size = tape.bytes.len() as u64;
    assert_eq!((stats.bytes_read, stats.bytes_total), (size, Some(size)));
    assert_eq!(source.advance(&mut builder).unwrap(), Progress::End);
}

#[test]
fn an_event_without_end_is_ended_so_that_one_call_stays_bounded() {
    let mut tape = Tape::new();
    for id in 0..100_000 {
        tape.add(id, b'B', 1, "AAPL", 100);
    }
    let mut builder = BookBuilder::new(10, Recorder::default());
    let mut source = tape.source();
    assert_eq!(source.advance(&mut builder).unwrap(), Progress::Event { feed_time_ns: 1 });
    assert!(builder.live_orders() < 100_000);
    play(&mut source, &mut builder).unwrap();
    assert_eq!(builder.live_orders(), 100_000);
}

#[test]
fn a_pipe_is_read_once_and_cannot_be_played_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no mkfifo on this machine");
        return;
    }
    let to = path.clone();
    let writer = std::thread::spawn(move || {
        File::options().write(true).open(to).unwrap().write_all(&tape().bytes).unwrap();
    });
    let mut source = ItchSource::open(&path, ItchOptions::default()).unwrap();
    let mut builder = BookBuilder::new(10, Recorder::default());
    play(&mut source, &mut builder).unwrap();
    writer.join().unwrap();
    assert_eq!(builder.live_orders(), 500);
    assert_eq!(source.stats().bytes_total, None);
    assert_says(&source.rewind().unwrap_err(), &["pipe", "give a file"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any bytes, mostly behind a start that passes for ITCH: an end or an error, in finitely many
    /// calls.
    #[test]
    fn no_file_makes_the_source_panic_or_run_for_ever(
        start in 0_usize..4000,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        tail in prop::collection::vec(any::<u8>(), 0..300),
        gzip in any::<bool>(),
    ) {
        let mut bytes = tape().bytes[start..].to_vec();
        bytes.extend(tail);
        let mut bytes = if gzip { packed(&bytes) } else { bytes };
        for (index, byte) in flips {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let options = ItchOptions { allow_truncated: true, ..ItchOptions::default() };
        if let Ok(mut source) = ItchSource::from_bytes(bytes, options) {
            let mut builder = BookBuilder::new(10, Recorder::default());
            let mut calls = 0;
            while let Ok(Progress::Event { .. }) = source.advance(&mut builder) {
                calls += 1;
                prop_assert!(calls <= 100_000);
            }
        }
    }
}
