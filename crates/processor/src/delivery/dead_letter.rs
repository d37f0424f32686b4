//! Dead letters of a processor: when items become some, and how they are written.

use std::time::Duration;

use changefeed_core::{Change, Container, Error, ErrorKind, Result};

use super::outage::FailedItem;
use crate::{
    dead_letter_document::{DeadLetterDocument, FailedDelivery},
    lease::{host_context::HostContext, prefix::LeaseToken},
    notification::Notification,
};

/// Where dead letters go, and when items become some.
///
/// An outage of something that the delegate depends on is not the fault of an item: at most three items in a row become
/// dead letters without one between them that succeeds. If one more fails alone, those of its batch are retried, with
/// back-off, until one succeeds; [`Notification::Outage`] reports it.
/// Items that do not parse count as any other: a deployment whose type does not fit is an outage too.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub(crate) container: Container,
    pub(crate) attempts: u32,
    pub(crate) in_a_row: usize,
    pub(crate) outage_ends_after: Option<Duration>,
    pub(crate) unparsed_at_once: bool,
}

impl DeadLetter {
    /// Writes dead letters to this container, after five attempts.
    pub fn to(container: &Container) -> Self {
        let container = container.clone();
        Self { container, attempts: 5, in_a_row: 3, outage_ends_after: None, unparsed_at_once: false }
    }

    /// How often a batch is delivered before failed items are searched for. At least 1. Default: 5.
    #[must_use]
    pub fn after_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// How many items of a lease in a row may become dead letters while none succeeds. One more is an outage. Items for
    /// which the delegate returns [`ItemResult::DeadLetter`](crate::ItemResult::DeadLetter) do not count. At least 1.
    /// Default: 3.
    #[must_use]
    pub fn in_a_row(mut self, items: usize) -> Self {
        self.in_a_row = items.max(1);
        self
    }

    /// After an outage of this length its items become dead letters, however many they are. Default: never.
    #[must_use]
    pub fn outage_ends_after(mut self, length: Duration) -> Self {
        self.outage_ends_after = Some(length);
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

/// Writes an item to the dead-letter container. Writing it twice is writing it once.
///
/// # Errors
/// Those of the store; then the checkpoint must not pass the item.
pub(crate) async fn write_dead_letter(
    context: &HostContext,
    lease: &LeaseToken,
    change: Option<Change>,
    failed: FailedItem,
) -> Result<()> {
    let (Some(options), Some(change)) = (&context.dead_letter, change) else {
        return Err(Error::new(ErrorKind::InvalidArgument, "there is no dead-letter container or no item to write"));
    };
    let reason = failed.errors.join(": ");
    let failed = FailedDelivery {
        processor: &context.name,
        container: &context.monitored.identity().container,
        lease,
        instance: &context.instance,
        attempts: failed.attempts,
        errors: failed.errors,
        at: context.runtime.wall(),
    };
    DeadLetterDocument::new(&change, failed).store(&options.container).await?;
    let (lease, item) = (lease.clone(), change.id.to_string());
    context.notifier.notify(Notification::DeadLettered { lease, item, reason });
    Ok(())
}
