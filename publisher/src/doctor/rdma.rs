//! The RDMA device: its port, its addresses, how it marks what it sends.

use super::finding::{Check, Finding, Section, Step};
use super::host::{Device, Driver, Host};
use super::root::Gap;
use crate::config::RdmaConfig;

/// A port has at most so many addresses.
const GIDS_MAX: usize = 1024;

pub(super) fn check(host: &Host<'_>) -> Vec<Finding> {
    let mut found = vec![present(host)];
    if let Some(device) = &host.device {
        found.extend([state(host, device), cable(host, device), layer(host, device)]);
        found.push(address(host, device));
        found.push(marking(host));
        found.extend(overriding(host, device));
        found.extend(connections(host, device));
        found.extend(mode(host, device));
    }
    found
}

fn new(id: &str, title: &str, wanted: impl std::fmt::Display, why: &str) -> Check {
    Check::new(Section::Rdma, format!("rdma.{id}"), title, wanted, why)
}

fn present(host: &Host<'_>) -> Finding {
    let why = "without one, subscribers attach on this host alone, through shared memory";
    let check = new("device", "RDMA device", "a NIC, or fabric.kind = \"shm\"", why);
    match (&host.device, &host.device_gap) {
        (_, Some(gap)) => check.unknown(gap.reason("no classes of devices are shown")),
        (None, None) if host.others.is_empty() => check.ok("none: fabric \"shm\" only"),
        (None, None) => {
            let interface = host.interface.as_deref().unwrap_or("that interface");
            let others = host.others.join(", ");
            check.warn(
                format!("none on {interface}; there are: {others}"),
                vec![Step::by_hand("looks at one of them", "name it with --device NAME")],
            )
        }
        (Some(device), None) => match &device.driver {
            Driver::Rxe => check.warn(
                format!("{}, software: fine for tests only", device.name),
                vec![Step::by_hand(
                    "Soft-RoCE costs a hundred times the latency, and a core",
                    "use a NIC with RDMA for anything but tests",
                )],
            ),
            driver => check.ok(format!("{} ({})", device.name, driver.describe())),
        },
    }
}

fn state(host: &Host<'_>, device: &Device) -> Finding {
    let why = "queue pairs cannot send through a port that is not active";
    let check = new("port_state", "port", "ACTIVE", why);
    let path = device.file("ports/1/state");
    match host.root.value(&path) {
        Err(gap) => check.unknown(gap.reason("the device has no first port")),
        Ok(text) => match text.split_once(": ") {
            Some((_, "ACTIVE")) => check.ok("ACTIVE"),
            Some((_, word)) if super::root::is_plain(word) => {
                let command = match &host.interface {
                    Some(interface) => format!("ip link set dev {interface} up"),
                    None => "bring the device's interface up".to_owned(),
                };
                let what = "the port follows its network interface";
                check.fail(
                    word,
                    match &host.interface {
                        Some(_) => vec![Step::run(what, &command)],
                        None => vec![Step::by_hand(what, command)],
                    },
                )
            }
            _ => check.unreadable(&path, &text),
        },
    }
}

/// What the port makes of its cable.
fn cable(host: &Host<'_>, device: &Device) -> Finding {
    let why = "without a link at the other end the port cannot become active";
    let check = new("phys_state", "link of the port", "LinkUp", why);
    let path = device.file("ports/1/phys_state");
    match host.root.value(&path) {
        Err(gap) => check.unknown(gap.reason("the device has no first port")),
        Ok(text) => match text.split_once(": ") {
            Some((_, "LinkUp")) => check.ok("LinkUp"),
            Some((_, word)) if super::root::is_plain(word) => check.fail(
                word,
                vec![Step::by_hand("no link", "look at cable, module and the switch's port")],
            ),
            _ => check.unreadable(&path, &text),
        },
    }
}

fn layer(host: &Host<'_>, device: &Device) -> Finding {
    let why = "the fabric \"verbs\" speaks RoCE v2, which is Ethernet";
    let check = new("link_layer", "link layer", "Ethernet", why);
    let path = device.file("ports/1/link_layer");
    match host.root.value(&path) {
        Err(gap) => check.unknown(gap.reason("the device has no first port")),
        Ok(text) if text == "Ethernet" => check.ok(text),
        Ok(text) if super::root::is_plain(&text) => {
            let address = device.pci_address.as_deref().unwrap_or("BDF");
            let text_for_hand = format!("mlxconfig -d {address} set LINK_TYPE_P1=2, then restart");
            check.fail(text, vec![Step::by_hand("turns the port to Ethernet", text_for_hand)])
        }
        Ok(text) => check.unreadable(&path, &text),
    }
}

/// What the port's table of addresses holds.
#[derive(Default)]
struct Addresses {
    /// Indices of RoCE v2 that others can reach.
    routed: Vec<String>,
    /// Whether there are some of RoCE v2 for this link alone.
    local: bool,
    /// Whether there are some of another type.
    other: bool,
}

fn addresses(host: &Host<'_>, device: &Device) -> Result<Addresses, Gap> {
    let kinds = device.file("ports/1/gid_attrs/types");
    let mut found = Addresses::default();
    for index in host.root.list(&kinds)?.into_iter().take(GIDS_MAX) {
        match host.root.value(&format!("{kinds}/{index}")).as_deref() {
            Ok("RoCE v2") => {
                let gid = host.root.value(&device.file(&format!("ports/1/gids/{index}")));
                if gid.unwrap_or_default().starts_with("fe80:") {
                    found.local = true;
                } else {
                    found.routed.push(index);
                }
            }
            Ok(_) => found.other = true,
            Err(Gap::Denied(path)) => return Err(Gap::Denied(path.clone())),
            // An entry that is not in use reads as an error.
            Err(_) => {}
        }
    }
    Ok(found)
}

/// An address of type RoCE v2.
fn address(host: &Host<'_>, device: &Device) -> Finding {
    let why = "RoCE v1 does not cross a router and has no DSCP";
    let check = new("gid", "address (GID) of type RoCE v2", "one of an IP address", why);
    let found = match addresses(host, device) {
        Ok(found) => found,
        Err(gap) => return check.unknown(gap.reason("the port has no table of addresses")),
    };
    let seen = match (&found.routed[..], found.local, found.other) {
        ([_, ..], ..) => format!("at {}", found.routed.join(", ")),
        ([], true, _) => "only link-local ones".to_owned(),
        ([], false, true) => "only of another type".to_owned(),
        ([], false, false) => "none".to_owned(),
    };
    check.fail_unless(!found.routed.is_empty(), seen, || {
        let interface = host.interface.as_deref().unwrap_or("IF");
        let text = format!("give the interface an address: ip address add ADDRESS dev {interface}");
        vec![Step::by_hand("the device makes one for each address of its interface", text)]
    })
}

const ECT_WHY: &str = "without ECN bits a switch drops instead of marking, and DCQCN is deaf";

/// Where a packaged publisher has its configuration.
const CONFIGURATION: &str = "/etc/tapecast/publisher.toml";

/// The publisher's traffic class, and where it says so.
fn traffic_class(host: &Host<'_>) -> Result<(i64, &'static str), String> {
    let usual = i64::try_from(RdmaConfig::default().traffic_class.get()).unwrap_or_default();
    let text = match host.root.read(CONFIGURATION) {
        Ok(text) => text,
        Err(gap) if gap.is_absent() => return Ok((usual, "the publisher's default")),
        Err(gap) => return Err(gap.reason("")),
    };
    let table: Result<toml::Table, _> = text.parse();
    let table = table.map_err(|_| format!("{CONFIGURATION} is not TOML"))?;
    match table.get("rdma").and_then(|rdma| rdma.get("traffic_class")) {
        None => Ok((usual, "the publisher's default")),
        Some(value) => match value.as_integer() {
            Some(class @ 0..=255) => Ok((class, CONFIGURATION)),
            _ => Err(format!("{CONFIGURATION}: rdma.traffic_class is not 0 to 255")),
        },
    }
}

/// What the publisher marks its packets with.
fn marking(host: &Host<'_>) -> Finding {
    let wanted = host.profile.traffic.class();
    let check = new("traffic_class", "traffic class of the publisher", wanted, ECT_WHY);
    let (class, origin) = match traffic_class(host) {
        Ok(found) => found,
        Err(reason) => return check.unknown(reason),
    };
    let fix = || {
        let text = format!("set rdma.traffic_class = {wanted} in publisher.toml, or --set");
        vec![Step::by_hand("marks packets as the profile says", text)]
    };
    match class {
        class if class == i64::from(wanted) && matches!(class & 3, 1 | 2) => {
            check.ok(format!("{class}, {origin}"))
        }
        class if matches!(class & 3, 1 | 2) => check.warn(format!("{class}, {origin}"), fix()),
        class => check.fail(format!("{class}, {origin}: its ECN bits are {}", class & 3), fix()),
    }
}

/// The vendor's driver can force one class on every queue pair.
fn overriding(host: &Host<'_>, device: &Device) -> Option<Finding> {
    if device.driver != Driver::Mlx5Vendor {
        return None;
    }
    let class = host.profile.traffic.class();
    let why = "the vendor's driver puts it in place of what the publisher asks for";
    let check = new("forced_class", "traffic class forced on all", class, why);
    let path = device.file("tc/1/traffic_class");
    let text = match host.root.value(&path) {
        Ok(text) => text,
        Err(gap) => return Some(check.unknown(gap.reason("this driver cannot force one"))),
    };
    if text.is_empty() {
        return Some(check.ok("none: each queue pair has its own"));
    }
    let first = text.lines().next().unwrap_or_default();
    let number = first.strip_prefix("Global tclass=").unwrap_or(first);
    let Ok(seen) = number.parse::<u8>() else { return Some(check.unreadable(&path, &text)) };
    let fix = || vec![Step::write("marks everything as the profile says", &path, class)];
    Some(match seen {
        seen if seen == class => check.ok(seen),
        // Another class that can be marked works with a switch that knows it.
        seen if matches!(seen & 3, 1 | 2) => check.warn(seen, fix()),
        seen => check.fail(format!("{seen}: its ECN bits are {}", seen & 3), fix()),
    })
}

/// The class that connections made by rdma_cm get; tapecast's own do not ask for it.
fn connections(host: &Host<'_>, device: &Device) -> Option<Finding> {
    let path = format!("/sys/kernel/config/rdma_cm/{}/ports/1/default_roce_tos", device.name);
    // There only for as long as somebody has made the folder.
    let text = host.root.value(&path).ok()?;
    let class = host.profile.traffic.class();
    let why = "perftest -R and storage on the same port use it";
    let check = new("default_tos", "traffic class of rdma_cm", class, why);
    Some(match text.parse::<u8>() {
        Err(_) => check.unreadable(&path, &text),
        Ok(seen) => check.warn_unless(seen == class, seen, || {
            vec![Step::write("marks what rdma_cm connects", &path, class)]
        }),
    })
}

/// The type of address that connections made by rdma_cm get.
fn mode(host: &Host<'_>, device: &Device) -> Option<Finding> {
    let path = format!("/sys/kernel/config/rdma_cm/{}/ports/1/default_roce_mode", device.name);
    // There only for as long as somebody has made the folder.
    let text = host.root.value(&path).ok()?;
    let why = "perftest -R and storage on the same port use it";
    let check = new("default_mode", "RoCE version of rdma_cm", "RoCE v2", why);
    Some(match text.as_str() {
        "RoCE v2" => check.ok(text),
        "IB/RoCE v1" => check.warn(
            text,
            vec![Step::write("connects over RoCE v2, which has a DSCP", &path, "RoCE v2")],
        ),
        _ => check.unreadable(&path, &text),
    })
}
