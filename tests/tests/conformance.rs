//! Every fabric keeps the same promises. See `tapecast_tests::conformance`.

use proptest::prelude::*;
use tapecast_tests::conformance::schedule::{self, Step};
#[cfg(feature = "verbs")]
use tapecast_tests::conformance::{Harness, VerbsHarness};
use tapecast_tests::conformance::{ShmHarness, SimHarness};

tapecast_tests::conformance!(sim, super::SimHarness);
tapecast_tests::conformance!(shm, super::ShmHarness);
#[cfg(feature = "verbs")]
tapecast_tests::conformance!(verbs, super::VerbsHarness);

fn any_step() -> impl Strategy<Value = Step> {
    let only = prop::collection::vec(0..8_u32, 0..3);
    prop_oneof![
        2 => Just(Step::Announce),
        // Three hundred snapshots overrun every ring.
        8 => (0..8_u32, prop_oneof![3 => 1..6_u32, 1 => 1..300_u32])
            .prop_map(|(instrument, count)| Step::Publish { instrument, count }),
        6 => Just(Step::Turn),
        3 => (prop::bool::weighted(0.2), only)
            .prop_map(|(lossless, only)| Step::Attach { lossless, only }),
        1 => (0..6_usize).prop_map(Step::Detach),
        2 => (0..6_usize).prop_map(Step::Toggle),
        1 => Just(Step::Settle),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_schedule_keeps_every_promise_on_sim(
        seed in any::<u64>(),
        steps in prop::collection::vec(any_step(), 1..120),
    ) {
        schedule::run::<SimHarness>(seed, &steps);
    }

    #[test]
    fn any_schedule_keeps_every_promise_on_shm(
        seed in any::<u64>(),
        steps in prop::collection::vec(any_step(), 1..120),
    ) {
        schedule::run::<ShmHarness>(seed, &steps);
    }
}

#[cfg(feature = "verbs")]
proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_schedule_keeps_every_promise_on_verbs(
        seed in any::<u64>(),
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        if VerbsHarness::is_available() {
            schedule::run::<VerbsHarness>(seed, &steps);
        }
    }
}
