//! What is examined: the machine's files, its RDMA device and interface, the CPUs that matter.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::cpus::Cpus;
use super::finding::Finding;
use super::profile::Profile;
use super::root::{Gap, Root, is_plain};
use super::tools::Tools;

/// What a command asks for.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// RDMA device; else the one that is there.
    pub device: Option<String>,
    /// Network interface; else that of the device.
    pub interface: Option<String>,
    /// CPUs of the threads that must not wait; else those that are isolated.
    pub cpus: Option<Cpus>,
}

/// Whose knobs a device has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// ConnectX, with the driver of the kernel.
    Mlx5,
    /// ConnectX, with the vendor's own driver.
    Mlx5Vendor,
    /// NetXtreme-E, Thor.
    BnxtRe,
    /// Soft-RoCE: software, for tests.
    Rxe,
    /// Another one, by the name of its driver.
    Other(String),
}

impl Driver {
    /// For a heading.
    #[must_use]
    pub fn describe(&self) -> &str {
        match self {
            Self::Mlx5 => "mlx5, in-tree driver",
            Self::Mlx5Vendor => "mlx5, vendor's driver",
            Self::BnxtRe => "bnxt_re",
            Self::Rxe => "Soft-RoCE (rdma_rxe)",
            Self::Other(name) => name,
        }
    }
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// Whose it is.
    pub driver: Driver,
    /// Its network interface, where that is known.
    pub interface: Option<String>,
    /// Its PCI address; a software device has none.
    pub pci_address: Option<String>,
    /// Its firmware's version, where it tells it.
    pub firmware: Option<String>,
}

/// A machine under examination.
#[derive(Debug)]
pub(crate) struct Host<'a> {
    pub(crate) root: &'a Root,
    pub(crate) profile: &'a Profile,
    pub(crate) device: Option<Device>,
    /// Why there is no device, when that cannot be known.
    pub(crate) device_gap: Option<Gap>,
    /// The devices that are there but not examined.
    pub(crate) others: Vec<String>,
    pub(crate) interface: Option<String>,
    /// The interfaces that are ports of the card: of a bond its members, below a VLAN the card's.
    pub(crate) ports: Vec<String>,
    /// CPUs that must not wait; empty when nobody has said which.
    pub(crate) hot: Cpus,
    /// Names of the processes, or why they are not known.
    pub(crate) running: Result<BTreeSet<String>, String>,
}

const DEVICES: &str = "/sys/class/infiniband";

impl<'a> Host<'a> {
    /// Finds out what there is.
    ///
    /// # Errors
    /// When a device or interface is asked for that is not there.
    pub(crate) fn find(root: &'a Root, profile: &'a Profile, wishes: &Wishes) -> Result<Self> {
        let (mut names, device_gap) = devices(root);
        check_cpus(root, wishes)?;
        let name = choose_device(root, &names, wishes)?;
        let device = name.map(|name| Device::look(root, &name, wishes.interface.as_deref()));
        let of_device = device.as_ref().and_then(|device| device.interface.clone());
        let interface = wishes.interface.clone().or(of_device);
        let named = device.as_ref().map(|device| device.name.as_str());
        let ports = interface.as_deref().map(|one| ports(root, named, one)).unwrap_or_default();
        let hot = wishes.cpus.clone().unwrap_or_else(|| isolated(root));
        let running = processes(root);
        names.retain(|name| device.as_ref().is_none_or(|device| device.name != *name));
        let others = names;
        Ok(Self { root, profile, device, device_gap, others, interface, ports, hot, running })
    }

    pub(crate) const fn tools(&self) -> Tools<'a> {
        Tools::of(self.root)
    }

    pub(crate) fn driver(&self) -> Option<&Driver> {
        self.device.as_ref().map(|device| &device.driver)
    }

    /// Rate of one port, in Mb/s; none when the interface does not tell. A bond would tell the sum,
    /// and no queue pair is faster than its port.
    pub(crate) fn line_mbps(&self) -> Option<u64> {
        let port = self.ports.first()?;
        let text = self.root.value(&format!("/sys/class/net/{port}/speed")).ok()?;
        // A link that is down or virtual has -1 there, or more than any has.
        text.parse().ok().filter(|mbps| (1..=10_000_000).contains(mbps))
    }

    /// What a check finds on each port, told apart where there are several.
    pub(crate) fn on_each_port(&self, check: impl Fn(&str) -> Vec<Finding>) -> Vec<Finding> {
        let several = self.ports.len() > 1;
        let found = |port: &String| {
            let mut found = check(port);
            for finding in found.iter_mut().filter(|_| several) {
                finding.title = format!("{}, {port}", finding.title);
            }
            found
        };
        self.ports.iter().flat_map(found).collect()
    }

    /// Whether every CPU is hot, so that none is left to the kernel.
    pub(crate) fn all_are_hot(&self) -> bool {
        self.online().is_ok_and(|all| !all.is_empty() && all.without(&self.hot).is_empty())
    }

    /// The CPUs that are there.
    pub(crate) fn online(&self) -> Result<Cpus, String> {
        cpus_in(self.root, "/sys/devices/system/cpu/online")
    }

    /// The CPUs that must not wait or, where nobody has said which, all.
    pub(crate) fn hot_or_all(&self) -> Result<Cpus, String> {
        if self.hot.is_empty() { self.online() } else { Ok(self.hot.clone()) }
    }
}

/// A list of CPUs in a file.
pub(crate) fn cpus_in(root: &Root, path: &str) -> Result<Cpus, String> {
    let text = root.value(path).map_err(|gap| gap.reason("this kernel does not tell"))?;
    // A kernel without any prints that.
    let text = if text == "(null)" { "" } else { text.as_str() };
    text.parse().map_err(|_| {
        let text = super::finding::excerpt(text);
        format!("{path} reads {text:?}, which is no list of CPUs")
    })
}

fn isolated(root: &Root) -> Cpus {
    cpus_in(root, "/sys/devices/system/cpu/isolated").unwrap_or_default()
}

/// The names of all processes, as far as the kernel keeps them: 15 letters.
fn processes(root: &Root) -> Result<BTreeSet<String>, String> {
    let entries = root.list("/proc").map_err(|gap| gap.reason("no processes are shown"))?;
    let numbers = entries.iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    // A process may end while we look, and then it does not run.
    Ok(numbers.filter_map(|pid| root.value(&format!("/proc/{pid}/comm")).ok()).collect())
}

/// The devices, or why they are not known. Only where classes are shown does no folder of devices
/// mean that there are none.
fn devices(root: &Root) -> (Vec<String>, Option<Gap>) {
    match root.list(DEVICES) {
        Ok(names) => (names, None),
        Err(gap) if gap.is_absent() => (Vec::new(), root.list("/sys/class").err()),
        Err(gap) => (Vec::new(), Some(gap)),
    }
}

/// CPUs that somebody names must be there.
fn check_cpus(root: &Root, wishes: &Wishes) -> Result<()> {
    let online = cpus_in(root, "/sys/devices/system/cpu/online").unwrap_or_default();
    let Some(cpus) = wishes.cpus.as_ref().filter(|_| !online.is_empty()) else { return Ok(()) };
    let missing = cpus.without(&online);
    if missing.is_empty() {
        return Ok(());
    }
    bail!("--cpus {cpus}: there is no CPU {missing} online; there are: {online}")
}

/// The interfaces of a bond or, where it is none, the interface alone.
fn members(root: &Root, interface: &str) -> Vec<String> {
    let text = root.value(&format!("/sys/class/net/{interface}/bonding/slaves"));
    let text = text.unwrap_or_default();
    let mut found: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    found.retain(|name| is_plain(name));
    if found.is_empty() { vec![interface.to_owned()] } else { found }
}

/// The interfaces that stand for ports of the card. Nothing of the card's is in the folder of one
/// that is laid over them.
fn ports(root: &Root, device: Option<&str>, interface: &str) -> Vec<String> {
    let members = members(root, interface);
    if members != [interface] {
        return members;
    }
    let slot = device.map(|device| root.list(&format!("{DEVICES}/{device}/device/net")));
    let slot = slot.and_then(Result::ok).unwrap_or_default();
    let over = !slot.is_empty() && !slot.iter().any(|name| name == interface);
    if over { slot } else { members }
}

fn choose_device(root: &Root, names: &[String], wishes: &Wishes) -> Result<Option<String>> {
    if let Some(interface) = &wishes.interface
        && !(is_plain(interface) && root.holds(&format!("/sys/class/net/{interface}")))
    {
        let there = root.list("/sys/class/net").unwrap_or_default().join(", ");
        bail!("there is no network interface {interface:?}; there are: {there}");
    }
    if let Some(device) = &wishes.device {
        if !names.contains(device) {
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            bail!("there is no RDMA device {device:?}; there are: {there}");
        }
        check_interface(root, device, wishes)?;
        return Ok(Some(device.clone()));
    }
    let on_interface = |name: &&String| match &wishes.interface {
        Some(wanted) => is_on(root, &interfaces_of(root, name), wanted),
        None => true,
    };
    let found: Vec<&String> = names.iter().filter(on_interface).collect();
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        [..] => {
            let names = names.join(", ");
            bail!("there are several RDMA devices ({names}); choose one with --device")
        }
    }
}

/// An interface that is named together with a device must be the device's.
fn check_interface(root: &Root, device: &str, wishes: &Wishes) -> Result<()> {
    let known = interfaces_of(root, device);
    let Some(wanted) = wishes.interface.as_ref().filter(|_| !known.is_empty()) else {
        return Ok(());
    };
    if is_on(root, &known, wanted) {
        return Ok(());
    }
    let known = known.join(", ");
    bail!("{device} is not on the interface {wanted}; it is on: {known}")
}

/// Whether an interface is one of these, or a member of one that is a bond.
fn is_on(root: &Root, known: &[String], wanted: &String) -> bool {
    known.iter().any(|one| one == wanted || members(root, one).contains(wanted))
}

/// Interfaces of a device, the most certain first.
fn interfaces_of(root: &Root, device: &str) -> Vec<String> {
    let home = format!("{DEVICES}/{device}");
    let gids = format!("{home}/ports/1/gid_attrs/ndevs");
    let mut found: Vec<String> = Vec::new();
    let first = ["0", "1", "2", "3"].map(|index| root.value(&format!("{gids}/{index}")).ok());
    let of_software = root.value(&format!("{home}/parent")).ok();
    let of_slot = root.list(&format!("{home}/device/net")).unwrap_or_default();
    for name in first.into_iter().flatten().chain(of_software).chain(of_slot) {
        if is_plain(&name) && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

impl Device {
    fn look(root: &Root, name: &str, interface: Option<&str>) -> Self {
        let home = format!("{DEVICES}/{name}");
        let events = root.read(&format!("{home}/device/uevent")).unwrap_or_default();
        let event = |key: &str| {
            let mut lines = events.lines().filter_map(|line| line.split_once('='));
            lines.find(|(found, _)| *found == key).map(|(_, value)| value.trim().to_owned())
        };
        let interface =
            interface.map(str::to_owned).or_else(|| interfaces_of(root, name).into_iter().next());
        let ports = interface.as_deref().map(|one| ports(root, Some(name), one));
        let mut ports = ports.into_iter().flatten();
        let vendor = ports.any(|port| root.holds(&format!("/sys/class/net/{port}/ecn")));
        let software = root.holds(&format!("{home}/parent"));
        Self {
            name: name.to_owned(),
            driver: driver(event("DRIVER").as_deref(), vendor, software || name.starts_with("rxe")),
            interface,
            pci_address: event("PCI_SLOT_NAME").filter(|address| is_plain(address)),
            firmware: root.value(&format!("{home}/fw_ver")).ok().filter(|text| !text.is_empty()),
        }
    }

    /// Whether it is a card, as far as is known: software has neither slot nor interrupts.
    pub(crate) fn is_card(&self) -> bool {
        self.pci_address.is_some() || self.driver != Driver::Rxe
    }

    /// A file below the device's own folder.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("{DEVICES}/{}/{name}", self.name)
    }
}

fn driver(bus_driver: Option<&str>, vendor: bool, software: bool) -> Driver {
    match bus_driver {
        Some("mlx5_core") if vendor => Driver::Mlx5Vendor,
        Some("mlx5_core") => Driver::Mlx5,
        Some("bnxt_en" | "bnxt_re") => Driver::BnxtRe,
        // A software device may show the slot of the interface that it stands on.
        _ if software => Driver::Rxe,
        Some(other) => Driver::Other(super::finding::excerpt(other)),
        None => Driver::Other("unknown driver".to_owned()),
    }
}
