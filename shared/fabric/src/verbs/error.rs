//! What can go wrong with an RDMA device, said so that the reader knows what to do.

use std::io;
use std::net::IpAddr;

use tapecast_core::credit::WindowSizeError;
use tapecast_wire::WireError;

use super::memlock::LockLimit;
use super::route::RouteError;

const ENOSYS: i32 = 38;

/// An RDMA device, or something made with it, could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// There is no RDMA device at all.
    #[error(
        "there is no RDMA device{}: install rdma-core, load the driver's module \
         (mlx5_ib, bnxt_re, .., or rdma_rxe for Soft-RoCE) and look at `ibv_devices`",
        of_listing(source)
    )]
    NoDevice {
        /// What the system said.
        source: io::Error,
    },
    /// The device named is not there.
    #[error(
        "there is no RDMA device \"{wanted}\", there are: {present}. Correct the device's name, \
         or look at `ibv_devices` and `rdma link`"
    )]
    DeviceAbsent {
        /// Name asked for.
        wanted: String,
        /// Names of those there are.
        present: String,
    },
    /// Nothing says which of several devices to use.
    #[error(
        "there are several RDMA devices: {present}. Say which one by its name or by the IP \
         address of its network interface"
    )]
    DeviceAmbiguous {
        /// Names of those there are.
        present: String,
    },
    /// The device has no port of that number.
    #[error("RDMA device {device} has ports 1 to {ports}, not {port}: correct the port's number")]
    PortAbsent {
        /// The device's name.
        device: String,
        /// Number asked for.
        port: u8,
        /// Number of ports.
        ports: u8,
    },
    /// No device has the address.
    #[error(
        "no RoCE v2 address (GID) of type IPv4 or IPv6 is {address}; there are: {known}. Is the \
         address set on the network interface of the RDMA device (`ip addr`, `rdma link`), and \
         the interface up?"
    )]
    AddressAbsent {
        /// Address asked for.
        address: IpAddr,
        /// The RoCE v2 addresses there are, with device and port.
        known: String,
    },
    /// The device has no RoCE v2 address that other hosts could reach.
    #[error(
        "RDMA device {device} has no usable RoCE v2 address (GID); there are: {known}. Set an IP \
         address on its network interface (`rdma link` names it), or name one of those"
    )]
    NoAddress {
        /// The device's name.
        device: String,
        /// The RoCE v2 addresses there are.
        known: String,
    },
    /// The port is not up.
    #[error(
        "port {port} of RDMA device {device} is {state}, not ACTIVE: bring its network interface \
         up (`ip link set .. up`), check the cable and `rdma link`"
    )]
    PortInactive {
        /// The device's name.
        device: String,
        /// Number of the port.
        port: u8,
        /// Its state.
        state: &'static str,
    },
    /// The port is not an Ethernet port.
    #[error(
        "port {port} of RDMA device {device} speaks {link_layer}, not Ethernet: RoCE v2 needs an \
         Ethernet port (mlxconfig: LINK_TYPE)"
    )]
    LinkLayer {
        /// The device's name.
        device: String,
        /// Number of the port.
        port: u8,
        /// What it speaks.
        link_layer: &'static str,
    },
    /// A number of the route is impossible.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// More is asked for than the device has.
    #[error("{what}: {asked} asked for, the device's {attribute} is {limit}: {remedy}")]
    Limit {
        /// What was asked for.
        what: &'static str,
        /// Name of the limit, as `ibv_devinfo -v` prints it.
        attribute: &'static str,
        /// The number asked for.
        asked: u64,
        /// The device's limit.
        limit: u64,
        /// What to change.
        remedy: &'static str,
    },
    /// The completion queue could overflow.
    #[error(
        "{sessions} sessions of {send_depth} work requests can complete at once: {needed} \
         completions, but the completion queue holds {completion_depth}. Raise completion_depth \
         or lower sessions_max or send_depth"
    )]
    CompletionDepth {
        /// Sessions at most.
        sessions: u64,
        /// Work requests of each.
        send_depth: u32,
        /// Completions that must fit.
        needed: u64,
        /// Completions that do.
        completion_depth: u32,
    },
    /// A size that cannot work.
    #[error("{name} = {value} is outside {min} to {max}: choose a value in that range")]
    Size {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: u64,
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
    /// Sizes of a session that cannot work together.
    #[error(transparent)]
    Window(#[from] WindowSizeError),
    /// The peer's parameters cannot be.
    #[error("the publisher's RDMA parameters cannot be: {0}; run the same release on both ends")]
    Peer(WireError),
    /// The memory cannot be a ring.
    #[error("memory of {bytes} bytes cannot be a ring: choose another size")]
    Ring {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The memory to register could not be mapped.
    #[error("cannot map {bytes} bytes{pages} for the RDMA device ({source}): {remedy}")]
    Map {
        /// Bytes asked for.
        bytes: u64,
        /// Which pages, when not ordinary ones.
        pages: &'static str,
        /// What the system said.
        source: io::Error,
        /// What to change.
        remedy: &'static str,
    },
    /// The limit on locked memory is too small for what will be registered.
    #[error(
        "{needed} bytes have to be locked in memory for the RDMA device and the limit \
         RLIMIT_MEMLOCK is {limit}: raise it (`ulimit -l {needed_kib}`, or LimitMEMLOCK={needed} \
         or infinity in the systemd unit)"
    )]
    MemoryLimit {
        /// Bytes to lock.
        needed: u64,
        /// The limit, in bytes.
        limit: u64,
        /// `needed` in KiB, as `ulimit` counts.
        needed_kib: u64,
    },
    /// What is locked already and what was to be registered are more than the limit, or than there
    /// is.
    #[error(
        "ibv_reg_mr: {bytes} bytes have to be locked in memory and the limit RLIMIT_MEMLOCK is \
         {limit} ({source}): raise it (`ulimit -l`, or LimitMEMLOCK=infinity in the systemd \
         unit), and see that this much memory is free"
    )]
    LockedMemory {
        /// Bytes to lock. Whatever else the process has locked counts too.
        bytes: u64,
        /// The limit.
        limit: LockLimit,
        /// What the system said.
        source: io::Error,
    },
    /// A queue pair is not in the state that the step begins in.
    #[error(
        "queue pair {queue_pair} is in state {found}, {step} begins in {expected}: connect each \
         queue pair once, in order"
    )]
    State {
        /// Queue pair number.
        queue_pair: u32,
        /// The step.
        step: &'static str,
        /// State that it begins in.
        expected: &'static str,
        /// State that the queue pair is in.
        found: &'static str,
    },
    /// A call of the verbs library failed.
    #[error("{call} ({values}) failed: {source}; {remedy}")]
    Call {
        /// The function.
        call: &'static str,
        /// What it was called with.
        values: String,
        /// What the system said.
        source: io::Error,
        /// What to check.
        remedy: &'static str,
    },
}

/// What listing the devices failed with, in words.
fn of_listing(source: &io::Error) -> String {
    match (source.raw_os_error(), source.kind()) {
        (_, io::ErrorKind::NotFound) => String::new(),
        // What the library says when the kernel has no interface for it.
        (Some(ENOSYS), _) => " (the kernel module ib_uverbs is not loaded)".to_owned(),
        _ => format!(" ({source})"),
    }
}

impl VerbsError {
    /// A call that sets `errno` failed just now.
    pub(super) fn last(call: &'static str, values: String, remedy: &'static str) -> Self {
        Self::Call { call, values, source: io::Error::last_os_error(), remedy }
    }

    /// A call returned an errno.
    pub(super) fn code(
        call: &'static str,
        values: String,
        errno: i32,
        remedy: &'static str,
    ) -> Self {
        Self::Call { call, values, source: io::Error::from_raw_os_error(errno.abs()), remedy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out_of_memory() -> io::Error {
        io::Error::from_raw_os_error(12)
    }

    #[test]
    fn a_text_says_what_is_wrong_and_what_to_do() {
        let cases: [(VerbsError, &[&str]); 6] = [
            (
                VerbsError::NoDevice { source: io::Error::from_raw_os_error(38) },
                &["rdma-core", "ib_uverbs is not loaded", "ibv_devices"],
            ),
            (
                VerbsError::DeviceAbsent { wanted: "mlx5_7".into(), present: "rxe0".into() },
                &["mlx5_7", "rxe0"],
            ),
            (
                VerbsError::AddressAbsent {
                    address: IpAddr::from([10, 9, 0, 7]),
                    known: "10.9.0.1 (rxe0 port 1)".into(),
                },
                &["10.9.0.7", "10.9.0.1 (rxe0 port 1)", "RoCE v2"],
            ),
            (
                VerbsError::LockedMemory {
                    bytes: 67_108_864,
                    limit: LockLimit::Bytes(8_388_608),
                    source: out_of_memory(),
                },
                &["67108864", "8388608 bytes", "ulimit -l", "LimitMEMLOCK="],
            ),
            (
                VerbsError::CompletionDepth {
                    sessions: 64,
                    send_depth: 128,
                    needed: 8192,
                    completion_depth: 4096,
                },
                &["64", "128", "8192", "4096", "send_depth"],
            ),
            (
                VerbsError::code("ibv_modify_qp", "state RTR".into(), -12, "check the peer"),
                &["ibv_modify_qp", "state RTR", "os error 12", "check the peer"],
            ),
        ];
        for (error, parts) in cases {
            let text = error.to_string();
            for part in parts {
                assert!(text.contains(part), "{part:?} is missing: {text}");
            }
        }
    }

    #[test]
    fn no_limit_on_locked_memory_is_said_in_words() {
        assert_eq!(LockLimit::Unlimited.to_string(), "unlimited");
    }
}
