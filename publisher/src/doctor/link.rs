//! The network interface.

use super::finding::{Check, Finding, Section, Step};
use super::host::{Driver, Host};

pub(super) fn check(host: &Host<'_>) -> Vec<Finding> {
    let Some(interface) = &host.interface else { return Vec::new() };
    let mut found = vec![state(host, interface), mtu(host, interface)];
    // Software has no pause frames.
    if host.driver() != Some(&Driver::Rxe) {
        found.extend(host.on_each_port(|port| vec![global_pause(host, port)]));
    }
    found
}

fn new(id: &str, title: &str, wanted: impl std::fmt::Display, why: &str) -> Check {
    Check::new(Section::Link, format!("link.{id}"), title, wanted, why)
}

fn state(host: &Host<'_>, interface: &str) -> Finding {
    let check = new("state", "interface", "up", "nothing goes through an interface that is down");
    let path = format!("/sys/class/net/{interface}/operstate");
    match host.root.value(&path).as_deref() {
        // Those that do not know are virtual, and up.
        Ok(state @ ("up" | "unknown")) => check.ok(format!("{interface} {state}")),
        Ok(state) if super::root::is_plain(state) => check.fail(
            format!("{interface} {state}"),
            vec![
                Step::run("brings the interface up", &format!("ip link set dev {interface} up")),
                Step::by_hand("if it stays down", "look at cable, module and the switch's port"),
            ],
        ),
        Ok(other) => check.unreadable(&path, other),
        Err(gap) => check.unknown(gap.reason("the interface does not tell")),
    }
}

const RDMA_MTU: u64 = 4096;
/// What the kernel takes off an interface's MTU for headers.
const HEADERS: u64 = 96;
/// What Soft-RoCE takes off.
const RXE_HEADERS: u64 = 80;

fn mtu(host: &Host<'_>, interface: &str) -> Finding {
    let mut wanted = host.profile.mtu();
    // A profile that asks for more than a packet of 4096 bytes means it.
    if host.driver() == Some(&Driver::Rxe) && wanted.from == RDMA_MTU + HEADERS {
        wanted.from = RDMA_MTU + RXE_HEADERS;
    }
    let why = "the RDMA MTU of 4096 needs it, else a 4 KB snapshot is cut into packets of 1024";
    let check = new("mtu", "MTU", &wanted, why);
    let path = format!("/sys/class/net/{interface}/mtu");
    let text = match host.root.value(&path) {
        Ok(text) => text,
        Err(gap) => return check.unknown(gap.reason("the interface does not tell")),
    };
    let Ok(seen) = text.parse::<u64>() else { return check.unreadable(&path, &text) };
    check.warn_unless(wanted.accepts(seen), seen, || {
        let command = format!("ip link set dev {interface} mtu {}", wanted.set);
        let what = "room for RDMA packets of 4096 bytes; the switch and the other end need it, too";
        vec![Step::writes(what, command, vec![(path, wanted.set.to_string())])]
    })
}

fn global_pause(host: &Host<'_>, interface: &str) -> Finding {
    let why = "it stops every priority at once, and excludes pauses by priority";
    let check = new("global_pause", "global pause frames", "off", why);
    let text = match host.tools().ask(&format!("ethtool -a {interface}")) {
        Ok(text) => text,
        Err(reason) => return check.unknown(reason),
    };
    let way = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    let (Some(rx), Some(tx)) = (way("RX"), way("TX")) else {
        return check.unreadable(&format!("the output of `ethtool -a {interface}`"), &text);
    };
    let seen = format!("rx {rx}, tx {tx}");
    check.warn_unless(rx == "off" && tx == "off", seen, || {
        let command = format!("ethtool -A {interface} rx off tx off");
        vec![Step::run("no pause of everything", &command)]
    })
}
