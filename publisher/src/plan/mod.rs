//! The model behind `tapecast-publisher plan`: what a fan-out over RDMA can do, worked out and not
//! measured. Nothing here does I/O or opens a device; numbers go in, numbers come out.
//!
//! Units go last in names. Times are `f64`, because they are computed and never added up for long.

mod advice;
mod congestion;
pub mod dcqcn;
mod demand;
mod fan_out;
mod figures;
mod plot;
mod report;
pub mod sizing;
pub mod target;
mod text;
mod wire;

pub use advice::Advice;
pub use congestion::{Congestion, First, Steadiness, SwitchRow, TrainRow};
pub use demand::Demand;
pub use fan_out::{Arrivals, BaseLatency, Costs, INLINE_MAX_BYTES, Scenario, Step};
pub use plot::{PlotError, draw};
pub use report::{Inputs, MODEL_NOTE, Pcie, Plan};
pub use wire::{ACKNOWLEDGEMENT_BYTES, device_mtu, packets, wire_bytes};
