//! Files that follow each other, and hands that interfere.

use std::path::Path;

use proptest::prelude::*;
use tapecast_journal::{Entry, How, JournalError, Series, Writer, files_of};

use crate::market::{NOW, entry, folder, one_file, read, record};

/// Channel sequences of all snapshots in a folder, and the name of each one's instrument.
fn snapshots(path: &Path) -> Vec<(u64, String)> {
    let mut series = Series::open(path).unwrap();
    let mut found = Vec::new();
    loop {
        while series.advance().unwrap() {
            if let Entry::Snapshot { snapshot, instrument } = series.record().unwrap().entry {
                let symbol = instrument.map(|known| known.symbol.clone()).unwrap();
                found.push((snapshot.channel_sequence().get(), symbol));
            }
        }
        assert_eq!(series.ending().unwrap().how, How::Closed);
        if !series.next_file().unwrap() {
            return found;
        }
    }
}

#[test]
fn each_file_stands_alone_also_for_instruments_that_came_later() {
    let place = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(folder(place.path(), 65_536, 0), &[entry(0)], NOW).unwrap();
    writer.append_instrument(&entry(1), NOW).unwrap();
    for number in 1..=400 {
        writer.append_snapshot(&record(number as u32 % 2, number, 10), NOW).unwrap();
    }
    let totals = writer.close(NOW).unwrap();
    let files = files_of(place.path()).unwrap();
    assert!(files.len() > 3 && totals.files == files.len() as u64);
    let sizes: Vec<u64> = files.iter().map(|file| file.metadata().unwrap().len()).collect();
    assert!(sizes.iter().all(|size| *size <= 65_536 + 40), "{sizes:?}");
    assert_eq!((sizes.iter().sum::<u64>(), totals.records), (totals.bytes, 400));
    for file in &files {
        let found = read(&std::fs::read(file).unwrap()).unwrap();
        assert_eq!(found.records[..2], ["is S0", "is S1"]);
    }
    let expected: Vec<_> = (1..=400).map(|n| (n, format!("S{}", n % 2))).collect();
    assert_eq!(snapshots(place.path()), expected);
}

#[test]
fn only_so_many_files_stay_and_the_newest_are_among_them() {
    let place = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(folder(place.path(), 65_536, 2), &[entry(0)], NOW).unwrap();
    for number in 1..=1000 {
        writer.append_snapshot(&record(0, number, 10), NOW).unwrap();
        assert!(files_of(place.path()).unwrap().len() <= 2);
    }
    assert!(writer.close(NOW).unwrap().files > 4);
    assert_eq!(snapshots(place.path()).last().unwrap().0, 1000);
}

#[test]
fn a_file_that_somebody_cuts_or_removes_is_left_and_another_one_begun() {
    let place = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(folder(place.path(), 1 << 20, 0), &[entry(0)], NOW).unwrap();
    writer.append_snapshot(&record(0, 1, 10), NOW).unwrap();
    writer.inspect().unwrap();
    let first = files_of(place.path()).unwrap().remove(0);
    std::fs::File::options().write(true).open(&first).unwrap().set_len(0).unwrap();
    assert!(matches!(writer.inspect(), Err(JournalError::Interfered { .. })));
    writer.append_snapshot(&record(0, 2, 10), NOW).unwrap();
    let second = files_of(place.path()).unwrap().remove(1);
    std::fs::remove_file(second).unwrap();
    assert!(writer.inspect().is_err());
    writer.append_snapshot(&record(0, 3, 10), NOW).unwrap();
    writer.close(NOW).unwrap();
    let third = files_of(place.path()).unwrap().remove(1);
    assert_eq!(read(&std::fs::read(third).unwrap()).unwrap().records, ["is S0", "S0 3"]);
}

#[test]
fn a_file_whose_writer_was_killed_before_its_header_is_passed_over() {
    let place = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(folder(place.path(), 1 << 20, 0), &[entry(0)], NOW).unwrap();
    writer.append_snapshot(&record(0, 1, 10), NOW).unwrap();
    writer.close(NOW).unwrap();
    for (number, bytes) in [(2, &[][..]), (3, &[0; 4096])] {
        let name = tapecast_journal::file_name(tapecast_wire::Epoch(7), number);
        std::fs::write(place.path().join(name), bytes).unwrap();
    }
    assert_eq!(snapshots(place.path()).len(), 1);
    let blank = files_of(place.path()).unwrap().remove(2);
    assert!(Series::open(&blank).unwrap_err().to_string().contains("nothing was written"));
}

#[test]
fn a_file_that_is_there_is_not_replaced_unless_that_is_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("j");
    std::fs::write(&path, b"somebody's").unwrap();
    let error = Writer::create(one_file(&path), &[], NOW).unwrap_err().to_string();
    assert!(error.contains("exists") && error.contains("--force"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn whatever_is_appended_is_read_back_in_order_across_files(
        levels in proptest::collection::vec(0usize..=83, 1..200),
    ) {
        let place = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(folder(place.path(), 65_536, 0), &[], NOW).unwrap();
        writer.append_instrument(&entry(0), NOW).unwrap();
        for (number, levels) in (1..).zip(&levels) {
            writer.append_snapshot(&record(0, number, *levels), NOW).unwrap();
        }
        writer.close(NOW).unwrap();
        let read: Vec<u64> = snapshots(place.path()).into_iter().map(|found| found.0).collect();
        prop_assert_eq!(read, (1..=levels.len() as u64).collect::<Vec<_>>());
    }
}
