//! Bugs that are planted on purpose, so that tests can show that they would be found.
//!
//! A simulator that has never failed proves nothing. Each bug here is one that a change could
//! bring in by mistake; `tapecast-sim` and its tests switch on one at a time and expect a checker
//! to complain. Without the feature `planted`, which no shipped program has, [`is_planted`] is a
//! constant `false` and the compiler takes every branch that asks it out.

/// Names and descriptions stand beside each other, so that neither can be forgotten.
macro_rules! bugs {
    ($($bug:ident: $name:literal, $about:literal;)*) => {
        /// One planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Planted {
            $(#[doc = $about] $bug,)*
        }

        impl Planted {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$bug,)*];

            /// What it is called.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)*
                }
            }

            /// What is wrong while it is active.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$bug => $about,)*
                }
            }
        }
    };
}

bugs! {
    PageReleasedEarly: "page-released-early",
        "a completion also lets go of the pages of the work request behind it";
    CreditOffByOneRecord: "credit-off-by-one-record",
        "the window takes one record more than the ring has room for";
    ReceiveOffByOne: "receive-off-by-one",
        "the window counts one receive more than the subscriber has posted";
    DirtyLostWithoutCredit: "dirty-lost-without-credit",
        "the first snapshot that finds no credit does not mark its instrument dirty";
    NewestDirtyFirst: "newest-dirty-first",
        "the dirty queue serves the instrument that has waited least";
    ConflatedLostOnWrap: "conflated-lost-on-wrap",
        "the publisher forgets what it conflated when the ring wraps";
    PaddingOneUnitShort: "padding-one-unit-short",
        "padding ends one unit before the ring does";
    UnsignaledNeverRetired: "unsignaled-never-retired",
        "the last work request of a burst is not signaled";
    FlushNotCounted: "flush-not-counted",
        "the last work request of a flushed queue never completes";
    StaleLatest: "stale-latest",
        "the latest table is not written when every session took the snapshot at once";
    InterestIgnored: "interest-ignored-after-reattach",
        "a subscriber that attaches again is sent and takes every instrument";
    PositionOfAnother: "position-of-another",
        "a new session starts at the position of one that is there";
    GateForgetsDeparted: "gate-forgets-departed",
        "the place of a lossless session that left goes on gating";
    HoldOutlivesShortage: "hold-outlives-shortage",
        "a session that was held while pages were short stays held";
    RequestPassedOver: "request-passed-over",
        "of several requests for an image the first is passed over";
    PumpStopsAtFull: "pump-stops-at-full",
        "the pump serves nobody behind the first session that has no credit";
    DoorbellLate: "doorbell-late",
        "the first session that a flush serves gets its doorbell with the next one";
    DisconnectConflates: "disconnect-conflates",
        "a session that asked to be disconnected rather than conflated is conflated";
    RefreshForgotten: "refresh-forgotten",
        "a request for an image that was sent before is passed over";
    RestForgotten: "rest-forgotten",
        "an instrument does not rest while no other one does";
    FullQueueTakesControl: "full-queue-takes-control",
        "a heartbeat is staged though the send queue is full";
}

impl Planted {
    /// The bug of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }
}

#[cfg(feature = "planted")]
mod switch {
    use std::cell::Cell;

    use super::Planted;

    thread_local! {
        static ACTIVE: Cell<Option<Planted>> = const { Cell::new(None) };
    }

    /// Makes one bug active on this thread, or none.
    pub fn plant(bug: Option<Planted>) {
        ACTIVE.set(bug);
    }

    /// Whether this bug is active on this thread.
    #[must_use]
    pub fn is_planted(bug: Planted) -> bool {
        ACTIVE.get() == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub use switch::{is_planted, plant};

/// Whether this bug is active on this thread: never, without the feature.
#[cfg(not(feature = "planted"))]
#[must_use]
#[inline]
pub const fn is_planted(_bug: Planted) -> bool {
    false
}
