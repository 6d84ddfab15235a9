//! Congestion control of the NIC. ConnectX shows it through one of three faces, NetXtreme through
//! one of two.

use super::finding::{Check, Finding, Section, Status, Step};
use super::host::{Device, Driver, Host};
use super::knobs::{
    BNXT_RE, BNXT_RE_CNP_DSCP, BNXT_RE_DSCP, Knob, MLX5, MLX5_CNP_DSCP, MLX5_CNP_PRIORITY,
};
use super::profile::Wanted;
use super::root::Gap;

pub(super) fn check(host: &Host<'_>) -> Vec<Finding> {
    let Some(device) = &host.device else { return Vec::new() };
    match &device.driver {
        Driver::Mlx5Vendor => mlx5_vendor(host, device),
        Driver::Mlx5 => mlx5_in_tree(host, device),
        Driver::BnxtRe => bnxt_re(host, device),
        Driver::Rxe => vec![none()],
        Driver::Other(name) => {
            vec![unseen(format!("the settings of the driver {name} are not known here"))]
        }
    }
}

fn new(id: &str, title: &str, wanted: impl std::fmt::Display, why: &str) -> Check {
    Check::new(Section::Dcqcn, format!("dcqcn.{id}"), title, wanted, why)
}

fn none() -> Finding {
    let why = "a burst that is too much for a port is dropped, and sent again after a time-out";
    let check = new("engine", "congestion control", "in the NIC", why);
    check.warn("none: Soft-RoCE has no DCQCN; fine for tests only", Vec::new())
}

/// All settings at once, when none of them can be seen.
fn unseen(reason: String) -> Finding {
    let why = "they decide how fast a queue pair is after the switch has marked a packet";
    new("settings", "settings of congestion control", "as in the profile", why).unknown(reason)
}

/// Through which door settings are seen and set.
enum Face<'a> {
    /// Files of the vendor's driver below this folder; the last takes the others into force.
    Vendor { folder: String, apply: Option<&'static str> },
    /// Files of the in-tree driver below this folder.
    Debugfs { folder: String },
    /// What the firmware's tool printed.
    Firmware { firmware: &'a Firmware, port: u8 },
}

impl Face<'_> {
    /// Where a knob is, for messages.
    fn place(&self, knob: &Knob) -> String {
        match self {
            Self::Vendor { folder, .. } => format!("{folder}/{}", knob.vendor),
            Self::Debugfs { folder } => format!("{folder}/{}", knob.debugfs),
            Self::Firmware { port, .. } => format!("{}_P{port}", knob.firmware),
        }
    }

    fn read(&self, host: &Host<'_>, knob: &Knob) -> Result<String, String> {
        let place = self.place(knob);
        match self {
            Self::Firmware { firmware, .. } => firmware.value(&place),
            _ => host.root.value(&place).map_err(|gap| gap.reason("this driver has no such file")),
        }
    }

    fn set(&self, knob: &Knob, value: u64) -> Step {
        let place = self.place(knob);
        match self {
            Self::Vendor { folder, apply: Some(apply) } => {
                let apply = format!("{folder}/{apply}");
                let command = format!("echo {value} > {place}; echo 1 > {apply}");
                let files = vec![(place, value.to_string()), (apply, "1".to_owned())];
                Step::writes(knob.why, command, files)
            }
            Self::Vendor { .. } | Self::Debugfs { .. } => Step::write(knob.why, &place, value),
            Self::Firmware { firmware, .. } => {
                let what = format!("{} (after a reset of the card)", knob.why);
                Step::run(what, &firmware.setting(&place, value))
            }
        }
    }

    /// One knob against what is wanted of it.
    fn check(&self, host: &Host<'_>, knob: &Knob, wanted: Option<Wanted>) -> Finding {
        let title = match knob.unit {
            "" => knob.name.to_owned(),
            unit => format!("{} ({unit})", knob.name),
        };
        let line = host.line_mbps();
        let Some(wanted) = wanted else {
            let check = new(knob.name, &title, "in step with the link's rate", knob.why);
            return check.unknown("the interface does not tell its rate");
        };
        let check = new(knob.name, &title, &wanted, knob.why);
        let text = match self.read(host, knob) {
            Ok(text) => text,
            Err(reason) => return check.unknown(reason),
        };
        let Some(seen) = number(&text) else {
            return check.unreadable(&self.place(knob), &text);
        };
        if wanted.accepts(seen) {
            return check.ok(seen);
        }
        let fix = if knob.takes(wanted.set, line) {
            vec![self.set(knob, wanted.set)]
        } else {
            let text = format!(
                "{} is beyond what a link takes whose rate is {}: change the profile",
                wanted.set,
                line.map_or_else(|| "not known".to_owned(), |mbps| format!("{mbps} Mb/s")),
            );
            vec![Step::by_hand("out of range", text)]
        };
        match wanted.otherwise {
            Status::Fail => check.fail(seen, fix),
            _ => check.warn(seen, fix),
        }
    }
}

/// A number as drivers print them: decimal, or with 0x.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The tool that shows and sets what the card's firmware starts with.
struct Firmware {
    tool: &'static str,
    address: String,
    printed: String,
}

impl Firmware {
    /// Asks it. The vendor and the distributions ship it under different names.
    fn ask(host: &Host<'_>, address: &str) -> Result<Self, String> {
        let ask = |tool: &'static str| {
            let printed = host.tools().ask(&format!("{tool} -d {address} q"))?;
            Ok(Self { tool, address: address.to_owned(), printed })
        };
        ask("mlxconfig").or_else(|reason: String| ask("mstconfig").map_err(|_: String| reason))
    }

    /// The value in a line `NAME  VALUE`, where words are written like `True(1)`.
    fn value(&self, name: &str) -> Result<String, String> {
        let mut lines = self.printed.lines().map(|line| line.trim_start_matches('*'));
        let line = lines.find(|line| line.split_whitespace().next() == Some(name));
        let value = line.and_then(|line| line.split_whitespace().nth(1));
        let value = value.ok_or_else(|| format!("{} does not show {name}", self.tool))?;
        let inside = value.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        Ok(inside.unwrap_or(value).to_owned())
    }

    fn setting(&self, name: &str, value: u64) -> String {
        format!("{} -y -d {} set {name}={value}", self.tool, self.address)
    }
}

/// The settings of ConnectX through one face.
fn mlx5_settings(host: &Host<'_>, face: &Face<'_>) -> Vec<Finding> {
    let traffic = host.profile.traffic;
    let own = [(&MLX5_CNP_DSCP, traffic.cnp_dscp), (&MLX5_CNP_PRIORITY, traffic.cnp_priority)];
    let own = own.map(|(knob, value)| {
        face.check(host, knob, Some(Wanted::is(u64::from(value), Status::Warn)))
    });
    let line = host.line_mbps();
    let rest = MLX5.iter().map(|knob| face.check(host, knob, host.profile.knob(knob, line)));
    rest.chain(own).collect()
}

fn mlx5_vendor(host: &Host<'_>, device: &Device) -> Vec<Finding> {
    let interface = device.interface.as_deref().unwrap_or_default();
    let folder = format!("/sys/class/net/{interface}/ecn");
    let priority = host.profile.traffic.priority;
    let mut found: Vec<Finding> = [
        ("reaction", "roce_rp", "a sender that slows down when told to"),
        ("notification", "roce_np", "a receiver that tells its sender about marks"),
    ]
    .into_iter()
    .map(|(id, role, why)| {
        let check = new(id, &format!("{role} on priority {priority}"), "on (1)", why);
        let path = format!("{folder}/{role}/enable/{priority}");
        match host.root.value(&path).as_deref() {
            Ok("1") => check.ok("1"),
            Ok("0") => check.fail("0", vec![Step::write(why, &path, 1)]),
            Ok(other) => check.unreadable(&path, other),
            Err(gap) => check.unknown(gap.reason("this driver has no such file")),
        }
    })
    .collect();
    found.extend(mlx5_settings(host, &Face::Vendor { folder, apply: None }));
    found
}

fn mlx5_in_tree(host: &Host<'_>, device: &Device) -> Vec<Finding> {
    let Some(address) = &device.pci_address else {
        return vec![unseen("the device does not tell its PCI address".to_owned())];
    };
    // The second function of a card is its second port.
    let port = if address.ends_with(".1") { 2 } else { 1 };
    let firmware = Firmware::ask(host, address);
    let mut found = vec![enabled(host, port, &firmware)];
    let folder = format!("/sys/kernel/debug/mlx5/{address}/cc_params");
    match (host.root.list(&folder), &firmware) {
        (Ok(_), _) => found.extend(mlx5_settings(host, &Face::Debugfs { folder })),
        (Err(_), Ok(firmware)) => {
            found.extend(mlx5_settings(host, &Face::Firmware { firmware, port }));
        }
        (Err(gap), Err(reason)) => found.push(unseen(debugfs_reason(&gap, reason))),
    }
    found
}

fn debugfs_reason(gap: &Gap, tool: &str) -> String {
    let absence = "the vendor's files are absent, as with every in-tree driver, and debugfs is \
                   not mounted or has nothing of this device";
    format!("{}; {tool}", gap.reason(absence))
}

/// The in-tree driver shows nowhere for which priorities it is on; the firmware's tool does.
fn enabled(host: &Host<'_>, port: u8, firmware: &Result<Firmware, String>) -> Finding {
    let priority = host.profile.traffic.priority;
    let name = format!("ROCE_CC_PRIO_MASK_P{port}");
    let why = "both ends need it: the sender slows down, the receiver tells about marks";
    let title = "priorities with congestion control";
    let check = new("priorities", title, format!("{priority} among them"), why);
    let firmware = match firmware {
        Ok(firmware) => firmware,
        Err(reason) => {
            return check.unknown(format!("the in-tree driver does not show it, and {reason}"));
        }
    };
    let text = match firmware.value(&name) {
        Ok(text) => text,
        Err(reason) => return check.unknown(reason),
    };
    let Some(mask) = number(&text).filter(|mask| *mask <= 255) else {
        return check.unreadable(&name, &text);
    };
    let seen: Vec<String> =
        (0..8).filter(|bit| mask >> bit & 1 == 1).map(|bit: u8| bit.to_string()).collect();
    let seen = if seen.is_empty() { "none".to_owned() } else { seen.join(", ") };
    let good = mask >> priority & 1 == 1;
    check.fail_unless(good, seen, || {
        let command = firmware.setting(&name, mask | 1 << priority);
        let address = &firmware.address;
        let reset = format!("mlxfwreset -d {address} reset (the link goes down for seconds)");
        vec![
            Step::run("turns it on for the data's priority", &command),
            Step::by_hand("in force after a reset of the card", reset),
        ]
    })
}

fn bnxt_re(host: &Host<'_>, device: &Device) -> Vec<Finding> {
    let address = device.pci_address.as_deref().unwrap_or_default();
    let debugfs = format!("/sys/kernel/debug/bnxt_re/{address}/cc_config");
    let configfs = format!("/sys/kernel/config/bnxt_re/{}/ports/1/cc", device.name);
    let face = match (host.root.list(&configfs), host.root.list(&debugfs)) {
        (Ok(_), _) => Face::Vendor { folder: configfs, apply: Some("apply") },
        (_, Ok(_)) => Face::Debugfs { folder: debugfs },
        (Err(_), Err(gap)) => {
            let absence = "this kernel's bnxt_re shows no settings, and those of the vendor's \
                           driver are shown only once somebody has made its folder";
            let reason = gap.reason(absence);
            let mut finding = unseen(reason);
            let folder = format!("/sys/kernel/config/bnxt_re/{}", device.name);
            let text = format!("mkdir {folder} (vendor's driver), then run this again");
            finding.fix.push(Step::by_hand("shows the settings", text));
            return vec![finding];
        }
    };
    let line = host.line_mbps();
    let fixed = |value: u8| Some(Wanted::is(u64::from(value), Status::Warn));
    let traffic = host.profile.traffic;
    let own = [(&BNXT_RE_DSCP, traffic.dscp), (&BNXT_RE_CNP_DSCP, traffic.cnp_dscp)];
    let own = own.map(|(knob, value)| face.check(host, knob, fixed(value)));
    let rest = BNXT_RE.iter().map(|knob| face.check(host, knob, host.profile.knob(knob, line)));
    rest.chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_firmwares_tool_writes_words_and_numbers() {
        let printed = "Configurations:              Next Boot\n\
                       \x20        RPG_MIN_RATE_P1             1\n\
                       *        CLAMP_TGT_RATE_P1           False(0)\n\
                       \x20        CNP_DSCP_P1\n";
        let (tool, address) = ("mlxconfig", "0000:3b:00.0".to_owned());
        let firmware = Firmware { tool, address, printed: printed.to_owned() };
        assert_eq!(firmware.value("RPG_MIN_RATE_P1").as_deref(), Ok("1"));
        assert_eq!(firmware.value("CLAMP_TGT_RATE_P1").as_deref(), Ok("0"));
        for missing in ["RPG_MIN_RATE_P2", "CNP_DSCP_P1"] {
            assert!(firmware.value(missing).unwrap_err().contains(missing));
        }
    }

    #[test]
    fn a_value_out_of_the_hardwares_range_is_never_written() {
        let every = MLX5.iter().chain(&BNXT_RE);
        for knob in every.chain([&MLX5_CNP_DSCP, &MLX5_CNP_PRIORITY, &BNXT_RE_DSCP]) {
            assert!(!knob.takes(u64::MAX, Some(100_000)), "{}", knob.name);
            assert!(knob.takes(knob.range.0, None), "{}", knob.name);
            assert!(knob.range.0 == 0 || !knob.takes(knob.range.0 - 1, None), "{}", knob.name);
        }
        let rate = MLX5.iter().find(|knob| knob.name == "rpg_min_rate").unwrap();
        assert!(rate.takes(1700, Some(10_000)) && !rate.takes(1700, Some(1_000)));
        assert!(!rate.takes(1700, None), "nobody knows whether the link has that rate");
        let first = MLX5.iter().find(|knob| knob.name == "rate_to_set_on_first_cnp").unwrap();
        assert!(first.takes(8_500, Some(10_000)) && !first.takes(8_501, Some(10_000)));
    }
}
