//! Arguments of `plan`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use tapecast_wire::limits::{MAX_LEVELS_PER_SIDE, MAX_SUBSCRIBERS, PAGE_BYTES, record_bytes_max};
use tapecast_wire::rdma::PathMtu;

use crate::plan::dcqcn::{ReactionPoint, SharedBuffer};
use crate::plan::{BaseLatency, Demand, Inputs, Pcie, Scenario};

/// Bytes of a snapshot when nothing is said.
const DEFAULT_PAYLOAD_BYTES: u32 = 256;
/// The device's own time for a message, in nanoseconds: 200 million a second.
const DEVICE_NS: f64 = 5.0;

pub(super) const NOTES: &str = "\
Everything printed is computed from published figures and what the flags say. No device is opened
and nothing is measured. A snapshot is written to each subscriber in turn; the base latency of one
copy is optimistic by default, so measure yours with `ib_write_lat` and say --base-latency-us.

The cost of posting and the base latency decide most: measure both on a machine like yours before
you order hardware.

Exit status 0 whatever the verdict on the headline figure is; 2 when what is asked for is out of
range or contradicts itself.

Examples:
  tapecast-publisher plan
      64 subscribers, 256 B, 100 Gb/s
  tapecast-publisher plan --rate 25G --levels 10 --snapshots-per-s 50000
      ten levels a side over an older port
  tapecast-publisher plan --payload 4096 --subscribers 48 --behind-port 12 --port-rate 25G
      full pages to four switch ports with twelve subscribers behind each
  tapecast-publisher plan --rate 200G --payload 144 --lanes 6 --inline-max 220
      what inline sends and six lanes would give
  tapecast-publisher plan --json | jq .target
  tapecast-publisher plan --plot latency.svg";

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Rate of the publisher's port, 1G to 1600G
    #[arg(long, value_name = "RATE", default_value = "100G", value_parser = rate,
          allow_hyphen_values = true, help_heading = "Fan-out")]
    pub rate: f64,

    /// Largest payload of one packet: 256, 512, 1024, 2048 or 4096
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = path_mtu,
          help_heading = "Fan-out")]
    pub mtu: PathMtu,

    /// Subscribers, 1 to 64
    #[arg(long, short = 'n', value_name = "N", default_value_t = MAX_SUBSCRIBERS as u32,
          value_parser = |text: &str| whole(text, 1..=MAX_SUBSCRIBERS as u32, "subscribers"),
          help_heading = "Fan-out")]
    pub subscribers: u32,

    /// Bytes of a snapshot, 1 to 4096 [default: 256]
    #[arg(long, short, value_name = "BYTES", conflicts_with = "levels",
          value_parser = |text: &str| whole(text, 1..=PAGE_BYTES as u32, "bytes of a snapshot"),
          help_heading = "Fan-out")]
    pub payload: Option<u32>,

    /// Levels per side instead, 1 to 83: the snapshot is as large as that makes it
    #[arg(long, short, value_name = "N",
          value_parser = |text: &str| whole(text, 1..=MAX_LEVELS_PER_SIDE as u32, "levels"),
          help_heading = "Fan-out")]
    pub levels: Option<u32>,

    /// Snapshots per second to each subscriber, 1 to 100000000
    #[arg(long, short, value_name = "N", default_value = "20000",
          value_parser = |text: &str| number(text, 1.0..=1e8, "snapshots per second"),
          help_heading = "Fan-out")]
    pub snapshots_per_s: f64,

    /// Threads that post, 1 to 64; tapecast has one today
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = |text: &str| whole(text, 1..=MAX_SUBSCRIBERS as u32, "lanes"),
          help_heading = "Fan-out")]
    pub lanes: u32,

    /// Pause of a subscriber that must cost it nothing, 0 to 60000 ms
    #[arg(long, value_name = "MS", default_value = "10",
          value_parser = |text: &str| number(text, 0.0..=60_000.0, "milliseconds of a pause"),
          help_heading = "Fan-out")]
    pub pause_ms: f64,

    /// What posting one work request costs a core, 1 to 10000 ns; 60 to 150 is usual
    #[arg(long, value_name = "NS", default_value = "80",
          value_parser = |text: &str| number(text, 1.0..=10_000.0, "nanoseconds of a post"),
          help_heading = "Hosts")]
    pub post_ns: f64,

    /// PCIe generation of card and slot, 3 to 5
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = |text: &str| whole(text, 3..=5, "PCIe generations"),
          help_heading = "Hosts")]
    pub pcie_gen: u32,

    /// PCIe lanes of card and slot: 1, 2, 4, 8 or 16
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = pcie_lanes,
          help_heading = "Hosts")]
    pub pcie_lanes: u32,

    /// From posting a copy to its being visible, without its time on the wire, 0.1 to 1000 µs
    #[arg(long, value_name = "US", default_value = "1.3",
          value_parser = |text: &str| number(text, 0.1..=1000.0, "microseconds of base latency"),
          help_heading = "Hosts")]
    pub base_latency_us: f64,

    /// What is added when the card fetches the payload from memory, 0 to 100 µs
    #[arg(long, value_name = "US", default_value = "0.5",
          value_parser = |text: &str| number(text, 0.0..=100.0, "microseconds of a fetch"),
          help_heading = "Hosts")]
    pub fetch_us: f64,

    /// Largest payload that stands in the work request itself, 0 to 220 B; tapecast's snapshots
    /// never do, they are fetched from the pool
    #[arg(long, value_name = "BYTES", default_value_t = 0,
          value_parser = |text: &str| whole(text, 0..=220, "inline bytes"),
          help_heading = "Hosts")]
    pub inline_max: u32,

    /// Subscribers behind one port of the switch, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = |text: &str| whole(text, 1..=MAX_SUBSCRIBERS as u32, "subscribers"),
          help_heading = "Network")]
    pub behind_port: u32,

    /// Rate of a subscriber's port, 1G to 1600G [default: the publisher's]
    #[arg(long, value_name = "RATE", value_parser = rate, allow_hyphen_values = true,
          help_heading = "Network")]
    pub port_rate: Option<f64>,

    /// Publishers that send at the same instant to the same subscribers, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = |text: &str| whole(text, 1..=1000, "publishers"),
          help_heading = "Network")]
    pub publishers: u32,

    /// Buffer that the switch's ports share, 0.1 to 1000 MB; by default the DCQCN paper's switch
    #[arg(long, value_name = "MB", default_value = "12",
          value_parser = |text: &str| number(text, 0.1..=1000.0, "megabytes of buffer"),
          help_heading = "Network")]
    pub switch_buffer_mb: f64,

    /// Ports of the switch, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = |text: &str| whole(text, 1..=1024, "ports"),
          help_heading = "Network")]
    pub switch_ports: u32,

    /// What still arrives after a pause was sent, for each port and priority, 0 to 10000 KB
    #[arg(long, value_name = "KB", default_value = "22.4",
          value_parser = |text: &str| number(text, 0.0..=10_000.0, "kilobytes of headroom"),
          help_heading = "Network")]
    pub headroom_kb: f64,

    /// Another train of congestion notifications to show, 1 to 10000 µs
    #[arg(long, value_name = "US",
          value_parser = |text: &str| number(text, 1.0..=10_000.0, "microseconds of a train"),
          help_heading = "DCQCN")]
    pub cnp_train_us: Option<f64>,

    /// The card's rpg_min_rate, 1 to 100000 Mb/s
    #[arg(long, value_name = "MBPS", default_value_t = 1,
          value_parser = |text: &str| whole(text, 1..=100_000, "megabits per second"),
          help_heading = "DCQCN")]
    pub rpg_min_rate: u32,

    /// The card's clamp_tgt_rate is 1
    #[arg(long, help_heading = "DCQCN")]
    pub clamp_tgt_rate: bool,

    /// Print one JSON object instead
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// Draw latency against payload into a file *.svg; must not exist unless --force
    #[arg(long, value_name = "FILE", help_heading = "Output",
          value_parser = PathBufValueParser::new().try_map(svg_file))]
    pub plot: Option<PathBuf>,

    /// Overwrite the plot's file if it is there
    #[arg(long, requires = "plot", help_heading = "Output")]
    pub force: bool,
}

/// Lets a negative number be a value, which then is out of its range, and not an unknown flag.
pub(super) fn with_negative_numbers(plan: clap::Command) -> clap::Command {
    plan.mut_args(|arg| {
        let takes_value = arg.get_action().takes_values();
        if takes_value { arg.allow_negative_numbers(true) } else { arg }
    })
}

impl PlanArgs {
    /// The same as inputs of the model.
    #[must_use]
    pub fn inputs(&self) -> Inputs {
        let pcie = Pcie { generation: self.pcie_gen, lanes: self.pcie_lanes };
        Inputs {
            demand: Demand {
                scenario: self.scenario(pcie),
                snapshots_per_s: self.snapshots_per_s,
                behind_port: self.behind_port,
                port_gbps: self.port_rate.unwrap_or(self.rate),
                publishers: self.publishers,
            },
            pcie,
            pause_ms: self.pause_ms,
            buffer: SharedBuffer {
                buffer_bytes: self.switch_buffer_mb * 1e6,
                ports: self.switch_ports,
                headroom_bytes: self.headroom_kb * 1e3,
            },
            train_us: self.cnp_train_us,
            reaction: ReactionPoint {
                // A card takes none above its line rate.
                min_mbps: f64::from(self.rpg_min_rate).min(self.rate * 1e3),
                clamps_target: self.clamp_tgt_rate,
                ..ReactionPoint::connectx(self.rate)
            },
        }
    }

    fn scenario(&self, pcie: Pcie) -> Scenario {
        let of_levels = self.levels.map(|levels| record_bytes_max(levels as usize) as u32);
        Scenario {
            subscribers: self.subscribers,
            payload_bytes: self.payload.or(of_levels).unwrap_or(DEFAULT_PAYLOAD_BYTES),
            path_mtu: self.mtu,
            line_gbps: self.rate,
            lanes: self.lanes,
            post_ns: self.post_ns,
            device_ns: DEVICE_NS,
            pcie_bytes_per_ns: pcie.bytes_per_ns(),
            base: BaseLatency {
                inline_ns: self.base_latency_us * 1e3,
                fetch_ns: self.fetch_us * 1e3,
                inline_max_bytes: self.inline_max,
            },
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let unit = ["Gb/s", "gb/s", "G", "g"].into_iter().find_map(|unit| text.strip_suffix(unit));
    let digits = unit.unwrap_or(text).trim();
    let gbps = digits.parse().ok().filter(|gbps| (1.0..=1600.0).contains(gbps));
    gbps.ok_or_else(|| "say a rate from 1G to 1600G, for example 100G".to_owned())
}

fn svg_file(path: PathBuf) -> Result<PathBuf, String> {
    let is_svg = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg"));
    let sentence = "the plot is drawn as SVG: say a file whose name ends in .svg";
    if is_svg { Ok(path) } else { Err(sentence.to_owned()) }
}

fn path_mtu(text: &str) -> Result<PathMtu, String> {
    (1..=5)
        .filter_map(PathMtu::from_code)
        .find(|mtu| mtu.bytes().to_string() == text)
        .ok_or_else(|| "a path MTU is 256, 512, 1024, 2048 or 4096".to_owned())
}

fn pcie_lanes(text: &str) -> Result<u32, String> {
    let lanes = text.parse().ok().filter(|lanes| [1, 2, 4, 8, 16].contains(lanes));
    lanes.ok_or_else(|| "a slot has 1, 2, 4, 8 or 16 lanes".to_owned())
}

fn whole(text: &str, range: RangeInclusive<u32>, what: &str) -> Result<u32, String> {
    let (least, most) = (range.start(), range.end());
    let value = text.parse().ok().filter(|value| range.contains(value));
    value.ok_or_else(|| format!("say a whole number of {what} from {least} to {most}"))
}

fn number(text: &str, range: RangeInclusive<f64>, what: &str) -> Result<f64, String> {
    let (least, most) = (range.start(), range.end());
    let value = text.parse().ok().filter(|value| range.contains(value));
    value.ok_or_else(|| format!("say a number of {what} from {least} to {most}"))
}
