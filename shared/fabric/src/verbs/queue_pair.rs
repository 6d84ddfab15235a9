//! Reliable connections: their life from reset to error.
//!
//! ```text
//! create ─► Reset ── to_init ─► Init ── to_rtr ─► Rtr ── to_rts ─► Rts
//!             └────────────────── to_error, or a failure ───────────┴──► Err
//! ```
//!
//! Receives may be posted from Init on, sends in Rts. In Err both are legal, and come back flushed.

use std::hash::{BuildHasher, RandomState};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use tapecast_wire::rdma::{PathMtu, QueuePairAddress};

use super::completion::CompletionQueue;
use super::device::{Port, ProtectionDomain, address_of};
use super::error::VerbsError;
use super::ffi;
use super::memory::Access;
use super::route::{RouteConfig, flow_label};

type Mask = ffi::ibv_qp_attr_mask;

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// As made.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Failed or stopped; what was posted is flushed.
    Err,
}

impl State {
    const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::Rtr,
            3 => Self::Rts,
            _ => Self::Err,
        }
    }

    /// Its name, as in the specification.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Err => "ERR",
        }
    }

    const fn code(self) -> u32 {
        match self {
            Self::Reset => ffi::ibv_qp_state::IBV_QPS_RESET,
            Self::Init => ffi::ibv_qp_state::IBV_QPS_INIT,
            Self::Rtr => ffi::ibv_qp_state::IBV_QPS_RTR,
            Self::Rts => ffi::ibv_qp_state::IBV_QPS_RTS,
            Self::Err => ffi::ibv_qp_state::IBV_QPS_ERR,
        }
    }
}

/// How much may be posted to a queue pair and not have completed. The device may take more; count
/// with these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Depths {
    /// Work requests to send, at least 1.
    pub(super) send: u32,
    /// Receives.
    pub(super) receive: u32,
    /// Pieces of memory of one work request to send.
    pub(super) send_sge: u32,
    /// Bytes that a work request to send may carry itself.
    pub(super) inline_bytes: u32,
}

/// A reliable connection. Any thread may call any method; work requests are best posted by one.
#[derive(Debug)]
pub(super) struct QueuePair {
    raw: NonNull<ffi::ibv_qp>,
    number: u32,
    state: AtomicU8,
    // Both kept for as long as the queue pair, which uses them. Dropped after it.
    _domain: ProtectionDomain,
    _completions: [CompletionQueue; 2],
}

// SAFETY: the library locks what its functions change, so that any thread may call them.
unsafe impl Send for QueuePair {}
// SAFETY: as for `Send`, also at the same time; the state is an atomic.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Makes one whose sends and receives complete in the queues given.
    ///
    /// # Errors
    /// [`VerbsError::Limit`] when the device cannot have one so deep, [`VerbsError::Call`] when it
    /// has none left.
    pub(super) fn create(
        domain: &ProtectionDomain,
        send: &CompletionQueue,
        receive: &CompletionQueue,
        depths: Depths,
    ) -> Result<Self, VerbsError> {
        check_depths(domain, depths)?;
        // SAFETY: the struct is numbers and nullable pointers, for which zero is a value.
        let mut init: ffi::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        init.send_cq = send.as_ptr();
        init.recv_cq = receive.as_ptr();
        init.qp_type = ffi::ibv_qp_type::IBV_QPT_RC;
        init.cap.max_send_wr = depths.send;
        init.cap.max_send_sge = depths.send_sge;
        init.cap.max_inline_data = depths.inline_bytes;
        // Some drivers refuse a receive queue of size 0.
        init.cap.max_recv_wr = depths.receive.max(1);
        init.cap.max_recv_sge = 1;
        // SAFETY: the domain and both queues are valid, and held by the result.
        let raw = unsafe { ffi::ibv_create_qp(domain.as_ptr(), &raw mut init) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            let remedy = "compare max_qp and max_qp_wr in `ibv_devinfo -v`, lower send_depth, \
                          gather or receive_depth, and check `ulimit -l`";
            let values = format!("{}, {depths:?}", domain.context().name());
            VerbsError::last("ibv_create_qp", values, remedy)
        })?;
        // SAFETY: the library made the struct; the number never changes.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        let state = AtomicU8::new(State::Reset as u8);
        let _completions = [send.clone(), receive.clone()];
        Ok(Self { raw, number, state, _domain: domain.clone(), _completions })
    }

    /// Its number, 24 bits.
    #[cfg(test)]
    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    /// What a peer must know of it; sending will start with `packet_sequence`.
    pub(super) const fn address(&self, port: &Port, packet_sequence: u32) -> QueuePairAddress {
        let (gid, path_mtu) = (port.gid, port.active_mtu);
        QueuePairAddress { gid, queue_pair: self.number, packet_sequence, path_mtu }
    }

    /// The state that this end brought it to. A failure shows in completions.
    pub(super) fn state(&self) -> State {
        State::from_number(self.state.load(Ordering::Acquire))
    }

    /// Reset to Init: bound to a port, with what peers may do to memory of its domain.
    ///
    /// # Errors
    /// [`VerbsError::State`] or [`VerbsError::Call`].
    pub(super) fn to_init(&self, port: &Port, access: Access) -> Result<(), VerbsError> {
        let mut attributes = attributes(State::Init);
        attributes.port_num = port.number;
        attributes.qp_access_flags = access.flags();
        let mask = Mask::IBV_QP_PKEY_INDEX.0 | Mask::IBV_QP_PORT.0 | Mask::IBV_QP_ACCESS_FLAGS.0;
        self.step([State::Reset, State::Init], attributes, mask, |source| {
            let values = format!("queue pair {} to INIT, port {}", self.number, port.number);
            let remedy = "is the port still there (`rdma link`)?";
            VerbsError::code("ibv_modify_qp", values, source, remedy)
        })
    }

    /// Init to Rtr: connected to a peer, whose packets it takes.
    ///
    /// # Errors
    /// [`VerbsError::State`] or [`VerbsError::Call`]. A peer that cannot be reached is not found
    /// out here but when the first message is not acknowledged.
    pub(super) fn to_rtr(
        &self,
        peer: &QueuePairAddress,
        route: &RouteConfig,
        port: &Port,
    ) -> Result<(), VerbsError> {
        let mtu = path_mtu(peer, route, port);
        let mut attributes = attributes(State::Rtr);
        attributes.path_mtu = u32::from(mtu.code());
        attributes.dest_qp_num = peer.queue_pair;
        attributes.rq_psn = peer.packet_sequence;
        attributes.max_dest_rd_atomic = 1;
        attributes.min_rnr_timer = route.min_rnr_timer;
        attributes.ah_attr.port_num = port.number;
        attributes.ah_attr.is_global = 1;
        attributes.ah_attr.sl = route.service_level;
        let grh = &mut attributes.ah_attr.grh;
        grh.dgid.raw = peer.gid;
        grh.sgid_index = port.gid_index;
        grh.hop_limit = route.hop_limit;
        grh.traffic_class = route.traffic_class;
        grh.flow_label = if route.flow_labels { flow_label(self.number) } else { 0 };
        let mask = Mask::IBV_QP_AV.0
            | Mask::IBV_QP_PATH_MTU.0
            | Mask::IBV_QP_DEST_QPN.0
            | Mask::IBV_QP_RQ_PSN.0
            | Mask::IBV_QP_MAX_DEST_RD_ATOMIC.0
            | Mask::IBV_QP_MIN_RNR_TIMER.0;
        self.step([State::Init, State::Rtr], attributes, mask, |source| {
            let (here, there) = (address_of(port.gid), address_of(peer.gid));
            let values = format!(
                "queue pair {} to RTR, from {here} (GID index {}) to {there} queue pair {}, path \
                 MTU {}",
                self.number,
                port.gid_index,
                peer.queue_pair,
                mtu.bytes()
            );
            let remedy = "are both addresses IPv4 or both IPv6, is this end's address still set \
                          (`ip addr`), and is there a route and a neighbour entry to the peer \
                          (`ip route get`, `ping`)?";
            VerbsError::code("ibv_modify_qp", values, source, remedy)
        })
    }

    /// Rtr to Rts: may send, starting with the packet sequence number that the peer was told.
    ///
    /// # Errors
    /// [`VerbsError::State`] or [`VerbsError::Call`].
    pub(super) fn to_rts(
        &self,
        packet_sequence: u32,
        route: &RouteConfig,
    ) -> Result<(), VerbsError> {
        let mut attributes = attributes(State::Rts);
        attributes.sq_psn = packet_sequence;
        attributes.timeout = route.timeout;
        attributes.retry_cnt = route.retry_count;
        attributes.rnr_retry = route.rnr_retry;
        attributes.max_rd_atomic = 1;
        let mask = Mask::IBV_QP_SQ_PSN.0
            | Mask::IBV_QP_TIMEOUT.0
            | Mask::IBV_QP_RETRY_CNT.0
            | Mask::IBV_QP_RNR_RETRY.0
            | Mask::IBV_QP_MAX_QP_RD_ATOMIC.0;
        self.step([State::Rtr, State::Rts], attributes, mask, |source| {
            let RouteConfig { timeout, retry_count, rnr_retry, .. } = *route;
            let values = format!(
                "queue pair {} to RTS, timeout {timeout}, retry_count {retry_count}, rnr_retry \
                 {rnr_retry}, packet sequence {packet_sequence}",
                self.number
            );
            let remedy = "does the device allow this timeout and these retries?";
            VerbsError::code("ibv_modify_qp", values, source, remedy)
        })
    }

    /// A completion said that the device has stopped it.
    pub(super) fn note_failure(&self) {
        self.state.store(State::Err as u8, Ordering::Release);
    }

    /// Stops it, whatever state it is in: what is posted comes back flushed, and the device touches
    /// no memory for it any more. May be called while another thread posts.
    ///
    /// # Errors
    /// [`VerbsError::Call`], for example when the device is gone.
    pub(super) fn to_error(&self) -> Result<(), VerbsError> {
        let mut attributes = attributes(State::Err);
        let mask = Mask::IBV_QP_STATE.0.cast_signed();
        // SAFETY: the queue pair is valid and the attributes named by the mask are set.
        let errno = unsafe { ffi::ibv_modify_qp(self.raw.as_ptr(), &raw mut attributes, mask) };
        if errno != 0 {
            let values = format!("queue pair {} to ERR", self.number);
            let remedy = "is the device still there (`rdma link`)?";
            return Err(VerbsError::code("ibv_modify_qp", values, errno, remedy));
        }
        self.state.store(State::Err as u8, Ordering::Release);
        Ok(())
    }

    /// Asks the device for the state, which a failure changes. A system call.
    ///
    /// # Errors
    /// [`VerbsError::Call`].
    #[cfg(test)]
    pub(super) fn query_state(&self) -> Result<State, VerbsError> {
        let mut found = attributes(State::Reset);
        // SAFETY: the struct is numbers and nullable pointers, for which zero is a value.
        let mut init: ffi::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        let mask = Mask::IBV_QP_STATE.0.cast_signed();
        let raw = self.raw.as_ptr();
        // SAFETY: the queue pair is valid and both structs are ours to fill.
        let errno = unsafe { ffi::ibv_query_qp(raw, &raw mut found, mask, &raw mut init) };
        if errno != 0 {
            let values = format!("queue pair {}", self.number);
            let remedy = "is the device still there (`rdma link`)?";
            return Err(VerbsError::code("ibv_query_qp", values, errno, remedy));
        }
        let states = [State::Reset, State::Init, State::Rtr, State::Rts];
        let known = states.into_iter().find(|state| state.code() == found.qp_state);
        // What is left, draining and send errors among them, can send nothing.
        Ok(known.unwrap_or(State::Err))
    }

    /// For calls of the verbs library. Not null, and valid as long as this lives.
    pub(super) const fn as_ptr(&self) -> *mut ffi::ibv_qp {
        self.raw.as_ptr()
    }

    fn step(
        &self,
        [from, to]: [State; 2],
        mut attributes: ffi::ibv_qp_attr,
        mask: u32,
        failed: impl FnOnce(i32) -> VerbsError,
    ) -> Result<(), VerbsError> {
        let found = self.state();
        if found != from {
            let (step, expected, found) = (to.name(), from.name(), found.name());
            return Err(VerbsError::State { queue_pair: self.number, step, expected, found });
        }
        let mask = (Mask::IBV_QP_STATE.0 | mask).cast_signed();
        // SAFETY: the queue pair is valid and the attributes named by the mask are set.
        let errno = unsafe { ffi::ibv_modify_qp(self.raw.as_ptr(), &raw mut attributes, mask) };
        if errno != 0 {
            return Err(failed(errno));
        }
        // Another thread may have stopped it meanwhile, which must not be forgotten.
        let (from, to) = (from as u8, to as u8);
        let _stopped = self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        Ok(())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: this value made the queue pair and is the only one that destroys it; its queues
        // and its domain are dropped after it.
        let code = unsafe { ffi::ibv_destroy_qp(self.raw.as_ptr()) };
        debug_assert_eq!(code, 0, "ibv_destroy_qp");
    }
}

/// A number that nobody can guess, 24 bits, to start a connection's packets with: packets of an
/// earlier connection are then not taken for this one's.
pub(super) fn random_packet_sequence() -> u32 {
    let random = RandomState::new().hash_one(0_u64);
    (random >> 40) as u32
}

/// The largest payload that both ends and the route can have.
fn path_mtu(peer: &QueuePairAddress, route: &RouteConfig, port: &Port) -> PathMtu {
    port.active_mtu.min(peer.path_mtu).min(route.path_mtu_max)
}

fn attributes(state: State) -> ffi::ibv_qp_attr {
    // SAFETY: the struct is plain numbers, for which zero is a value.
    let mut attributes: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
    attributes.qp_state = state.code();
    attributes
}

fn check_depths(domain: &ProtectionDomain, depths: Depths) -> Result<(), VerbsError> {
    let limits = domain.context().limits();
    let checks = [
        ("work requests to send", "max_qp_wr", depths.send, limits.max_qp_wr, "lower send_depth"),
        ("receives", "max_qp_wr", depths.receive, limits.max_qp_wr, "lower receive_depth"),
        ("pieces of one work request", "max_sge", depths.send_sge, limits.max_sge, "lower gather"),
    ];
    for (what, attribute, asked, limit, remedy) in checks {
        if asked > limit {
            let (asked, limit) = (u64::from(asked), u64::from(limit));
            return Err(VerbsError::Limit { what, attribute, asked, limit, remedy });
        }
    }
    Ok(())
}

/// Checks that a device can have so many queue pairs.
///
/// # Errors
/// [`VerbsError::Limit`].
pub(super) fn check_sessions(domain: &ProtectionDomain, sessions: usize) -> Result<(), VerbsError> {
    let limit = u64::from(domain.context().limits().max_qp);
    let asked = sessions as u64;
    if asked <= limit {
        return Ok(());
    }
    let (what, attribute, remedy) = ("sessions, a queue pair each", "max_qp", "lower sessions_max");
    Err(VerbsError::Limit { what, attribute, asked, limit, remedy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_sequence_numbers_have_24_bits_and_differ() {
        let drawn: Vec<_> = (0..8).map(|_| random_packet_sequence()).collect();
        assert!(drawn.iter().all(|number| *number < 1 << 24), "{drawn:?}");
        // The odds that eight draws are all the same are 1 to 2^168.
        assert!(drawn.iter().any(|number| *number != drawn[0]), "{drawn:?}");
    }

    #[test]
    fn a_state_survives_the_atomic() {
        for state in [State::Reset, State::Init, State::Rtr, State::Rts, State::Err] {
            assert_eq!(State::from_number(state as u8), state);
        }
    }
}
