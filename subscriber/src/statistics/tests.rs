use tapecast_telemetry::BOUNDS_NS;
use tapecast_wire::limits::PAGE_BYTES;
use tapecast_wire::{InstrumentId, Sequence, SnapshotFields, TradingStatus, encode_snapshot};
use zerocopy::IntoBytes;

use super::*;

const RECEIVED: Nanos = Nanos(1_800_000_000_000_000_000);

/// Delivers one snapshot with these flags and this receive time at [`RECEIVED`].
fn deliver(recorder: &mut Recorder, flags: Flags, ts_recv: u64) {
    deliver_of(recorder, flags, ts_recv, RECEIVED.get() - 1_500);
}

/// The same, of one that says that it was published at `ts_publish`.
fn deliver_of(recorder: &mut Recorder, flags: Flags, ts_recv: u64, ts_publish: u64) {
    let fields = SnapshotFields {
        instrument_id: InstrumentId(0),
        flags: Flags::NONE,
        trading_status: TradingStatus::Trading,
        epoch: Epoch(1),
        channel_sequence: Sequence(1),
        instrument_sequence: Sequence(1),
        feed_sequence: 1,
        ts_event: 1,
        ts_recv,
        last_trade_price: 0,
        last_trade_quantity: 0,
    };
    let mut memory = vec![0_u64; PAGE_BYTES / 8];
    encode_snapshot(memory.as_mut_bytes(), &fields, &[], &[]).unwrap();
    let mut header = *Record::parse(memory.as_bytes()).unwrap().header();
    header.flags = flags;
    header.ts_publish = ts_publish;
    header.write_to_prefix(memory.as_mut_bytes()).unwrap();
    let record = Record::parse(memory.as_bytes()).unwrap();
    recorder.on_delivery(&record, || RECEIVED).unwrap();
}

fn recorder() -> Recorder {
    Recorder::new(true, 0, 4)
}

/// What was counted end to end of one snapshot that is always counted as transit.
fn counted(flags: Flags, ts_recv: u64) -> LatencyCounts {
    let mut recorder = recorder();
    deliver(&mut recorder, flags, ts_recv);
    assert_eq!(recorder.latency_counts().count(), 1, "{flags:?} {ts_recv}");
    recorder.end_to_end_counts()
}

fn of(ages_ns: &[u64]) -> LatencyCounts {
    let mut counts = LatencyCounts::new();
    ages_ns.iter().for_each(|age_ns| counts.record(*age_ns));
    counts
}

#[test]
fn an_age_is_counted_in_its_bucket() {
    for age_ns in [0, 99, 250_000, 999_999_999, 1_000_000_001, END_TO_END_MAX_NS] {
        let counts = counted(Flags::NONE, RECEIVED.get() - age_ns);
        let bucket = BOUNDS_NS.iter().position(|bound_ns| age_ns <= *bound_ns);
        assert_eq!(counts.counts[bucket.unwrap_or(BUCKETS - 1)], 1, "{age_ns}");
        assert_eq!((counts.count(), counts.sum_ns), (1, age_ns));
    }
}

#[test]
fn history_the_future_and_no_time_at_all_are_not_counted() {
    let year_ns = 365 * 86_400 * 1_000_000_000;
    for ts_recv in [
        0,
        1,
        RECEIVED.get() - year_ns,
        RECEIVED.get() - END_TO_END_MAX_NS - 1,
        RECEIVED.get() + 1,
        RECEIVED.get() + year_ns,
        u64::MAX,
    ] {
        assert_eq!(counted(Flags::NONE, ts_recv), of(&[]), "{ts_recv}");
    }
}

#[test]
fn a_time_that_the_feed_does_not_trust_is_not_counted_and_a_conflated_one_is() {
    let ts_recv = RECEIVED.get() - 5_000;
    assert_eq!(counted(Flags::BAD_TS_RECV, ts_recv), of(&[]));
    assert_eq!(counted(Flags::CONFLATED, ts_recv), of(&[5_000]));
    assert_eq!(counted(Flags::SUSPECT, ts_recv), of(&[5_000]));
}

#[test]
fn an_initial_image_has_neither_latency() {
    let mut recorder = recorder();
    deliver(&mut recorder, Flags::INITIAL_IMAGE, RECEIVED.get() - 5_000);
    assert_eq!((recorder.latency_counts(), recorder.end_to_end_counts()), (of(&[]), of(&[])));
}

/// What a recorder says of snapshots that took so long, by the clocks of both hosts.
fn after(transits_ns: &[i64]) -> Recorder {
    let mut recorder = recorder();
    for transit_ns in transits_ns {
        let ts_publish = RECEIVED.get().wrapping_add_signed(-transit_ns);
        deliver_of(&mut recorder, Flags::NONE, 0, ts_publish);
    }
    recorder
}

fn figures(recorder: &Recorder) -> Statistics {
    let mut figures = Statistics::default();
    recorder.fill(&mut figures);
    figures
}

#[test]
fn a_delivery_before_its_publishing_is_counted_and_no_latency_of_zero() {
    let recorder = after(&[900, -1, 0, -5_000_000_000, 700]);
    let told = figures(&recorder);
    assert_eq!(told.negative_deliveries, 2);
    assert_eq!((told.latency.count, told.latency.min_ns, told.latency.max_ns), (3, 0, 900));
    assert_eq!(recorder.latency_counts(), of(&[900, 0, 700]));
    let cell = recorder.timing(ClockReport::default()).unwrap();
    assert_eq!((cell.negative, cell.transit), (2, words_of(&of(&[900, 0, 700]))));
}

#[test]
fn jitter_is_the_same_however_far_behind_this_hosts_clock_is() {
    let transits = [900, 4_000, 700, 2_500, 2_600, 300];
    let jitter_of = |offset_ns: i64| {
        let transits: Vec<i64> = transits.iter().map(|ns| ns + offset_ns).collect();
        figures(&after(&transits)).jitter.rfc3550_ns
    };
    let same_clock = jitter_of(0);
    assert!(same_clock > 0);
    for offset_ns in [-301, -1_000, -3_600_000_000_000, 1_000_000] {
        assert_eq!(jitter_of(offset_ns), same_clock, "{offset_ns}");
    }
}

#[test]
fn where_all_deliveries_are_negative_nothing_is_sampled_and_nothing_looks_good() {
    let recorder = after(&[-1; 50]);
    let told = figures(&recorder);
    assert_eq!((told.negative_deliveries, told.latency), (50, LatencyFigures::default()));
    let cell = recorder.timing(ClockReport::default()).unwrap();
    assert!(cell.samples.iter().all(|sample| *sample == (0, 0)), "{:?}", cell.samples);
}

#[test]
fn negative_deliveries_of_all_sessions_are_the_applications_and_those_of_one_the_publishers() {
    let mut recorder = after(&[-1, -2]);
    recorder.begin_session(Epoch(1), 4);
    deliver_of(&mut recorder, Flags::NONE, 0, RECEIVED.get() + 1);
    assert_eq!(figures(&recorder).negative_deliveries, 3);
    assert_eq!(recorder.timing(ClockReport::default()).unwrap().negative, 1);
}

#[test]
fn a_publisher_is_told_those_of_its_session_and_the_application_all() {
    let mut recorder = recorder();
    deliver(&mut recorder, Flags::NONE, RECEIVED.get() - 7_000);
    recorder.begin_session(Epoch(1), 4);
    deliver(&mut recorder, Flags::NONE, RECEIVED.get() - 90_000);
    deliver(&mut recorder, Flags::NONE, 0);
    assert_eq!(recorder.end_to_end_counts(), of(&[7_000, 90_000]));
    assert_eq!(recorder.latency_counts(), of(&[1_500; 3]));
    let told = recorder.timing(ClockReport::default()).unwrap();
    assert_eq!(told.end_to_end, words_of(&of(&[90_000])));
    assert_eq!(told.transit, words_of(&of(&[1_500; 2])));
}

#[test]
fn nothing_is_counted_where_latency_is_not_measured() {
    let recorder = Recorder::new(false, 0, 4);
    assert_eq!(recorder.end_to_end_counts(), of(&[]));
    assert!(recorder.timing(ClockReport::default()).is_none());
}
