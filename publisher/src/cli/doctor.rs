//! Arguments of `doctor`.

use std::path::Path;

use clap::Args;

use crate::doctor::{Cpus, Profile, Root};

pub(super) const NOTES: &str = "\
A line is ok, warn (it costs microseconds), FAIL (it breaks the service, or stalls it for
milliseconds), or unknown: what cannot be read is never taken for off, and the line says why. Most
of the NIC's settings can be read by root alone. A setting that this kernel is without is ok.

What a host cannot see: whether the switch marks (ECN) and pauses (PFC) the same priority, and the
other end. Run it on the subscribers' hosts, too.

--fix prints a script and changes nothing. --fix --apply does what a program can do: it writes files
and runs tools that are there, each for at most ten minutes, tells what became of each, and looks
again. Files of the kernel forget at a restart: what they were set to is kept in
/etc/sysctl.d/90-tapecast.conf and /etc/tmpfiles.d/90-tapecast.conf, and set at each start. A reset
of the card, parameters of the kernel and switching hardware threads off are left to you.

Profiles: default (DCQCN, at most one lossless priority), lossy (none), pfc (the data's alone). A
file of your own starts with `extends = \"default\"` and says what differs; every setting stands with
its range in configs/dcqcn/default.toml.

With --sysroot another machine's /sys and /proc are judged, copied to a folder. What tools print is
read from its folder tool-output, from files named like the command, such as `ethtool -a eth1`,
`mlxconfig -d BDF -e q` or `timedatectl show --property=NTPSynchronized`.

Exit status: 0 all is ok, or only warnings and unknowns; 1 something fails (with --strict: is not
ok); 2 wrong usage.

Examples:
  sudo tapecast-publisher doctor --cpus 2-5
  sudo tapecast-publisher doctor --device mlx5_0 --profile lossy --fix > mend.sh
  tapecast-publisher doctor --json | jq '.findings[] | select(.status != \"ok\")'";

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// RDMA device to look at [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,

    /// Network interface of the device; of a bond its members are looked at, too [default: the
    /// device's first]
    #[arg(long, value_name = "IF")]
    pub interface: Option<String>,

    /// CPUs of sender and receivers, such as 2-5,8; they must be online [default: those that the
    /// kernel isolates]
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<Cpus>,

    /// The wanted state: default, lossy, pfc, or a file
    #[arg(long, value_name = "NAME_OR_FILE", default_value = "default", value_parser = profile)]
    pub profile: Profile,

    /// Folder with sys/ or proc/ to read instead of this machine's files
    #[arg(long, value_name = "DIR", default_value = "/", value_parser = sysroot)]
    pub sysroot: Root,

    /// Print the commands that mend what is not as wanted, as a script
    #[arg(long, conflicts_with = "json")]
    pub fix: bool,

    /// Perform them, and look again
    #[arg(long, requires = "fix")]
    pub apply: bool,

    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,

    /// Take warnings and unknowns for failures
    #[arg(long)]
    pub strict: bool,
}

fn cpus(text: &str) -> Result<Cpus, String> {
    let cpus: Cpus = text.parse()?;
    if cpus == Cpus::default() { Err("name at least one CPU".to_owned()) } else { Ok(cpus) }
}

fn profile(text: &str) -> Result<Profile, String> {
    Profile::find(text).map_err(|error| format!("{error:#}").trim().replace('\n', " "))
}

fn sysroot(text: &str) -> Result<Root, String> {
    Root::open(Path::new(text))
        .map_err(|error| format!("{error}; name a folder that has sys/ and proc/"))
}
