//! Series of the sender, its queue and the page pool.

use tapecast_wire::Nanos;

use super::Sources;
use crate::feed::QUEUE_ITEMS;
use crate::sender::SenderReading;
use tapecast_telemetry::families::{Families, Named, flag, seconds};

/// What was published, and what it cost.
pub(super) fn collect(out: &mut Families, sources: &Sources, now: Nanos) {
    let progress = sources.progress.load();
    let reading = sources.sender.read(now);
    out.counter(
        Named("tapecast_published_snapshots_total", "Snapshots handed to the fabric."),
        progress.published,
    );
    out.counter(
        Named("tapecast_published_bytes_total", "Bytes of the snapshots handed to the fabric."),
        progress.bytes,
    );
    out.counter(
        Named(
            "tapecast_batches_total",
            "Batches: what was queued when the sender came by, at most 64.",
        ),
        progress.batches,
    );
    out.counter(
        Named("tapecast_gate_stalls_total", "Times that a lossless subscriber stopped the sender."),
        progress.gate_stalls,
    );
    out.gauge(
        Named("tapecast_gated", "Whether a lossless subscriber stops the sender now."),
        flag(progress.gated),
    );
    out.counter_seconds(
        Named(
            "tapecast_gated_seconds_total",
            "How long lossless subscribers held the sender back in all, the present time included \
             while it lasts.",
        ),
        sources.highest.gated_ns.with(reading.gated_ns),
    );
    latencies(out, &reading);
    duty_cycles(out, &reading, now);
    memory(out, sources);
}

fn latencies(out: &mut Families, reading: &SenderReading) {
    out.latencies(
        Named(
            "tapecast_source_to_publish_seconds",
            "From a snapshot being encoded and queued by the feed to being taken and stamped by \
             the sender. One clock.",
        ),
        &reading.source_to_publish,
    );
    out.latencies(
        Named(
            "tapecast_publish_cost_seconds",
            "Cost of publishing one snapshot: the fabric's call, from one snapshot to the next.",
        ),
        &reading.publish_cost,
    );
    out.latencies(
        Named(
            "tapecast_publish_to_post_seconds",
            "From the stamp of a batch's first snapshot to the end of its flush: the ring's tail \
             stored, or the doorbells rung.",
        ),
        &reading.publish_to_post,
    );
}

fn duty_cycles(out: &mut Families, reading: &SenderReading, now: Nanos) {
    let SenderReading { done, idle, gated, parks, waits, yields, busy_ns, beat, .. } = *reading;
    out.counters(
        Named(
            "tapecast_sender_duty_cycles_total",
            "Duty cycles of the sender by what they found: something to do, nothing, or a \
             subscriber to wait for.",
        ),
        "work",
        &[("done", done), ("idle", idle), ("gated", gated)],
    );
    out.counter_seconds(
        Named(
            "tapecast_sender_busy_seconds_total",
            "Time of duty cycles that did something, looking after subscribers included; its rate \
             is the sender's utilisation.",
        ),
        busy_ns,
    );
    out.counter(
        Named(
            "tapecast_sender_parks_total",
            "Times that the sender had nothing to do and went to sleep (sender.idle = \"block\").",
        ),
        parks,
    );
    out.counters(
        Named(
            "tapecast_sender_system_calls_total",
            "System calls of the sender: to sleep (futex_wait), for lack of work or of room at a \
             lossless subscriber, and to let other threads run (sched_yield). It makes no others: \
             it wakes nobody, and network cards take their doorbells in user space; Soft-RoCE \
             takes one write for each of tapecast_rdma_doorbells_total besides.",
        ),
        "call",
        &[("futex_wait", waits), ("sched_yield", yields)],
    );
    let age = if beat.0 == 0 { Nanos(0) } else { now.since(beat) };
    out.gauge(
        Named(
            "tapecast_sender_beat_age_seconds",
            "Since the sender's last duty cycle began. It sleeps at most 0.1 s; more than 1 s \
             means that it hangs.",
        ),
        seconds(age.0),
    );
}

fn memory(out: &mut Families, sources: &Sources) {
    out.gauge(
        Named("tapecast_queue_items", "Items that wait in the queue between feed and sender."),
        sources.queue.items() as f64,
    );
    out.gauge(
        Named("tapecast_queue_capacity_items", "Items that the queue can hold."),
        QUEUE_ITEMS as f64,
    );
    out.gauge(
        Named("tapecast_pool_pages", "Pages of the pool, each of 4096 bytes."),
        sources.pool.pages() as f64,
    );
    out.gauge(
        Named(
            "tapecast_pool_free_pages",
            "Pages that are free. With none the feed waits for subscribers to let some go.",
        ),
        sources.pool.free_pages() as f64,
    );
}
