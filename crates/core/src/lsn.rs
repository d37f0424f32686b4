//! Log sequence numbers: one rising sequence per container, so that positions survive splits and merges.

use std::fmt;

use serde::Serialize;

/// The position of a change in its container. The first change has LSN 1; all changes of one batch share one. As
/// JSON it is a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Lsn(u64);

impl Lsn {
    /// Before the first change.
    pub const ZERO: Self = Self(0);

    /// The LSN with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
