//! Writes items to the dead-letter container.

use changefeed_core::{Change, Error, ErrorKind, Result};

use super::outage::FailedItem;
use crate::{
    dead_letter_document::{DeadLetterDocument, FailedDelivery},
    lease::{host_context::HostContext, prefix::LeaseToken},
    notification::Notification,
};

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
    let monitored = context.monitored.identity();
    let failed = FailedDelivery {
        processor: &context.name,
        container: &monitored.container,
        partition_key: &monitored.partition_key,
        lease,
        instance: &context.instance,
        attempts: failed.attempts,
        errors: failed.errors,
        at: context.runtime.wall(),
        time_to_live: options.time_to_live,
    };
    DeadLetterDocument::new(&change, failed).store(&options.container).await?;
    let (lease, item) = (lease.clone(), change.id.to_string());
    context.notifier.notify(Notification::DeadLettered { lease, item, reason });
    Ok(())
}
