//! Bytes that one RDMA Write with immediate takes on an Ethernet wire (RoCE v2 over IPv4, no VLAN).

use tapecast_wire::rdma::PathMtu;

/// Preamble and start of frame, Ethernet header, frame check sequence, gap between frames.
const ETHERNET: u32 = 8 + 14 + 4 + 12;
/// IPv4, UDP, base transport header, invariant CRC: what every packet carries.
const ROCE: u32 = 20 + 8 + 12 + 4;
/// RDMA extended transport header, in the first packet alone.
const RETH: u32 = 16;
/// The immediate, in the last packet alone.
const IMMEDIATE: u32 = 4;
/// What a network interface's MTU must have beyond the path MTU, as the kernel counts: routing
/// header, UDP, transport headers of every kind, invariant CRC.
const DEVICE_MTU_EXTRA: u32 = 40 + 8 + 12 + 4 + 28 + 4;

/// Bytes on the wire of the acknowledgement, which travels the other way.
pub const ACKNOWLEDGEMENT_BYTES: u32 = ETHERNET + ROCE + 4;

/// Packets that a payload is cut into. An empty one still takes one.
#[must_use]
pub fn packets(payload_bytes: u32, path_mtu: PathMtu) -> u32 {
    payload_bytes.div_ceil(path_mtu.bytes()).max(1)
}

/// Bytes on the wire, everything counted that keeps the next frame waiting. Payloads are padded to
/// four bytes.
#[must_use]
pub fn wire_bytes(payload_bytes: u32, path_mtu: PathMtu) -> u32 {
    let each = ETHERNET + ROCE;
    payload_bytes.next_multiple_of(4) + each * packets(payload_bytes, path_mtu) + RETH + IMMEDIATE
}

/// Smallest MTU of the network interface, in bytes, with which the device offers this path MTU.
#[must_use]
pub const fn device_mtu(path_mtu: PathMtu) -> u32 {
    path_mtu.bytes() + DEVICE_MTU_EXTRA
}
