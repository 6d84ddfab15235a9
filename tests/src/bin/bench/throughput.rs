//! Deliveries a second at full speed.

use std::time::{Duration, Instant};

use tapecast_fabric::Fabric;
use tapecast_tests::bench::{
    BareRing, BareWait, BareWriter, ChildResult, Children, Size, Stage, create_bare_ring, inherit,
    median, unix_now,
};
use tempfile::TempDir;

const SUBSCRIBERS: usize = 64;
const SLOTS: usize = 1024;
/// Snapshots that the sender takes as one batch, as the daemon does.
const BATCH: usize = 64;

/// Prints deliveries a second to 64 processes beside the bare ring's; nothing may be lost.
pub(crate) fn run(rounds: usize) -> anyhow::Result<()> {
    println!("\nthroughput: 64 processes, publisher-gated, readers yield");
    for (size, messages) in [(Size::Small, 1_500_000), (Size::Large, 200_000)] {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(tapecast_round(size, messages)?);
            bare.push(bare_round(size, messages)?);
        }
        let (mine, theirs) = (median(&ours), median(&bare));
        println!(
            "  {:>4} B  tapecast {:>6.2} M deliveries/s   bare ring {:>6.2} M   ratio {:.2}",
            size.payload_bytes(),
            mine / 1e6,
            theirs / 1e6,
            mine / theirs
        );
    }
    Ok(())
}

fn tapecast_round(size: Size, messages: usize) -> anyhow::Result<f64> {
    let folder = TempDir::with_prefix("tapecast-bench-")?;
    let socket = folder.path().join("s");
    let mut stage = Stage::open(&socket, size, SLOTS, 1)?;
    let children = Children::start(SUBSCRIBERS, |_| {
        ["tapecast", "--socket", &socket.display().to_string(), "--lossless"]
            .map(str::to_owned)
            .to_vec()
    })?;
    stage.admit(SUBSCRIBERS);
    let mut traffic = stage.traffic(size, 1)?;
    let start = Instant::now();
    for index in 1..=messages {
        let snapshot = traffic.snapshot();
        stage.publish_or_wait(snapshot);
        if index % BATCH == 0 {
            stage.fabric.flush(unix_now());
            stage.fabric.turn(unix_now());
        }
    }
    stage.close();
    let results = children.finish()?;
    check(&results, messages)?;
    Ok((messages * SUBSCRIBERS) as f64 / start.elapsed().as_secs_f64())
}

fn bare_round(size: Size, messages: usize) -> anyhow::Result<f64> {
    let bytes = size.payload_bytes();
    let memory = create_bare_ring(SLOTS, bytes)?;
    let descriptor = inherit(&memory)?;
    let children = Children::start(SUBSCRIBERS, |index| {
        let words = format!(
            "bare --descriptor {descriptor} --slots {SLOTS} --slot-bytes {bytes} --index {index}"
        );
        words.split(' ').map(str::to_owned).collect()
    })?;
    let ring = BareRing::map(descriptor, SLOTS, bytes)?;
    let mut writer = BareWriter::new(ring, SUBSCRIBERS, BareWait::Yield);
    let mut message = vec![7; bytes];
    writer.publish(&message);
    while writer.slowest() < 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let start = Instant::now();
    for index in 1..messages as u64 {
        message[..8].copy_from_slice(&index.to_le_bytes());
        writer.publish(&message);
    }
    message[..8].fill(0);
    writer.publish(&message);
    let results = children.finish()?;
    check(&results, messages)?;
    Ok((messages * SUBSCRIBERS) as f64 / start.elapsed().as_secs_f64())
}

fn check(results: &[ChildResult], messages: usize) -> anyhow::Result<()> {
    for result in results {
        anyhow::ensure!(
            result.deliveries == messages as u64 && result.lost == 0,
            "a subscriber saw {} of {messages} snapshots",
            result.deliveries
        );
    }
    Ok(())
}
