//! A simulated exchange of our own, for demos, fixtures and load.
//!
//! Many instruments trade for one day: an opening burst, calm, quiet spells, halts, crosses. All
//! that happens is said in genuine Nasdaq ITCH 5.0 and is decoded like a real feed, so nothing
//! downstream can tell the difference. A seed gives the same bytes on every machine.
//!
//! It never crosses or locks its own books, executes only what rests, and says every order's whole
//! life: a decoder that finds an unknown order in it has a defect.

mod clock;
mod config;
mod draws;
mod exchange;
mod generate;
mod listing;
mod orders;
mod source;

pub use config::{SYNTHETIC_INSTRUMENTS_MAX, SessionLength, SyntheticConfig, SyntheticError};
pub use exchange::Exchange;
pub use generate::{GenerateError, GenerateRequest, Generated};
pub use source::SyntheticSource;
