//! Series of the sessions: each of them, and all together.

use tapecast_wire::Nanos;

use super::{Identity, offset};
use crate::conductor::{Figures, SessionFigures};
use tapecast_telemetry::families::{Families, Labels, Named, flag, seconds};

/// Everything about who is attached, was, or was not let in.
pub(super) fn collect(
    out: &mut Families,
    figures: &Figures,
    identity: &Identity,
    (published, now): (u64, Nanos),
) {
    let attached = figures.sessions.iter().filter(|session| session.attached).count();
    out.gauge(Named("tapecast_sessions", "Sessions that are attached."), attached as f64);
    out.gauge(
        Named("tapecast_sessions_max", "Sessions that may be attached at once."),
        figures.sessions_max as f64,
    );
    totals(out, figures);
    refused(out, figures);
    fan_out(out, figures);
    let tell = |session: &SessionFigures| {
        let id = session.id.0.to_string();
        let labels = [("session", id.as_str()), ("subscriber", session.name.as_str())];
        each(out, session, &labels, identity);
        offset::collect(out, &session.timing.clock, &labels, identity);
        lag(out, session, &labels, published);
        heartbeat(out, session, &labels, now);
        send_queue(out, session, &labels);
    };
    figures.sessions.iter().for_each(tell);
}

fn totals(out: &mut Families, figures: &Figures) {
    let totals = &figures.totals;
    for (name, value) in [
        (
            Named("tapecast_sessions_attached_total", "Sessions that have attached."),
            totals.attached,
        ),
        (Named("tapecast_sessions_detached_total", "Sessions that have left."), totals.detached),
        (
            Named(
                "tapecast_delivered_snapshots_total",
                "Snapshots that subscribers handed to their applications, all sessions together.",
            ),
            totals.delivered,
        ),
        (
            Named(
                "tapecast_conflated_snapshots_total",
                "Snapshots that a newer one replaced because a subscriber did not keep up or asked \
                 for a least interval, all sessions together.",
            ),
            totals.conflated,
        ),
        (
            Named(
                "tapecast_lost_snapshots_total",
                "Snapshots that nothing accounts for. Stays 0; anything else is a defect.",
            ),
            totals.lost,
        ),
        (
            Named(
                "tapecast_laps_total",
                "Times that the ring went round a subscriber, which recovered from the latest \
                 table.",
            ),
            totals.laps,
        ),
    ] {
        out.counter(name, value);
    }
}

fn refused(out: &mut Families, figures: &Figures) {
    let evictions = &figures.evictions;
    out.counters(
        Named("tapecast_evictions_total", "Sessions that the publisher took out, by reason."),
        "reason",
        &[
            ("lagging", evictions.lagging),
            ("overrun", evictions.overrun),
            ("stalled", evictions.stalled),
            ("silent", evictions.silent),
            ("liar", evictions.liar),
            ("unreachable", evictions.unreachable),
        ],
    );
    let refusals = &figures.refusals;
    out.counters(
        Named("tapecast_refusals_total", "Requests for a session that were not granted."),
        "reason",
        &[
            ("not_entitled", refusals.not_entitled),
            ("not_connected", refusals.not_connected),
            ("other", refusals.others),
        ],
    );
    let listener = &figures.listener;
    out.counter(
        Named("tapecast_connections_total", "Connections to the control plane."),
        listener.connections,
    );
    out.counters(
        Named(
            "tapecast_connections_failed_total",
            "Connections to the control plane that brought no request, by reason.",
        ),
        "reason",
        &[
            ("not_allowed", listener.not_allowed),
            ("malformed", listener.malformed),
            ("timed_out", listener.timed_out),
            ("crowded_out", listener.crowded_out),
            ("gone", listener.gone),
            ("accept", listener.accept_failures),
            ("tls_expired", listener.tls_expired),
            ("tls_unknown_ca", listener.tls_unknown_ca),
            ("tls_no_certificate", listener.tls_no_certificate),
            ("tls_other", listener.tls_other),
        ],
    );
}

fn fan_out(out: &mut Families, figures: &Figures) {
    let fan_out = &figures.fan_out;
    for (name, buckets) in [
        (
            Named(
                "tapecast_fan_out_first_seconds",
                "From publishing a sampled snapshot to its first subscriber. Sampled is the first \
                 snapshot of each 0.1 s that at least two received directly; a subscriber to which \
                 it came before it was published, by the two clocks, is left out.",
            ),
            &fan_out.first,
        ),
        (
            Named(
                "tapecast_fan_out_mean_seconds",
                "From publishing a sampled snapshot to its subscribers, the mean over them.",
            ),
            &fan_out.mean,
        ),
        (
            Named(
                "tapecast_fan_out_last_seconds",
                "From publishing a sampled snapshot to its last subscriber.",
            ),
            &fan_out.last,
        ),
        (
            Named(
                "tapecast_fan_out_skew_seconds",
                "From the first to the last subscriber of a sampled snapshot. Between hosts it \
                 includes the error of their clocks.",
            ),
            &fan_out.skew,
        ),
    ] {
        out.latencies(name, buckets);
    }
}

/// One session.
fn each(out: &mut Families, session: &SessionFigures, labels: Labels<'_>, identity: &Identity) {
    let &[id, name] = labels else { return };
    let connected = [id, name, ("policy", session.policy.word()), ("transport", identity.fabric)];
    out.gauge_of(
        Named(
            "tapecast_subscriber_connected",
            "1 while the session is attached, 0 after it has left and until its series go \
             (metrics.departed_s).",
        ),
        &connected,
        flag(session.attached),
    );
    out.gauge_of(
        Named(
            "tapecast_subscriber_min_interval_seconds",
            "Least interval between two snapshots of an instrument that this session asked for; 0 \
             for none. One that has it conflates on purpose, and is late by up to that.",
        ),
        labels,
        seconds(session.min_interval.0),
    );
    counts(out, session, labels);
    latency(out, session, labels);
}

fn heartbeat(out: &mut Families, session: &SessionFigures, labels: Labels<'_>, now: Nanos) {
    if session.attached
        && let Some(age) = session.heartbeat_age(now)
    {
        out.gauge_of(
            Named(
                "tapecast_subscriber_heartbeat_age_seconds",
                "Since the subscriber last reported, by its own clock; about 1 s in health.",
            ),
            labels,
            seconds(age.0),
        );
    }
}

/// Only a session with a ring of its own has one.
fn send_queue(out: &mut Families, session: &SessionFigures, labels: Labels<'_>) {
    let Some(queue) = session.stats.send_queue.filter(|_| session.attached) else { return };
    for (name, value) in [
        (
            Named(
                "tapecast_subscriber_send_queue_outstanding",
                "Work requests to this session that have not completed, of \
                 tapecast_rdma_send_queue_entries.",
            ),
            queue.outstanding,
        ),
        (
            Named(
                "tapecast_subscriber_send_queue_high_water",
                "Most work requests to this session that had not completed when more were posted, \
                 since it attached.",
            ),
            queue.high_water,
        ),
    ] {
        out.gauge_of(name, labels, value as f64);
    }
}

fn counts(out: &mut Families, session: &SessionFigures, labels: Labels<'_>) {
    let counts = &session.stats.counts;
    for (name, value) in [
        (
            Named(
                "tapecast_subscriber_delivered_snapshots_total",
                "Snapshots that this session handed to its application, by its own count.",
            ),
            counts.delivered,
        ),
        (
            Named(
                "tapecast_subscriber_conflated_snapshots_total",
                "Snapshots that a newer one replaced for this session: it did not keep up, or \
                 asked for a least interval (tapecast_subscriber_min_interval_seconds).",
            ),
            counts.conflated,
        ),
        (
            Named(
                "tapecast_subscriber_lost_snapshots_total",
                "Snapshots that nothing accounts for. Stays 0; anything else is a defect.",
            ),
            counts.lost,
        ),
        (
            Named(
                "tapecast_subscriber_negative_deliveries_total",
                "Deliveries that by the two clocks came before they were published, not in the \
                 delivery distribution: the subscriber's clock is behind.",
            ),
            session.timing.negative,
        ),
        (
            Named(
                "tapecast_subscriber_initial_images_total",
                "Delivered snapshots that were the first of their instrument.",
            ),
            counts.initial_images,
        ),
        (
            Named(
                "tapecast_subscriber_laps_total",
                "Times that the ring went round this session; 0 where rings are private.",
            ),
            counts.laps,
        ),
        (
            Named(
                "tapecast_subscriber_faults_total",
                "Values in this session's cell that could not be true, and were ignored.",
            ),
            session.stats.faults,
        ),
        (
            Named(
                "tapecast_subscriber_credit_stalls_total",
                "Snapshots that were not sent to this session when they were published, for want \
                 of credit: they went later, or a newer one did; 0 where readers share a ring.",
            ),
            session.stats.credit_stalls,
        ),
    ] {
        out.counter_of(name, labels, value as f64);
    }
}

fn latency(out: &mut Families, session: &SessionFigures, labels: Labels<'_>) {
    out.latencies_of(
        Named(
            "tapecast_subscriber_delivery_seconds",
            "From publishing to being received by this session, initial images left out; told once \
             a second. Two clocks: see the clock offset of this subscriber. What by them was \
             received before it was published is not here but in \
             tapecast_subscriber_negative_deliveries_total.",
        ),
        labels,
        &session.delivery(),
    );
    out.coarse_latencies_of(
        Named(
            "tapecast_subscriber_end_to_end_seconds",
            "From the feed's receive time (ts_recv) to being received by this session, initial \
             images left out; told once a second. Counted from 0 to 60 s: not without a \
             trustworthy ts_recv, not when it is later, not when it is older as in replayed or \
             simulated days (unless source.receive_time = host). Clocks of feed and subscriber, \
             nothing corrected.",
        ),
        labels,
        &session.end_to_end(),
    );
    let latency = &session.stats.latency;
    for (name, ns) in [
        (
            Named(
                "tapecast_subscriber_delivery_max_seconds",
                "Longest time from publishing to being received in the delivery distribution, \
                 since the subscriber started.",
            ),
            latency.max_ns,
        ),
        (
            Named(
                "tapecast_subscriber_latency_spread_seconds",
                "Jitter as the spread of the distribution: 99th percentile less median of the \
                 deliveries in the delivery distribution, since the subscriber started. An offset \
                 between clocks cancels to about a thousandth of itself, unless it makes \
                 deliveries negative: those are left out, and with nothing left this is 0.",
            ),
            latency.p99_ns.saturating_sub(latency.p50_ns),
        ),
        (
            Named(
                "tapecast_subscriber_interarrival_jitter_seconds",
                "Jitter as RFC 3550 section 6.4.1 defines it: a running mean of how much the \
                 transit time changes from one snapshot to the next, J += (|D| - J) / 16, since \
                 this session began. Offsets between clocks cancel, also where they make transit \
                 times negative.",
            ),
            session.timing.jitter_ns,
        ),
    ] {
        out.gauge_of(name, labels, seconds(ns));
    }
}

fn lag(out: &mut Families, session: &SessionFigures, labels: Labels<'_>, published: u64) {
    let lag = if session.attached { session.lag } else { Default::default() };
    let bytes = if session.attached { session.stats.lag_bytes } else { 0 };
    out.gauge_of(
        Named("tapecast_subscriber_lag_bytes", "Bytes published for this session and not read."),
        labels,
        bytes as f64,
    );
    let taken = session.stats.counts.channel_sequence.0;
    out.gauge_of(
        Named(
            "tapecast_subscriber_lag_snapshots",
            "Snapshots of the channel since the one that this session took last, while it has \
             bytes to read; with a choice of symbols, those of others are among them.",
        ),
        labels,
        if bytes > 0 { published.saturating_sub(taken) as f64 } else { 0.0 },
    );
    out.gauge_of(
        Named(
            "tapecast_subscriber_lag_seconds",
            "How long ago the oldest of them was published: at least this long, to 0.1 s.",
        ),
        labels,
        seconds(lag.time.0),
    );
    out.gauge_of(
        Named(
            "tapecast_subscriber_lagging",
            "Whether this session is beyond lag.soft_bytes or lag.soft_ms.",
        ),
        labels,
        flag(session.lagging),
    );
    out.counter_of(
        Named("tapecast_subscriber_lags_total", "Times that this session was lagging."),
        labels,
        session.lags as f64,
    );
    out.counter_of(
        Named("tapecast_subscriber_lagging_seconds_total", "How long it was lagging in all."),
        labels,
        seconds(session.lagging_ns),
    );
}
