//! Published snapshots on disk, to be read, replayed and compared later.
//!
//! A journal is one file, or a folder of files that follow each other. Every file stands alone: it
//! begins with a header and the whole directory, and every record carries a checksum. So a file
//! that was cut anywhere, by a crash or by a person, is good up to its last whole record, and a
//! reader says where that is ([`Ending`]).
//!
//! ```text
//! file   = header (64 B) | record … | record "end" (when it was closed in good order)
//! record = head (24 B) | payload (a multiple of 8, at most 4096 B)
//! ```
//!
//! The bytes are described in [`layout`]. [`Writer`] appends, rotates and keeps; [`Reader`] reads
//! one file, [`Series`] a file or a folder; [`recover`] takes what a crash left behind its last
//! whole record off a file.
//!
//! A writer maps the file piece by piece, and reserves the blocks of a piece before it maps it: a
//! full disk is then an error and not a signal. A reader never maps: somebody may cut the file
//! meanwhile, and a mapping of what is gone ends the process.

#![deny(unsafe_code)]

mod ending;
mod error;
mod folder;
pub mod layout;
mod mapping;
mod reader;
mod recovery;
mod segment;
mod series;
mod writer;

pub use ending::{Ending, How};
pub use error::{JournalError, NotAJournal, OpenError};
pub use folder::{FILE_ENDING, file_name, files_of};
pub use layout::{Hole, Origin};
pub use reader::{Entry, Header, Reader, Record};
pub use recovery::{Recovery, recover, recover_newest};
pub use series::{Series, headers_of};
pub use writer::{Identity, Options, Place, Sync, Totals, Writer};
