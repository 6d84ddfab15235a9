//! Which instruments a session asked for.

use tapecast_wire::InstrumentId;

/// Which instruments a session asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Interest {
    /// Every instrument, including those that appear later.
    #[default]
    All,
    /// These and no other. An id that no directory can hold (`MAX_INSTRUMENTS` or more) never
    /// matches anything.
    Only(Vec<InstrumentId>),
}

impl Interest {
    /// Whether instruments that are not named are wanted.
    #[must_use]
    pub const fn wants_unnamed(&self) -> bool {
        matches!(self, Self::All)
    }

    /// The instruments that are named; empty for [`Interest::All`].
    #[must_use]
    pub fn named(&self) -> &[InstrumentId] {
        match self {
            Self::All => &[],
            Self::Only(ids) => ids,
        }
    }
}
