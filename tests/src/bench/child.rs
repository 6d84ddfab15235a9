//! Subscriber processes of the benchmark: this program again, with other arguments.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tapecast_subscriber::{Policy, Reconnect, Subscriber, WaitStrategy, Wakeup};
use tapecast_telemetry::LatencySummary;

use super::stage::unix_now;
use super::{BareReader, BareRing, BareWait};

/// What one child does.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum ChildArguments {
    /// Reads with tapecast's SDK.
    Tapecast {
        /// Socket of the publisher.
        #[arg(long)]
        socket: PathBuf,
        /// Whether the publisher waits for it.
        #[arg(long)]
        lossless: bool,
        /// Sleep while there is nothing, instead of yielding.
        #[arg(long)]
        sleep: bool,
        /// Read the clock for each snapshot.
        #[arg(long)]
        latency: bool,
    },
    /// Reads the bare ring.
    Bare {
        /// Inherited descriptor.
        #[arg(long)]
        descriptor: RawFd,
        /// Slots of the ring.
        #[arg(long)]
        slots: usize,
        /// Bytes of a slot.
        #[arg(long)]
        slot_bytes: usize,
        /// Number of this reader.
        #[arg(long)]
        index: usize,
        /// Sleep while there is nothing, instead of yielding.
        #[arg(long)]
        sleep: bool,
        /// Read the clock for each message.
        #[arg(long)]
        latency: bool,
    },
}

/// What a child says at its end, as one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChildResult {
    /// Messages handed to the application.
    pub deliveries: u64,
    /// Messages that were conflated.
    pub conflated: u64,
    /// Messages that nothing accounts for.
    pub lost: u64,
    /// Sum over all payload bytes, so that no reader can do less than read them.
    pub checksum: u64,
    /// From publish to delivery.
    pub latency: LatencySummary,
}

impl ChildResult {
    fn new() -> Self {
        Self { deliveries: 0, conflated: 0, lost: 0, checksum: 0, latency: LatencySummary::new() }
    }

    fn take(&mut self, payload: &[u8]) {
        self.checksum = self.checksum.wrapping_add(sum(payload));
    }
}

/// Both variants sum their payload with this, eight bytes at a time.
fn sum(payload: &[u8]) -> u64 {
    let (words, _) = payload.as_chunks::<8>();
    words.iter().fold(0, |sum, word| u64::wrapping_add(sum, u64::from_le_bytes(*word)))
}

/// Runs a child to its end and prints its result.
///
/// # Errors
/// When it cannot attach or read.
pub fn run_child(arguments: &ChildArguments) -> anyhow::Result<()> {
    let result = match arguments {
        ChildArguments::Tapecast { socket, lossless, sleep, latency } => {
            let policy = if *lossless { Policy::Lossless } else { Policy::Conflate };
            let wait = if *sleep { WaitStrategy::Block } else { WaitStrategy::Yield };
            let subscriber = Subscriber::builder()
                .socket(socket)
                .policy(policy)
                .wait(wait)
                .reconnect(Reconnect::Never)
                .latency(false)
                .connect()?;
            read_tapecast(subscriber, *latency)?
        }
        ChildArguments::Bare { descriptor, slots, slot_bytes, index, sleep, latency } => {
            let ring = BareRing::map(*descriptor, *slots, *slot_bytes)?;
            let wait = if *sleep { BareWait::Futex } else { BareWait::Yield };
            read_bare(BareReader::new(ring, *index, wait), *latency)
        }
    };
    println!("{}", serde_json::to_string(&result)?);
    Ok(())
}

fn read_tapecast(mut subscriber: Subscriber, latency: bool) -> anyhow::Result<ChildResult> {
    let mut result = ChildResult::new();
    while subscriber.wait(Duration::from_secs(10))? != Wakeup::Ended {
        subscriber.poll(|snapshot| {
            if latency {
                let age = unix_now().since(snapshot.ts_publish());
                result.latency.record(age.0);
            }
            result.deliveries += 1;
            result.take(snapshot.record().as_bytes());
        })?;
    }
    let figures = subscriber.statistics();
    result.conflated = figures.conflated;
    result.lost = figures.lost;
    Ok(result)
}

/// The first word of a bare message is the time of its publishing; 0 ends the run.
fn read_bare(mut reader: BareReader, latency: bool) -> ChildResult {
    let mut result = ChildResult::new();
    let mut ended = false;
    while !ended {
        reader.poll(|payload| {
            let published = payload.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            if published == 0 {
                ended = true;
                return;
            }
            if latency {
                result.latency.record(unix_now().0.saturating_sub(published));
            }
            result.deliveries += 1;
            result.take(payload);
        });
    }
    result
}

/// All children of one round. Dropping it kills them.
#[derive(Debug)]
pub struct Children {
    children: Vec<Child>,
}

impl Children {
    /// Starts `count` children; `arguments` gives the command line of each.
    ///
    /// # Errors
    /// When a process cannot be started.
    pub fn start(count: usize, arguments: impl Fn(usize) -> Vec<String>) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?;
        let mut children = Self { children: Vec::new() };
        for index in 0..count {
            let child = Command::new(&program)
                .arg("child")
                .args(arguments(index))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .context("cannot start a subscriber process")?;
            children.children.push(child);
        }
        Ok(children)
    }

    /// Process ids.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// Waits for all and reads their results.
    ///
    /// # Errors
    /// When a child failed.
    pub fn finish(mut self) -> anyhow::Result<Vec<ChildResult>> {
        std::mem::take(&mut self.children)
            .into_iter()
            .map(|child| {
                let output = child.wait_with_output()?;
                anyhow::ensure!(output.status.success(), "a subscriber ended: {}", output.status);
                Ok(serde_json::from_slice(&output.stdout)?)
            })
            .collect()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.children {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Lets child processes inherit `fd` and returns its number.
///
/// # Errors
/// When the system refuses.
pub fn inherit(fd: &OwnedFd) -> io::Result<RawFd> {
    rustix::io::fcntl_setfd(fd.as_fd(), rustix::io::FdFlags::empty())?;
    Ok(fd.as_raw_fd())
}
