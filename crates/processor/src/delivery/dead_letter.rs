//! The dead-letter options of a processor: where dead letters go, and when items become some.

use std::time::Duration;

use changefeed_core::Container;

/// Where dead letters go, and when items become some.
///
/// An outage of something that the delegate depends on is not the fault of an item: at most three items in a row become
/// dead letters without one between them that succeeds. If one more fails alone, those of its batch are retried, with
/// back-off, until one succeeds; [`Notification::Outage`](crate::Notification::Outage) reports it.
/// Items that do not parse count as any other: a deployment whose type does not fit is an outage too.
///
/// ```
/// use std::time::Duration;
///
/// use changefeed::{DeadLetter, core::Container};
///
/// # fn example(rejected: &Container) -> DeadLetter {
/// DeadLetter::to(rejected).after_attempts(3).time_to_live(Duration::from_secs(30 * 24 * 3600))
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub(crate) container: Container,
    pub(crate) attempts: u32,
    pub(crate) crashes: u32,
    pub(crate) in_a_row: usize,
    pub(crate) outage_ends_after: Option<Duration>,
    pub(crate) unparsed_at_once: bool,
    pub(crate) time_to_live: Option<u32>,
}

impl DeadLetter {
    /// One crash during the delivery of an item alone may be a coincidence.
    pub(crate) const CRASHES: u32 = 2;

    /// Writes dead letters to this container, after five attempts.
    pub fn to(container: &Container) -> Self {
        let container = container.clone();
        Self {
            container,
            attempts: 5,
            crashes: Self::CRASHES,
            in_a_row: 3,
            outage_ends_after: None,
            unparsed_at_once: false,
            time_to_live: None,
        }
    }

    /// Sets how often a batch is delivered before failed items are searched for. At least 1. Default: 5.
    #[must_use]
    pub fn after_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Sets how many processes may crash while they deliver an item alone before it becomes a dead letter. At least 1.
    /// Default: 2, since one crash may be a coincidence.
    #[must_use]
    pub fn after_crashes(mut self, crashes: u32) -> Self {
        self.crashes = crashes.max(1);
        self
    }

    /// Sets how many items of a lease in a row may become dead letters while none succeeds. One more is an outage.
    /// Items for which the delegate returns [`ItemResult::DeadLetter`](crate::ItemResult::DeadLetter) do not count. At
    /// least 1. Default: 3.
    #[must_use]
    pub fn in_a_row(mut self, items: usize) -> Self {
        self.in_a_row = items.max(1);
        self
    }

    /// Ends an outage after this time: its items become dead letters, however many they are. Default: never.
    #[must_use]
    pub fn outage_ends_after(mut self, length: Duration) -> Self {
        self.outage_ends_after = Some(length);
        self
    }

    /// Sets how long a dead letter is kept, in whole seconds, at least 1: written as its `ttl`. The container must
    /// allow a time to live of items ([`TimeToLive::ItemsOnly`](changefeed_core::TimeToLive::ItemsOnly) or `Seconds`),
    /// otherwise the store ignores it. Default: as long as the container keeps items.
    #[must_use]
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = Some(u32::try_from(time.as_secs()).unwrap_or(u32::MAX).clamp(1, i32::MAX as u32));
        self
    }

    /// Dead-letters items that do not parse at once, without outage detection: a deployment whose type does not fit
    /// then dead-letters everything. Default: they count towards outage detection.
    #[must_use]
    pub fn unparsed_at_once(mut self) -> Self {
        self.unparsed_at_once = true;
        self
    }
}
