//! How much may be sent to one session before its subscriber must say that it made room.
//!
//! Three things run out independently, and one window counts them all, so that none of them is ever
//! overrun: bytes of the subscriber's ring, receive work requests that it has posted (each work
//! request with an immediate consumes one; running out of them is an RNR stall), and places in this
//! side's send queue.
//!
//! ```text
//!            consumed            flushed      sent                 consumed + ring_bytes
//! ───────────────┼───────────────────┼──────────┼──────────────────────────┼──────►  position
//!   free again   │ in the ring       │ staged   │ may be staged            │ limit
//! ```
//!
//! Records lie contiguously in the ring. One that does not fit before its end is preceded by a
//! padding record up to the end, written by a work request of its own that consumes no receive.

use tapecast_wire::Position;
use tapecast_wire::limits::{PAGE_BYTES, RECORD_ALIGN_BYTES};

use crate::planted::{Planted, is_planted};

const UNIT: u64 = RECORD_ALIGN_BYTES as u64;

/// The sizes that both ends of a session agreed on.
///
/// # Invariants
/// `ring_bytes` is a power of two of at least [`WindowSize::MIN_RING_BYTES`], so an idle window
/// takes any record wherever its position is; the other three are at least their minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSize {
    ring_bytes: u64,
    receive_depth: u32,
    send_depth: u32,
    gather: u32,
}

/// Sizes that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowSizeError {
    /// The ring is not a power of two or too small for the largest record and its padding.
    #[error(
        "ring of {ring_bytes} bytes: use a power of two of at least {}",
        WindowSize::MIN_RING_BYTES
    )]
    Ring {
        /// Bytes asked for.
        ring_bytes: u64,
    },
    /// The subscriber would post no receive work request.
    #[error("receive queue of depth 0: every work request consumes a receive, use at least 1")]
    Receives,
    /// The send queue cannot hold a padding and a record.
    #[error("send queue of depth {send_depth}: a record at the ring's end needs 2 places")]
    Sends {
        /// Depth asked for.
        send_depth: u32,
    },
    /// A work request could carry nothing.
    #[error("0 records for each work request: use at least 1")]
    Gather,
}

impl WindowSize {
    /// The smallest ring: the largest record behind the largest padding.
    pub const MIN_RING_BYTES: u64 = 2 * PAGE_BYTES as u64;
    /// The smallest send queue: a padding and a record.
    pub const MIN_SEND_DEPTH: u32 = 2;

    /// Checks sizes: bytes of the ring, receive work requests that the subscriber keeps posted,
    /// work requests that may be outstanding, and records that one work request gathers at most.
    ///
    /// # Errors
    /// [`WindowSizeError`] for sizes that cannot carry every record.
    pub const fn new(
        ring_bytes: u64,
        receive_depth: u32,
        send_depth: u32,
        gather: u32,
    ) -> Result<Self, WindowSizeError> {
        if !ring_bytes.is_power_of_two() || ring_bytes < Self::MIN_RING_BYTES {
            return Err(WindowSizeError::Ring { ring_bytes });
        }
        if receive_depth == 0 {
            return Err(WindowSizeError::Receives);
        }
        if send_depth < Self::MIN_SEND_DEPTH {
            return Err(WindowSizeError::Sends { send_depth });
        }
        if gather == 0 {
            return Err(WindowSizeError::Gather);
        }
        Ok(Self { ring_bytes, receive_depth, send_depth, gather })
    }

    /// Bytes of the subscriber's ring.
    #[must_use]
    pub const fn ring_bytes(self) -> u64 {
        self.ring_bytes
    }

    /// Receive work requests that the subscriber keeps posted.
    #[must_use]
    pub const fn receive_depth(self) -> u32 {
        self.receive_depth
    }

    /// Work requests that may be outstanding.
    #[must_use]
    pub const fn send_depth(self) -> u32 {
        self.send_depth
    }

    /// Records that one work request gathers at most.
    #[must_use]
    pub const fn gather(self) -> u32 {
        self.gather
    }
}

/// A padding record that fills the ring up to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Where it starts.
    pub position: Position,
    /// Its length; less than a page.
    pub bytes: u64,
}

/// Where a record goes and what that takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Where the record starts; a multiple of [`RECORD_ALIGN_BYTES`].
    pub position: Position,
    /// Bytes that it occupies in the ring: its length rounded up to [`RECORD_ALIGN_BYTES`].
    pub bytes: u64,
    /// To be written first, by a work request of its own.
    pub padding: Option<Padding>,
    /// The record begins a new work request; otherwise it joins the open one, right behind it.
    pub opens: bool,
}

impl Placement {
    /// Where the next record would start.
    #[must_use]
    pub const fn end(&self) -> Position {
        Position(self.position.0 + self.bytes)
    }

    const fn work_requests(&self) -> u32 {
        self.padding.is_some() as u32 + self.opens as u32
    }

    const fn receives(&self) -> u64 {
        self.opens as u64
    }
}

/// What ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// Bytes of the subscriber's ring.
    Bytes,
    /// Receive work requests posted by the subscriber.
    Receives,
    /// Places in the send queue.
    Sends,
}

/// A peer's claim about its progress that cannot be true. It must be evicted: after one lie, no
/// credit that it gives can be believed, and a wrong credit overwrites unread data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Liar {
    /// It gave up progress that it had claimed.
    #[error("the subscriber says it consumed up to {said}, after it had said {was}: evict it")]
    ConsumedBackwards {
        /// Its claim before.
        was: Position,
        /// Its claim now.
        said: Position,
    },
    /// It consumed what was not sent.
    #[error("the subscriber says it consumed up to {said}, but only {sent} was sent: evict it")]
    ConsumedAhead {
        /// End of what was sent.
        sent: Position,
        /// Its claim.
        said: Position,
    },
    /// It consumed a part of a unit.
    #[error("the subscriber says it consumed up to {said}, where no record can end: evict it")]
    ConsumedUnaligned {
        /// Its claim.
        said: Position,
    },
    /// It took back receives that it had posted.
    #[error("the subscriber says it posted {said} receives, after it had said {was}: evict it")]
    ReceivesBackwards {
        /// Its claim before.
        was: u64,
        /// Its claim now.
        said: u64,
    },
    /// It posted more receives than its queue holds.
    #[error(
        "the subscriber says it posted {said} receives, but its queue allows {limit}: evict it"
    )]
    ReceivesAhead {
        /// The most that can be true.
        limit: u64,
        /// Its claim.
        said: u64,
    },
}

/// The window of one session.
///
/// # Invariants
/// - `consumed <= flushed <= sent <= consumed + ring_bytes`, all multiples of the unit.
/// - `immediates_flushed <= immediates <= receives <= immediates_flushed + receive_depth`.
/// - `outstanding <= send_depth`; `gathered <= gather`.
#[derive(Clone, Debug)]
pub struct CreditWindow {
    size: WindowSize,
    sent: u64,
    flushed: u64,
    consumed: u64,
    /// Work requests with an immediate ever begun, and ever flushed.
    immediates: u64,
    immediates_flushed: u64,
    /// Receive work requests that the subscriber ever posted.
    receives: u64,
    /// Work requests begun and not retired.
    outstanding: u32,
    /// Records in the open work request; 0 when none is open.
    gathered: u32,
}

impl CreditWindow {
    /// An idle window at position 0, with all receives posted: the subscriber posts them before the
    /// session starts.
    #[must_use]
    pub const fn new(size: WindowSize) -> Self {
        Self {
            size,
            sent: 0,
            flushed: 0,
            consumed: 0,
            immediates: 0,
            immediates_flushed: 0,
            receives: size.receive_depth as u64,
            outstanding: 0,
            gathered: 0,
        }
    }

    /// Where a record of `record_bytes` would go. Changes nothing.
    ///
    /// # Errors
    /// [`Exhausted`] when there is no credit for it now.
    #[inline]
    pub fn place(&self, record_bytes: usize) -> Result<Placement, Exhausted> {
        debug_assert!(record_bytes > 0 && record_bytes <= PAGE_BYTES);
        let bytes = (record_bytes as u64).next_multiple_of(UNIT);
        let offset = self.sent & (self.size.ring_bytes - 1);
        let to_end = self.size.ring_bytes - offset;
        let padding = (bytes > to_end).then(|| self.padding(to_end));
        let padding_bytes = if padding.is_some() { to_end } else { 0 };
        let is_open = self.gathered > 0 && self.gathered < self.size.gather;
        let placement = Placement {
            position: Position(self.sent + padding_bytes),
            bytes,
            padding,
            opens: !is_open || padding.is_some() || offset == 0,
        };
        if padding_bytes + bytes > self.room_bytes(bytes) {
            return Err(Exhausted::Bytes);
        }
        if placement.receives() > self.free_receives() {
            return Err(Exhausted::Receives);
        }
        if placement.work_requests() > self.size.send_depth.saturating_sub(self.outstanding) {
            return Err(Exhausted::Sends);
        }
        Ok(placement)
    }

    fn padding(&self, to_end: u64) -> Padding {
        let position = Position(self.sent);
        if is_planted(Planted::PaddingOneUnitShort) && to_end > UNIT {
            return Padding { position, bytes: to_end - UNIT };
        }
        Padding { position, bytes: to_end }
    }

    /// Bytes of the ring that the subscriber has consumed or never had.
    fn room_bytes(&self, record_bytes: u64) -> u64 {
        if is_planted(Planted::CreditOffByOneRecord) {
            return (self.size.ring_bytes + record_bytes).saturating_sub(self.lag_bytes());
        }
        self.size.ring_bytes - self.lag_bytes()
    }

    /// Receives that are posted and not spoken for.
    fn free_receives(&self) -> u64 {
        if is_planted(Planted::ReceiveOffByOne) {
            return (self.receives + 1).saturating_sub(self.immediates);
        }
        self.receives - self.immediates
    }

    /// Takes the credit for a placement that [`CreditWindow::place`] has just returned.
    #[inline]
    pub fn take(&mut self, placement: &Placement) {
        debug_assert!(self.place(placement.bytes as usize).as_ref() == Ok(placement));
        self.sent = placement.end().0;
        self.outstanding += placement.work_requests();
        self.immediates += placement.receives();
        self.gathered = if placement.opens { 1 } else { self.gathered + 1 };
    }

    /// Takes a place in the send queue for a write beside the ring. Returns whether there was one.
    pub fn take_send(&mut self) -> bool {
        if is_planted(Planted::FullQueueTakesControl) {
            self.outstanding += 1;
            return true;
        }
        if self.outstanding == self.size.send_depth {
            return false;
        }
        self.outstanding += 1;
        true
    }

    /// Closes the open work request, at the end of a batch. What was staged counts as handed over.
    /// Returns the new tail of the ring.
    pub const fn flush(&mut self) -> Position {
        self.gathered = 0;
        self.flushed = self.sent;
        self.immediates_flushed = self.immediates;
        Position(self.sent)
    }

    /// `count` work requests have left the send queue, done or flushed.
    ///
    /// # Panics
    /// When more are retired than were begun: the completions come from this side's own device, so
    /// that is a bug of the caller.
    pub fn on_retired(&mut self, count: u32) {
        assert!(count <= self.outstanding, "{count} retired, {} outstanding", self.outstanding);
        self.outstanding -= count;
    }

    /// What the subscriber says it has consumed and how many receives it has ever posted.
    ///
    /// Both are cumulative, so a repeated or late claim is harmless. Returns whether there is more
    /// credit than before.
    ///
    /// # Errors
    /// [`Liar`] when the claim cannot be true; the window is unchanged then.
    pub const fn on_credit(&mut self, consumed: Position, receives: u64) -> Result<bool, Liar> {
        let (was, sent) = (Position(self.consumed), Position(self.flushed));
        if consumed.0 < self.consumed {
            return Err(Liar::ConsumedBackwards { was, said: consumed });
        }
        if consumed.0 > self.flushed {
            return Err(Liar::ConsumedAhead { sent, said: consumed });
        }
        if !consumed.0.is_multiple_of(UNIT) {
            return Err(Liar::ConsumedUnaligned { said: consumed });
        }
        if receives < self.receives {
            return Err(Liar::ReceivesBackwards { was: self.receives, said: receives });
        }
        let limit = self.immediates_flushed + self.size.receive_depth as u64;
        if receives > limit {
            return Err(Liar::ReceivesAhead { limit, said: receives });
        }
        let more = consumed.0 > self.consumed || receives > self.receives;
        self.consumed = consumed.0;
        self.receives = receives;
        Ok(more)
    }

    /// The agreed sizes.
    #[must_use]
    pub const fn size(&self) -> WindowSize {
        self.size
    }

    /// End of what was staged.
    #[must_use]
    pub const fn sent(&self) -> Position {
        Position(self.sent)
    }

    /// Up to where the subscriber says it has consumed.
    #[must_use]
    pub const fn consumed(&self) -> Position {
        Position(self.consumed)
    }

    /// Bytes that the subscriber has not consumed yet.
    #[must_use]
    pub const fn lag_bytes(&self) -> u64 {
        self.sent - self.consumed
    }

    /// Work requests begun and not retired.
    #[must_use]
    pub const fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Checks the invariants of the type. For tests.
    ///
    /// # Panics
    /// When an invariant does not hold, which is a bug of this crate.
    pub fn assert_invariants(&self) {
        assert!(self.consumed <= self.flushed && self.flushed <= self.sent, "{self:?}");
        assert!(self.sent <= self.consumed + self.size.ring_bytes, "{self:?}");
        for position in [self.consumed, self.flushed, self.sent] {
            assert!(position.is_multiple_of(UNIT), "{self:?}");
        }
        assert!(self.immediates_flushed <= self.immediates, "{self:?}");
        assert!(self.immediates <= self.receives, "{self:?}");
        let limit = self.immediates_flushed + u64::from(self.size.receive_depth);
        assert!(self.receives <= limit, "{self:?}");
        assert!(self.outstanding <= self.size.send_depth, "{self:?}");
        assert!(self.gathered <= self.size.gather, "{self:?}");
    }
}
