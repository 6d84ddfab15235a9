//! The sender's loop allocates nothing and frees nothing once it runs.
//!
//! The allocator of this program counts what one chosen thread does. The thread is a sender on
//! shared memory with conflating and lossless sessions; a feed encodes for it, and a subscriber
//! attaches and leaves while it is counted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod sender_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tapecast_fabric::shm::{ShmConfig, ShmFabric};
use tapecast_publisher::sender::{Command, Outcome, Sender, Work};
use tapecast_wire::attach::{Farewell, Policy};
use tapecast_wire::{Epoch, SessionId};

use sender_support::{Plant, Reader};

/// Counts, for each thread, what it does with the heap.
struct Counting;

thread_local! {
    // Const and without a destructor: touching it never allocates.
    static HEAP_CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    HEAP_CALLS.set(HEAP_CALLS.get() + 1);
}

// SAFETY: every call is handed on to the system's allocator with the caller's own arguments, so its
// contract is kept because the system's allocator keeps it; counting touches a plain thread-local
// cell, which neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller promises what `System::alloc` asks for: a layout of non-zero size.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: `pointer` came from `alloc` or `realloc` here with this layout, which is to say
        // from `System`, as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`; the new size is the caller's promise too.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SNAPSHOTS: u64 = 200_000;

#[test]
fn the_allocator_of_this_program_does_count() {
    let before = HEAP_CALLS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(HEAP_CALLS.get(), before + 2, "one allocation, one release");
}

#[test]
fn a_running_sender_neither_allocates_nor_frees() {
    let mut config = ShmConfig::new(Epoch(1));
    (config.ring_bytes, config.allow_lossless) = (1 << 18, true);
    let Plant { host, mut sender, port, feed, progress, pool: _pool } = Plant::new(&config);
    let readers = [Policy::Lossless, Policy::Conflate, Policy::Conflate]
        .map(|policy| Reader::attach(&host, &port, &mut sender, policy));
    // A visitor that comes and goes while the sender is counted.
    let (visitor, _descriptors) = host.prepare(Policy::Conflate).unwrap();
    port.submit(Command::Attach { ticket: 99, session: visitor }).unwrap();
    port.submit(Command::Detach { id: SessionId(3) }).unwrap();
    let (calls, delivered) = std::thread::scope(|scope| {
        let is_over = || progress.load().published == SNAPSHOTS;
        let readers = readers.map(|reader| scope.spawn(move || reader.read_until(is_over)));
        let sender = scope.spawn(|| heap_calls(&mut sender));
        feed.run(SNAPSHOTS);
        (sender.join().unwrap(), readers.map(|reader| reader.join().unwrap()))
    });
    assert_eq!(calls, 0, "the sender called the allocator");
    assert_eq!(delivered[0], SNAPSHOTS, "the lossless subscriber read all");
    assert!(delivered[1] > 0 && delivered[2] > 0);
    let attached = port.poll();
    assert!(matches!(attached, Some(Outcome::Attached { ticket: 99, result: Ok(SessionId(3)) })));
    assert!(matches!(port.poll(), Some(Outcome::Detached { session: Some(_), .. })));
    port.submit(Command::Close { farewell: Farewell::Closing }).unwrap();
    assert_eq!(sender.do_work(), Work::Closed);
}

/// Runs the sender on this thread until all is published; returns what it did with the heap.
fn heap_calls(sender: &mut Sender<ShmFabric>) -> u64 {
    let before = HEAP_CALLS.get();
    while sender.progress().published < SNAPSHOTS {
        sender.do_work();
    }
    HEAP_CALLS.get() - before
}
