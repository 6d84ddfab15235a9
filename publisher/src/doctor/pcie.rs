//! The adapter's slot: how fast it is, and which memory it is near.

use super::finding::{Check, Finding, NOT_IN_KERNEL, Section, Step};
use super::host::{Device, Host, cpus_in};
use super::root::Gap;

pub(super) fn check(host: &Host<'_>) -> Vec<Finding> {
    let Some(device) = host.device.as_ref().filter(|device| device.is_card()) else {
        return Vec::new();
    };
    vec![
        speed(host, device),
        width(host, device),
        power_saving(host),
        sleeps(host, device),
        translation(host, device),
        node(host, device),
        errors(host, device),
    ]
}

fn new(id: &str, title: &str, wanted: impl std::fmt::Display, why: &str) -> Check {
    Check::new(Section::Pcie, format!("pcie.{id}"), title, wanted, why)
}

const RESEAT: &str = "look at dmesg, reseat the card, try another slot; a slot of the board may be \
                      wired or set up for less";

/// A figure of the link and the most that it could be, as one leading number each.
fn compared(host: &Host<'_>, device: &Device, check: [&str; 3], file: &str) -> Finding {
    let [id, title, why] = check;
    let read = |which: &str| {
        let path = device.file(&format!("device/{which}_link_{file}"));
        host.root.value(&path).map(|text| (path, text))
    };
    let unknown = |wanted: &str| new(id, title, wanted, why);
    let (max_path, most) = match read("max") {
        Ok(found) => found,
        Err(gap) => {
            return unknown("the most it can").unknown(gap.reason("the slot does not tell"));
        }
    };
    let Some(top) = leading(&most) else {
        return unknown("the most it can").unreadable(&max_path, &most);
    };
    let check = unknown(&super::finding::excerpt(&most));
    let (path, now) = match read("current") {
        Ok(found) => found,
        Err(gap) => return check.unknown(gap.reason("the slot does not tell")),
    };
    match leading(&now) {
        None => check.unreadable(&path, &now),
        Some(seen) => check.warn_unless(seen >= top, super::finding::excerpt(&now), || {
            vec![Step::by_hand("the slot gives less than the card can take", RESEAT)]
        }),
    }
}

/// `16.0 GT/s PCIe` is 16, `x16` is not written so: widths are plain numbers.
fn leading(text: &str) -> Option<f64> {
    let number = text.split_whitespace().next()?;
    number.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0)
}

fn speed(host: &Host<'_>, device: &Device) -> Finding {
    let why = "the NIC fetches every snapshot through it; a slower slot than the line is the limit";
    compared(host, device, ["link_speed", "speed of the slot", why], "speed")
}

fn width(host: &Host<'_>, device: &Device) -> Finding {
    let why = "half the lanes are half the bytes per second";
    compared(host, device, ["link_width", "lanes of the slot", why], "width")
}

fn power_saving(host: &Host<'_>) -> Finding {
    let why = "a link that has gone to sleep takes microseconds to wake";
    let check = new("aspm", "power saving of links", "performance", why);
    let path = "/sys/module/pcie_aspm/parameters/policy";
    let text = match host.root.value(path) {
        Ok(text) => text,
        Err(gap) if host.root.lacks(&gap, "/sys/module") => return check.ok(NOT_IN_KERNEL),
        Err(gap) => return check.unknown(gap.reason("nothing of its modules is shown")),
    };
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let word = inside.map_or(text.as_str(), |(word, _)| word);
    if !super::root::is_plain(word) {
        return check.unreadable(path, &text);
    }
    check.warn_unless(word == "performance", word, || {
        vec![Step::write("keeps links awake", path, "performance")]
    })
}

/// The card's own link, whatever the policy for all of them is.
fn sleeps(host: &Host<'_>, device: &Device) -> Finding {
    let why = "a link that has gone to sleep takes microseconds to wake";
    let check = new("l1_aspm", "sleep (L1) of the card's link", "off (0)", why);
    let path = device.file("device/link/l1_aspm");
    let lacks = |gap: &Gap, at: &str| host.root.lacks(gap, &device.file(at));
    match host.root.value(&path).as_deref() {
        Ok("0") => check.ok("0"),
        Ok("1") => check.warn("1", vec![Step::write("keeps the card's link awake", &path, 0)]),
        Ok(other) => check.unreadable(&path, other),
        // There only where the kernel can let this link sleep.
        Err(gap) if ["device", "device/link"].iter().any(|at| lacks(gap, at)) => {
            check.ok(NOT_IN_KERNEL)
        }
        Err(gap) => check.unknown(gap.reason("the slot does not tell")),
    }
}

fn translation(host: &Host<'_>, device: &Device) -> Finding {
    let why = "translating every address costs the NIC's fetches time and a cache";
    let check = new("iommu", "IOMMU for the device", "off or identity (iommu=pt)", why);
    match host.root.value(&device.file("device/iommu_group/type")).as_deref() {
        Ok("identity") => check.ok("identity"),
        Ok(kind) if super::root::is_plain(kind) => check.warn(
            kind,
            vec![Step::by_hand(
                "lets the device use addresses as they are",
                "add iommu=pt to GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub, restart",
            )],
        ),
        Ok(other) => check.unreadable("the type of its IOMMU group", other),
        // A device without a group has no link to one, not even one that leads nowhere.
        Err(gap) => match host.root.list(&device.file("device")) {
            Ok(names) if gap.is_absent() && !names.iter().any(|name| name == "iommu_group") => {
                check.ok("off")
            }
            Ok(_) => check.unknown(gap.reason("the device has an IOMMU group of no known type")),
            Err(gap) => check.unknown(gap.reason("the slot does not tell")),
        },
    }
}

fn node(host: &Host<'_>, device: &Device) -> Finding {
    let why = "memory and doorbells of another node cost 100 ns and more each";
    let path = device.file("device/local_cpulist");
    let title = "hot CPUs near the device";
    let local = match cpus_in(host.root, &path) {
        Ok(local) => local,
        Err(reason) => return new("numa", title, "on its node", why).unknown(reason),
    };
    let check = new("numa", title, format!("among CPUs {local}"), why);
    if host.hot.is_empty() {
        return check.unknown("no CPU is known as hot: name them with --cpus");
    }
    let far = host.hot.without(&local);
    let number = host.root.value(&device.file("device/numa_node")).unwrap_or_default();
    let seen = match far.is_empty() {
        true => format!("CPUs {}", host.hot),
        false => format!("CPUs {far} are on another node"),
    };
    check.warn_unless(far.is_empty(), seen, || {
        // Without the policy systemd takes no notice of the mask. A slot may be near no node: -1.
        let unit = number.parse::<u16>().map_or_else(
            |_| String::new(),
            |node| format!("; in its unit NUMAPolicy=bind and NUMAMask={node} (drop-in numa.conf)"),
        );
        let text = format!("set sender.cpu of the publisher to one of {local}{unit}");
        vec![Step::by_hand("puts sender and NIC on one node", text)]
    })
}

/// Errors that the device has reported: the last line of each file is their sum.
fn errors(host: &Host<'_>, device: &Device) -> Finding {
    let why = "each corrected error is a packet that was sent twice; others stop the device";
    let check = new("errors", "errors of the link", 0, why);
    let mut sums = Vec::new();
    for kind in ["correctable", "nonfatal", "fatal"] {
        let path = device.file(&format!("device/aer_dev_{kind}"));
        let text = match host.root.read(&path) {
            Ok(text) => text,
            Err(gap) => {
                let absence = "the slot or the kernel reports no errors";
                return check.unknown(gap.reason(absence));
            }
        };
        let total = text.lines().rev().find(|line| line.starts_with("TOTAL_ERR"));
        let count = total.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        let Some(count) = count else { return check.unreadable(&path, &text) };
        sums.push((kind, count));
    }
    let wrong: Vec<String> = sums
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    let seen = if wrong.is_empty() { "0".to_owned() } else { wrong.join(", ") };
    check.warn_unless(wrong.is_empty(), seen, || {
        vec![Step::by_hand("the link makes errors", RESEAT)]
    })
}
