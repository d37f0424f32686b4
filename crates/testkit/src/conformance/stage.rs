//! Where a case runs: a container of its own, and short words for what all cases do with it.

use std::{fmt::Debug, sync::Arc};

use changefeed_core::{
    Backend, Batch, Catalog, Container, ContainerSpec, DatabaseSpec, Effect, Epk, Error, ErrorKind, FeedRange, Item,
    ItemKey, ListItems, Lsn, PartitionKey, PartitionKeyDefinition, PhysicalRange, ResourceId, Response, Result,
    StartFrom, Write, WriteResult, check_tiling,
};
use serde_json::Value;

use super::{Fixture, reader::Reader};
use crate::fixtures::{self, id};

/// The database of all containers of the suite.
pub(super) const DATABASE: &str = "conformance";

/// A container, ready for a case.
pub(super) struct Stage<'a> {
    pub(super) fixture: &'a dyn Fixture,
    pub(super) catalog: Arc<dyn Catalog>,
    pub(super) container: Container,
}

impl<'a> Stage<'a> {
    /// A container with the partition key `/pk` and one range.
    pub(super) async fn new(fixture: &'a dyn Fixture) -> Self {
        Self::with(fixture, |_| {}).await
    }

    /// The same with other settings.
    pub(super) async fn with(fixture: &'a dyn Fixture, change: impl FnOnce(&mut ContainerSpec)) -> Self {
        Self::named(fixture, "items", change).await
    }

    /// The same with another name.
    pub(super) async fn named(fixture: &'a dyn Fixture, name: &str, change: impl FnOnce(&mut ContainerSpec)) -> Self {
        let catalog = fixture.catalog();
        match catalog.create_database(DatabaseSpec::new(DATABASE)).await {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => panic!("create the database: {error:?}"),
            _ => {}
        }
        let mut spec = ContainerSpec::new(name, by_pk());
        change(&mut spec);
        catalog.create_container(DATABASE, spec).await.expect("create the container");
        let container = catalog.container(DATABASE, name).await.expect("open the container");
        Self { fixture, catalog, container }
    }

    pub(super) fn backend(&self) -> &Arc<dyn Backend> {
        self.container.backend()
    }

    pub(super) fn name(&self) -> &str {
        &self.container.identity().container_name
    }

    pub(super) fn rid(&self) -> ResourceId {
        self.container.identity().container
    }

    /// Creates or replaces the item `{pk, id, n}`.
    pub(super) async fn put(&self, pk: &str, id: &str, n: u64) -> WriteResult {
        self.upsert(&fixtures::item(pk, id, n)).await
    }

    pub(super) async fn upsert(&self, item: &Value) -> WriteResult {
        self.container.upsert(item).await.expect("write the item")
    }

    pub(super) async fn remove(&self, pk: &str, id: &str) {
        self.container.delete(pk, id).await.expect("delete the item");
    }

    pub(super) async fn batch(&self, pk: &str, writes: Vec<Write>) -> Vec<WriteResult> {
        self.try_batch(pk, writes).await.expect("commit the batch")
    }

    pub(super) async fn try_batch(&self, pk: &str, writes: Vec<Write>) -> Result<Vec<WriteResult>> {
        let batch = Batch { partition_key: Some(pk.into()), writes, return_items: false };
        self.backend().write(batch).await.map(Response::into_value)
    }

    pub(super) async fn try_write(&self, pk: Option<&str>, write: Write) -> Result<Vec<WriteResult>> {
        self.backend().write(Batch::single(pk.map(PartitionKey::from), write)).await.map(Response::into_value)
    }

    pub(super) async fn get(&self, pk: &str, id: &str) -> Item {
        self.try_get(pk, id).await.expect("read the item")
    }

    pub(super) async fn try_get(&self, pk: &str, text: &str) -> Result<Item> {
        self.backend().read_item(&ItemKey::new(pk, id(text))).await.map(Response::into_value)
    }

    /// All items, page by page.
    pub(super) async fn list(&self, request: ListItems) -> Vec<Item> {
        super::listing::all_pages(self.backend(), request).await
    }

    /// The live ranges; checks that they are in order and tile the key space.
    pub(super) async fn ranges(&self) -> Vec<PhysicalRange> {
        let ranges = self.backend().feed_ranges().await.expect("read the feed ranges").into_value();
        check_tiling(&ranges).expect("the live ranges tile the key space");
        assert!(ranges.is_sorted_by(|a, b| a.range < b.range), "feed ranges come in key order: {ranges:?}");
        ranges
    }

    /// A reader of latest versions of the whole container, which must have one range.
    pub(super) fn reader(&self, start: impl Into<StartFrom>) -> Reader {
        self.reader_of(&FeedRange::full(), start)
    }

    /// A reader of latest versions of `range`.
    pub(super) fn reader_of(&self, range: &FeedRange, start: impl Into<StartFrom>) -> Reader {
        Reader::new(&self.container, range.clone(), start)
    }

    /// The newest LSN of each physical range.
    pub(super) async fn newest_lsns(&self) -> Vec<Lsn> {
        let mut newest = Vec::new();
        for physical in self.ranges().await {
            newest.push(self.reader_of(&physical.range, StartFrom::Now).page().await.newest_lsn);
        }
        newest
    }

    /// The effective key of the partition key `pk`.
    pub(super) fn epk(&self, pk: &str) -> Epk {
        epk_of(&self.container.identity().partition_key, &pk.into())
    }

    /// The range that holds the partition key `pk` and nothing else.
    pub(super) fn range_of_key(&self, key: impl Into<PartitionKey>) -> FeedRange {
        self.container.identity().partition_key.key_range(&key.into()).expect("the range of a key")
    }

    /// Splits `range` in the middle, or at `at`.
    pub(super) async fn split(&self, range: &PhysicalRange, at: Option<Epk>) -> Vec<PhysicalRange> {
        self.catalog.split(DATABASE, self.name(), &range.id, at).await.expect("split the range")
    }

    /// Merges two neighbours.
    pub(super) async fn merge(&self, left: &PhysicalRange, right: &PhysicalRange) -> PhysicalRange {
        self.catalog.merge(DATABASE, self.name(), [&left.id, &right.id]).await.expect("merge the ranges")
    }

    /// Everything that can be seen of the container, to compare.
    pub(super) async fn snapshot(&self) -> Snapshot {
        let mut changes = Vec::new();
        let ranges = self.ranges().await;
        for physical in &ranges {
            changes.extend(self.reader_of(&physical.range, StartFrom::Beginning).drain().await);
        }
        Snapshot {
            newest_lsns: self.newest_lsns().await,
            items: self.list(ListItems::default()).await,
            changes: super::reader::briefs(&changes),
            ranges,
        }
    }

    /// Checks that nothing has changed since `before`.
    pub(super) async fn unchanged_since(&self, before: &Snapshot, what: &str) {
        assert_eq!(self.snapshot().await, *before, "{what} changes nothing");
    }
}

/// What can be seen of a container.
#[derive(Debug, PartialEq)]
pub(super) struct Snapshot {
    newest_lsns: Vec<Lsn>,
    items: Vec<Item>,
    changes: Vec<String>,
    ranges: Vec<PhysicalRange>,
}

/// The partition key of most containers here.
pub(super) fn by_pk() -> PartitionKeyDefinition {
    PartitionKeyDefinition::hash("/pk").expect("a good path")
}

pub(super) fn epk_of(definition: &PartitionKeyDefinition, key: &PartitionKey) -> Epk {
    definition.epk(key).expect("a whole partition key")
}

/// Partition keys enough to fall into every half and quarter of the key space.
pub(super) fn many_keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("key-{n}")).collect()
}

/// Checks that the call was refused, for this reason, without effect and with a sentence.
#[track_caller]
pub(super) fn refused<T: Debug>(result: Result<T>, kind: ErrorKind) -> Error {
    match result {
        Ok(value) => panic!("expected {kind}, but it was accepted: {value:?}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error:?}");
            assert_eq!(error.effect(), Effect::None, "a refusal has no effect: {error:?}");
            assert!(!error.message().is_empty(), "an error of kind {kind} says what and which");
            error
        }
    }
}
