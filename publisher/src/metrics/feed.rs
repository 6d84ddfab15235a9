//! Series of the feed and its books.

use super::Sources;
use crate::conductor::Figures;
use crate::feed::{FeedGaugesReading, FeedReading};
use tapecast_telemetry::families::{Families, Named, flag, seconds};
use tapecast_wire::Nanos;

/// What was read, and whether it is heard.
pub(super) fn collect(out: &mut Families, sources: &Sources, figures: &Figures, now: Nanos) {
    let reading = sources.feed.read();
    messages(out, &reading);
    books(out, &reading);
    let gauges = sources.gauges.read(now);
    stalls(out, sources, &gauges);
    silence(out, figures);
    out.gauge(
        Named("tapecast_instruments", "Instruments in the directory."),
        sources.directory.count() as f64,
    );
    out.gauge(
        Named(
            "tapecast_suspect_instruments",
            "Instruments whose latest snapshot is flagged suspect, because the feed lost messages: \
             until their books are repaired.",
        ),
        gauges.suspect as f64,
    );
}

fn messages(out: &mut Families, reading: &FeedReading) {
    let source = &reading.source;
    out.counter(
        Named(
            "tapecast_feed_messages_total",
            "Messages read from the feed. While it goes on this may be one scrape behind.",
        ),
        source.messages,
    );
    let by_type = Named(
        "tapecast_feed_messages_by_type_total",
        "Messages by type, as the feed names them. While it goes on this may be one scrape behind.",
    );
    for (kind, count) in &source.by_type {
        out.counter_of(by_type, &[("type", kind)], *count as f64);
    }
    out.counter(
        Named(
            "tapecast_feed_unknown_messages_total",
            "Messages of a type that this release does not know; skipped.",
        ),
        source.unknown,
    );
    out.counter(
        Named("tapecast_feed_read_bytes_total", "Bytes read of the (compressed) input."),
        source.bytes_read,
    );
}

fn books(out: &mut Families, reading: &FeedReading) {
    let books = &reading.books;
    out.counter(Named("tapecast_feed_book_events_total", "Events applied to books."), books.events);
    out.counter(
        Named(
            "tapecast_feed_gaps_total",
            "Gaps that the feed has told of, one for each instrument concerned: its books are \
             suspect until they are repaired.",
        ),
        books.gaps,
    );
    out.counters(
        Named(
            "tapecast_feed_book_anomalies_total",
            "Events that do not fit the book that they are for: it misses part of the feed, or the \
             feed is wrong.",
        ),
        "kind",
        &[
            ("unknown_order", books.unknown_orders),
            ("duplicate_order", books.duplicate_orders),
            ("excess_reduction", books.excess_reductions),
            ("refused", books.refused),
        ],
    );
}

fn stalls(out: &mut Families, sources: &Sources, gauges: &FeedGaugesReading) {
    out.counter(
        Named(
            "tapecast_queue_stalls_total",
            "Times that the feed found the queue to the sender full, and waited; counted when the \
             wait begins.",
        ),
        gauges.queue_stalls,
    );
    out.counter(
        Named(
            "tapecast_pool_stalls_total",
            "Times that the feed found the page pool empty, and waited; counted when the wait \
             begins.",
        ),
        gauges.pool_stalls,
    );
    out.counter_seconds(
        Named(
            "tapecast_queue_stalled_seconds_total",
            "How long the feed waited for room in the queue or for a page in all, the present wait \
             included while it lasts.",
        ),
        sources.highest.stalled_ns.with(gauges.stalled_ns),
    );
    out.gauge(
        Named(
            "tapecast_pool_free_pages_min",
            "Fewest pages that were free when the feed took one, since the start.",
        ),
        sources.pool.pages().saturating_sub(gauges.pool_used_max as usize) as f64,
    );
}

fn silence(out: &mut Families, figures: &Figures) {
    out.gauge(
        Named(
            "tapecast_feed_silent",
            "Whether the feed is connected and has sent nothing for source.silent_after_s.",
        ),
        flag(figures.feed_silent),
    );
    out.counter(
        Named("tapecast_feed_silences_total", "Spells in which the feed was silent."),
        figures.silence.spells,
    );
    out.counter_seconds(
        Named("tapecast_feed_silent_seconds_total", "How long the feed was silent in all."),
        figures.silence.total_ns,
    );
    out.gauge(
        Named(
            "tapecast_feed_last_message_age_seconds",
            "Since the feed thread last went a step, to a tenth of a second.",
        ),
        seconds(figures.feed_quiet_ns),
    );
    out.gauge(
        Named("tapecast_feed_ended", "Whether the source has ended."),
        flag(figures.feed_ended),
    );
}
