//! A store that counts the requests it gets, and passes them on.

use std::{
    future,
    ops::Sub,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, FeedRange, Item, ItemKey,
    ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, WriteResult, async_trait,
};

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
    lists: AtomicU64,
    feed: AtomicU64,
}

impl Counting {
    /// A container that behaves like `inner`, and the counts of what is asked through it.
    pub(crate) fn around(inner: &Container, wakes: Wakes) -> (Container, Arc<Self>) {
        let counting = Arc::new(Self {
            inner: Arc::clone(inner.backend()),
            wakes,
            reads: AtomicU64::default(),
            writes: AtomicU64::default(),
            lists: AtomicU64::default(),
            feed: AtomicU64::default(),
        });
        (Container::new(counting.clone()), counting)
    }

    /// How many requests there were so far.
    pub(crate) fn requests(&self) -> Requests {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Requests { reads: of(&self.reads), writes: of(&self.writes), lists: of(&self.lists), feed: of(&self.feed) }
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
        self.inner.write(batch).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.list_items(request).await
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
}
