//! Legacy DBZ, the precursor of DBN: the same records behind another header.
//!
//! ```text
//! DBZ  = skippable zstd frame { "DBZ" 1 | fixed fields (92 B) | zstd { symbols, mappings } }
//!        zstd frames { records }
//! ```
//!
//! The header is rewritten as that of DBN version 1, whose fields are the same, so that one
//! bounds-checked parser reads both.

use std::io::Read;

use super::content::ContentReader;
use super::error::DbnError;

/// Bytes before the compressed part of the header.
const FIXED_BYTES: usize = 96;
/// Longest header that is accepted.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest decompressed symbol section that is accepted.
const SYMBOLS_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Reserved bytes at the end of the fixed fields of DBN version 1.
const DBN1_RESERVED_BYTES: usize = 47;

/// A DBZ header in terms of DBN.
pub(super) struct LegacyHeader {
    /// Prelude and metadata as DBN version 1 writes them.
    pub(super) dbn: Vec<u8>,
    /// Records that the file claims to have.
    pub(super) record_count: u64,
}

/// Reads the header frame of a DBZ file.
pub(super) fn read_header<R: Read>(
    content: &mut ContentReader<R>,
) -> Result<LegacyHeader, DbnError> {
    let prelude = content.take_raw(8, "the legacy header")?;
    let frame_bytes = u32::from_le_bytes([prelude[4], prelude[5], prelude[6], prelude[7]]) as usize;
    if !(FIXED_BYTES..=FRAME_BYTES_MAX).contains(&frame_bytes) {
        return Err(content.damaged(format!("a legacy header of {frame_bytes} bytes")));
    }
    let frame = content.take_raw(frame_bytes, "the legacy header")?;
    translate(&frame).map_err(|reason| content.damaged(reason))
}

fn translate(frame: &[u8]) -> Result<LegacyHeader, String> {
    let (fixed, compressed) = frame.split_at(FIXED_BYTES);
    let mut symbols = Vec::new();
    zstd::Decoder::new(compressed)
        .and_then(|decoder| decoder.take(SYMBOLS_BYTES_MAX + 1).read_to_end(&mut symbols))
        .map_err(|error| format!("symbols of the legacy header: {error}"))?;
    if symbols.len() as u64 > SYMBOLS_BYTES_MAX {
        return Err(format!("symbols of the legacy header exceed {SYMBOLS_BYTES_MAX} bytes"));
    }
    // fixed = "DBZ" version | dataset 16 | schema 2 | start 8 | end 8 | limit 8 | record_count 8
    //       | compression 1 | stype_in 1 | stype_out 1 | reserved 39
    let mut count = [0; 8];
    count.copy_from_slice(&fixed[46..54]);
    let mut body = Vec::with_capacity(100 + symbols.len());
    body.extend_from_slice(&fixed[4..54]);
    body.extend_from_slice(&fixed[55..57]);
    body.push(0); // no ts_out
    body.extend_from_slice(&[0; DBN1_RESERVED_BYTES]);
    body.extend_from_slice(&symbols);
    let mut dbn = b"DBN\x01".to_vec();
    let length = u32::try_from(body.len()).map_err(|error| error.to_string())?;
    dbn.extend_from_slice(&length.to_le_bytes());
    dbn.extend_from_slice(&body);
    Ok(LegacyHeader { dbn, record_count: u64::from_le_bytes(count) })
}
