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
    /// made of the container, the item and the LSN, and in an account of Azure Cosmos DB, which may count LSNs again after a
    /// failover between regions, of the version as well. ASCII without spaces, at most 64 characters, so that it can be an
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
        let version = if container.store.is_random() { String::new() } else { self.version() };
        let hash = fnv1a_64([store.as_bytes(), key.as_bytes(), self.change.id.as_bytes(), version.as_bytes()]);
        format!("{}.{lsn}.{hash:016x}", container.container)
    }

    /// What no two versions of an item have in common: the etag, or the time of a delete.
    fn version(&self) -> String {
        self.etag().map_or_else(|| self.timestamp().as_millis().to_string(), |etag| etag.as_str().to_owned())
    }

    fn body(&self) -> Option<&'a [u8]> {
        self.change.current.as_deref().or(self.change.previous.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use changefeed_core::{PartitionKeyDefinition, ResourceId, StoreId};

    use super::*;

    fn container(store: StoreId) -> ContainerIdentity {
        ContainerIdentity {
            store,
            account_host: "shop.documents.azure.com".to_owned(),
            database_name: "shop".to_owned(),
            container_name: "orders".to_owned(),
            database: ResourceId::container(1, 2).database_part(),
            container: ResourceId::container(1, 2),
            partition_key: PartitionKeyDefinition::id(),
        }
    }

    fn change(etag: Option<&str>, timestamp: u64) -> Change {
        let current = etag.map(|etag| Bytes::from(format!(r#"{{"id":"1","_etag":"\"{etag}\""}}"#)));
        Change {
            id: ItemId::new("1").expect("id"),
            rid: None,
            lsn: Lsn::new(7),
            timestamp: Timestamp::from_millis(timestamp),
            operation: if current.is_some() { Operation::Write } else { Operation::Delete },
            current,
            previous: None,
            previous_lsn: None,
        }
    }

    #[test]
    fn an_account_that_counts_lsns_again_gives_other_changes_other_ids() {
        let account = container(StoreId::new("shop.documents.azure.com").expect("a store id"));
        let id = |change: &Change| ChangeInfo::new(change, Some(&account)).change_id();
        let lost = id(&change(Some("a"), 1));
        assert_eq!(id(&change(Some("a"), 1)), lost);
        assert_ne!(id(&change(Some("b"), 1)), lost);
        assert_ne!(id(&change(None, 1)), id(&change(None, 2)), "deletes have no etag");
    }

    /// Sinks have stored these ids.
    #[test]
    fn ids_of_stores_that_never_repeat_an_lsn_stay_as_they_are() {
        let store = container(StoreId::from_bits(1));
        let id = |change: &Change| ChangeInfo::new(change, Some(&store)).change_id();
        assert_eq!(id(&change(Some("a"), 1)), "AAAAAYAAAAI=.7.9ec47cdadcdda57e");
        assert_eq!(id(&change(Some("b"), 2)), "AAAAAYAAAAI=.7.9ec47cdadcdda57e");
    }
}
