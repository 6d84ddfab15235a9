//! The publisher's copies of records that are sent again and again: every instrument's newest
//! snapshot, and its directory entry.
//!
//! They are copies because a reference would keep the snapshot's page out of the pool until the
//! instrument trades again. What is sent is copied once more, into a pool page, because the next
//! publish may overwrite the table before the work request has executed; one copy serves every
//! session of a pass.

use tapecast_wire::InstrumentId;

use crate::pool::{PageWriter, Pool, Shared};

/// One record for each instrument.
#[derive(Debug)]
pub(super) struct RecordTable {
    bytes: Box<[u8]>,
    lengths: Box<[u16]>,
    stride: usize,
    /// Copies made in this pass, by instrument, and which instruments those are.
    copies: Box<[Option<Shared>]>,
    copied: Vec<InstrumentId>,
    page: Option<PageWriter>,
}

impl RecordTable {
    /// A table of records of at most `stride` bytes.
    pub(super) fn new(instruments: usize, stride: usize) -> Self {
        Self {
            bytes: vec![0; instruments * stride].into_boxed_slice(),
            lengths: vec![0; instruments].into_boxed_slice(),
            stride,
            copies: (0..instruments).map(|_| None).collect(),
            copied: Vec::with_capacity(instruments),
            page: None,
        }
    }

    pub(super) fn store(&mut self, id: InstrumentId, record: &[u8]) {
        assert!(record.len() <= self.stride, "{} bytes, {} fit", record.len(), self.stride);
        let start = id.index() * self.stride;
        self.bytes[start..start + record.len()].copy_from_slice(record);
        self.lengths[id.index()] = record.len() as u16;
    }

    /// The record as it was stored last; empty for none.
    pub(super) fn get(&self, id: InstrumentId) -> &[u8] {
        let Some(len) = self.lengths.get(id.index()) else { return &[] };
        let start = id.index() * self.stride;
        &self.bytes[start..start + usize::from(*len)]
    }

    /// The record in a pool page. `None` when the pool has none left.
    pub(super) fn share(&mut self, id: InstrumentId, pool: &Pool) -> Option<Shared> {
        if let Some(copy) = &self.copies[id.index()] {
            return Some(copy.clone());
        }
        let start = id.index() * self.stride;
        let record = &self.bytes[start..start + usize::from(self.lengths[id.index()])];
        if self.page.as_ref().is_none_or(|page| page.room() < record.len()) {
            self.page = Some(pool.loan()?);
        }
        let filled = self.page.as_mut()?.append(record.len(), |room| {
            room.copy_from_slice(record);
            Ok::<_, core::convert::Infallible>(record.len())
        });
        let copy = filled.ok()?.share();
        self.copies[id.index()] = Some(copy.clone());
        self.copied.push(id);
        Some(copy)
    }

    /// Ends a pass: copies live on only in the work requests that refer to them.
    pub(super) fn end_pass(&mut self) {
        for id in self.copied.drain(..) {
            self.copies[id.index()] = None;
        }
        self.page = None;
    }
}
