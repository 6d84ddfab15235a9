//! A file that ends anywhere is good up to its last whole record.

use std::path::Path;

use tapecast_journal::{How, Writer, recover, recover_newest};

use crate::market::{NOW, entry, folder, one_file, read, record, small_journal};

#[test]
fn a_journal_that_is_cut_at_any_byte_is_recovered_to_its_last_whole_record() {
    let folder = tempfile::tempdir().unwrap();
    let whole = small_journal(&folder.path().join("whole"));
    let all = read(&whole).unwrap();
    let path = folder.path().join("cut");
    for len in 0..whole.len() {
        let cut = &whole[..len];
        let Some(found) = read(cut) else {
            assert!(len < 64, "{len} bytes are no journal");
            continue;
        };
        let count = all.ends.iter().filter(|end| **end <= len as u64).count();
        let last = count.checked_sub(1).map_or(64, |last| all.ends[last]);
        assert_eq!(found.records, all.records[..count], "at {len}");
        assert_eq!(found.ending.at, last, "at {len}");
        let is_blank = cut[last as usize..].iter().all(|byte| *byte == 0);
        assert_eq!(found.ending.how, if is_blank { How::Open } else { How::Cut }, "at {len}");

        std::fs::write(&path, cut).unwrap();
        let recovery = recover(&path).unwrap().unwrap();
        assert_eq!((recovery.ending, recovery.removed_bytes), (found.ending, len as u64 - last));
        let mended = read(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((mended.records, mended.ending.how), (found.records, How::Open), "at {len}");
    }
}

#[test]
fn a_record_of_which_only_a_part_reached_the_reserved_room_is_a_cut() {
    let folder = tempfile::tempdir().unwrap();
    let whole = small_journal(&folder.path().join("whole"));
    let all = read(&whole).unwrap();
    let (begin, end) = (all.ends[4] as usize, all.ends[5] as usize);
    // The head comes last, so a writer that was killed in between leaves a payload alone.
    for reached in begin + 24..end {
        let mut torn = whole[..end].to_vec();
        torn[begin..begin + 24].fill(0);
        torn[reached..].fill(0);
        torn.resize(end + 9000, 0);
        let is_blank = torn[begin..].iter().all(|byte| *byte == 0);
        let found = read(&torn).unwrap();
        assert_eq!(found.records.len(), 5);
        let how = if is_blank { How::Open } else { How::Cut };
        assert_eq!((found.ending.how, found.ending.at), (how, begin as u64), "at {reached}");
    }
}

#[test]
fn a_closed_file_and_one_that_is_being_written_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let closed = folder.path().join("closed");
    let bytes = small_journal(&closed);
    assert_eq!(recover(&closed).unwrap().unwrap().removed_bytes, 0);
    assert_eq!(std::fs::read(&closed).unwrap(), bytes);
    let open = folder.path().join("open");
    let _writer = Writer::create(one_file(&open), &[], NOW).unwrap();
    assert_eq!(recover(&open).unwrap(), None, "somebody writes it");
}

#[test]
fn the_newest_file_of_a_folder_is_recovered_after_its_writer_is_gone() {
    let place = tempfile::tempdir().unwrap();
    assert_eq!(recover_newest(place.path()).unwrap(), None);
    let mut writer = Writer::create(folder(place.path(), 1 << 20, 0), &[entry(0)], NOW).unwrap();
    writer.append_snapshot(&record(0, 1, 10), NOW).unwrap();
    drop(writer);
    let recovery = recover_newest(place.path()).unwrap().unwrap();
    assert_eq!((recovery.snapshots, recovery.ending.how), (1, How::Open));
    assert!(recovery.removed_bytes > 1_000_000);
    assert_eq!(size(&recovery.path), recovery.ending.at);
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}
