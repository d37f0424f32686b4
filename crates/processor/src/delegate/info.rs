//! What the store knows about a change, beside the user's value.

use std::borrow::Cow;

use changefeed_core::{
    Change, ContainerIdentity, ETag, ItemId, Lsn, Operation, PartitionKey, Timestamp, stable_hash::fnv1a_64,
};
use serde::Deserialize;

use super::traceparent;

/// What the store knows about one change: id, partition key, LSN, etag and time of the item, and a stable id of the change
/// for idempotent sinks.
///
/// ```
/// use changefeed::{Changes, Context, DelegateError};
///
/// # #[derive(serde::Deserialize)]
/// # struct Order { total: f64 }
/// # async fn insert_unless_present(key: String, total: f64) {}
/// async fn handle(orders: Changes<Order>, _ctx: Context) -> Result<(), DelegateError> {
///     for (order, info) in orders.with_info() {
///         insert_unless_present(info.change_id(), order.total).await;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ChangeInfo<'a> {
    change: &'a Change,
    container: Option<&'a ContainerIdentity>,
}

impl<'a> ChangeInfo<'a> {
    pub(super) fn new(change: &'a Change, container: Option<&'a ContainerIdentity>) -> Self {
        Self { change, container }
    }

    /// Returns the item's id, unique within its partition key.
    pub fn id(&self) -> &'a ItemId {
        &self.change.id
    }

    /// Returns the item's partition key. `None` for a delete whose previous version the feed does not show, and for
    /// [`RawChanges`](crate::RawChanges) that were made from a list of changes.
    pub fn partition_key(&self) -> Option<PartitionKey> {
        self.container?.partition_key.extract(self.body()?).ok()
    }

    /// Returns the position of the change in the feed. Changes of one transaction share it.
    pub fn lsn(&self) -> Lsn {
        self.change.lsn
    }

    /// Returns the version of the item after the change; `None` after a delete.
    pub fn etag(&self) -> Option<ETag> {
        #[derive(Deserialize)]
        struct Version<'b> {
            #[serde(borrow, rename = "_etag")]
            etag: Option<Cow<'b, str>>,
        }
        let version: Version<'_> = serde_json::from_slice(self.change.current.as_deref()?).ok()?;
        ETag::new(&*version.etag?).ok()
    }

    /// Returns when the change was written, by the store's clock.
    pub fn timestamp(&self) -> Timestamp {
        self.change.timestamp
    }

    /// Returns what happened to the item.
    pub fn operation(&self) -> Operation {
        self.change.operation
    }

    /// Returns the trace context that its writer put into the item, as a member `traceparent` in the form of W3C Trace
    /// Context; `None` if there is none or it is not valid.
    pub fn traceparent(&self) -> Option<String> {
        traceparent::traceparent(self.change.current.as_deref()?)
    }

    /// Returns the change as the store returned it.
    pub fn change(&self) -> &'a Change {
        self.change
    }

    /// Returns an id that is the same whenever and wherever this change is delivered, and different for any other change:
    /// made of the container, the item and the LSN. ASCII without spaces, at most 64 characters, so that it can be an
    /// idempotency key, a column or a file name.
    pub fn change_id(&self) -> String {
        let key = self.partition_key().map(|key| key.to_string()).unwrap_or_default();
        let lsn = self.change.lsn;
        let Some(container) = self.container else {
            let hash = fnv1a_64([key.as_bytes(), self.change.id.as_bytes()]);
            return format!("{lsn}.{hash:016x}");
        };
        // A store that was replaced by another may use the same resource ids and positions again.
        let store = container.store.to_string();
        let hash = fnv1a_64([store.as_bytes(), key.as_bytes(), self.change.id.as_bytes()]);
        format!("{}.{lsn}.{hash:016x}", container.container)
    }

    fn body(&self) -> Option<&'a [u8]> {
        self.change.current.as_deref().or(self.change.previous.as_deref())
    }
}
