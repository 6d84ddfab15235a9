//! Any bytes at all: never a panic, never a record that was not written.

use proptest::prelude::*;
use tapecast_journal::How;

use crate::market::{read, record, small_journal};

fn whole() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    small_journal(&folder.path().join("j"))
}

#[test]
fn a_bit_that_flips_anywhere_is_noticed_and_what_stands_before_it_is_read() {
    let whole = whole();
    let all = read(&whole).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        let Some(found) = read(&damaged) else {
            assert!(at < 64, "only the header can make it unreadable, not byte {at}");
            continue;
        };
        let before = all.ends.iter().filter(|end| **end <= at as u64).count();
        assert_eq!(found.records, all.records[..before], "byte {at}");
        // A length that leads beyond the end looks like a cut; everything else is damage.
        assert!(matches!(found.ending.how, How::Damaged(_) | How::Cut), "byte {at}: {found:?}");
    }
}

#[test]
fn bytes_behind_the_end_are_damage() {
    let mut longer = whole();
    longer.extend_from_slice(&[0; 5000]);
    assert_eq!(read(&longer).unwrap().ending.how, How::Closed, "room that was not given back");
    longer.push(1);
    assert!(matches!(read(&longer).unwrap().ending.how, How::Damaged(_)));
}

#[test]
fn something_else_is_refused_as_something_else() {
    for bytes in
        [&b""[..], b"TAPE", b"not a journal, but long enough to hold a header of one......"]
    {
        assert!(read(bytes).is_none());
    }
    assert!(read(&record(0, 1, 10)).is_none());
}

proptest! {
    #[test]
    fn whatever_follows_a_header_is_read_without_a_panic(
        tail in proptest::collection::vec(any::<u8>(), 0..6000),
    ) {
        let mut bytes = whole()[..64].to_vec();
        bytes.extend_from_slice(&tail);
        let found = read(&bytes).unwrap();
        prop_assert!(found.ending.at <= bytes.len() as u64);
    }

    #[test]
    fn however_a_journal_is_damaged_only_what_was_written_is_read(
        patches in proptest::collection::vec((0usize..900, any::<u8>()), 1..8),
        cut in 64usize..1200,
    ) {
        let whole = whole();
        let all = read(&whole).unwrap();
        let mut damaged = whole;
        for (at, value) in patches {
            let at = at % damaged.len();
            damaged[at] = value;
        }
        damaged.truncate(cut);
        if let Some(found) = read(&damaged) {
            prop_assert!(found.records.len() <= all.records.len());
            prop_assert_eq!(&found.records[..], &all.records[..found.records.len()]);
        }
    }
}
