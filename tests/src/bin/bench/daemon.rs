//! The shipped daemon: idle cost and memory.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use tapecast_tests::bench::{cpu_time_of, resident_bytes_of};
use tempfile::TempDir;

const SUBSCRIBERS: usize = 64;
const IDLE_TIME: Duration = Duration::from_secs(5);

/// Processes of one measurement. Dropping it ends them.
#[derive(Default)]
pub(crate) struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Processes {
    pub(crate) fn start(&mut self, program: &str, arguments: &[&str]) -> anyhow::Result<u32> {
        let folder = std::env::current_exe()?.parent().context("no folder")?.to_owned();
        let child = Command::new(folder.join(program))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {program}: build it with `make build`"))?;
        let pid = child.id();
        self.0.push(child);
        Ok(pid)
    }

    /// Whether the one that was started first has ended; an error when that was not in good order.
    pub(crate) fn has_first_ended(&mut self) -> anyhow::Result<bool> {
        let first = self.0.first_mut().context("no process was started")?;
        let Some(status) = first.try_wait()? else { return Ok(false) };
        anyhow::ensure!(status.success(), "the publisher failed: {status}");
        Ok(true)
    }
}

/// Prints the processor time of a daemon with nothing to publish and 64 subscribers that wait.
pub(crate) fn idle() -> anyhow::Result<()> {
    println!("\nidle: daemon at the end of its source, 64 subscriber processes waiting");
    let folder = TempDir::with_prefix("tapecast-bench-")?;
    let socket = folder.path().join("s").display().to_string();
    let mut processes = Processes::default();
    let publisher = processes.start(
        "tapecast-publisher",
        &["run", "--socket", &socket, "--seconds", "1", "--pace", "max", "--no-progress"],
    )?;
    for _ in 0..SUBSCRIBERS {
        let arguments = ["tail", "--quiet", "--socket", &socket, "--wait-for-publisher", "10"];
        processes.start("tapecast-subscriber", &arguments)?;
    }
    settle(&processes)?;
    let pids: Vec<_> = processes.0.iter().map(Child::id).collect();
    let busy = |pids: &[u32]| -> anyhow::Result<Duration> {
        pids.iter().map(|pid| Ok(cpu_time_of(*pid).context("a process ended")?.total)).sum()
    };
    let (start, all, alone) = (Instant::now(), busy(&pids)?, busy(&[publisher])?);
    std::thread::sleep(IDLE_TIME);
    let percent = |time: Duration| 100.0 * time.as_secs_f64() / start.elapsed().as_secs_f64();
    let (all, alone) = (busy(&pids)? - all, busy(&[publisher])? - alone);
    println!(
        "  daemon alone {:.2} % of a core, all 65 processes {:.2} %",
        percent(alone),
        percent(all)
    );
    Ok(())
}

/// Waits until all processes together use little, at most a minute.
fn settle(processes: &Processes) -> anyhow::Result<()> {
    let total = || -> Duration {
        processes.0.iter().filter_map(|child| cpu_time_of(child.id())).map(|time| time.total).sum()
    };
    for _ in 0..60 {
        let before = total();
        std::thread::sleep(Duration::from_secs(1));
        if total().saturating_sub(before) < Duration::from_millis(100) {
            return Ok(());
        }
    }
    anyhow::bail!("the processes did not come to rest within a minute")
}

/// Prints the daemon's resident memory, small and large.
pub(crate) fn memory() -> anyhow::Result<()> {
    println!("\nmemory: resident at its peak, shared pages included");
    let folder = TempDir::with_prefix("tapecast-bench-")?;
    let small = resident(folder.path(), &["--seconds", "5", "--instruments", "100"])?;
    println!("  100 instruments, a simulated day of 5 s: {:.1} MB", small as f64 / 1e6);
    let file = folder.path().join("million.itch50");
    write_million_orders(&file)?;
    let file = file.display().to_string();
    let large = resident(folder.path(), &["--source", "itch", "--file", &file])?;
    println!("  10,000 instruments, a million live orders: {:.1} MB", large as f64 / 1e6);
    Ok(())
}

/// Resident memory at the end of a source, when the daemon has come to rest.
fn resident(folder: &Path, source: &[&str]) -> anyhow::Result<u64> {
    let socket: PathBuf = folder.join("m");
    let socket = socket.display().to_string();
    let mut arguments = vec!["run", "--socket", &socket, "--pace", "max", "--no-progress"];
    arguments.extend(source);
    let mut processes = Processes::default();
    let pid = processes.start("tapecast-publisher", &arguments)?;
    settle(&processes)?;
    resident_bytes_of(pid).context("the daemon ended")
}

/// An ITCH file that lists 10,000 stocks and leaves 100 orders of each alive, 10 levels a side.
fn write_million_orders(path: &Path) -> anyhow::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    for locate in 1..=10_000_u16 {
        write_message(&mut out, &stock_directory(locate))?;
    }
    let mut reference = 0_u64;
    for round in 0..100_u32 {
        for locate in 1..=10_000_u16 {
            reference += 1;
            write_message(&mut out, &add_order(locate, reference, round))?;
        }
    }
    out.flush()?;
    anyhow::ensure!(fs::metadata(path)?.len() > 38_000_000, "the file is too short");
    Ok(())
}

fn write_message(out: &mut impl Write, message: &[u8]) -> std::io::Result<()> {
    out.write_all(&(message.len() as u16).to_be_bytes())?;
    out.write_all(message)
}

/// Type, locate, tracking number and time: what every ITCH 5.0 message begins with (§1.1).
fn head(kind: u8, locate: u16, nanos: u64) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend(locate.to_be_bytes());
    message.extend([0, 0]);
    message.extend(&nanos.to_be_bytes()[2..]);
    message
}

/// ITCH 5.0 §1.2.1, 39 bytes.
fn stock_directory(locate: u16) -> Vec<u8> {
    let mut message = head(b'R', locate, 1);
    message.extend(format!("M{locate:<7}").as_bytes());
    message.extend(b"QN\0\0\0dNC  PNN1 \0\0\0\0N");
    message.resize(39, b'N');
    message
}

/// ITCH 5.0 §1.3.1, 36 bytes.
fn add_order(locate: u16, reference: u64, round: u32) -> Vec<u8> {
    let is_bid = round.is_multiple_of(2);
    let depth = (round / 2 % 10) * 100;
    let price = if is_bid { 1_000_000 - depth } else { 1_000_100 + depth };
    let mut message = head(b'A', locate, 34_200_000_000_000 + reference);
    message.extend(reference.to_be_bytes());
    message.push(if is_bid { b'B' } else { b'S' });
    message.extend(100_u32.to_be_bytes());
    message.extend(format!("M{locate:<7}").as_bytes());
    message.extend(price.to_be_bytes());
    message
}
