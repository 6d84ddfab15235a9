//! The section for the journal.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::choice::JournalSync;
use super::value::Whole;
use super::written::Size;

/// Most files that can be kept.
const KEEP_MAX: u64 = 1_000_000;

/// `[journal]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalConfig {
    /// Folder for the files; unset for no journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// A file is closed before it would be larger than this.
    pub rotate_bytes: Size<{ 64 << 10 }, { 1 << 40 }>,
    /// Files in the folder; the oldest go. 0 for all.
    pub keep: Whole<0, KEEP_MAX>,
    /// When what was written is brought to the disk.
    pub sync: JournalSync,
    /// Memory for what was published and is not written yet.
    pub buffer_bytes: Size<{ 1 << 20 }, { 16 << 30 }>,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            path: None,
            rotate_bytes: Size::new(256 << 20),
            keep: Whole::new(0),
            sync: JournalSync::Never,
            buffer_bytes: Size::new(16 << 20),
        }
    }
}
