//! Series of the RDMA network.

use tapecast_fabric::{NetworkStats, QueuePairStates};
use tapecast_telemetry::LatencyBuckets;

use tapecast_telemetry::families::{Families, Named};

/// Work requests, completions and queues.
pub(super) fn collect(out: &mut Families, stats: &NetworkStats, flight: &LatencyBuckets) {
    out.latencies(
        Named(
            "tapecast_post_to_completion_seconds",
            "From the doorbell of a sampled work request, one of each session at a time, to the \
             completion that retires it: the way to the subscriber and back. One clock.",
        ),
        flight,
    );
    for (name, value) in [
        (Named("tapecast_rdma_work_requests_total", "Work requests posted."), stats.work_requests),
        (
            Named(
                "tapecast_rdma_doorbells_total",
                "Calls that posted work requests: one for each queue pair and batch.",
            ),
            stats.doorbells,
        ),
        (
            Named("tapecast_rdma_posted_bytes_total", "Bytes that posted work requests write."),
            stats.bytes,
        ),
        (
            Named("tapecast_rdma_completions_total", "Completions taken from the queue."),
            stats.completions,
        ),
        (
            Named(
                "tapecast_rdma_stray_completions_total",
                "Completions of sessions that were gone by then.",
            ),
            stats.strays,
        ),
        (
            Named(
                "tapecast_rdma_receiver_not_ready_total",
                "Immediates that found no receive posted. Stays 0 with honest subscribers.",
            ),
            stats.receiver_not_ready,
        ),
    ] {
        out.counter(name, value);
    }
    queues(out, stats);
    let QueuePairStates { preparing, ready_to_receive, ready_to_send, failed } = stats.queue_pairs;
    for (state, count) in
        [("init", preparing), ("rtr", ready_to_receive), ("rts", ready_to_send), ("err", failed)]
    {
        out.gauge_of(
            Named(
                "tapecast_rdma_queue_pairs",
                "Queue pairs of attached sessions by state; in health all are ready to send (rts).",
            ),
            &[("state", state)],
            count as f64,
        );
    }
}

fn queues(out: &mut Families, stats: &NetworkStats) {
    for (name, value) in [
        (
            Named("tapecast_rdma_completion_queue_entries", "Completions that the queue holds."),
            stats.completion_depth,
        ),
        (
            Named(
                "tapecast_rdma_completion_queue_high_water",
                "Most completions found before the queue was empty, since the start.",
            ),
            stats.completions_high_water,
        ),
        (
            Named("tapecast_rdma_send_queue_entries", "Work requests that a send queue holds."),
            stats.send_depth,
        ),
        (
            Named(
                "tapecast_rdma_outstanding_work_requests",
                "Work requests that have not completed, all sessions together.",
            ),
            stats.outstanding,
        ),
        (
            Named(
                "tapecast_rdma_send_queue_outstanding_max",
                "Work requests that have not completed, of the session that has most.",
            ),
            stats.outstanding_max,
        ),
    ] {
        out.gauge(name, value as f64);
    }
}
