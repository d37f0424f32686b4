//! What a delivery does next. Pure.

use std::time::Duration;

use super::{batch::Items, outage::FailedItem};
use crate::lease::document::Search;

/// What to do next about a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Store this in the lease, then ask again.
    Mark(Search),
    /// Call the delegate.
    Call(Call),
    /// Write this item to the dead-letter container.
    DeadLetter(FailedItem),
    /// Wait.
    Pause(Pause),
    /// Everything was handled.
    Done,
}

/// A call of the delegate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) items: Items,
    /// The number of the attempt, from 1.
    pub(crate) attempt: u32,
    /// Whether nothing of the page is left after it: only then may the user store that the page was handled.
    pub(crate) last: bool,
}

/// A pause before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pause {
    /// Failed attempts, which decide how long it is.
    pub(crate) failures: u32,
    /// The shortest that the delegate asked for.
    pub(crate) at_least: Duration,
}
