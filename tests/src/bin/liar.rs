//! `tapecast-liar`: a subscriber process that reads everything and says that it lost some; the
//! alert about lost snapshots is fired with it, because tapecast itself loses none.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use tapecast_control::client;
use tapecast_core::Interest;
use tapecast_core::account::{Account, Totals};
use tapecast_fabric::shm::ShmEndpoint;
use tapecast_fabric::{ChannelState, Endpoint, LatencyReport, WaitStrategy};
use tapecast_tests::bench::unix_now;
use tapecast_wire::attach::AttachRequest;

/// Says that snapshots were lost, until it is stopped.
#[derive(Debug, Parser)]
struct Arguments {
    /// Socket of the publisher
    #[arg(long)]
    socket: PathBuf,
    /// Name by which the publisher knows it
    #[arg(long, default_value = "liar")]
    name: String,
    /// Snapshots that it says were lost
    #[arg(long, default_value_t = 1)]
    lost: u64,
}

const PATIENCE: Duration = Duration::from_secs(10);
const REPORT_EVERY: Duration = Duration::from_secs(1);

fn main() -> anyhow::Result<()> {
    let Arguments { socket, name, lost } = Arguments::parse();
    let request = AttachRequest { name, ..AttachRequest::default() };
    let granted = client::attach(&socket, &request, PATIENCE)?;
    // Held: where it ends, the session does.
    let _lifeline = granted.lifeline;
    let mut endpoint = ShmEndpoint::open(granted.descriptors, request.policy, WaitStrategy::Block)?;
    let mut account = Account::new(&Interest::All, endpoint.instrument_capacity());
    while endpoint.state() == ChannelState::Running {
        while endpoint.is_ready() {
            endpoint.poll(&mut account, 256, |_| {})?;
        }
        endpoint.settle(&Totals { lost, ..account.totals() });
        endpoint.report(unix_now(), LatencyReport::default());
        endpoint.wait(REPORT_EVERY)?;
    }
    Ok(())
}
