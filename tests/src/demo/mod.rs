//! The demonstration: one publisher, many subscriber processes, and a table that has to balance.
//!
//! It starts the shipped programs, nothing else, and believes neither side alone: what the
//! publisher says it published is compared with what each subscriber says became of it.

mod account;
mod processes;
mod table;

pub use account::{Account, Imbalance, PublishedInstrument, PublisherReport, join};
pub use processes::{Fleet, FleetError, FleetPlan, Link};
pub use table::render;
