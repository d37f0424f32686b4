//! One case of the suite.

use std::{fmt, pin::Pin};

use super::{Feature, Fixture, NotApplicable};

/// A case under way.
pub(super) type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// One sentence of the contract, as a test.
pub struct Case {
    pub(super) name: &'static str,
    pub(super) subject: &'static str,
    pub(super) needs: &'static [Feature],
    pub(super) lacks: &'static [Feature],
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

    /// What the store must not be able to do for it: cases about refusals.
    pub fn lacks(&self) -> &'static [Feature] {
        self.lacks
    }

    /// Why it does not apply to the store; `None` if it does.
    pub(super) fn not_applicable(&'static self, fixture: &dyn Fixture) -> Option<NotApplicable> {
        let offered = |feature: &&Feature| feature.is_offered_by(fixture);
        let missing: Vec<_> = self.needs.iter().filter(|feature| !offered(feature)).copied().collect();
        let excess: Vec<_> = self.lacks.iter().filter(offered).copied().collect();
        let applies = missing.is_empty() && excess.is_empty();
        (!applies).then_some(NotApplicable { case: self, missing, excess })
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
