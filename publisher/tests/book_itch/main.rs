//! The book builder and the ITCH source, from the outside: what goes in and what is handed on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod builder;
mod files;
mod messages;
mod reference;
mod support;
