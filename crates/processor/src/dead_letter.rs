//! Dead letters: items that a delegate could not handle, kept with everything needed to understand and redrive them.

mod document;
mod list;
mod redrive;

use std::time::Duration;

use changefeed_core::Container;

pub(crate) use self::document::Death;
pub use self::{
    document::DeadLetterDocument,
    list::{DeadLetterPage, DeadLetterSummary, DeadLetters},
    redrive::{Kept, Redrive, Redriven},
};

/// How long an outage is believed in.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Where dead letters go, and when.
///
/// An outage is not an item's fault: at most three items in a row become dead letters without one between them that
/// succeeds. If one more fails alone, those of its batch are not buried but tried again, with pauses, until one succeeds
/// or an hour has passed; [`Notification::Outage`](crate::Notification::Outage) tells of it.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub(crate) container: Container,
    pub(crate) attempts: u32,
    pub(crate) in_a_row: usize,
    pub(crate) patience: Duration,
}

impl DeadLetter {
    /// Into this container, after five attempts.
    pub fn to(container: &Container) -> Self {
        Self { container: container.clone(), attempts: 5, in_a_row: 3, patience: PATIENCE }
    }

    /// How often a batch is tried before the items to blame are looked for. At least 1. Default: 5.
    #[must_use]
    pub fn after_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// How many items of a lease in a row may become dead letters while nothing succeeds. One more is taken for an
    /// outage. Items that the delegate itself calls hopeless or dead do not count. At least 1. Default: 3.
    #[must_use]
    pub fn in_a_row(mut self, items: usize) -> Self {
        self.in_a_row = items.max(1);
        self
    }

    /// How long a batch whose items all fail is taken for the victim of an outage. Then its items become dead letters
    /// after all. Default: 1 h.
    #[must_use]
    pub fn outage_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}
