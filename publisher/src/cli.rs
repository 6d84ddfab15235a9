//! The command line. Flags that stand for a configuration key are passed on as text: the
//! configuration knows their ranges and names the flag when it refuses a value.

mod doctor;
mod plan;

use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use doctor::DoctorArgs;
pub use plan::PlanArgs;

use crate::config::Layers;

/// Fans one market-data feed out to up to 64 subscribers, through shared memory or by RDMA.
#[derive(Debug, Parser)]
#[command(name = "tapecast-publisher", version, about, after_help = EXAMPLES)]
#[command(propagate_version = true, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  tapecast-publisher run
      a simulated exchange of 100 instruments, in real time, until stopped
  tapecast-publisher run --source itch --file day.itch50.gz --symbols AAPL,MSFT --pace 10x
      two symbols of a Nasdaq day at ten times its own speed
  tapecast-publisher run --source dbn --file es.dbn.zst --wait-for 64 --exit-at-end --report r.json
      starts when 64 subscribers are there, ends when they have read everything
  tapecast-publisher generate --out day.itch50 --instruments 50 --seconds 30
      writes a simulated day as an ITCH 5.0 file
  tapecast-publisher replay /data/journal --pace 10x
      publishes a journal again, written by `run --journal` or `tapecast-subscriber record`
  tapecast-publisher check-config --config publisher.toml
      the effective configuration, with the origin of each value
  tapecast-publisher run --fabric verbs --rdma-address 192.0.2.7 --listen 192.0.2.7:7411 \\
      --config tls.toml
      the simulated exchange for subscribers that attach over RDMA; tls.toml has the [tls] files
  tapecast-publisher certificates --out tls --server 192.0.2.7 --client risk-1.example
      makes those files, for both ends
  tapecast-publisher run --metrics 127.0.0.1:7412
      with figures for Prometheus at /metrics, and /healthz and /readyz for whoever has to know
  tapecast-publisher doctor --cpus 2-5
      what keeps this host from being fast, and the commands that mend it
  tapecast-publisher plan --rate 100G --levels 10 --plot latency.svg
      what such a port can do for 64 subscribers, before any hardware is bought

Exit status: 0 done, 1 an error (one line on stderr names cause and remedy), 2 wrong usage,
3 the input was damaged or cut short (everything before the damage was published).";

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Publish a source until it ends or a signal comes.
    #[command(after_help = RUN_NOTES)]
    Run(Box<RunArgs>),
    /// Publish a journal again: `run` with a journal as its source.
    #[command(after_help = REPLAY_NOTES)]
    Replay(Box<ReplayArgs>),
    /// Write a simulated trading day as a Nasdaq TotalView-ITCH 5.0 file.
    #[command(after_help = GENERATE_NOTES)]
    Generate(GenerateArgs),
    /// Check the configuration and print it in full, with the origin of each value.
    #[command(after_help = CHECK_NOTES)]
    CheckConfig(Box<CheckArgs>),
    /// Make certificates for a publisher and its subscribers over RDMA.
    #[command(after_help = CERTIFICATES_NOTES)]
    Certificates(CertificatesArgs),
    /// Look at host, NIC and RoCE: what is not as it should be, and what mends it.
    #[command(after_help = doctor::NOTES)]
    Doctor(Box<DoctorArgs>),
    /// Work out latency, skew, rates and sizes of a fan-out over RDMA: a model, nothing is
    /// measured.
    #[command(after_help = plan::NOTES)]
    Plan(Box<PlanArgs>),
    /// Write manual pages and shell completions, for a package.
    #[command(hide = true)]
    Pages(PagesArgs),
}

const RUN_NOTES: &str = "\
Every value can also be set in a TOML file or by an environment variable; flags win over variables,
variables over the file, the file over the defaults. Key `shm.ring_bytes` is the variable
TAPECAST_SHM_RING_BYTES. `tapecast-publisher check-config` lists all keys.

At the end of a file the publisher marks every book as ended and goes on serving the last books to
whoever attaches, until SIGTERM or SIGINT. With --exit-at-end it leaves instead. A second signal
ends it at once.

SIGHUP makes it read its configuration and the files of its certificates again. What can change
does; what cannot is named in the log, and stays until a restart. When something in it is wrong,
nothing changes.

With --fabric verbs subscribers attach over TCP (--listen) and are written to by RDMA. Beyond a
loopback address that takes TLS: `tapecast-publisher certificates` makes the files for it.

Examples:
  tapecast-publisher run --source itch --file day.itch50 --pace max --exit-at-end
  tapecast-publisher run --set sender.idle=spin --set sender.cpu=3
  TAPECAST_LOG_FORMAT=json tapecast-publisher run --config /etc/tapecast/publisher.toml";

const REPLAY_NOTES: &str = "\
Every snapshot of the journal is published as it was: same levels, flags, times, feed sequence and
symbols, in a new epoch. A file that was not closed, because its publisher was killed, is played to
its last whole record; one that is cut inside a record as well, but with exit status 3, unless
--allow-truncated is given. Everything else is as with `run`.

Examples:
  tapecast-publisher run --source itch --file day.itch50 --journal /data/journal
  tapecast-publisher replay /data/journal --pace 10x --wait-for 1 --exit-at-end
  tapecast-publisher replay received.tapejournal --symbols AAPL --socket /tmp/replay.sock";

const GENERATE_NOTES: &str = "\
The same seed and sizes give the same bytes on every machine. A name that ends in .gz is compressed.

Example:
  tapecast-publisher generate --out day.itch50.gz --seed 7 --instruments 20 --seconds 60";

const CHECK_NOTES: &str = "\
Exit status 0 when the configuration can be used, 1 when not. The output is itself a complete
configuration file.

Examples:
  tapecast-publisher check-config --config publisher.toml > effective.toml
  tapecast-publisher check-config --quiet --config publisher.toml && systemctl reload \
      tapecast-publisher";

const CERTIFICATES_NOTES: &str = "\
It makes a private authority (ca.pem, ca.key), a certificate for the publisher (server.pem,
server.key), and one for each client (client-NAME.pem, client-NAME.key). Keys have mode 0600. A
client is known to the publisher by the NAME in its certificate.

Examples:
  tapecast-publisher certificates --out tls --server feed-1.example 192.0.2.7 \\
      --client risk-1.example desk-2.example
  tapecast-publisher certificates --out tls --add-client desk-3.example

In publisher.toml:
  [fabric]
  kind = \"verbs\"
  [listen]
  address = \"0.0.0.0:7411\"
  [tls]
  certificate = \"/etc/tapecast/tls/server.pem\"
  key = \"/etc/tapecast/tls/server.key\"
  client_ca = \"/etc/tapecast/tls/ca.pem\"
  [[entitlement]]
  client = \"risk-1.example\"
  sessions_max = 4

A subscriber, with a copy of ca.pem and its own two files:
  tapecast-subscriber tail --connect feed-1.example:7411 --ca ca.pem \\
      --cert client-risk-1.example.pem --key client-risk-1.example.key

Once there is one [[entitlement]], every client needs its own.";

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Everything that stands for a configuration key.
    #[command(flatten)]
    pub config: ConfigArgs,

    /// Start the source only when this many subscribers have attached [default: 0]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true,
          value_parser = clap::value_parser!(u32).range(0..=64), help_heading = "Run")]
    pub wait_for: u32,

    /// Leave when the source has ended and every subscriber has read everything; one that reads
    /// nothing for access.stall_max_s (10 s) is not waited for
    #[arg(long, help_heading = "Run")]
    pub exit_at_end: bool,

    /// Write a JSON report at exit: counts per instrument and session, publish cost
    #[arg(long, value_name = "FILE", help_heading = "Run")]
    pub report: Option<PathBuf>,

    /// Show no progress bar (there is none anyway when stderr is not a terminal)
    #[arg(long, help_heading = "Run")]
    pub no_progress: bool,
}

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A journal file, or a folder of them
    #[arg(value_name = "FILE_OR_FOLDER")]
    pub journal_path: PathBuf,

    /// Everything that `run` takes.
    #[command(flatten)]
    pub run: RunArgs,
}

impl ReplayArgs {
    /// The same as arguments of `run`.
    #[must_use]
    pub fn into_run(self) -> RunArgs {
        let Self { journal_path, mut run } = self;
        run.config.source = Some("journal".to_owned());
        // A flag is text; a path that is none cannot be one either.
        run.config.file = Some(journal_path.to_string_lossy().into_owned());
        run
    }
}

/// Flags of `run` that say which source, or how another one is.
const NOT_FOR_REPLAY: [&str; 8] =
    ["source", "file", "date", "seed", "instruments", "steady_rate", "burst_rate", "seconds"];

impl Cli {
    /// Reads the command line of this process.
    #[must_use]
    pub fn read() -> Self {
        let matches = Self::shaped().get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// The command line, with `replay` taking only what makes sense for it.
    pub(crate) fn shaped() -> clap::Command {
        let command = Self::command().mut_subcommand("plan", plan::with_negative_numbers);
        command.mut_subcommand("replay", |replay| {
            NOT_FOR_REPLAY.iter().fold(replay, |replay, flag| {
                replay.mut_arg(flag, |arg| arg.hide(true).conflicts_with("journal_path"))
            })
        })
    }
}

/// Arguments of `check-config`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// What makes up the configuration.
    #[command(flatten)]
    pub config: ConfigArgs,

    /// Print nothing but what is wrong
    #[arg(long, short)]
    pub quiet: bool,
}

/// Arguments of `pages`.
#[derive(Debug, Args)]
pub struct PagesArgs {
    /// Folder for the files; made when it is not there
    #[arg(long, short, value_name = "DIR")]
    pub out: PathBuf,
}

/// Arguments of `generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// File to write; must not exist unless --force
    #[arg(long, short, value_name = "FILE")]
    pub out: PathBuf,

    /// Overwrite the file if it is there
    #[arg(long)]
    pub force: bool,

    /// Same seed, same day
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Instruments listed (1 to 10000)
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub instruments: usize,

    /// Seconds of trading (1 to 21600)
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub seconds: u64,

    /// Exactly so many messages instead, those that open and end the session included
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub messages: Option<u64>,

    /// Messages per second in calm trading (1 to 1000000000)
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub steady_rate: u64,

    /// Messages per second when the market opens (1 to 1000000000)
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub burst_rate: u64,

    /// Day of the session, for a date in absolute times
    #[arg(long, value_name = "YYYY-MM-DD", default_value = "2025-01-02")]
    pub date: jiff::civil::Date,

    /// Show no progress bar (there is none anyway when stderr is not a terminal)
    #[arg(long)]
    pub no_progress: bool,
}

/// Arguments of `certificates`.
#[derive(Debug, Args)]
pub struct CertificatesArgs {
    /// Folder for the files; made when it is not there
    #[arg(long, short, value_name = "DIR")]
    pub out: PathBuf,

    /// Name or IP address by which subscribers reach the publisher; may be given more than once
    #[arg(long, value_name = "NAME_OR_IP", num_args = 1.., required_unless_present = "add_client")]
    pub server: Vec<String>,

    /// Name of a client, by which the publisher knows it; may be given more than once
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub client: Vec<String>,

    /// Make a certificate for one more client, with the authority that is in the folder
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with_all = ["server", "client"])]
    pub add_client: Vec<String>,

    /// Days that the certificates are valid (1 to 36500)
    #[arg(long, value_name = "N", default_value_t = 365)]
    pub days: u32,

    /// Replace files that are there. Without --add-client that replaces the authority too, and no
    /// certificate of the old one is good any longer
    #[arg(long)]
    pub force: bool,
}

/// Declares the flags that stand for a configuration key, and gives them to the configuration.
macro_rules! config_flags {
    ($($(#[$meta:meta])* $field:ident: $flag:literal => $key:literal,)+) => {
        /// Flags that stand for a configuration key.
        #[derive(Debug, Default, Args)]
        pub struct ConfigArgs {
            /// Configuration file (TOML); also TAPECAST_CONFIG
            #[arg(long, short, value_name = "FILE", help_heading = "Configuration")]
            pub config: Option<PathBuf>,

            /// Set any configuration key; may be given more than once
            #[arg(long, value_name = "KEY=VALUE", value_parser = assignment,
                  help_heading = "Configuration")]
            pub set: Vec<(String, String)>,

            $($(#[$meta])* #[arg(long = $flag)] pub $field: Option<String>,)+

            /// Seconds that the simulated exchange trades, 1 to 21600 [default: endless]
            #[arg(long, value_name = "N", help_heading = "Source")]
            pub seconds: Option<u64>,
        }

        #[cfg(test)]
        const FLAG_KEYS: &[(&str, &str)] = &[$(($flag, $key),)+];

        impl ConfigArgs {
            fn flags(&self) -> Vec<(String, String, String)> {
                let set = self.set.iter().map(|(key, value)| {
                    (format!("--set {key}=…"), key.clone(), value.clone())
                });
                let named = [$((concat!("--", $flag), $key, &self.$field),)+];
                let named = named.into_iter().filter_map(|(flag, key, value)| {
                    Some((flag.to_owned(), key.to_owned(), value.clone()?))
                });
                let seconds = self.seconds.map(|seconds| {
                    let key = "source.synthetic.length".to_owned();
                    ("--seconds".to_owned(), key, format!("{seconds} s"))
                });
                set.chain(named).chain(seconds).collect()
            }
        }
    };
}

config_flags! {
    /// Where data comes from: itch, dbn, journal or synthetic [default: synthetic]
    #[arg(value_name = "KIND", help_heading = "Source")]
    source: "source" => "source.kind",
    /// Input of an itch, dbn or journal source (itch: plain or .gz; dbn: plain or .zst; journal: a
    /// file or a folder)
    #[arg(value_name = "PATH", help_heading = "Source")]
    file: "file" => "source.file",
    /// Speed: max, realtime, or a multiple such as 10x [default: realtime]
    #[arg(value_name = "PACE", help_heading = "Source")]
    pace: "pace" => "source.pace",
    /// Start again at the end of the input [default: false]
    #[arg(value_name = "true|false", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, help_heading = "Source")]
    looping: "loop" => "source.loop",
    /// Only these symbols, with commas between [default: all]
    #[arg(value_name = "A,B,…", help_heading = "Source")]
    symbols: "symbols" => "source.symbols",
    /// Take an input that ends inside a message for complete [default: false]
    #[arg(value_name = "true|false", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, help_heading = "Source")]
    allow_truncated: "allow-truncated" => "source.allow_truncated",
    /// Day of an ITCH file: auto or YYYY-MM-DD [default: auto]
    #[arg(value_name = "DAY", help_heading = "Source")]
    date: "date" => "source.date",
    /// Who says when a message was received: feed (as recorded), or host (when it was due or read)
    /// [default: feed]
    #[arg(value_name = "feed|host", help_heading = "Source")]
    receive_time: "receive-time" => "source.receive_time",
    /// Seed of the simulated exchange [default: 1]
    #[arg(value_name = "N", help_heading = "Source")]
    seed: "seed" => "source.synthetic.seed",
    /// Instruments of the simulated exchange, 1 to 10000 [default: 100]
    #[arg(value_name = "N", help_heading = "Source")]
    instruments: "instruments" => "source.synthetic.instruments",
    /// Messages per second in its calm trading [default: 20000]
    #[arg(value_name = "N", help_heading = "Source")]
    steady_rate: "steady-rate" => "source.synthetic.steady_rate",
    /// Messages per second when its market opens [default: 1000000]
    #[arg(value_name = "N", help_heading = "Source")]
    burst_rate: "burst-rate" => "source.synthetic.burst_rate",
    /// How snapshots reach subscribers: shm (shared memory, on this host) or verbs (RDMA)
    /// [default: shm]
    #[arg(value_name = "KIND", help_heading = "Publisher")]
    fabric: "fabric" => "fabric.kind",
    /// Unix socket where subscribers attach [default: /run/tapecast/publisher.sock for root, else
    /// $XDG_RUNTIME_DIR/tapecast/publisher.sock]
    #[arg(value_name = "PATH", help_heading = "Publisher")]
    socket: "socket" => "publisher.socket",
    /// Levels per side in a snapshot, 1 to 83 [default: 10]
    #[arg(value_name = "N", help_heading = "Publisher")]
    levels: "levels" => "book.levels",
    /// Size of the broadcast ring, a power of two from 64 KiB to 16 GiB [default: 16 MiB]
    #[arg(value_name = "SIZE", help_heading = "Publisher")]
    ring_bytes: "ring-bytes" => "shm.ring_bytes",
    /// What an idle sender does: spin (burns a core, lowest latency), yield or block
    /// [default: block]
    #[arg(value_name = "HOW", help_heading = "Publisher")]
    idle: "idle" => "sender.idle",
    /// Core that the sender thread is pinned to [default: any]
    #[arg(value_name = "N", help_heading = "Publisher")]
    cpu: "cpu" => "sender.cpu",
    /// Let subscribers ask that the publisher waits for them [default: false]
    #[arg(value_name = "true|false", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, help_heading = "Publisher")]
    lossless: "lossless" => "access.lossless",
    /// TCP address where subscribers attach over RDMA; TLS beyond loopback, and
    /// with tls.certificate
    /// [default: 127.0.0.1:7411]
    #[arg(value_name = "ADDRESS:PORT", help_heading = "RDMA")]
    listen: "listen" => "listen.address",
    /// RDMA device, as ibv_devices prints it [default: the only one]
    #[arg(value_name = "NAME", help_heading = "RDMA")]
    rdma_device: "rdma-device" => "rdma.device",
    /// IP address of the RDMA device's network interface, instead of its name
    #[arg(value_name = "IP", help_heading = "RDMA")]
    rdma_address: "rdma-address" => "rdma.address",
    /// Folder for a journal of everything published; made when it is not there [default: none]
    #[arg(value_name = "DIR", help_heading = "Journal")]
    journal: "journal" => "journal.path",
    /// Size at which another journal file is begun, from 64 KiB [default: 256 MiB]
    #[arg(value_name = "SIZE", help_heading = "Journal")]
    journal_rotate: "journal-rotate" => "journal.rotate_bytes",
    /// Journal files that stay, the oldest go; 0 for all [default: 0]
    #[arg(value_name = "N", help_heading = "Journal")]
    journal_keep: "journal-keep" => "journal.keep",
    /// When a journal is forced to the disk: never (a crash of the machine may cost its last
    /// seconds) or close (each file when it is closed) [default: never]
    #[arg(value_name = "WHEN", help_heading = "Journal")]
    journal_sync: "journal-sync" => "journal.sync",
    /// Serve figures over HTTP for Prometheus, e.g. 127.0.0.1:7412 [default: nowhere]
    #[arg(value_name = "IP:PORT", help_heading = "Monitoring")]
    metrics: "metrics" => "metrics.address",
    /// Least severe log line: error, warn, info, debug, trace [default: info]
    #[arg(value_name = "LEVEL", help_heading = "Log")]
    log_level: "log-level" => "log.level",
    /// Form of log lines: text or json [default: text]
    #[arg(value_name = "FORM", help_heading = "Log")]
    log_format: "log-format" => "log.format",
}

impl ConfigArgs {
    /// The layers that these flags and the environment make.
    #[must_use]
    pub fn layers(&self, environment: impl Iterator<Item = (String, String)>) -> Layers {
        let environment: Vec<(String, String)> =
            environment.filter(|(name, _)| name.starts_with("TAPECAST_")).collect();
        let from_environment = environment
            .iter()
            .find(|(name, value)| name == "TAPECAST_CONFIG" && !value.is_empty())
            .map(|(_, value)| PathBuf::from(value));
        let file = self.config.clone().or(from_environment);
        Layers { file, environment, flags: self.flags() }
    }
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write it as KEY=VALUE, e.g. sender.idle=spin".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Key;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::shaped().debug_assert();
    }

    #[test]
    fn every_flag_stands_for_a_key_that_exists() {
        for (flag, key) in FLAG_KEYS {
            assert!(Key::find(key).is_some(), "--{flag} sets {key}");
        }
    }

    #[test]
    fn flags_come_as_text_in_the_order_in_which_they_win() {
        let line = "tapecast-publisher run --loop --source=itch --set=sender.idle=spin";
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let Command::Run(args) = cli.command else { panic!("not run") };
        let expected = [
            ("--set sender.idle=…", "sender.idle", "spin"),
            ("--source", "source.kind", "itch"),
            ("--loop", "source.loop", "true"),
        ]
        .map(|(flag, key, value)| (flag.to_owned(), key.to_owned(), value.to_owned()));
        assert_eq!(args.config.flags(), expected);
    }
}
