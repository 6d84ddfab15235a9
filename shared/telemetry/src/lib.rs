//! Counters, latency summaries and jitter of tapecast.
