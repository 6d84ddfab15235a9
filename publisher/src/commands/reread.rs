//! The configuration of a running publisher, read again as it was read at the start: same file,
//! variables and flags, same checks.

use std::sync::Arc;

use anyhow::Result;

use super::check::{access, check};
use super::run::adopt_levels;
use crate::conductor::{Fresh, ReadAgain};
use crate::config::{Effective, Layers, load};

/// What reads it.
pub(super) fn reader(layers: Layers) -> ReadAgain {
    Arc::new(move |running| reread(&layers, running).map_err(|error| format!("{error:#}")))
}

fn reread(layers: &Layers, running: &Effective) -> Result<Fresh> {
    let mut fresh = load(layers)?;
    check(&fresh)?;
    adopt_levels(&mut fresh)?;
    let adopted = running.adopt(&fresh)?;
    Ok(Fresh {
        access: access(&adopted.effective)?,
        entitlements: adopted.effective.entitlements()?,
        adopted,
    })
}
