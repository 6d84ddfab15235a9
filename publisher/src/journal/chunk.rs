//! What goes from the feed to the scribe: memory that many records share.

use tapecast_journal::Hole;
use tapecast_wire::limits::PAGE_BYTES;

/// Bytes of one chunk.
pub(super) const CHUNK_BYTES: usize = 64 * 1024;
/// Before each item: its kind and the length of its bytes.
const ITEM_HEAD_BYTES: usize = 8;

const _: () = assert!(CHUNK_BYTES >= 2 * (PAGE_BYTES + ITEM_HEAD_BYTES));

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum ItemKind {
    Snapshot = 1,
    Instrument = 2,
}

/// Items in the order in which they were put in. Never grows.
#[derive(Debug)]
pub(super) struct Chunk {
    bytes: Vec<u8>,
    /// What is missing before the first item.
    pub(super) hole: Hole,
}

/// What the scribe is sent.
#[derive(Debug)]
pub(super) enum Parcel {
    Chunk(Chunk),
    /// Nothing follows, but this is missing at the end.
    End(Hole),
}

impl Chunk {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::with_capacity(CHUNK_BYTES), hole: Hole::default() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether it was put in: there may be no room.
    #[inline]
    pub(super) fn put(&mut self, kind: ItemKind, item: &[u8]) -> bool {
        if self.bytes.len() + ITEM_HEAD_BYTES + item.len() > CHUNK_BYTES {
            return false;
        }
        self.bytes.extend_from_slice(&(kind as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(item.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(item);
        true
    }

    /// The items, first first.
    pub(super) fn items(&self) -> impl Iterator<Item = (ItemKind, &[u8])> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (kind, after) = rest.split_first_chunk()?;
            let (len, after) = after.split_first_chunk()?;
            let (item, after) = after.split_at(u32::from_le_bytes(*len) as usize);
            rest = after;
            let is_snapshot = u32::from_le_bytes(*kind) == ItemKind::Snapshot as u32;
            Some((if is_snapshot { ItemKind::Snapshot } else { ItemKind::Instrument }, item))
        })
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.hole = Hole::default();
    }
}
