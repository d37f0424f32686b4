//! A store that counts the requests it gets, and passes them on.

use std::{
    collections::BTreeMap,
    future,
    ops::Sub,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, FeedRange, Item, ItemKey,
    ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, TimeToLive, Write, WriteResult, async_trait,
};
use serde_json::Value;

/// Whether the store wakes those that wait for changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// As the store behind it does.
    Yes,
    /// Never, as stores behind a network.
    Never,
}

/// How many requests of each kind there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    /// Of single items, by key.
    pub(crate) reads: u64,
    /// Of any kind.
    pub(crate) writes: u64,
    /// Those of them that would acquire, request, grant or release a lease; zero unless they are counted apart.
    pub(crate) ownership_writes: u64,
    /// Pages of items.
    pub(crate) lists: u64,
    /// Pages of the feed.
    pub(crate) feed: u64,
}

impl Requests {
    /// All of them.
    pub(crate) fn all(&self) -> u64 {
        self.reads + self.writes + self.lists + self.feed
    }
}

impl Sub for Requests {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            ownership_writes: self.ownership_writes - earlier.ownership_writes,
            lists: self.lists - earlier.lists,
            feed: self.feed - earlier.feed,
        }
    }
}

/// Counts the requests to one container. Waiting for changes is none: a network has no such request.
#[derive(Debug)]
pub(crate) struct Counting {
    inner: Arc<dyn Backend>,
    wakes: Wakes,
    reads: AtomicU64,
    writes: AtomicU64,
    ownership_writes: AtomicU64,
    lists: AtomicU64,
    feed: AtomicU64,
    /// By the id of the lease document, as it was last stored; `None` if ownership writes are not counted.
    owners: Option<Mutex<BTreeMap<String, Ownership>>>,
}

/// What a renewal or a checkpoint leaves as it is: the owner of a lease, its epoch, and the request for it.
#[derive(Debug, PartialEq, Eq)]
struct Ownership([Option<String>; 3]);

impl Ownership {
    /// The id of a lease document and its ownership; `None` if the write is not of a lease.
    fn of(write: &Write) -> Option<(String, Self)> {
        let (Write::Create { body } | Write::Replace { body, .. }) = write else { return None };
        let document: Value = serde_json::from_slice(body).ok()?;
        document.get("LeaseToken")?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let properties = &document["properties"];
        let ownership = [&document["Owner"], &properties["cf.epoch"], &properties["cf.hand-over"]].map(text);
        Some((text(&document["id"])?, Self(ownership)))
    }
}

impl Counting {
    /// A container that behaves like `inner`, and the counts of what is asked through it.
    pub(crate) fn around(inner: &Container, wakes: Wakes) -> (Container, Arc<Self>) {
        Self::with(inner, wakes, None)
    }

    /// The same; ownership writes are counted apart, for which every write is parsed.
    pub(crate) fn of_leases(inner: &Container, wakes: Wakes) -> (Container, Arc<Self>) {
        Self::with(inner, wakes, Some(Mutex::default()))
    }

    fn with(
        inner: &Container,
        wakes: Wakes,
        owners: Option<Mutex<BTreeMap<String, Ownership>>>,
    ) -> (Container, Arc<Self>) {
        let counting = Arc::new(Self {
            inner: Arc::clone(inner.backend()),
            wakes,
            reads: AtomicU64::default(),
            writes: AtomicU64::default(),
            ownership_writes: AtomicU64::default(),
            lists: AtomicU64::default(),
            feed: AtomicU64::default(),
            owners,
        });
        (Container::new(counting.clone()), counting)
    }

    /// How many requests there were so far.
    pub(crate) fn requests(&self) -> Requests {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Requests {
            reads: of(&self.reads),
            writes: of(&self.writes),
            ownership_writes: of(&self.ownership_writes),
            lists: of(&self.lists),
            feed: of(&self.feed),
        }
    }
}

#[async_trait]
impl Backend for Counting {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities().wake_ups(self.wakes == Wakes::Yes)
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.inner.feed_ranges().await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.feed.fetch_add(1, Ordering::Relaxed);
        self.inner.read_changes(request).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        match self.wakes {
            Wakes::Yes => self.inner.changed(range, continuation).await,
            Wakes::Never => future::pending().await,
        }
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read_item(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let Some(owners) = &self.owners else { return self.inner.write(batch).await };
        let ownership = batch.writes.first().and_then(Ownership::of);
        let owners = || owners.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = ownership.as_ref().is_some_and(|(id, ownership)| owners().get(id) != Some(ownership));
        self.ownership_writes.fetch_add(u64::from(changed), Ordering::Relaxed);
        let written = self.inner.write(batch).await;
        if let (Ok(_), Some((id, ownership))) = (&written, ownership) {
            owners().insert(id, ownership);
        }
        written
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.list_items(request).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.inner.time_to_live().await
    }

    async fn reopen(&self) -> Result<Container> {
        self.inner.reopen().await
    }
}

#[cfg(test)]
mod tests {
    use changefeed_embedded::Engine;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn requests_are_counted_by_kind_and_passed_on() {
        let engine = Engine::in_memory().unwrap();
        let inner = engine.database("test").container("leases").create().await.unwrap();
        let (container, counting) = Counting::around(&inner, Wakes::Yes);
        container.upsert(&json!({"id": "1"})).await.unwrap();
        let before = counting.requests();
        assert_eq!(before, Requests { writes: 1, ..Requests::default() });
        container.read_item("1", "1").await.unwrap();
        assert_eq!(container.list("").await.unwrap().len(), 1);
        let since = counting.requests() - before;
        assert_eq!(since, Requests { reads: 1, lists: 1, ..Requests::default() });
        assert_eq!(since.all(), 2);
        assert!(inner.read_item("1", "1").await.is_ok());
    }

    #[tokio::test]
    async fn writes_that_change_the_owner_of_a_lease_are_counted_apart() {
        let engine = Engine::in_memory().unwrap();
        let inner = engine.database("test").container("leases").create().await.unwrap();
        let (container, counting) = Counting::of_leases(&inner, Wakes::Yes);
        let lease = |owner, token| json!({"id": "x..0", "LeaseToken": "0", "Owner": owner, "ContinuationToken": token});
        container.create(&lease("a", 1)).await.unwrap();
        container.replace(&lease("a", 2)).await.unwrap();
        container.replace(&lease("b", 2)).await.unwrap();
        let requests = counting.requests();
        assert_eq!((requests.writes, requests.ownership_writes), (3, 2));
    }
}
