//! Nanoseconds per ITCH message, framing, decoding and book building together, on one core.
//!
//! The time is that of the thread on the processor, so that what else runs on the machine counts
//! only through the caches; the wall clock is printed beside it.
//!
//! `cargo bench -p tapecast-publisher --bench itch_book [-- WORD]`, where a word chooses the data
//! that has it in its name. Without `--bench` (as `cargo test
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
                let name = format!("AAPL at the open, repeated, {event_end:?}");
                if is_chosen(&name) {
                    measure(&name, &bytes, event_end, 0);
                }
            }
        }
        Err(error) => println!("SKIPPED: {}: {error}", aapl.display()),
    }
    let (live, messages) = if full { (1_000_000, 4_000_000) } else { (1_000, 4_000) };
    for instruments in [100, 10_000] {
        let name = format!("generated, {instruments} instruments, {live} live orders");
        if !is_chosen(&name) {
            continue;
        }
        let (fill, mixed) = Generator::new(instruments).generate(live, messages);
        let skip = fill.len();
        measure(&name, &[fill, mixed].concat(), EventEnd::Timestamp, skip);
    }
}

/// Whether a word on the command line is in the name, or there is none.
fn is_chosen(name: &str) -> bool {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-')).peekable();
    words.peek().is_none() || words.any(|word| name.contains(&word))
}

/// Plays the bytes three times and prints the fastest. The time of the first `skip` bytes does not
/// count.
fn measure(name: &str, bytes: &[u8], event_end: EventEnd, skip: usize) {
    let mut best: Option<(Duration, Duration, u64)> = None;
    let mut memory = 0;
    let mut snapshots = 0;
    for _ in 0..3 {
        let options = ItchOptions { event_end, ..ItchOptions::default() };
        let mut builder = BookBuilder::new(10, Nowhere);
        if skip > 0 {
            let mut fill = source(&bytes[..skip], options.clone());
            play(&mut fill, &mut builder);
        }
        let mut source = source(&bytes[skip..], options);
        let before = builder.stats().snapshots;
        let (start, wall) = (processor_time(), Instant::now());
        play(&mut source, &mut builder);
        let run = (processor_time() - start, wall.elapsed(), source.stats().messages);
        best = best.min(Some(run)).or(Some(run));
        memory = builder.heap_bytes();
        snapshots = builder.stats().snapshots - before;
        black_box(&builder);
    }
    let (time, wall, messages) = best.expect("three runs");
    let per_message = |time: Duration| time.as_nanos() as f64 / messages as f64;
    println!(
        "{name}: {:.1} ns per message (wall {:.1}; {messages} messages, {snapshots} snapshots, \
         {:.1} MB)",
        per_message(time),
        per_message(wall),
        memory as f64 / 1e6,
    );
}

/// How long this thread has run on a processor, as the kernel counts it.
fn processor_time() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = statistics.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

fn source(bytes: &[u8], options: ItchOptions) -> ItchSource {
    ItchSource::from_bytes(bytes, options).expect("ITCH bytes")
}

fn play(source: &mut ItchSource, builder: &mut BookBuilder<Nowhere>) {
    while let Progress::Event { .. } = source.advance(builder).expect("good messages") {}
}

/// A market that is not realistic in its prices but in its mix: mostly additions and deletions near
/// the touch, over many instruments; some instruments are busier, and of eight
/// orders that change, seven are among the latest.
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
        let below = 1 + self.random(self.instruments);
        let locate = self.random(below) as u16;
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
        let latest = if self.random(8) == 0 { count } else { count.min(4096) };
        let back = if latest == 0 { return None } else { self.random(latest) as usize };
        let index = self.live.len() - 1 - back;
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
