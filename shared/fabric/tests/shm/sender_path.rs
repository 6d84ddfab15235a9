//! The sender's path makes no system call and allocates nothing; nor does a spinning receiver's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use rustix::thread::{SecureComputingMode, set_secure_computing_mode};
use tapecast_core::Interest;
use tapecast_fabric::shm::ShmEndpoint;
use tapecast_fabric::{Fabric, Receiver};
use tapecast_wire::attach::Policy;

use crate::process::{Parent, Subscriber};
use crate::support::{Publisher, small};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts each thread's allocations.
struct Counting;

// SAFETY: every call is handed on to the system's allocator with the same arguments; counting
// touches nothing but a thread-local number that needs no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more, and nothing to count.
        let _ended = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps to the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Publishes, flushes, turns and receives with everything in view: conflating and lossless
/// sessions, laps, held writers.
fn run(publisher: &mut Publisher, receivers: &mut [Receiver<ShmEndpoint>], batches: u32) {
    for batch in 0..batches {
        for n in 0..batch % 40 {
            let mut shared = publisher.source.next(n % 64).share();
            while let Err(full) = publisher.fabric.publish(shared) {
                shared = full.0;
                flush(publisher);
                receivers.iter_mut().for_each(|receiver| {
                    receiver.poll(64, |_| ()).unwrap();
                });
            }
        }
        flush(publisher);
        if batch % 3 == 0 {
            receivers.iter_mut().for_each(|receiver| {
                receiver.poll(64, |_| ()).unwrap();
            });
        }
    }
}

fn flush(publisher: &mut Publisher) {
    publisher.now.0 += 1_000_000;
    publisher.fabric.flush(publisher.now);
    publisher.fabric.turn(publisher.now);
}

fn publisher_with_receivers() -> (Publisher, Vec<Receiver<ShmEndpoint>>) {
    let mut publisher = Publisher::new(&small());
    publisher.publish(0..64);
    let policies = [Policy::Conflate, Policy::Lossless, Policy::Conflate];
    let receivers =
        policies.map(|policy| publisher.receiver(policy, &Interest::All)).into_iter().collect();
    (publisher, receivers)
}

#[test]
fn publishing_and_polling_allocate_nothing() {
    let (mut publisher, mut receivers) = publisher_with_receivers();
    run(&mut publisher, &mut receivers, 100);
    let before = ALLOCATIONS.get();
    run(&mut publisher, &mut receivers, 2_000);
    assert_eq!(ALLOCATIONS.get() - before, 0);
    drop(Box::new(1));
    assert_eq!(ALLOCATIONS.get() - before, 1, "allocations are counted");
}

const CHILD: &str = "sender_path::a_process_that_may_make_no_system_call";

#[test]
fn a_process_that_may_make_no_system_call() {
    let Some(mut parent) = Parent::find() else { return };
    let (mut publisher, mut receivers) = publisher_with_receivers();
    // From here on the kernel kills this thread at any system call but read, write and exit.
    set_secure_computing_mode(SecureComputingMode::Strict).unwrap();
    if parent.role == "offend" {
        std::thread::yield_now();
    }
    run(&mut publisher, &mut receivers, 2_000);
    // The standard library's sockets do not read and write, they receive and send.
    let stream = parent.lines.get_mut();
    rustix::io::write(&*stream, b"done\n").unwrap();
    // Ending a thread takes system calls too: the parent ends the process.
    let _gone = rustix::io::read(&*stream, &mut [0; 1]);
}

#[test]
fn publishing_and_polling_make_no_system_call() {
    let descriptors = || Publisher::new(&small()).attach(Policy::Conflate).1;
    let mut child = Subscriber::start(CHILD, "obey", descriptors());
    assert_eq!(child.hear(), "done");
    let offender = Subscriber::start(CHILD, "offend", descriptors());
    offender.until_killed();
}
