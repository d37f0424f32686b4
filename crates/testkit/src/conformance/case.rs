//! One case of the suite.

use std::{fmt, pin::Pin};

use super::{Feature, Fixture};

/// A case under way.
pub(super) type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// One sentence of the contract, as a test.
pub struct Case {
    pub(super) name: &'static str,
    pub(super) subject: &'static str,
    pub(super) needs: &'static [Feature],
    pub(super) run: for<'a> fn(&'a dyn Fixture) -> Running<'a>,
}

impl Case {
    /// The sentence, with underscores.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it is about: the module it stands in, such as `splits`.
    pub fn subject(&self) -> &'static str {
        self.subject
    }

    /// What the store must be able to do for it.
    pub fn needs(&self) -> &'static [Feature] {
        self.needs
    }

    /// What it needs and the store says it cannot do.
    pub(super) fn missing(&self, fixture: &dyn Fixture) -> Vec<Feature> {
        self.needs.iter().copied().filter(|feature| !fixture.supports(*feature)).collect()
    }

    /// Whether it wants writers and readers that really run at the same time.
    pub(super) fn wants_threads(&self) -> bool {
        self.subject == "concurrency"
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.subject, self.name)
    }
}
