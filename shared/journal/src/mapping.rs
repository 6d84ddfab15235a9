//! The piece of a file that is being written, mapped.

#![expect(unsafe_code, reason = "a file can be mapped in no other way; argued at the one place")]

use std::fs::File;
use std::io;

use memmap2::{MmapMut, MmapOptions};

/// A mapped piece of a file whose blocks were reserved. It is written to and never read.
///
/// # Invariants
/// - No reference to the mapped bytes leaves this module, nothing is read through it, and nothing
///   depends on what stands there: a foreign change damages the file alone, which its checksums
///   show. The file was made by this process for this purpose alone, and is locked.
/// - The bytes exist and their blocks are reserved: the caller extended the file over them before.
///   Whoever cuts it in spite of that makes a later `write` end the process by SIGBUS, which is no
///   undefined behaviour; `Segment::inspect`, before each batch, finds a file that was cut, and
///   leaves it.
#[derive(Debug)]
pub(crate) struct Window {
    map: MmapMut,
    start: u64,
}

impl Window {
    /// Maps `len` bytes from `start`, a multiple of the page size. The bytes are in the file.
    pub(crate) fn map(file: &File, start: u64, len: usize) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.offset(start).len(len);
        // SAFETY: what a file mapping risks is that others change the bytes under a reference; by
        // the invariants of the type there is none outside `write`, which only copies into them.
        let map = unsafe { options.map_mut(file) }?;
        Ok(Self { map, start })
    }

    /// Where in the file it ends.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.map.len() as u64
    }

    /// Copies `bytes` to `at`, an offset in the file.
    ///
    /// # Panics
    /// When that is not all inside: a bug of the caller.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        let from = (at - self.start) as usize;
        self.map[from..from + bytes.len()].copy_from_slice(bytes);
    }
}
