//! Congestion control of the NIC. ConnectX shows it through one of three faces, NetXtreme through
//! one of two.

use super::finding::{Check, Finding, Section, Status, Step};
use super::firmware::{Firmware, Judged, Reading, number};
use super::host::{Device, Driver, Host};
use super::knobs::{
    BNXT_RE, BNXT_RE_CNP_DSCP, BNXT_RE_CNP_PRIORITY, BNXT_RE_DSCP, BNXT_RE_PRIORITY, Knob, MLX5,
    MLX5_CNP_DSCP, MLX5_CNP_PRIORITY,
};
use super::profile::Wanted;
use super::root::Gap;

pub(super) fn check(host: &Host<'_>) -> Vec<Finding> {
    let Some(device) = &host.device else { return Vec::new() };
    match &device.driver {
        Driver::Mlx5Vendor => host.on_each_port(|port| mlx5_vendor(host, device, port)),
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

    fn read(&self, host: &Host<'_>, knob: &Knob) -> Result<Reading, String> {
        let place = self.place(knob);
        if let Self::Firmware { firmware, .. } = self {
            return firmware.read(&place);
        }
        let text = host.root.value(&place);
        let text = text.map_err(|gap| gap.reason("this driver has no such file"))?;
        number(&text).map(Reading::in_force).ok_or_else(|| not_understood(&place, &text))
    }

    fn set(&self, knob: &Knob, value: u64) -> Vec<Step> {
        let place = self.place(knob);
        match self {
            Self::Vendor { folder, apply: Some(apply) } => {
                let (apply, value) = (format!("{folder}/{apply}"), digits(value));
                let command = format!("echo {value} > {place}; echo 1 > {apply}");
                let files = vec![(place, value), (apply, "1".to_owned())];
                vec![Step::writes(knob.why, command, files)]
            }
            Self::Vendor { .. } | Self::Debugfs { .. } => {
                vec![Step::write(knob.why, &place, value)]
            }
            Self::Firmware { firmware, .. } => firmware.setting(knob.why, &place, value),
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
        let reading = match self.read(host, knob) {
            Ok(reading) => reading,
            Err(reason) => return check.unknown(reason),
        };
        let fix = if knob.takes(wanted.set, line) {
            self.set(knob, wanted.set)
        } else {
            let text = format!(
                "{} is beyond what a link takes whose rate is {}: change the profile",
                wanted.set,
                line.map_or_else(|| "not known".to_owned(), |mbps| format!("{mbps} Mb/s")),
            );
            vec![Step::by_hand("out of range", text)]
        };
        let good = |seen| wanted.accepts(seen);
        let otherwise = wanted.otherwise;
        reading.judge(check, Judged { good: &good, show: &|seen| seen.to_string(), otherwise, fix })
    }
}

fn not_understood(place: &str, text: &str) -> String {
    format!("{place} reads {:?}, which is not understood", super::finding::excerpt(text))
}

/// A number for the configfs of bnxt_re. Some versions take every number for hexadecimal, others
/// take 0x for that: one digit means the same to all.
fn digits(value: u64) -> String {
    if value < 8 { value.to_string() } else { format!("{value:#x}") }
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

fn mlx5_vendor(host: &Host<'_>, device: &Device, port: &str) -> Vec<Finding> {
    let folder = format!("/sys/class/net/{port}/ecn");
    let mut found: Vec<Finding> = [
        ["reaction", "roce_rp", "a sender that slows down when told to"],
        ["notification", "roce_np", "a receiver that tells its sender about marks"],
    ]
    .into_iter()
    .map(|role| role_of(host, device, &folder, role))
    .collect();
    found.extend(mlx5_settings(host, &Face::Vendor { folder, apply: None }));
    found
}

/// Whether one end's part is on for the data's priority and, where the card needs that, for all.
fn role_of(host: &Host<'_>, device: &Device, folder: &str, role: [&str; 3]) -> Finding {
    let [id, name, why] = role;
    let (priority, together) = (host.profile.traffic.priority, is_one_for_all(device));
    let wanted = if together { "on (1), on all eight alike" } else { "on (1)" };
    let check = new(id, &format!("{name} on priority {priority}"), wanted, why);
    let path = |priority: u8| format!("{folder}/{name}/enable/{priority}");
    let is_on = |priority: u8| match host.root.value(&path(priority)).as_deref() {
        Ok("1") => Ok(true),
        Ok("0") => Ok(false),
        Ok(other) => Err(not_understood(&path(priority), other)),
        Err(gap) => Err(gap.reason("this driver has no such file")),
    };
    let needed = if together { 0..8 } else { priority..priority + 1 };
    let states: Result<Vec<(u8, bool)>, String> =
        needed.clone().map(|priority| Ok((priority, is_on(priority)?))).collect();
    let states = match states {
        Ok(states) => states,
        Err(reason) => return check.unknown(reason),
    };
    let fix = match together {
        false => Step::write(why, &path(priority), 1),
        true => {
            let command = format!("for p in 0 1 2 3 4 5 6 7; do echo 1 > {}; done", path(0));
            let command = command.replace("/enable/0", "/enable/$p");
            Step::writes(ALIKE, command, needed.map(|p| (path(p), "1".to_owned())).collect())
        }
    };
    let off: Vec<String> =
        states.iter().filter(|(_, on)| !on).map(|(priority, _)| priority.to_string()).collect();
    match states.contains(&(priority, true)) {
        true if off.is_empty() => check.ok("1"),
        true => check.warn(format!("1, but off on {}", off.join(", ")), vec![fix]),
        false => check.fail("0", vec![fix]),
    }
}

const ALIKE: &str = "this firmware knows one setting for the whole card: all priorities alike";

/// From 28.45 on the firmware of ConnectX-7, which is 28, applies congestion control to the whole
/// card and asks that all priorities be set alike.
fn is_one_for_all(device: &Device) -> bool {
    let version = device.firmware.as_deref().unwrap_or_default();
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    numbers.next() == Some(Some(28)) && numbers.next().flatten().is_some_and(|minor| minor >= 45)
}

fn mlx5_in_tree(host: &Host<'_>, device: &Device) -> Vec<Finding> {
    let Some(address) = &device.pci_address else {
        return vec![unseen("the device does not tell its PCI address".to_owned())];
    };
    // The second function of a card is its second port.
    let port = if address.ends_with(".1") { 2 } else { 1 };
    let firmware = Firmware::ask(host, address);
    let mut found = vec![enabled(host, device, port, &firmware)];
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
fn enabled(
    host: &Host<'_>,
    device: &Device,
    port: u8,
    firmware: &Result<Firmware, String>,
) -> Finding {
    let (priority, together) = (host.profile.traffic.priority, is_one_for_all(device));
    let name = format!("ROCE_CC_PRIO_MASK_P{port}");
    let why = "both ends need it: the sender slows down, the receiver tells about marks";
    let title = "priorities with congestion control";
    let wanted =
        if together { "all eight alike".to_owned() } else { format!("{priority} among them") };
    let check = new("priorities", title, wanted, why);
    let firmware = match firmware {
        Ok(firmware) => firmware,
        Err(reason) => {
            return check.unknown(format!("the in-tree driver does not show it, and {reason}"));
        }
    };
    let reading = match firmware.read(&name) {
        Ok(reading) if reading.known() <= ALL_PRIORITIES => reading,
        Ok(_) => return check.unknown(format!("{name} is no mask of eight priorities")),
        Err(reason) => return check.unknown(reason),
    };
    let has = |mask: u64| mask >> priority & 1 == 1;
    let good = |mask| if together { mask == ALL_PRIORITIES } else { has(mask) };
    let (what, mask) = match together {
        true => (ALIKE, ALL_PRIORITIES),
        false => ("turns it on for the data's priority", reading.known() | 1 << priority),
    };
    // On for the data, though not for all: it works until the firmware chooses the others' state.
    let otherwise = if has(reading.known()) { Status::Warn } else { Status::Fail };
    let fix = firmware.setting(what, &name, mask);
    reading.judge(check, Judged { good: &good, show: &list_of_bits, otherwise, fix })
}

/// The mask of all eight.
const ALL_PRIORITIES: u64 = 255;

fn list_of_bits(mask: u64) -> String {
    let bits: Vec<String> =
        (0..8).filter(|bit| mask >> bit & 1 == 1).map(|bit: u8| bit.to_string()).collect();
    if bits.is_empty() { "none".to_owned() } else { bits.join(", ") }
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
    let mut own = vec![(&BNXT_RE_DSCP, traffic.dscp), (&BNXT_RE_CNP_DSCP, traffic.cnp_dscp)];
    // The in-tree driver has no file for these.
    if matches!(face, Face::Vendor { .. }) {
        own.push((&BNXT_RE_PRIORITY, traffic.priority));
        own.push((&BNXT_RE_CNP_PRIORITY, traffic.cnp_priority));
    }
    let own = own.into_iter().map(|(knob, value)| face.check(host, knob, fixed(value)));
    let rest = BNXT_RE.iter().map(|knob| face.check(host, knob, host.profile.knob(knob, line)));
    rest.chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connectx_7_from_28_45_on_has_one_setting_for_all() {
        let of = |version: &str| {
            let (name, firmware) = ("mlx5_0".to_owned(), Some(version.to_owned()));
            let (interface, pci_address) = (None, None);
            is_one_for_all(&Device { name, driver: Driver::Mlx5, interface, pci_address, firmware })
        };
        for version in ["28.45.1020", "28.46.1006", "28.100.1"] {
            assert!(of(version), "{version}");
        }
        for version in ["28.44.9999", "22.45.1020", "27.46.1", "29.45.1", "28", "", "28.x.45"] {
            assert!(!of(version), "{version}");
        }
    }

    #[test]
    fn numbers_for_the_configfs_mean_the_same_in_every_base() {
        assert_eq!([0, 1, 7, 8, 26, 48].map(digits), ["0", "1", "7", "0x8", "0x1a", "0x30"]);
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
