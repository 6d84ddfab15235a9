//! Conformance suite, demonstration and benchmarks of tapecast. Nothing here is shipped.

pub mod bench;
pub mod chaos;
pub mod conformance;
pub mod demo;
pub mod handshake;
pub mod simulator;
pub mod tape;
