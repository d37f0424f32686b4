//! Dead letters: items that a delegate could not handle, kept with everything needed to understand and redrive them.

mod document;
mod list;
mod redrive;

use changefeed_core::Container;

pub(crate) use self::document::Death;
pub use self::{
    document::DeadLetterDocument,
    list::{DeadLetterPage, DeadLetterSummary, DeadLetters},
    redrive::{Kept, Redrive, Redriven},
};

/// Where dead letters go, and when.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub(crate) container: Container,
    pub(crate) attempts: u32,
}

impl DeadLetter {
    /// Into this container, after five attempts.
    pub fn to(container: &Container) -> Self {
        Self { container: container.clone(), attempts: 5 }
    }

    /// How often a batch is tried before the items to blame are looked for. At least 1. Default: 5.
    #[must_use]
    pub fn after_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }
}
