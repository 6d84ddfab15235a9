//! What a subscriber cannot do with what it was given.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use memmap2::MmapOptions;
use rustix::fs::FallocateFlags;
use rustix::fs::{SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::mm::{MprotectFlags, mprotect};
use rustix::thread::futex::{self, Flags};
use tapecast_core::Interest;
use tapecast_fabric::shm::{Sealing, ShmConfig};
use tapecast_fabric::{Fabric, WaitStrategy};
use tapecast_ring::{RegionReader, Words};
use tapecast_wire::attach::Policy;

use crate::support::{Publisher, Seen, drain, open, small};

const NOBODY: u32 = 65534;
/// Where the consumed position stands in a cell.
const CONSUMED_AT: u64 = 128;

fn publisher(sealing: Sealing) -> (Publisher, OwnedFd) {
    let mut publisher = Publisher::new(&ShmConfig { sealing, ..small() });
    let region = publisher.attach(Policy::Conflate).1.into_vec().remove(0);
    (publisher, region)
}

fn can_map_writable(file: &impl AsRawFd) -> bool {
    MmapOptions::new().len(4096).map_raw(file.as_raw_fd()).is_ok()
}

/// Whether a mapping that can be read can be made one that can be written, afterwards.
fn can_be_made_writable(region: &OwnedFd) -> bool {
    let map = MmapOptions::new().len(4096).map_raw_read_only(region).unwrap();
    let wanted = MprotectFlags::READ | MprotectFlags::WRITE;
    // SAFETY: the page is mapped as long as `map` lives, and nobody writes to it even if it is
    // granted.
    unsafe { mprotect(map.as_mut_ptr().cast(), 4096, wanted) }.is_ok()
}

/// Whether a shell that runs as somebody else can open its standard input for writing.
fn can_reopen_as(user: u32, region: &OwnedFd) -> bool {
    let input = Stdio::from(region.try_clone().unwrap());
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "exec 3<>/proc/self/fd/0"]).uid(user).gid(user).stdin(input);
    shell.stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn the_descriptor_can_be_read_and_neither_written_nor_resized() {
    for sealing in [Sealing::FutureWrite, Sealing::Owner] {
        let (_publisher, region) = publisher(sealing);
        assert!(MmapOptions::new().len(4096).map_raw_read_only(&region).is_ok());
        assert!(!can_map_writable(&region));
        assert!(!can_be_made_writable(&region));
        assert!(File::from(region.try_clone().unwrap()).write_all(b"x").is_err());
        let bytes = fstat(&region).unwrap().st_size as u64;
        assert!(ftruncate(&region, 0).is_err());
        assert!(ftruncate(&region, bytes * 2).is_err());
        assert!(
            fallocate(&region, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096)
                .is_err()
        );
        assert!(fcntl_add_seals(&region, SealFlags::WRITE).is_err());
        let seals = fcntl_get_seals(&region).unwrap();
        assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL), "{seals:?}");
    }
}

#[test]
fn with_future_write_even_the_owner_cannot_write_through_a_descriptor_opened_anew() {
    let (mut publisher, region) = publisher(Sealing::FutureWrite);
    let path = format!("/proc/self/fd/{}", region.as_raw_fd());
    // Whether it can be opened is a matter of who asks; writing is refused to everybody.
    if let Ok(mut anew) = OpenOptions::new().read(true).write(true).open(path) {
        assert!(!can_map_writable(&anew));
        assert!(anew.write_all(b"x").is_err());
        assert!(anew.set_len(0).is_err());
        assert!(
            fallocate(&anew, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096)
                .is_err()
        );
    }
    // The publisher goes on.
    let mut receiver = publisher.receiver(Policy::Conflate, &Interest::All);
    publisher.publish([0]);
    assert_eq!(drain(&mut receiver), [Seen::initial(0, 1)]);
}

#[test]
fn another_user_cannot_open_the_region_for_writing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can start a process as another user");
        return;
    }
    for sealing in [Sealing::FutureWrite, Sealing::Owner] {
        let (_publisher, region) = publisher(sealing);
        assert!(!can_reopen_as(NOBODY, &region), "{sealing:?}");
    }
    let (_publisher, region) = publisher(Sealing::Owner);
    assert!(can_reopen_as(0, &region), "the owner can: the check above means something");
}

#[test]
fn a_cell_can_be_written_by_its_subscriber_and_not_resized() {
    let mut publisher = Publisher::new(&small());
    let cell = publisher.attach(Policy::Conflate).1.into_vec().remove(1);
    assert!(can_map_writable(&cell));
    assert!(can_be_made_writable(&cell), "the check on the region means something");
    assert!(ftruncate(&cell, 0).is_err());
    assert!(ftruncate(&cell, 8192).is_err());
}

#[test]
fn whatever_a_subscriber_writes_into_its_cell_harms_nobody_and_is_counted() {
    let mut publisher = Publisher::new(&small());
    let (session, descriptors) = publisher.host.prepare(Policy::Lossless).unwrap();
    let id = publisher.fabric.attach(session).unwrap();
    let mut cell = File::from(descriptors.into_vec().remove(1));
    let mut others = publisher.receiver(Policy::Conflate, &Interest::All);
    // It claims to have consumed everything there will ever be: the gate must stay where it was.
    cell.write_all(&[0xff; 4096]).unwrap();
    let mut published = 0;
    while publisher.fabric.publish(publisher.source.next(0).share()).is_ok() {
        published += 1;
        publisher.flush();
        assert!(published < 10_000, "the gate is open");
    }
    assert_eq!(drain(&mut others).len(), published);
    let stats = publisher.fabric.session_stats(id).unwrap();
    assert!(stats.faults > 0, "{stats:?}");
    assert!(publisher.fabric.detach(id).is_some());
    publisher.publish([0]);
    assert_eq!(drain(&mut others).len(), 1);
}

#[test]
fn a_figure_that_cannot_be_true_is_one_fault_however_often_it_is_looked_at() {
    let mut publisher = Publisher::new(&small());
    let (session, descriptors) = publisher.host.prepare(Policy::Lossless).unwrap();
    let id = publisher.fabric.attach(session).unwrap();
    let cell = File::from(descriptors.into_vec().remove(1));
    let start = publisher.fabric.session_stats(id).unwrap().consumed;
    let faults_after = |consumed: u64| {
        cell.write_all_at(&consumed.to_le_bytes(), CONSUMED_AT).unwrap();
        let looks = [(); 5].map(|()| publisher.fabric.session_stats(id).unwrap());
        assert!(looks.iter().all(|stats| *stats == looks[0]), "{looks:?}");
        assert_eq!(looks[0].consumed, start, "the last good one stays");
        looks[0].faults
    };
    assert_eq!(faults_after(u64::MAX), 1);
    assert_eq!(faults_after(u64::MAX - 64), 2, "another lie");
    assert_eq!(faults_after(start.0), 2, "the truth");
    assert_eq!(faults_after(u64::MAX - 64), 3, "the lie before it, again");
}

#[test]
fn the_wake_socket_takes_nothing_from_a_subscriber_and_never_blocks_the_waker() {
    let mut publisher = Publisher::with_waker(&small());
    let (_, descriptors) = publisher.attach(Policy::Conflate);
    let copy = descriptors.as_fds()[2].try_clone_to_owned().unwrap();
    let sent = rustix::net::send(&copy, b"x", rustix::net::SendFlags::NOSIGNAL);
    assert!(sent.is_err(), "a subscriber's bytes would fill a buffer");
    let mut deaf = open(descriptors, Policy::Conflate, WaitStrategy::Fd, &Interest::All);
    let mut sleeper = publisher.receiver(Policy::Conflate, &Interest::All);
    drain(&mut deaf);
    // It arms again and again and never takes the bytes out.
    for round in 1..2000 {
        let _armed = deaf.endpoint_mut().arm();
        publisher.publish([0]);
        while sleeper.is_ready() || sleeper.totals().delivered < round {
            sleeper.wait(Duration::from_secs(3600)).unwrap();
            sleeper.poll(8, |_| ()).unwrap();
        }
        deaf.poll(8, |_| ()).unwrap();
    }
}

/// A region as a subscriber maps it.
fn map(region: &OwnedFd) -> RegionReader {
    let bytes = fstat(region).unwrap().st_size as usize;
    let map = Arc::new(MmapOptions::new().len(bytes).map_raw_read_only(region).unwrap());
    let base = NonNull::new(map.as_mut_ptr().cast()).unwrap();
    // SAFETY: the mapping is page-aligned, as long as said, lives as long as the `Arc`, and its
    // file cannot shrink; nothing else refers to it.
    let words = unsafe { Words::from_raw(base, bytes / 8, map) };
    RegionReader::open(words).unwrap()
}

#[test]
fn a_subscriber_that_steals_the_others_sleep_cannot_keep_them_from_waking() {
    let mut publisher = Publisher::with_waker(&small());
    let mut victim = publisher.receiver(Policy::Conflate, &Interest::All);
    let region = publisher.attach(Policy::Conflate).1.into_vec().remove(0);
    let reader = map(&region);
    // SAFETY: the address is aligned and mapped as long as `reader`; only the kernel uses it here.
    let word = unsafe { AtomicU32::from_ptr(reader.wake_address().cast_mut()) };
    let trap = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let slept = scope.spawn(move || {
            while drain(&mut victim).is_empty() {
                victim.wait(Duration::from_secs(24 * 3600)).unwrap();
            }
        });
        // Moves the sleeper from the region's word to one that nobody wakes, then publishes.
        while futex::requeue(word, Flags::empty(), 0, 1, &trap) != Ok(1) {
            std::thread::yield_now();
        }
        publisher.publish([0]);
        slept.join().unwrap();
    });
}
