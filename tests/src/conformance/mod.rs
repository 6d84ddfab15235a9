//! One suite of promises, for every fabric.
//!
//! A fabric joins by implementing [`Harness`] and naming it in `tests/conformance.rs`. The suite
//! then plays publisher and subscribers on it, in one thread, and checks every snapshot where it
//! arrives: content, order, flags, counts. Each function of [`suite`] is one promise; [`schedule`]
//! plays any
//! sequence of steps and checks that all of them hold together.
//!
//! Nothing here waits for a clock. A step that needs time to pass makes turns until the fabric is
//! at rest, so a slow machine changes nothing.

#![expect(clippy::unwrap_used, reason = "a failed expectation is what a test is for")]

mod market;
pub mod schedule;
mod shm;
mod sim;
mod subscriber;
pub mod suite;
#[cfg(feature = "verbs")]
mod verbs;

use tapecast_core::session::Eviction;
use tapecast_fabric::pool::Pool;
use tapecast_fabric::{Endpoint, Fabric, Wish};
use tapecast_wire::SessionId;

pub use market::{Gated, Market};
pub use shm::ShmHarness;
pub use sim::SimHarness;
pub use subscriber::{Seen, Subscriber};
#[cfg(feature = "verbs")]
pub use verbs::VerbsHarness;

/// What a test asks of a fabric before it starts.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Instruments that the directory has room for.
    pub instruments: usize,
    /// Bytes of a ring; small, so that it wraps often.
    pub ring_bytes: u64,
    /// Decides what a fabric leaves to chance, where it leaves anything.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { instruments: 16, ring_bytes: 64 * 1024, seed: 1 }
    }
}

/// A fabric under test: both ends of it, in one process. Lossless sessions are allowed.
pub trait Harness {
    /// The publisher's end.
    type Fabric: Fabric;
    /// What a subscriber is given to open its end.
    type Ticket;
    /// The subscriber's end.
    type Endpoint: Endpoint;

    /// Whether this machine has what the fabric needs. Says so when it has not: a test that cannot
    /// run must be seen to be left out.
    fn is_available() -> bool {
        true
    }

    /// Starts the fabric.
    fn start(settings: &Settings, pool: &Pool) -> Self;

    /// The publisher's end.
    fn fabric(&self) -> &Self::Fabric;

    /// The publisher's end.
    fn fabric_mut(&mut self) -> &mut Self::Fabric;

    /// Prepares a session.
    fn prepare(&mut self, wish: &Wish<'_>) -> (<Self::Fabric as Fabric>::Session, Self::Ticket);

    /// Opens the subscriber's end of a session that was attached.
    fn open(&mut self, ticket: Self::Ticket, wish: &Wish<'_>) -> Self::Endpoint;

    /// Why the publisher's end has taken a session out, where that is who does it. Its subscriber
    /// is told by the control plane, which is not part of a fabric.
    fn eviction(&self, _session: SessionId) -> Option<Eviction> {
        None
    }

    /// What the subscriber's end has sent and not seen acknowledged.
    fn in_flight(_endpoint: &mut Self::Endpoint) -> usize {
        0
    }
}

/// Makes the whole suite into tests of one fabric.
#[macro_export]
macro_rules! conformance {
    ($module:ident, $harness:ty) => {
        mod $module {
            $crate::conformance! { @each $harness:
                a_late_joiner_sees_the_newest_of_each_instrument_and_then_everything
                joining_between_any_two_snapshots_leaves_no_gap_and_no_duplicate
                an_empty_channel_has_no_initial_image
                a_subscriber_that_keeps_up_sees_the_channel_in_order
                nothing_is_seen_before_the_flush
                only_what_was_asked_for_is_delivered
                an_instrument_that_is_watched_later_begins_with_its_newest_snapshot
                a_dropped_instrument_begins_again_with_its_newest_snapshot
                a_snapshot_that_is_asked_for_again_comes_again_and_counts_once_more
                a_subscriber_that_will_not_be_conflated_ends_when_it_would_have_to_be
                between_two_snapshots_an_instrument_rests_and_the_newest_comes_at_last
                a_subscriber_that_lags_is_conflated_to_the_newest_state_and_every_snapshot_counted
                a_subscriber_that_lags_again_and_again_always_catches_up
                a_lossless_subscriber_sees_everything_in_order_and_the_publisher_waits
                a_lossless_subscriber_that_leaves_lets_the_publisher_go_on
                one_stopped_subscriber_costs_the_others_nothing
                sixty_four_sessions_are_served_and_the_next_is_refused
                a_place_is_used_again_and_the_new_session_starts_afresh
                a_farewell_is_seen_after_everything_that_was_published
                an_instrument_is_known_before_its_first_snapshot
                a_directory_entry_that_changes_is_seen
                an_instrument_beyond_the_directory_is_refused
                an_instrument_that_appears_later_is_counted_from_its_first_snapshot
                records_of_every_size_survive_the_rings_end
                a_poll_delivers_no_more_than_its_limit
                all_pages_return_when_everything_is_at_rest
                both_ends_count_the_same
                the_publisher_shows_life_while_nothing_is_published
                a_silent_feed_is_shown_to_all_and_to_those_that_come_later_until_it_is_heard_again
                a_wait_ends_at_once_when_there_is_something_to_poll
            }
        }
    };
    (@each $harness:ty: $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                if <$harness as $crate::conformance::Harness>::is_available() {
                    $crate::conformance::suite::$name::<$harness>();
                }
            }
        )*
    };
}
