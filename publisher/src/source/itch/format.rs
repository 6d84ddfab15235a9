//! What a file is, by its first bytes, so that a wrong one is named and not decoded.

/// Bytes that [`recognise`] wants to see.
pub(crate) const HEAD_BYTES: usize = 64;

/// The first message of a feed is a short one: more than this is another format.
const FIRST_MESSAGE_BYTES_MAX: u16 = 1024;

/// What the first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Nothing speaks against length-prefixed ITCH.
    Itch,
    /// Compressed with gzip.
    Gzip,
    /// Another format: what it is, and what to do about it.
    Other { what: &'static str, remedy: &'static str },
}

const WANTED: &str = "give a Nasdaq BinaryFILE (2-byte length, then the message), plain or .gz";
const CAPTURE: &str = "extract the messages into a BinaryFILE (2-byte length, then the message)";

/// First bytes of formats that are given by mistake.
const MAGICS: [(&[u8], &str, &str); 14] = [
    (b"DBN", "a DBN file", "use the source dbn for it"),
    (b"DBZ", "a legacy DBZ file", "convert it to DBN and use the source dbn"),
    (
        &[0x28, 0xb5, 0x2f, 0xfd],
        "compressed with zstd",
        "if it holds DBN, use the source dbn; if it holds ITCH, unpack it first (zstd -d)",
    ),
    (&[0xd4, 0xc3, 0xb2, 0xa1], "a pcap capture", CAPTURE),
    (&[0xa1, 0xb2, 0xc3, 0xd4], "a pcap capture", CAPTURE),
    (&[0x4d, 0x3c, 0xb2, 0xa1], "a pcap capture", CAPTURE),
    (&[0xa1, 0xb2, 0x3c, 0x4d], "a pcap capture", CAPTURE),
    (&[0x0a, 0x0d, 0x0d, 0x0a], "a pcapng capture", CAPTURE),
    (b"PK\x03\x04", "a zip archive", "unpack it first (unzip)"),
    (b"BZh", "compressed with bzip2", "unpack it first (bzip2 -d)"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "compressed with xz", "unpack it first (xz -d)"),
    (&[0x04, 0x22, 0x4d, 0x18], "compressed with lz4", "unpack it first (lz4 -d)"),
    (&[b'7', b'z', 0xbc, 0xaf], "a 7z archive", "unpack it first (7z x)"),
    (b"PAR1", "a Parquet file", WANTED),
];

/// Says what a file is that starts with these bytes ([`HEAD_BYTES`] of them if it has so many).
pub(crate) fn recognise(head: &[u8]) -> Format {
    if head.starts_with(&[0x1f, 0x8b]) {
        return Format::Gzip;
    }
    let magic = MAGICS.iter().find(|(magic, ..)| head.starts_with(magic));
    if let Some((_, what, remedy)) = magic {
        return Format::Other { what, remedy };
    }
    if !head.is_empty() && is_text(head) {
        return Format::Other { what: "text", remedy: WANTED };
    }
    match head.first_chunk::<2>() {
        Some(prefix) if u16::from_be_bytes(*prefix) > FIRST_MESSAGE_BYTES_MAX => {
            Format::Other { what: "no length-prefixed ITCH", remedy: WANTED }
        }
        _ => Format::Itch,
    }
}

/// UTF-8 (the last character may be cut) without the control characters of binary data.
fn is_text(head: &[u8]) -> bool {
    let whole = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    whole && head.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_systems_event_at_the_start_is_itch() {
        assert_eq!(recognise(b"\0\x0cS\0\0\0\0\x0a\x0a\x60\xaa\xdb\x93O"), Format::Itch);
        assert_eq!(recognise(b"\0"), Format::Itch);
    }

    #[test]
    fn every_other_format_is_named() {
        for (bytes, word) in [
            (&b"DBN\x03rest"[..], "DBN"),
            (&[0x28, 0xb5, 0x2f, 0xfd, 0, 0], "zstd"),
            (&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0], "pcap"),
            (&[0x0a, 0x0d, 0x0d, 0x0a, 2, 0], "pcapng"),
            (b"time,price\n1,2\n", "text"),
            ("prix en €".as_bytes(), "text"),
            (b"\x7fELF\x02\x01\x01\0\0", "no length-prefixed"),
        ] {
            let Format::Other { what, .. } = recognise(bytes) else { panic!("{bytes:?}") };
            assert!(what.contains(word), "{what}");
        }
    }
}
