//! Log sequence numbers: a rising sequence for each physical range, which children of a split continue and a merged range
//! continues above both parents, so that positions survive.

use std::fmt;

use serde::Serialize;

/// The position of a change among those of its key. All changes of one batch share one. As JSON it is a number.
///
/// The embedded store counts each physical range for itself, as Azure Cosmos DB does; the first change of a container
/// has LSN 2. A store may also count through a container. Either way LSNs of different keys say nothing about each
/// other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Lsn(u64);

impl Lsn {
    /// Before the first change.
    pub const ZERO: Self = Self(0);

    /// Creates the LSN with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the LSN after it.
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
