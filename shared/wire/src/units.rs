//! Newtypes for the quantities that must never be mixed up.

use core::fmt;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The raw value.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

unit! {
    /// A number in a sequence that starts at 1 and rises by one; 0 means "none yet".
    Sequence(u64)
}
unit! {
    /// Bytes ever written to a ring before this point. Never wraps; the ring offset is its low
    /// bits.
    Position(u64)
}
unit! {
    /// Nanoseconds. As a point in time: since the Unix epoch, UTC.
    Nanos(u64)
}
unit! {
    /// One life of a publisher: its start time in Unix nanoseconds, so a later life compares
    /// greater.
    Epoch(u64)
}
unit! {
    /// Index of a session, `0 .. MAX_SUBSCRIBERS`.
    SessionId(u32)
}
unit! {
    /// Index of an instrument in the publisher's directory, dense from 0.
    InstrumentId(u32)
}

impl Sequence {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl InstrumentId {
    /// The index form, for tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl SessionId {
    /// The index form, for tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Nanos {
    /// Time since `earlier`; zero when the clock stepped backwards.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}
