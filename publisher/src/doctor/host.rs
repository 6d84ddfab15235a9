//! What is examined: the machine's files, its RDMA device and interface, the CPUs that matter.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::cpus::Cpus;
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
    pub(crate) interface: Option<String>,
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
        let (names, device_gap) = match root.list(DEVICES) {
            Ok(names) => (names, None),
            Err(gap) if gap.is_absent() => (Vec::new(), None),
            Err(gap) => (Vec::new(), Some(gap)),
        };
        let name = choose_device(root, &names, wishes)?;
        let device = name.map(|name| Device::look(root, &name, wishes.interface.as_deref()));
        let of_device = device.as_ref().and_then(|device| device.interface.clone());
        let interface = wishes.interface.clone().or(of_device);
        let hot = wishes.cpus.clone().unwrap_or_else(|| isolated(root));
        let running = processes(root);
        Ok(Self { root, profile, device, device_gap, interface, hot, running })
    }

    pub(crate) const fn tools(&self) -> Tools<'a> {
        Tools::of(self.root)
    }

    pub(crate) fn driver(&self) -> Option<&Driver> {
        self.device.as_ref().map(|device| &device.driver)
    }

    /// Rate of the link, in Mb/s; none when the interface does not tell.
    pub(crate) fn line_mbps(&self) -> Option<u64> {
        let interface = self.interface.as_deref()?;
        let text = self.root.value(&format!("/sys/class/net/{interface}/speed")).ok()?;
        // A link that is down or virtual has -1 there, or more than any has.
        text.parse().ok().filter(|mbps| (1..=10_000_000).contains(mbps))
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
        return Ok(Some(device.clone()));
    }
    let on_interface = |name: &&String| match &wishes.interface {
        Some(wanted) => interfaces_of(root, name).contains(wanted),
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
        let vendor = interface
            .as_ref()
            .is_some_and(|interface| root.holds(&format!("/sys/class/net/{interface}/ecn")));
        let software = root.holds(&format!("{home}/parent"));
        Self {
            name: name.to_owned(),
            driver: driver(event("DRIVER").as_deref(), vendor, software || name.starts_with("rxe")),
            interface,
            pci_address: event("PCI_SLOT_NAME").filter(|address| is_plain(address)),
            firmware: root.value(&format!("{home}/fw_ver")).ok().filter(|text| !text.is_empty()),
        }
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
