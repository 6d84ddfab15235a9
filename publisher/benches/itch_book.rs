//! Nanoseconds per ITCH message, framing, decoding and book building together, on one core.
//!
//! `cargo bench -p tapecast-publisher --bench itch_book`. Without `--bench` (as `cargo test
//! --all-targets` calls it) it runs once over little data, to show that it still works.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use tapecast_publisher::book::{BookBuilder, SnapshotDraft, SnapshotSink};
use tapecast_publisher::source::itch::{EventEnd, ItchOptions, ItchSource};
use tapecast_publisher::source::{Progress, Source};
use tapecast_wire::{Instrument, Level};

const AAPL: &str = "../../shared/data/itch/aapl_20190130_093000_reencoded.itch50";

/// Where snapshots go: looked at, not kept.
#[derive(Default)]
struct Nowhere;

impl SnapshotSink for Nowhere {
    fn on_instrument(&mut self, _: &Instrument) {}

    fn on_snapshot(&mut self, draft: &SnapshotDraft, bids: &[Level], asks: &[Level]) {
        black_box((draft, bids, asks));
    }
}

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let aapl = Path::new(env!("CARGO_MANIFEST_DIR")).join(AAPL);
    match std::fs::read(&aapl) {
        Ok(file) => {
            let bytes = file.repeat(if full { 300 } else { 2 });
            for event_end in [EventEnd::Timestamp, EventEnd::Message] {
                measure(&format!("AAPL at the open, repeated, {event_end:?}"), &bytes, event_end, 0);
            }
        }
        Err(error) => println!("SKIPPED: {}: {error}", aapl.display()),
    }
    let (live, messages) = if full { (1_000_000, 4_000_000) } else { (1_000, 4_000) };
    for instruments in [100, 10_000] {
        let (fill, mixed) = Generator::new(instruments).generate(live, messages);
        let name = format!("generated, {instruments} instruments, {live} live orders");
        let skip = fill.len();
        measure(&name, &[fill, mixed].concat(), EventEnd::Timestamp, skip);
    }
}

/// Plays the bytes three times and prints the fastest. The time of the first `skip` bytes does not
/// count.
fn measure(name: &str, bytes: &[u8], event_end: EventEnd, skip: usize) {
    let mut best: Option<(Duration, u64)> = None;
    let mut memory = 0;
    let mut snapshots = 0;
    for _ in 0..3 {
        let options = ItchOptions { event_end, ..ItchOptions::default() };
        let mut builder = BookBuilder::with_order_capacity(10, Nowhere, 1 << 20);
        if skip > 0 {
            let mut fill = source(&bytes[..skip], options.clone());
            play(&mut fill, &mut builder);
        }
        let mut source = source(&bytes[skip..], options);
        let before = builder.stats().snapshots;
        let start = Instant::now();
        play(&mut source, &mut builder);
        let run = (start.elapsed(), source.stats().messages);
        best = best.min(Some(run)).or(Some(run));
        memory = builder.heap_bytes();
        snapshots = builder.stats().snapshots - before;
        black_box(&builder);
    }
    let (time, messages) = best.expect("three runs");
    println!(
        "{name}: {:.1} ns per message ({messages} messages, {snapshots} snapshots, {:.1} MB)",
        time.as_nanos() as f64 / messages as f64,
        memory as f64 / 1e6,
    );
}

fn source(bytes: &[u8], options: ItchOptions) -> ItchSource {
    ItchSource::from_bytes(bytes, options).expect("ITCH bytes")
}

fn play(source: &mut ItchSource, builder: &mut BookBuilder<Nowhere>) {
    while let Progress::Event { .. } = source.advance(builder).expect("good messages") {}
}

/// A market that is not realistic in its prices but in its mix: mostly additions and deletions near
/// the touch, over many instruments, so that nearly every message misses the cache.
struct Generator {
    instruments: u64,
    state: u64,
    live: Vec<(u16, u64)>,
    next_order: u64,
    time_ns: u64,
}

impl Generator {
    fn new(instruments: u64) -> Self {
        let state = 0x2545_f491_4f6c_dd1d;
        Self { instruments, state, live: Vec::new(), next_order: 1, time_ns: 34_200_000_000_000 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) % below
    }

    /// Messages that fill the books, and messages that keep them as full.
    fn generate(&mut self, live: usize, messages: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut fill, mut mixed) = (Vec::new(), Vec::new());
        while self.live.len() < live {
            self.add(&mut fill);
        }
        for _ in 0..messages {
            self.time_ns += self.random(4) * 100;
            match self.random(100) {
                0..46 => self.add(&mut mixed),
                46..90 => self.remove(&mut mixed),
                90..96 => self.execute(&mut mixed),
                _ => self.replace(&mut mixed),
            }
        }
        (fill, mixed)
    }

    fn start(&self, out: &mut Vec<u8>, kind: u8, length: u16, locate: u16) {
        out.extend(length.to_be_bytes());
        out.push(kind);
        out.extend(locate.to_be_bytes());
        out.extend([0, 0]);
        out.extend(&self.time_ns.to_be_bytes()[2..]);
    }

    fn price(&mut self, bid: bool) -> [u8; 4] {
        let away = (self.random(40) * self.random(40) / 40) as u32 * 100;
        let price = if bid { 1_000_000 - away } else { 1_000_100 + away };
        price.to_be_bytes()
    }

    fn add(&mut self, out: &mut Vec<u8>) {
        let locate = self.random(self.instruments) as u16;
        let (id, bid) = (self.next_order, self.random(2) == 0);
        self.next_order += 1;
        self.start(out, b'A', 36, locate);
        out.extend(id.to_be_bytes());
        out.push(if bid { b'B' } else { b'S' });
        out.extend(100_u32.to_be_bytes());
        out.extend(format!("S{locate:<7}").as_bytes());
        out.extend(self.price(bid));
        self.live.push((locate, id));
    }

    fn pick(&mut self) -> Option<(usize, (u16, u64))> {
        let count = self.live.len() as u64;
        let index = if count == 0 { return None } else { self.random(count) as usize };
        Some((index, self.live[index]))
    }

    fn remove(&mut self, out: &mut Vec<u8>) {
        let Some((index, (locate, id))) = self.pick() else { return };
        self.live.swap_remove(index);
        self.start(out, b'D', 19, locate);
        out.extend(id.to_be_bytes());
    }

    fn execute(&mut self, out: &mut Vec<u8>) {
        let Some((_, (locate, id))) = self.pick() else { return };
        self.start(out, b'E', 31, locate);
        out.extend(id.to_be_bytes());
        out.extend(1_u32.to_be_bytes());
        out.extend(id.to_be_bytes());
    }

    fn replace(&mut self, out: &mut Vec<u8>) {
        let Some((index, (locate, old))) = self.pick() else { return };
        let id = self.next_order;
        self.next_order += 1;
        self.live[index].1 = id;
        self.start(out, b'U', 35, locate);
        out.extend(old.to_be_bytes());
        out.extend(id.to_be_bytes());
        out.extend(100_u32.to_be_bytes());
        out.extend(self.price(true));
    }
}
