//! A journal file that anybody may have written or cut: read to its last whole record, bounded, and
//! never beyond its end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tapecast_journal::layout::{
    FileHeader, HEADER_BYTES, RECORD_BYTES_MAX, RecordHead, RecordKind,
};
use tapecast_journal::{Entry, How, Reader};
use zerocopy::{FromBytes, IntoBytes};

/// Gives a header and the records behind it the checksums that they should have, so that inputs
/// come past them; a byte of the input says where to stop.
fn seal(bytes: &mut [u8]) {
    let Some((stop, bytes)) = bytes.split_last_mut() else { return };
    let Some((head, mut rest)) = bytes.split_at_mut_checked(HEADER_BYTES) else { return };
    let Ok(header) = FileHeader::read_from_bytes(head) else { return };
    head.copy_from_slice(header.sealed().as_bytes());
    for _ in 0..*stop {
        let Ok((head, _)) = RecordHead::read_from_prefix(rest) else { return };
        let Some(len) = head.payload_len() else { return };
        let whole = size_of::<RecordHead>() + len;
        let Some((record, after)) = rest.split_at_mut_checked(whole) else { return };
        let checksum = head.computed(&record[size_of::<RecordHead>()..]);
        record[..4].copy_from_slice(&checksum.to_le_bytes());
        rest = after;
    }
}

fn read(bytes: &[u8]) {
    let Ok(Ok(mut reader)) = Reader::new(bytes) else { return };
    let mut last = HEADER_BYTES as u64;
    while let Some(record) = reader.next_record().expect("memory can be read") {
        assert_eq!(record.offset, last);
        if let Entry::Snapshot { snapshot, instrument } = record.entry {
            assert!(snapshot.as_bytes().len() <= RECORD_BYTES_MAX);
            assert!(instrument.is_none_or(|i| i.instrument_id == snapshot.instrument_id()));
        }
        last = reader.position();
        assert!(last <= bytes.len() as u64);
    }
    let ending = reader.ending().expect("it has ended");
    assert!(ending.at >= last && ending.at <= bytes.len() as u64);
    assert!(ending.how != How::Closed || ending.at > last, "the end is a record too");
    assert!(!reader.advance().expect("memory can be read"), "nothing follows the end");
    assert_eq!(RecordKind::from_file(0), None);
}

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    let mut sealed = bytes.to_vec();
    seal(&mut sealed);
    read(&sealed);
});
