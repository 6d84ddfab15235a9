//! The book builder and the ITCH source, from the outside: what goes in and what is handed on.

mod builder;
mod files;
mod messages;
mod reference;
mod support;
