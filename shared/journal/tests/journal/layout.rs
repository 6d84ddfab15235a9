//! The bytes, one by one: other programs may read them.

use crate::market::{NOW, entry, one_file, read, record, small_journal};
use tapecast_journal::layout::{HEADER_BYTES, MAGIC};
use tapecast_journal::{How, Writer};
use tapecast_wire::WIRE_VERSION;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn the_header_the_first_record_and_the_end_stand_where_the_layout_says() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = small_journal(&folder.path().join("j"));
    assert_eq!(bytes[..8], MAGIC);
    let wire = WIRE_VERSION as u8;
    assert_eq!(bytes[8..16], [1, 0, 64, 0, wire, 0, 1, 0], "versions, header length, publisher");
    assert_eq!((u64_at(&bytes, 16), u32_at(&bytes, 24)), (7, 1), "epoch, file number");
    assert_eq!((bytes[28], u64_at(&bytes, 32)), (10, NOW.get()), "levels, time");
    assert_eq!((u64_at(&bytes, 40), &bytes[48..60]), (0, &[0; 12][..]));
    assert_eq!(u32_at(&bytes, 60), crc32fast::hash(&bytes[..60]));

    let first = &bytes[HEADER_BYTES..];
    assert_eq!((u32_at(first, 4), first[8]), (24 + 64, 2), "the directory comes first");
    assert_eq!(u32_at(first, 0), crc32fast::hash(&first[4..88]));
    assert_eq!((u64_at(first, 16), &first[48..50]), (NOW.get(), &b"S0"[..]));
    let second = &first[88..];
    assert_eq!((u32_at(second, 4), second[8]), (24 + 96 + 4 * 24, 1));
    assert_eq!(second[24..24 + 192], record(0, 1, 2));

    let end = &bytes[bytes.len() - 40..];
    assert_eq!((u32_at(end, 4), end[8], end[24], u64_at(end, 32)), (40, 4, 1, 3));
}

#[test]
fn what_was_written_is_read_and_a_later_instrument_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = small_journal(&folder.path().join("j"));
    let found = read(&bytes).unwrap();
    assert_eq!(found.records, ["is S0", "S0 1", "is S1", "S1 2", "lost 2", "S0 5"]);
    assert_eq!((found.ending.how, found.ending.at), (How::Closed, bytes.len() as u64));
}

#[test]
fn a_file_that_was_not_closed_ends_where_its_room_begins() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("j");
    let mut writer = Writer::create(one_file(&path), &[entry(0)], NOW).unwrap();
    writer.append_snapshot(&record(0, 1, 10), NOW).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 1 << 20, "room is reserved");
    let found = read(&bytes).unwrap();
    assert_eq!(found.records, ["is S0", "S0 1"]);
    assert_eq!((found.ending.how, Some(&found.ending.at)), (How::Open, found.ends.last()));
}
