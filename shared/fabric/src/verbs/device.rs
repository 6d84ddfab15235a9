//! An open RDMA device, its protection domain, and the port and address to send from.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use tapecast_wire::rdma::PathMtu;

use super::error::VerbsError;
use super::ffi;
use super::route::DeviceChoice;

/// An open device. Clones refer to the same one; it is closed when nothing uses it any more.
#[derive(Clone, Debug)]
pub(super) struct Context(Arc<OpenDevice>);

#[derive(Debug)]
struct OpenDevice {
    raw: NonNull<ffi::ibv_context>,
    name: String,
    limits: DeviceLimits,
}

// SAFETY: verbs may be called from any thread, and on one device from several at once.
unsafe impl Send for OpenDevice {}
// SAFETY: as for `Send`; what is read through a shared reference never changes.
unsafe impl Sync for OpenDevice {}

/// What a device has at most, as it says itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceLimits {
    /// Queue pairs.
    pub(super) max_qp: u32,
    /// Work requests of one queue of a queue pair.
    pub(super) max_qp_wr: u32,
    /// Pieces of memory of one work request.
    pub(super) max_sge: u32,
    /// Completion queues.
    pub(super) max_cq: u32,
    /// Completions of one completion queue.
    pub(super) max_cqe: u32,
    /// Bytes of one memory region.
    pub(super) max_mr_size: u64,
    /// Ports, numbered from 1.
    pub(super) ports: u8,
}

/// The port to use, on its open device, and the address to send from.
#[derive(Clone, Debug)]
pub(super) struct Port {
    /// The device.
    pub(super) context: Context,
    /// Number of the port, from 1.
    pub(super) number: u8,
    /// Its RoCE v2 address.
    pub(super) gid: [u8; 16],
    /// Where that is in the device's table now.
    pub(super) gid_index: u8,
    /// Largest payload of one packet that the port sends.
    pub(super) active_mtu: PathMtu,
}

/// A RoCE v2 address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gid {
    bytes: [u8; 16],
    index: u8,
    port: u8,
}

impl Port {
    /// Opens the device chosen and finds its port and address.
    ///
    /// # Errors
    /// [`VerbsError`] when there is no such device, port or address, or the port is not up.
    pub(super) fn open(choice: &DeviceChoice) -> Result<Self, VerbsError> {
        let devices = DeviceList::get()?;
        let (context, gid) = match (&choice.device, choice.address) {
            (None, Some(address)) => find_address(&devices, choice, address)?,
            _ => {
                let context = devices.choose(choice.device.as_deref())?;
                let gid = context.choose_gid(choice)?;
                (context, gid)
            }
        };
        let active_mtu = context.check_port(gid.port)?;
        Ok(Self { context, number: gid.port, gid: gid.bytes, gid_index: gid.index, active_mtu })
    }
}

/// Opens one device after the other until one has the address.
fn find_address(
    devices: &DeviceList,
    choice: &DeviceChoice,
    address: IpAddr,
) -> Result<(Context, Gid), VerbsError> {
    let mut known = Vec::new();
    for device in devices.iter() {
        let context = Context::open(device)?;
        let gids = context.gids()?;
        if let Some(gid) = select(&gids, choice) {
            return Ok((context, gid));
        }
        known.extend(gids.iter().map(|gid| context.describe(gid)));
    }
    Err(VerbsError::AddressAbsent { address, known: listed(known) })
}

impl Context {
    fn open(device: NonNull<ffi::ibv_device>) -> Result<Self, VerbsError> {
        let name = device_name(device);
        // SAFETY: the device is from a list that the caller still holds.
        let raw = unsafe { ffi::ibv_open_device(device.as_ptr()) };
        let Some(raw) = NonNull::new(raw) else {
            let remedy = "may this process read and write /dev/infiniband/uverbs*?";
            return Err(VerbsError::last("ibv_open_device", name, remedy));
        };
        // From here on the device is closed whatever happens.
        let mut device = OpenDevice { raw, name, limits: DeviceLimits::default() };
        device.limits = device.query_limits()?;
        rustix::io::ioctl_fionbio(device.async_fd(), true).map_err(|errno| VerbsError::Call {
            call: "ioctl(FIONBIO)",
            values: device.name.clone(),
            source: errno.into(),
            remedy: "the descriptor of asynchronous events must not block",
        })?;
        Ok(Self(Arc::new(device)))
    }

    /// For calls of the verbs library. Not null, and open as long as a clone of this lives.
    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_context {
        self.0.raw.as_ptr()
    }

    /// The device's name.
    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    /// Becomes readable with an asynchronous event. Does not block.
    pub(super) fn async_fd(&self) -> BorrowedFd<'_> {
        self.0.async_fd()
    }

    /// What the device has at most.
    pub(super) fn limits(&self) -> &DeviceLimits {
        &self.0.limits
    }

    /// The RoCE v2 address that the choice asks for, or the best one.
    fn choose_gid(&self, choice: &DeviceChoice) -> Result<Gid, VerbsError> {
        if let Some(port) = choice.port {
            self.check_number(port)?;
        }
        let gids = self.gids()?;
        select(&gids, choice).ok_or_else(|| {
            let known = listed(gids.iter().map(|gid| self.describe(gid)).collect());
            match choice.address {
                Some(address) => VerbsError::AddressAbsent { address, known },
                None => VerbsError::NoAddress { device: self.name().to_owned(), known },
            }
        })
    }

    fn check_number(&self, port: u8) -> Result<(), VerbsError> {
        let ports = self.limits().ports;
        if (1..=ports).contains(&port) {
            return Ok(());
        }
        Err(VerbsError::PortAbsent { device: self.name().to_owned(), port, ports })
    }

    /// The RoCE v2 addresses of all ports, in the device's order.
    fn gids(&self) -> Result<Vec<Gid>, VerbsError> {
        let mut room = 0;
        for port in 1..=self.limits().ports {
            room += usize::try_from(self.query_port(port)?.gid_tbl_len).unwrap_or(0);
        }
        let mut entries: Vec<ffi::ibv_gid_entry> = (0..room).map(|_| empty_entry()).collect();
        let entry_bytes = size_of::<ffi::ibv_gid_entry>();
        let table = entries.as_mut_ptr();
        // SAFETY: the device is open and `table` has room for `room` entries of that size.
        let found =
            unsafe { ffi::_ibv_query_gid_table(self.as_ptr(), table, room, 0, entry_bytes) };
        let Ok(found) = usize::try_from(found) else {
            let errno = i32::try_from(found).unwrap_or(i32::MAX);
            let remedy = "rdma-core and the kernel's RDMA drivers must fit together";
            let values = self.name().to_owned();
            return Err(VerbsError::code("ibv_query_gid_table", values, errno, remedy));
        };
        Ok(entries.iter().take(found).filter_map(Gid::from_entry).collect())
    }

    /// Checks that the port is up and Ethernet, and says its largest packet payload.
    fn check_port(&self, port: u8) -> Result<PathMtu, VerbsError> {
        let attributes = self.query_port(port)?;
        let device = || self.name().to_owned();
        if attributes.state != ffi::ibv_port_state::IBV_PORT_ACTIVE {
            let state = port_state(attributes.state);
            return Err(VerbsError::PortInactive { device: device(), port, state });
        }
        if attributes.link_layer != ffi::LINK_LAYER_ETHERNET {
            let infiniband = attributes.link_layer == ffi::LINK_LAYER_INFINIBAND;
            let link_layer = if infiniband { "InfiniBand" } else { "an unknown link layer" };
            return Err(VerbsError::LinkLayer { device: device(), port, link_layer });
        }
        let code = u8::try_from(attributes.active_mtu).unwrap_or(0);
        // A code that a newer library knows can only be more than we have names for.
        Ok(PathMtu::from_code(code).unwrap_or(PathMtu::Bytes4096))
    }

    fn query_port(&self, port: u8) -> Result<ffi::ibv_port_attr, VerbsError> {
        // SAFETY: the struct is plain numbers, for which zero is a value.
        let mut attributes: ffi::ibv_port_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the device is open, and the attributes are zeroed and ours.
        let errno = unsafe { ffi::query_port(self.as_ptr(), port, &raw mut attributes) };
        if errno == 0 {
            return Ok(attributes);
        }
        let values = format!("{} port {port}", self.name());
        Err(VerbsError::code("ibv_query_port", values, errno, "look at `rdma link`"))
    }

    fn describe(&self, gid: &Gid) -> String {
        format!("{} ({} port {})", address_of(gid.bytes), self.name(), gid.port)
    }
}

impl OpenDevice {
    fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the device is open, and its descriptor never changes.
        let descriptor = unsafe { (*self.raw.as_ptr()).async_fd };
        // SAFETY: the device keeps the descriptor open as long as it is open itself.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    fn query_limits(&self) -> Result<DeviceLimits, VerbsError> {
        // SAFETY: the struct is plain numbers, for which zero is a value.
        let mut found: ffi::ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the device is open and the struct is ours to fill.
        let errno = unsafe { ffi::ibv_query_device(self.raw.as_ptr(), &raw mut found) };
        if errno != 0 {
            let remedy = "look at `ibv_devinfo -v`";
            return Err(VerbsError::code("ibv_query_device", self.name.clone(), errno, remedy));
        }
        let count = |number: i32| u32::try_from(number).unwrap_or(0);
        Ok(DeviceLimits {
            max_qp: count(found.max_qp),
            max_qp_wr: count(found.max_qp_wr),
            max_sge: count(found.max_sge),
            max_cq: count(found.max_cq),
            max_cqe: count(found.max_cqe),
            max_mr_size: found.max_mr_size,
            ports: found.phys_port_cnt,
        })
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        // SAFETY: everything made on the device holds a clone of its `Context`, so it is gone.
        let code = unsafe { ffi::ibv_close_device(self.raw.as_ptr()) };
        debug_assert_eq!(code, 0, "ibv_close_device");
    }
}

impl Gid {
    fn from_entry(entry: &ffi::ibv_gid_entry) -> Option<Self> {
        if entry.gid_type != ffi::IBV_GID_TYPE_ROCE_V2 {
            return None;
        }
        let (index, port) = (entry.gid_index.try_into().ok()?, entry.port_num.try_into().ok()?);
        // SAFETY: any 16 bytes are a GID.
        let bytes = unsafe { entry.gid.raw };
        Some(Self { bytes, index, port })
    }

    /// Smaller is better; `None` for an address that only its own link knows and IPv4 has.
    fn rank(&self) -> Option<u8> {
        match address_of(self.bytes) {
            IpAddr::V4(address) if address.is_link_local() => None,
            IpAddr::V4(_) => Some(0),
            IpAddr::V6(address) if !address.is_unicast_link_local() => Some(1),
            IpAddr::V6(_) => Some(2),
        }
    }
}

fn empty_entry() -> ffi::ibv_gid_entry {
    let gid = ffi::ibv_gid { raw: [0; 16] };
    ffi::ibv_gid_entry { gid, gid_index: 0, port_num: 0, gid_type: 0, ndev_ifindex: 0 }
}

/// The address asked for, or the first of the best kind: IPv4, then IPv6, then IPv6 of the link.
fn select(gids: &[Gid], choice: &DeviceChoice) -> Option<Gid> {
    let mut gids = gids.iter().filter(|gid| choice.port.is_none_or(|port| port == gid.port));
    let found = match choice.address {
        Some(address) => gids.find(|gid| address_of(gid.bytes) == address.to_canonical()),
        None => gids.filter(|gid| gid.rank().is_some()).min_by_key(|gid| gid.rank()),
    };
    found.copied()
}

/// The IP address that a RoCE v2 GID is.
pub(super) fn address_of(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

const fn port_state(state: u32) -> &'static str {
    match state {
        1 => "DOWN",
        2 => "INIT",
        3 => "ARMED",
        5 => "ACTIVE_DEFER",
        _ => "in an unknown state",
    }
}

fn listed(names: Vec<String>) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The devices that there are.
struct DeviceList {
    list: NonNull<*mut ffi::ibv_device>,
    count: usize,
}

impl DeviceList {
    fn get() -> Result<Self, VerbsError> {
        let mut count = 0;
        // SAFETY: the argument points to an integer of ours.
        let list = unsafe { ffi::ibv_get_device_list(&raw mut count) };
        let source = io::Error::last_os_error();
        let list = NonNull::new(list).ok_or(VerbsError::NoDevice { source })?;
        let found = Self { list, count: usize::try_from(count).unwrap_or(0) };
        if found.count == 0 {
            return Err(VerbsError::NoDevice { source: io::ErrorKind::NotFound.into() });
        }
        Ok(found)
    }

    fn iter(&self) -> impl Iterator<Item = NonNull<ffi::ibv_device>> {
        // SAFETY: the library filled `count` entries, which live as long as the list.
        let devices = unsafe { std::slice::from_raw_parts(self.list.as_ptr(), self.count) };
        devices.iter().copied().filter_map(NonNull::new)
    }

    /// Opens the device of that name, or the only one.
    fn choose(&self, name: Option<&str>) -> Result<Context, VerbsError> {
        let present = || listed(self.iter().map(device_name).collect());
        let device = match name {
            Some(wanted) => {
                self.iter().find(|device| device_name(*device) == wanted).ok_or_else(|| {
                    VerbsError::DeviceAbsent { wanted: wanted.to_owned(), present: present() }
                })
            }
            None if self.count > 1 => Err(VerbsError::DeviceAmbiguous { present: present() }),
            None => self
                .iter()
                .next()
                .ok_or_else(|| VerbsError::NoDevice { source: io::ErrorKind::NotFound.into() }),
        }?;
        Context::open(device)
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the library made the list; devices that were opened from it do not need it.
        unsafe { ffi::ibv_free_device_list(self.list.as_ptr()) }
    }
}

fn device_name(device: NonNull<ffi::ibv_device>) -> String {
    // SAFETY: the device is from a list that the caller still holds.
    let name = unsafe { ffi::ibv_get_device_name(device.as_ptr()) };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: the library gives a string that ends in a zero and lives as long as the device.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// What memory and queue pairs must share to be used together. Clones refer to the same one.
#[derive(Clone)]
pub(super) struct ProtectionDomain(Arc<Domain>);

struct Domain {
    raw: NonNull<ffi::ibv_pd>,
    context: Context,
}

// SAFETY: a protection domain is a handle that any thread may use.
unsafe impl Send for Domain {}
// SAFETY: as for `Send`; nothing changes through a shared reference.
unsafe impl Sync for Domain {}

impl ProtectionDomain {
    /// Makes one on a device.
    ///
    /// # Errors
    /// [`VerbsError::Call`] when the device has none left.
    pub(super) fn new(context: &Context) -> Result<Self, VerbsError> {
        // SAFETY: the device is open as long as `context` lives.
        let raw = unsafe { ffi::ibv_alloc_pd(context.as_ptr()) };
        let Some(raw) = NonNull::new(raw) else {
            let values = context.name().to_owned();
            return Err(VerbsError::last("ibv_alloc_pd", values, "compare max_pd in ibv_devinfo"));
        };
        Ok(Self(Arc::new(Domain { raw, context: context.clone() })))
    }

    /// The device.
    pub(super) fn context(&self) -> &Context {
        &self.0.context
    }

    /// For calls of the verbs library. Not null, and valid as long as a clone of this lives.
    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_pd {
        self.0.raw.as_ptr()
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProtectionDomain").field(&self.context().name()).finish()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: regions and queue pairs hold clones of the `ProtectionDomain`, so none is left.
        let code = unsafe { ffi::ibv_dealloc_pd(self.raw.as_ptr()) };
        debug_assert_eq!(code, 0, "ibv_dealloc_pd");
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn gid(address: &str, index: u8, port: u8) -> Gid {
        let bytes = match address.parse().unwrap() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        Gid { bytes, index, port }
    }

    fn table() -> [Gid; 6] {
        [
            gid("fe80::1", 0, 1),
            gid("169.254.3.4", 2, 1),
            gid("2001:db8::7", 4, 1),
            gid("10.9.0.1", 5, 1),
            gid("10.9.0.2", 7, 1),
            gid("10.8.0.1", 1, 2),
        ]
    }

    fn chosen(choice: &DeviceChoice) -> Option<u8> {
        select(&table(), choice).map(|gid| gid.index)
    }

    #[test]
    fn without_an_address_the_first_ipv4_one_that_other_links_know_is_taken() {
        assert_eq!(chosen(&DeviceChoice::default()), Some(5));
        let without_ipv4 = &table()[..3];
        assert_eq!(select(without_ipv4, &DeviceChoice::default()).unwrap().index, 4);
        assert_eq!(select(&without_ipv4[..2], &DeviceChoice::default()).unwrap().index, 0);
        assert_eq!(select(&without_ipv4[1..2], &DeviceChoice::default()), None);
    }

    #[test]
    fn an_address_finds_its_entry_wherever_that_is_and_however_it_is_written() {
        let at = |address: IpAddr| {
            chosen(&DeviceChoice { address: Some(address), ..DeviceChoice::default() })
        };
        assert_eq!(at("10.9.0.2".parse().unwrap()), Some(7));
        assert_eq!(at("::ffff:10.9.0.2".parse().unwrap()), Some(7));
        assert_eq!(at("169.254.3.4".parse().unwrap()), Some(2));
        assert_eq!(at("2001:db8::7".parse().unwrap()), Some(4));
        assert_eq!(at(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 3))), None);
    }

    #[test]
    fn only_the_port_asked_for_counts() {
        let choice = DeviceChoice { port: Some(2), ..DeviceChoice::default() };
        assert_eq!(chosen(&choice), Some(1));
        let address = Some(IpAddr::from([10, 9, 0, 1]));
        assert_eq!(chosen(&DeviceChoice { address, ..choice }), None);
    }
}
