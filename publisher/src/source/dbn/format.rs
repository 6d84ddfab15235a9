//! Recognises inputs by their first bytes, never by their names.

/// Bytes that are enough to tell the formats apart.
pub(super) const SNIFF_BYTES: usize = 16;

/// Magic number of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Frames that zstd decoders skip are `0x184D2A50..=0x184D2A5F`, little-endian.
const ZSTD_SKIPPABLE_TAIL: [u8; 3] = [0x2a, 0x4d, 0x18];
/// Text at byte 8 of a legacy DBZ file: name and version.
const DBZ_MARK: &[u8; 4] = b"DBZ\x01";

/// What an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// DBN as it is.
    Dbn,
    /// zstd; the content shows whether it is DBN.
    Zstd,
    /// Legacy DBZ: metadata in a skippable zstd frame, then records in zstd frames.
    Dbz,
    /// Something else: what it looks like, and what to do.
    Other { found: &'static str, remedy: &'static str },
}

impl Format {
    /// Judges by the first bytes, of which there may be fewer than [`SNIFF_BYTES`].
    pub(super) fn of(head: &[u8]) -> Self {
        let skippable =
            head.len() >= 4 && head[0] & 0xf0 == 0x50 && head[1..4] == ZSTD_SKIPPABLE_TAIL;
        if head.starts_with(b"DBN") {
            Self::Dbn
        } else if skippable && head.get(8..12) == Some(DBZ_MARK.as_slice()) {
            Self::Dbz
        } else if skippable || head.starts_with(&ZSTD_MAGIC) {
            Self::Zstd
        } else if is_cut(head, b"DBN") {
            Self::Dbn
        } else if is_cut(head, &ZSTD_MAGIC) || is_cut(head, b"\x50\x2a\x4d\x18") {
            Self::Zstd
        } else {
            let (found, remedy) = other(head);
            Self::Other { found, remedy }
        }
    }
}

/// A file cut within its magic number is truncated, not another format.
fn is_cut(head: &[u8], magic: &[u8]) -> bool {
    !head.is_empty() && magic.starts_with(head)
}

/// Names a format that is not DBN.
pub(super) fn other(head: &[u8]) -> (&'static str, &'static str) {
    const PCAP: [[u8; 4]; 5] = [
        [0xd4, 0xc3, 0xb2, 0xa1],
        [0xa1, 0xb2, 0xc3, 0xd4],
        [0x4d, 0x3c, 0xb2, 0xa1],
        [0xa1, 0xb2, 0x3c, 0x4d],
        [0x0a, 0x0d, 0x0d, 0x0a],
    ];
    if head.starts_with(&[0x1f, 0x8b]) {
        ("gzip", "DBN is compressed with zstd; for a Nasdaq ITCH .gz file use source `itch`")
    } else if PCAP.iter().any(|magic| head.starts_with(magic)) {
        ("a packet capture (pcap)", "this source reads DBN files only")
    } else if looks_like_itch(head) {
        ("a Nasdaq TotalView-ITCH file", "use source `itch`")
    } else if looks_like_record(head) {
        (
            "DBN records without metadata (a .frag fragment)",
            "put the metadata in front, or export it as .dbn again",
        )
    } else if head.starts_with(b"PAR1") {
        ("Parquet", "export the data as DBN")
    } else if !head.is_empty()
        && head.iter().all(|b| b.is_ascii_graphic() || b" \t\r\n".contains(b))
    {
        ("text", "export the data as DBN (.dbn or .dbn.zst)")
    } else {
        ("an unknown format", "this source reads .dbn and .dbn.zst")
    }
}

/// Length prefix of a system event, or of any message with a known type letter.
fn looks_like_itch(head: &[u8]) -> bool {
    match head {
        [0, length, kind, ..] => (10..=60).contains(length) && kind.is_ascii_alphabetic(),
        _ => false,
    }
}

/// A record header: a plausible length in words and a record type that DBN has.
fn looks_like_record(head: &[u8]) -> bool {
    match head {
        [words, kind, ..] => *words >= 4 && dbn::RType::try_from(*kind).is_ok() && head.len() >= 16,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(head: &[u8]) -> &'static str {
        match Format::of(head) {
            Format::Other { found, .. } => found,
            known => panic!("{known:?}"),
        }
    }

    #[test]
    fn dbn_zstd_and_legacy_files_are_told_apart_by_their_magic() {
        assert_eq!(Format::of(b"DBN\x03...."), Format::Dbn);
        assert_eq!(Format::of(&ZSTD_MAGIC), Format::Zstd);
        assert_eq!(Format::of(b"\x50\x2a\x4d\x18\x90\0\0\0DBZ\x01GLBX"), Format::Dbz);
        assert_eq!(Format::of(b"\x51\x2a\x4d\x18\x90\0\0\0something"), Format::Zstd);
    }

    #[test]
    fn a_prefix_of_a_magic_number_is_a_cut_file_and_not_another_format() {
        for cut in 1..=3 {
            assert_eq!(Format::of(&b"DBN"[..cut]), Format::Dbn);
            assert_eq!(Format::of(&ZSTD_MAGIC[..cut]), Format::Zstd);
        }
    }

    #[test]
    fn other_formats_are_named_so_that_the_right_source_can_be_chosen() {
        assert_eq!(found(&[0x1f, 0x8b, 8, 0]), "gzip");
        assert_eq!(found(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0]), "a packet capture (pcap)");
        assert_eq!(found(b"\x00\x0cS\0\0\0\0abcdefO"), "a Nasdaq TotalView-ITCH file");
        assert_eq!(found(b"ts_recv,ts_event"), "text");
        assert_eq!(found(&[0xff; 16]), "an unknown format");
        assert!(
            found(b"\x0e\xa0\x01\0\x6a\x15\0\0\x07\xaf\xa6\xac\xdb\xe2\x54\x16").contains("frag")
        );
    }
}
