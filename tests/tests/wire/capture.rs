//! RoCE v2 packets out of a capture file (libpcap's classic format, Ethernet, IPv4, UDP 4791).

/// UDP port of RoCE v2.
const ROCE: u16 = 4791;
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
const ETHERNET: usize = 14;

/// What a packet says about its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) source: [u8; 4],
    /// Byte 1 of the IPv4 header: DSCP and ECN.
    pub(crate) traffic_class: u8,
    pub(crate) source_port: u16,
    /// Destination queue pair of the base transport header.
    pub(crate) queue_pair: u32,
}

/// Every RoCE v2 packet of a capture.
pub(crate) fn read(bytes: &[u8]) -> Vec<Packet> {
    assert_eq!(bytes[..4], 0xA1B2_C3D4_u32.to_le_bytes(), "a little-endian capture");
    let mut rest = &bytes[FILE_HEADER..];
    let mut packets = Vec::new();
    while rest.len() >= PACKET_HEADER {
        let len = u32::from_le_bytes(rest[8..12].try_into().expect("four bytes")) as usize;
        // The last packet may have been cut when the capture was stopped.
        let Some(frame) = rest[PACKET_HEADER..].get(..len) else { break };
        packets.extend(parse(frame));
        rest = &rest[PACKET_HEADER + len..];
    }
    packets
}

fn parse(frame: &[u8]) -> Option<Packet> {
    let ip = frame.get(ETHERNET..)?;
    let udp = ip.get(usize::from(ip.first()? & 0x0F) * 4..)?;
    let transport = udp.get(8..)?;
    let number = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
    let is_roce = ip[0] >> 4 == 4 && number(udp.get(2..4)?) == ROCE;
    let queue_pair = transport.get(5..8)?;
    is_roce.then(|| Packet {
        source: [ip[12], ip[13], ip[14], ip[15]],
        traffic_class: ip[1],
        source_port: number(udp),
        queue_pair: u32::from_be_bytes([0, queue_pair[0], queue_pair[1], queue_pair[2]]),
    })
}
