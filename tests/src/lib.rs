//! Conformance, end-to-end, demo and benchmarks of tapecast.
