//! The command line, as `clap` sees it.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use tapecast_subscriber::{Policy, Reconnect, Subscriber, SubscriberBuilder, Target, WaitStrategy};

use super::misuse::Misuse;
use super::over_rdma::{RdmaArgs, bytes};
use super::second::SecondArgs;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Heading of what is the same over both fabrics.
const SESSION: &str = "Session";

const EXAMPLES: &str = "\
Examples:
  tapecast-subscriber tail                              every snapshot of every instrument
  tapecast-subscriber tail --symbols AAPL,MSFT -l 3     three levels of two books
  tapecast-subscriber tail --json | jq -r .symbol       one JSON object per line
  tapecast-subscriber stats                             rates, conflation, latency, once a second
  tapecast-subscriber top --symbols AAPL                a live book in the terminal
  tapecast-subscriber record day.tapejournal --until-end
                                                        write it down; replay and diff read it
  tapecast-subscriber stats -s a.sock --socket-b b.sock two publishers of one feed, each snapshot
                                                        once, from whichever is first
  tapecast-subscriber tail --connect feed-1.example:7411 --ca ca.pem --cert client-risk-1.pem \\
      --key client-risk-1.key                           from another machine, over RDMA

Accounting:
  For each instrument, published = delivered + conflated (+ lost, which stays 0 in health).
  A subscriber that keeps up sees every snapshot. One that does not sees the newest state,
  marked with the number of older ones that it replaces.

Exit status:
  0  ended as asked: count reached, end of source, ctrl-C, or the reader of a pipe went away
  1  no session, session refused, or a snapshot was lost; diff: different
  2  wrong usage; diff: an input that cannot be used";

const RECORD_NOTES: &str = "\
The file has every snapshot as it was delivered, with its conflated count and the time of its
delivery, and the directory. It is good up to its last whole record whatever happens meanwhile.

Examples:
  tapecast-subscriber record day.tapejournal --until-end
  tapecast-subscriber record aapl.tapejournal --symbols AAPL --policy lossless -n 1000
  tapecast-publisher replay day.tapejournal --pace max";

const DIFF_NOTES: &str = "\
Snapshots are paired per symbol: by their number among the instrument's when both journals are of
one life of a publisher, by the feed sequence otherwise. Compared are levels, status, flags, last
trade, venue time and feed sequence.

Exit status: 0 the same, 1 different, 2 an input that cannot be used or is damaged (what stands
before the damage is compared all the same).

Examples:
  tapecast-subscriber diff /data/journal received.tapejournal
  tapecast-subscriber diff --json monday.tapejournal tuesday.tapejournal | jq .totals";

/// Watch the order books that a tapecast publisher hands out, on this machine or over RDMA.
///
/// Attaches to the publisher and receives the newest snapshot of every instrument asked for, then
/// every change: from shared memory when the publisher is on this machine (--socket), or by RDMA
/// writes from another one (--connect). When the publisher goes away it says so, marks books stale
/// and attaches again by itself.
#[derive(Debug, Parser)]
#[command(name = "tapecast-subscriber", version, styles = STYLES, after_help = EXAMPLES)]
#[command(propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print snapshots as they arrive: aligned lines for people, or --json for programs
    Tail(TailArgs),
    /// Print rates, conflation, feed gaps, lag and latency once in each interval
    Stats(StatsArgs),
    /// Write what is delivered to a journal file, to be replayed or compared later
    #[command(after_help = RECORD_NOTES)]
    Record(RecordArgs),
    /// Compare two journals: what is in both, in one only, or different
    #[command(after_help = DIFF_NOTES)]
    Diff(DiffArgs),
    /// Watch books, their rates and their latency live in the terminal (q quits)
    Top(TopArgs),
    /// Write manual pages and shell completions, for a package
    #[command(hide = true)]
    Pages(PagesArgs),
}

/// Arguments of `pages`.
#[derive(Debug, Args)]
pub(crate) struct PagesArgs {
    /// Folder for the files; made when it is not there
    #[arg(long, short, value_name = "DIR")]
    pub out: PathBuf,
}

/// How to attach. The same for every command.
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// Unix socket of the publisher [env: TAPECAST_SOCKET] [default: /run/tapecast/publisher.sock
    /// for root, else $XDG_RUNTIME_DIR/tapecast/publisher.sock]
    #[arg(short, long, value_name = "PATH", help_heading = "Over shared memory")]
    pub socket: Option<PathBuf>,

    #[command(flatten)]
    pub rdma: RdmaArgs,

    /// Instruments to receive, separated by commas; all of them when absent
    #[arg(short = 'i', long, value_name = "SYMBOL,…", value_delimiter = ',')]
    #[arg(help_heading = SESSION)]
    #[arg(env = "TAPECAST_SYMBOLS", action = ArgAction::Append)]
    pub symbols: Vec<String>,

    /// Name for the publisher's logs and metrics
    #[arg(long, value_name = "NAME", env = "TAPECAST_NAME", help_heading = SESSION)]
    pub name: Option<String>,

    /// What happens when this subscriber does not keep up
    #[arg(long, value_enum, default_value_t = PolicyArg::Conflate, env = "TAPECAST_POLICY")]
    #[arg(help_heading = SESSION)]
    pub policy: PolicyArg,

    /// With --policy disconnect: end also when what was not read was published so long ago, in
    /// seconds [default: the publisher's lag.hard_ms, which is also the most]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = SESSION)]
    pub disconnect_after: Option<Duration>,

    /// With --policy disconnect: end also when so much was published and not read, such as 1MiB
    /// [default: the publisher's lag.hard_bytes, which is also the most]
    #[arg(long, value_name = "SIZE", value_parser = bytes, help_heading = SESSION)]
    pub disconnect_at_bytes: Option<u64>,

    /// Least time between two snapshots of one instrument, in seconds: what comes sooner waits, and
    /// the newest stands for the others. Only with --policy conflate
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = SESSION)]
    pub min_interval: Option<Duration>,

    /// How to wait for snapshots: spin is the fastest and takes a whole core
    #[arg(long, value_enum, default_value_t = WaitArg::Block, env = "TAPECAST_WAIT")]
    #[arg(help_heading = SESSION)]
    pub wait: WaitArg,

    /// Keep trying for so many seconds when the publisher is not there yet
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    #[arg(help_heading = SESSION)]
    pub wait_for_publisher: Duration,

    /// End when the publisher goes away, instead of attaching again
    #[arg(long, help_heading = SESSION)]
    pub no_reconnect: bool,
}

/// A policy by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyArg {
    /// Receive the newest state of each instrument, marked with the count that it stands for
    Conflate,
    /// The publisher waits for this subscriber, where its configuration allows that
    Lossless,
    /// End the session rather than leave anything out, or lag too far. It attaches again after
    /// that, and what came in between is in no account: with --no-reconnect that is the end
    Disconnect,
}

/// A way of waiting by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitArg {
    /// Never sleep
    Spin,
    /// Offer the core to others between looks
    Yield,
    /// Sleep until the publisher wakes it
    Block,
    /// Sleep on a file descriptor, as an epoll loop would
    Fd,
}

/// Arguments of `tail`.
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// Levels of each side to print [default: 1, with --json all]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=83))]
    pub levels: Option<u16>,

    /// One JSON object per line: prices, quantities and times as exact text
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,

    /// Print no snapshot, only the summary
    #[arg(short, long)]
    pub quiet: bool,

    #[command(flatten)]
    pub end: EndArgs,

    /// Write the final account as JSON: per instrument, latency, jitter, skew samples
    #[arg(long, value_name = "FILE")]
    pub summary_json: Option<PathBuf>,

    #[command(flatten)]
    pub session: SessionArgs,

    #[command(flatten)]
    pub second: SecondArgs,
}

/// When to end. The same for every command that takes snapshot after snapshot.
#[derive(Debug, Args)]
pub(crate) struct EndArgs {
    /// End after so many snapshots
    #[arg(short = 'n', long, value_name = "N")]
    pub count: Option<u64>,

    /// End when the source has ended, for every instrument received, or the publisher closes
    #[arg(long)]
    pub until_end: bool,

    /// When to colour
    #[arg(long, value_enum, default_value_t = ColorArg::Auto)]
    pub color: ColorArg,
}

/// Arguments of `record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// File to write; must not be there unless --force
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub end: EndArgs,

    /// Write the final account as JSON: per instrument, latency, jitter, skew samples
    #[arg(long, value_name = "FILE")]
    pub summary_json: Option<PathBuf>,

    #[command(flatten)]
    pub session: SessionArgs,
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A journal: a file, or a folder of them
    #[arg(value_name = "A")]
    pub a: PathBuf,

    /// Another one
    #[arg(value_name = "B")]
    pub b: PathBuf,

    /// Compare everything, also what differs between two lives of a publisher or between both
    /// ends: epoch, sequences, receive and publish times, conflated counts
    #[arg(long)]
    pub exact: bool,

    /// One JSON object: totals, counts per instrument, the first difference
    #[arg(long)]
    pub json: bool,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    /// When the output is a terminal and NO_COLOR is not set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Seconds between two lines; fractions are fine
    #[arg(short = 't', long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,

    /// A table with a line for each instrument, instead of one line
    #[arg(long, conflicts_with = "json")]
    pub by_instrument: bool,

    /// One JSON object for each interval
    #[arg(long)]
    pub json: bool,

    /// End after so many intervals
    #[arg(short = 'n', long, value_name = "N")]
    pub count: Option<u64>,

    #[command(flatten)]
    pub session: SessionArgs,

    #[command(flatten)]
    pub second: SecondArgs,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Redraws per second
    #[arg(long, value_name = "HZ", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=60))]
    pub rate: u16,

    #[command(flatten)]
    pub session: SessionArgs,
}

impl SessionArgs {
    /// The SDK's builder with these choices.
    pub(crate) fn builder(&self) -> Result<SubscriberBuilder, Misuse> {
        self.check_terms()?;
        self.rdma
            .apply(Subscriber::builder(), self.socket.as_deref())
            .map(|builder| self.adapt(builder))
    }

    /// Builders for two publishers of one feed, of which `b` has only its place.
    pub(crate) fn builders(&self, b: SubscriberBuilder) -> Result<[SubscriberBuilder; 2], Misuse> {
        self.check_terms()?;
        let a = self.rdma.place(Subscriber::builder(), self.socket.as_deref())?;
        let is_local = |builder: &SubscriberBuilder| matches!(builder.target(), Target::Socket(_));
        if is_local(&a) && is_local(&b) {
            self.rdma.check_use(&a)?;
        }
        Ok([self.adapt(self.rdma.route(a)?), self.adapt(self.rdma.route(b)?)])
    }

    fn check_terms(&self) -> Result<(), Misuse> {
        let after = ("--disconnect-after", self.disconnect_after.map(|lag| lag.is_zero()));
        let bytes = ("--disconnect-at-bytes", self.disconnect_at_bytes.map(|lag| lag == 0));
        for (flag, is_zero) in [after, bytes] {
            match is_zero {
                Some(_) if self.policy != PolicyArg::Disconnect => {
                    return Err(Misuse::NotToBeDisconnected { flag });
                }
                Some(true) => return Err(Misuse::NoLag { flag }),
                _ => {}
            }
        }
        let rests = self.min_interval.is_some_and(|interval| !interval.is_zero());
        if rests && self.policy != PolicyArg::Conflate {
            return Err(Misuse::IntervalAndPolicy);
        }
        Ok(())
    }

    /// What is the same for every publisher.
    fn adapt(&self, builder: SubscriberBuilder) -> SubscriberBuilder {
        let builder = builder
            .symbols(self.symbols.iter().map(|symbol| symbol.trim()).filter(|s| !s.is_empty()))
            .policy(match self.policy {
                PolicyArg::Conflate => Policy::Conflate,
                PolicyArg::Lossless => Policy::Lossless,
                PolicyArg::Disconnect => Policy::Disconnect,
            })
            .wait(match self.wait {
                WaitArg::Spin => WaitStrategy::Spin,
                WaitArg::Yield => WaitStrategy::Yield,
                WaitArg::Block => WaitStrategy::Block,
                WaitArg::Fd => WaitStrategy::Fd,
            })
            .disconnect_after(self.disconnect_after.unwrap_or_default())
            .disconnect_at_bytes(self.disconnect_at_bytes.unwrap_or_default())
            .min_interval(self.min_interval.unwrap_or_default())
            .wait_for_publisher(self.wait_for_publisher)
            .latency(true);
        let builder = match &self.name {
            Some(name) => builder.name(name),
            None => builder,
        };
        if self.no_reconnect { builder.reconnect(Reconnect::Never) } else { builder }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "a number of seconds is wanted".to_owned())?;
    let wanted = || "a number of seconds from 0 to 86400 is wanted".to_owned();
    if !(0.0..=86_400.0).contains(&value) {
        return Err(wanted());
    }
    Duration::try_from_secs_f64(value).map_err(|_| wanted())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn terms_that_do_not_go_together_are_told_apart() {
        let told = |words: &[&str]| {
            let all = ["tapecast-subscriber", "tail"].iter().chain(words);
            let Command::Tail(args) = Cli::parse_from(all).command else { panic!("not tail") };
            args.session.builder().map(drop)
        };
        let flag = "--disconnect-after";
        assert_eq!(told(&[flag, "1"]), Err(Misuse::NotToBeDisconnected { flag }));
        let strict = ["--policy", "disconnect"];
        assert_eq!(told(&[&strict[..], &[flag, "0"]].concat()), Err(Misuse::NoLag { flag }));
        assert_eq!(told(&[&strict[..], &[flag, "0.5"]].concat()), Ok(()));
        assert_eq!(told(&[&strict[..], &["--disconnect-at-bytes", "1MiB"]].concat()), Ok(()));
        let both = [&strict[..], &["--min-interval", "1"]].concat();
        assert_eq!(told(&both), Err(Misuse::IntervalAndPolicy));
        assert_eq!(told(&["--min-interval", "1"]), Ok(()));
    }

    #[test]
    fn symbols_may_be_one_list_or_several() {
        let words = ["tapecast-subscriber", "tail", "-i", "AAPL,MSFT", "--symbols", "NVDA"];
        let Command::Tail(args) = Cli::parse_from(words).command else { panic!("not tail") };
        assert_eq!(args.session.symbols, ["AAPL", "MSFT", "NVDA"]);
    }

    #[test]
    fn seconds_may_be_fractions_but_not_negative_or_words() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for bad in ["-1", "soon", "NaN", "1e30"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_command_explains_itself() {
        let mut cli = Cli::command();
        let help = cli.render_long_help().to_string();
        for word in ["tail", "stats", "top", "Exit status", "published = delivered + conflated"] {
            assert!(help.contains(word), "the help does not mention {word}:\n{help}");
        }
    }
}
