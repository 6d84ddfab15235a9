//! The yardstick: `ib_write_bw` and `ib_write_lat`, both of their ends on this machine.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

/// Time that one run may take.
const LIMIT: &str = "90";
/// Runs until one has figures.
const ATTEMPTS: usize = 4;
/// How long a server may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Which device, and which of its addresses.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Place {
    /// RDMA device
    #[arg(long, default_value = "rxe0")]
    pub(crate) device: String,
    /// Index of the address that perftest uses; tapecast chooses its own, RoCE v2 and IPv4
    #[arg(long, default_value_t = 1)]
    gid_index: u32,
}

/// One-way latencies of a run, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Latencies {
    /// `t_typical`, which is the median.
    pub(crate) typical_us: f64,
    pub(crate) p99_us: f64,
}

/// Messages a second over `queue_pairs`, each of which sends `messages`; with a `chain`, so many
/// work requests for each doorbell, one of them signaled.
///
/// # Errors
/// When the program is not there, fails, or prints something else than expected.
pub(crate) fn write_bw(
    place: &Place,
    queue_pairs: usize,
    bytes: usize,
    messages: usize,
    chain: Option<usize>,
) -> anyhow::Result<f64> {
    let mut arguments = vec![
        format!("--qp={queue_pairs}"),
        format!("--size={bytes}"),
        format!("--iters={messages}"),
        "--noPeak".to_owned(),
    ];
    if let Some(chain) = chain {
        arguments.extend([format!("--post_list={chain}"), format!("--cq-mod={chain}")]);
    }
    // #bytes #iterations BW-peak BW-average MsgRate[Mpps]
    measure(|| Ok(column(&run("ib_write_bw", place, &arguments)?, 4)? * 1e6))
}

/// One-way latencies of `samples` messages, measured there and back.
///
/// # Errors
/// As [`write_bw`].
pub(crate) fn write_lat(place: &Place, bytes: usize, samples: usize) -> anyhow::Result<Latencies> {
    let arguments = [format!("--size={bytes}"), format!("--iters={samples}")];
    // #bytes #iterations t_min t_max t_typical t_avg t_stdev 99% 99.9%
    measure(|| {
        let printed = run("ib_write_lat", place, &arguments)?;
        Ok(Latencies { typical_us: column(&printed, 4)?, p99_us: column(&printed, 7)? })
    })
}

/// Tries more than once: on a busy machine perftest now and then fails to calibrate its clock, and
/// prints zeros or infinities.
fn measure<T>(attempt: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    (1..ATTEMPTS).find_map(|_| attempt().ok()).map_or_else(&attempt, Ok)
}

/// A server that is stopped when nobody needs it any more.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a server and a client, and returns what the client printed.
fn run(program: &str, place: &Place, arguments: &[String]) -> anyhow::Result<String> {
    let port = free_port()?;
    let command = || {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=2", LIMIT, program, "--CPU-freq"]);
        command.arg(format!("--ib-dev={}", place.device));
        command.arg(format!("--gid-index={}", place.gid_index));
        command.arg(format!("--port={port}")).args(arguments);
        command.stdin(Stdio::null());
        command
    };
    let server = command().stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut server = Server(server.context("cannot start `timeout`: install coreutils")?);
    let started = Instant::now();
    loop {
        // A client that finds nobody listening ends at once: then the server is not ready yet.
        let output = command().arg("127.0.0.1").output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            server.0.wait()?;
            return Ok(printed);
        }
        anyhow::ensure!(
            started.elapsed() < START_LIMIT && server.0.try_wait()?.is_none(),
            "{program} failed ({}): install perftest, and see whether {} has address index {}\n{}",
            output.status,
            place.device,
            place.gid_index,
            String::from_utf8_lossy(&output.stderr),
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A port that nobody listens on right now.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// A number from the line below the one that names the columns.
fn column(printed: &str, index: usize) -> anyhow::Result<f64> {
    let mut lines = printed.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let figures = lines.nth(1).unwrap_or_default();
    let value = figures.split_whitespace().nth(index).and_then(|field| field.parse().ok());
    value.filter(|value: &f64| value.is_finite() && *value > 0.0).with_context(|| {
        format!("no figure in column {index} of what perftest printed, {figures:?}: is it 4.5?")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:09:00:01
-----------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 256        19200            1.48               1.48   \t\t   0.006053
-----------------------------
";

    #[test]
    fn a_figure_is_read_by_its_column() {
        assert_eq!(column(PRINTED, 4).unwrap(), 0.006_053);
        assert_eq!(column(PRINTED, 1).unwrap(), 19200.0);
    }

    #[test]
    fn what_is_not_a_figure_is_refused() {
        assert!(column(PRINTED, 5).is_err(), "there are five columns");
        assert!(column(&PRINTED.replace("0.006053", "inf"), 4).is_err());
        assert!(column("Couldn't connect to 127.0.0.1:18515", 4).is_err());
    }
}
