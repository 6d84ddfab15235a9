//! What both ends of an RDMA session tell each other before the first byte is written.
//!
//! ```text
//! subscriber                                   publisher
//!     Attach (with an RdmaOffer)  ───────────►   checks, makes its queue pair
//!                                 ◄───────────   Connect (RdmaAnswer)
//!     ready to receive, Ready     ───────────►   starts the session
//!                                 ◄───────────   Accepted, or Refused at any step
//! ```
//!
//! Numbers are the InfiniBand Architecture Specification's: queue pair numbers and packet sequence
//! numbers have 24 bits, memory keys 32, a GID is 16 bytes.

use crate::WireError;
use crate::limits::{MAX_INSTRUMENTS, MAX_RING_BYTES, PAGE_BYTES, RECORD_ALIGN_BYTES};

/// Smallest ring of an RDMA session: the largest record fits twice.
pub const MIN_RDMA_RING_BYTES: u64 = 2 * PAGE_BYTES as u64;
/// Most receive work requests that a subscriber keeps posted.
pub const MAX_RECEIVE_DEPTH: u32 = 16_384;
/// Bytes of the control block that the publisher writes beside the ring.
pub const CONTROL_BLOCK_BYTES: u64 = 64;

const MAX_24_BITS: u32 = (1 << 24) - 1;

/// Largest payload of one packet on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PathMtu {
    /// 256 bytes.
    Bytes256 = 1,
    /// 512 bytes.
    Bytes512 = 2,
    /// 1024 bytes.
    Bytes1024 = 3,
    /// 2048 bytes.
    Bytes2048 = 4,
    /// 4096 bytes.
    Bytes4096 = 5,
}

impl PathMtu {
    /// From the number that verbs and the wire use (`enum ibv_mtu`).
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Bytes256,
            2 => Self::Bytes512,
            3 => Self::Bytes1024,
            4 => Self::Bytes2048,
            5 => Self::Bytes4096,
            _ => return None,
        })
    }

    /// The number that verbs and the wire use.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }
}

/// A queue pair, as its peer has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairAddress {
    /// RoCE v2 address of the port.
    pub gid: [u8; 16],
    /// Queue pair number, 24 bits.
    pub queue_pair: u32,
    /// Packet sequence number that it starts to send with, 24 bits.
    pub packet_sequence: u32,
    /// Largest payload of one packet at this end; the smaller of both is used.
    pub path_mtu: PathMtu,
}

/// Memory that the peer may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Virtual address at its owner.
    pub address: u64,
    /// Remote key (rkey).
    pub key: u32,
}

/// How long an end waits for acknowledgements before it takes its peer for gone. Both ends of a
/// session have the publisher's: the end with the smaller one would end sessions that the other
/// still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    /// Local ACK timeout: 4.096 us times two to this power, 1 to 31, for each try.
    pub timeout: u8,
    /// Times to send again, 0 to 7.
    pub retry_count: u8,
}

/// What a subscriber offers: where to reach it, and the memory that the publisher is to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaOffer {
    /// Its queue pair.
    pub peer: QueuePairAddress,
    /// The ring: a power of two of bytes, aligned to 64.
    pub ring: RemoteMemory,
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// The control block of [`CONTROL_BLOCK_BYTES`], aligned to 64.
    pub control: RemoteMemory,
    /// Receive work requests that it keeps posted.
    pub receive_depth: u32,
}

/// What a publisher answers: where to reach it, and the cell that the subscriber is to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaAnswer {
    /// Its queue pair.
    pub peer: QueuePairAddress,
    /// The session's cell: one page, aligned to 64.
    pub cell: RemoteMemory,
    /// Instruments that its directory has room for, at most [`MAX_INSTRUMENTS`].
    pub instruments: u32,
    /// For the subscriber's queue pair, as the publisher's own.
    pub retries: RetryBudget,
}

impl RetryBudget {
    /// Checks what a peer sent.
    ///
    /// # Errors
    /// [`WireError::Field`] for a timeout of 0, which would wait for ever, or a number of more than
    /// 5 (timeout) or 3 (count) bits.
    pub const fn check(&self) -> Result<(), WireError> {
        let Self { timeout, retry_count } = *self;
        if timeout == 0 || timeout > 31 {
            return Err(WireError::Field { field: "timeout", value: timeout as u64 });
        }
        if retry_count > 7 {
            return Err(WireError::Field { field: "retry_count", value: retry_count as u64 });
        }
        Ok(())
    }
}

impl QueuePairAddress {
    /// Checks what a peer sent.
    ///
    /// # Errors
    /// [`WireError::Field`] for a number of more than 24 bits.
    pub const fn check(&self) -> Result<(), WireError> {
        if self.queue_pair > MAX_24_BITS {
            let value = self.queue_pair as u64;
            return Err(WireError::Field { field: "queue_pair", value });
        }
        if self.packet_sequence > MAX_24_BITS {
            let value = self.packet_sequence as u64;
            return Err(WireError::Field { field: "packet_sequence", value });
        }
        Ok(())
    }
}

impl RemoteMemory {
    const fn check(&self, field: &'static str, bytes: u64) -> Result<(), WireError> {
        let aligned = self.address.is_multiple_of(RECORD_ALIGN_BYTES as u64);
        if !aligned || self.address == 0 || self.address.checked_add(bytes).is_none() {
            return Err(WireError::Field { field, value: self.address });
        }
        Ok(())
    }
}

impl RdmaOffer {
    /// Checks what a subscriber sent: every number that decides where the publisher writes.
    ///
    /// # Errors
    /// [`WireError::Field`] for the first that cannot be.
    pub fn check(&self) -> Result<(), WireError> {
        self.peer.check()?;
        let ring = MIN_RDMA_RING_BYTES..=MAX_RING_BYTES;
        if !ring.contains(&self.ring_bytes) || !self.ring_bytes.is_power_of_two() {
            return Err(WireError::Field { field: "ring_bytes", value: self.ring_bytes });
        }
        self.ring.check("ring address", self.ring_bytes)?;
        self.control.check("control address", CONTROL_BLOCK_BYTES)?;
        if self.receive_depth == 0 || self.receive_depth > MAX_RECEIVE_DEPTH {
            let value = u64::from(self.receive_depth);
            return Err(WireError::Field { field: "receive_depth", value });
        }
        Ok(())
    }
}

impl RdmaAnswer {
    /// Checks what a publisher sent.
    ///
    /// # Errors
    /// [`WireError::Field`] for the first that cannot be.
    pub fn check(&self) -> Result<(), WireError> {
        self.peer.check()?;
        if self.instruments as usize > MAX_INSTRUMENTS {
            let value = u64::from(self.instruments);
            return Err(WireError::Field { field: "instruments", value });
        }
        self.cell.check("cell address", PAGE_BYTES as u64)?;
        self.retries.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> RdmaOffer {
        let peer = QueuePairAddress {
            gid: [7; 16],
            queue_pair: MAX_24_BITS,
            packet_sequence: MAX_24_BITS,
            path_mtu: PathMtu::Bytes4096,
        };
        let memory = RemoteMemory { address: 0x7f00_0000_0000, key: 9 };
        RdmaOffer { peer, ring: memory, ring_bytes: 1 << 20, control: memory, receive_depth: 256 }
    }

    #[test]
    fn what_a_device_can_really_have_passes() {
        assert_eq!(offer().check(), Ok(()));
        for code in 0..=u8::MAX {
            let mtu = PathMtu::from_code(code);
            assert!(mtu.is_none_or(|mtu| mtu.code() == code && mtu.bytes() == 128 << code));
        }
        assert_eq!(PathMtu::Bytes4096.bytes(), 4096);
    }

    #[test]
    fn a_retry_budget_has_the_ranges_of_a_queue_pair() {
        for (timeout, retry_count) in [(1, 0), (31, 7)] {
            assert_eq!(RetryBudget { timeout, retry_count }.check(), Ok(()));
        }
        for (timeout, retry_count, name) in
            [(0, 6, "timeout"), (32, 6, "timeout"), (14, 8, "retry_count")]
        {
            let error = RetryBudget { timeout, retry_count }.check().unwrap_err();
            assert!(matches!(error, WireError::Field { field, .. } if field == name), "{error}");
        }
    }

    #[test]
    fn each_number_that_cannot_be_is_refused_by_name() {
        type Change = fn(&mut RdmaOffer);
        let cases: [(&str, Change); 10] = [
            ("queue_pair", |offer| offer.peer.queue_pair = 1 << 24),
            ("packet_sequence", |offer| offer.peer.packet_sequence = u32::MAX),
            ("ring_bytes", |offer| offer.ring_bytes = 0),
            ("ring_bytes", |offer| offer.ring_bytes = (1 << 20) + 64),
            ("ring_bytes", |offer| offer.ring_bytes = MAX_RING_BYTES * 2),
            ("ring address", |offer| offer.ring.address += 8),
            ("ring address", |offer| offer.ring.address = u64::MAX - 63),
            ("control address", |offer| offer.control.address = 0),
            ("receive_depth", |offer| offer.receive_depth = 0),
            ("receive_depth", |offer| offer.receive_depth = MAX_RECEIVE_DEPTH + 1),
        ];
        for (name, change) in cases {
            let mut offer = offer();
            change(&mut offer);
            let error = offer.check().unwrap_err();
            assert!(matches!(error, WireError::Field { field, .. } if field == name), "{error}");
        }
    }
}
