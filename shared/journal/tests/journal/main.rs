//! The journal as its readers meet it: layout, cuts at every byte, damage, rotation, other hands.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod cuts;
mod hostile;
mod layout;
mod market;
mod rotation;
