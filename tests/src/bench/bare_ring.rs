//! The yardstick: one shared ring, one futex broadcast, nothing else.
//!
//! No header, no late join, no conflation, no accounting, no protection of one reader from another:
//! the least that a home-made fan-out does. Every reader sums the payload in place and gates the
//! writer, so that nothing is lost and nothing is torn. It shares no code with tapecast.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};

/// Bytes between words that different processes write.
const LINE: usize = 128;
/// Readers that the control block has room for.
const READERS: usize = 64;
const CONTROL_BYTES: usize = (2 + READERS) * LINE;

/// How a reader waits for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BareWait {
    /// `sched_yield` in a loop.
    Yield,
    /// Sleep on the futex that the writer broadcasts.
    Futex,
}

/// One mapping of the ring; writer and readers have one each.
#[derive(Debug)]
pub struct BareRing {
    map: MmapRaw,
    slots: usize,
    slot_bytes: usize,
}

/// Creates the memory of a ring. The descriptor is inherited by child processes.
///
/// # Errors
/// When the kernel refuses the memory.
pub fn create(slots: usize, slot_bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: the name is a NUL-terminated literal and the call touches no memory of ours.
    let raw = unsafe { libc::memfd_create(c"tapecast-bare-ring".as_ptr(), 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: memfd_create just returned this descriptor, so nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let bytes = (CONTROL_BYTES + slots * slot_bytes) as libc::off_t;
    // SAFETY: the descriptor is open and owned by us; the call touches no memory of ours.
    let status = unsafe { libc::ftruncate(fd.as_raw_fd(), bytes) };
    if status != 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
}

impl BareRing {
    /// Maps the ring behind `fd`. `slots` must be a power of two, `slot_bytes` a multiple of 8.
    ///
    /// # Errors
    /// When the descriptor is too small or cannot be mapped.
    pub fn map(fd: RawFd, slots: usize, slot_bytes: usize) -> io::Result<Self> {
        assert!(slots.is_power_of_two() && slot_bytes.is_multiple_of(8) && slot_bytes >= 16);
        let map = MmapOptions::new().len(CONTROL_BYTES + slots * slot_bytes).map_raw(fd)?;
        Ok(Self { map, slots, slot_bytes })
    }

    fn word(&self, line: usize) -> &AtomicU64 {
        assert!(line < 2 + READERS);
        // SAFETY: the line lies inside the control block, which is inside the mapping.
        let word = unsafe { self.map.as_mut_ptr().add(line * LINE) };
        // SAFETY: the mapping is page-aligned, so the word is aligned; it lives as long as self,
        // and every process touches the word through an atomic alone.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    fn published(&self) -> &AtomicU64 {
        self.word(0)
    }

    fn wake_word(&self) -> &AtomicU32 {
        // SAFETY: line 1 lies inside the control block, which is inside the mapping.
        let word = unsafe { self.map.as_mut_ptr().add(LINE) };
        // SAFETY: aligned and alive as above; the word is used as a 32-bit atomic only.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    fn slot(&self, sequence: u64) -> *mut u8 {
        let index = sequence as usize & (self.slots - 1);
        // SAFETY: index < slots, so the slot lies inside the mapping.
        unsafe { self.map.as_mut_ptr().add(CONTROL_BYTES + index * self.slot_bytes) }
    }
}

/// The one writer.
#[derive(Debug)]
pub struct BareWriter {
    ring: BareRing,
    readers: usize,
    next: u64,
    gate: u64,
    wait: BareWait,
}

impl BareWriter {
    /// A writer that waits for `readers` readers.
    #[must_use]
    pub fn new(ring: BareRing, readers: usize, wait: BareWait) -> Self {
        Self { ring, readers, next: 0, gate: 0, wait }
    }

    /// Copies `message` into the next slot, shows it, and wakes every sleeping reader.
    pub fn publish(&mut self, message: &[u8]) {
        assert!(message.len() == self.ring.slot_bytes);
        while self.next - self.gate >= self.ring.slots as u64 {
            self.gate = self.slowest();
            if self.next - self.gate >= self.ring.slots as u64 {
                std::thread::yield_now();
            }
        }
        // SAFETY: the gate proves that every reader is done with this slot, and no reader looks at
        // it again before `published` moves past it below.
        unsafe {
            std::ptr::copy_nonoverlapping(
                message.as_ptr(),
                self.ring.slot(self.next),
                message.len(),
            );
        }
        self.next += 1;
        self.ring.published().store(self.next, Ordering::Release);
        if self.wait == BareWait::Futex {
            self.ring.wake_word().store(self.next as u32, Ordering::SeqCst);
            futex_wake_all(self.ring.wake_word());
        }
    }

    /// Messages that the slowest reader has consumed.
    #[must_use]
    pub fn slowest(&self) -> u64 {
        (0..self.readers)
            .map(|reader| self.ring.word(2 + reader).load(Ordering::Acquire))
            .min()
            .unwrap_or(self.next)
    }
}

/// One reader.
#[derive(Debug)]
pub struct BareReader {
    ring: BareRing,
    index: usize,
    next: u64,
    wait: BareWait,
}

impl BareReader {
    /// Reader number `index`.
    #[must_use]
    pub fn new(ring: BareRing, index: usize, wait: BareWait) -> Self {
        assert!(index < READERS);
        Self { ring, index, next: 0, wait }
    }

    /// Calls `handler` for every message that is there, in place, then lets the writer have the
    /// slots back. Waits when there is none.
    pub fn poll(&mut self, mut handler: impl FnMut(&[u8])) {
        let seen = self.ring.wake_word().load(Ordering::SeqCst);
        let published = self.ring.published().load(Ordering::Acquire);
        if published == self.next {
            match self.wait {
                BareWait::Yield => std::thread::yield_now(),
                BareWait::Futex => futex_wait(self.ring.wake_word(), seen),
            }
            return;
        }
        while self.next < published {
            // SAFETY: the slot was published before the Acquire load above, and the writer waits
            // for this reader's cursor before it writes the slot again.
            let message = unsafe {
                std::slice::from_raw_parts(self.ring.slot(self.next), self.ring.slot_bytes)
            };
            handler(message);
            self.next += 1;
        }
        fence(Ordering::Release);
        self.ring.word(2 + self.index).store(self.next, Ordering::Release);
    }
}

fn futex_wait(word: &AtomicU32, expected: u32) {
    // SAFETY: the word is a live, aligned atomic; a null timeout means none. Spurious returns and
    // EAGAIN are fine, because the caller looks again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            std::ptr::null::<libc::timespec>(),
        );
    }
}

fn futex_wake_all(word: &AtomicU32) {
    // SAFETY: the word is a live, aligned atomic; the call only wakes.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}
