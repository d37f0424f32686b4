//! Request charges for stores that have none: in proportion to the work, as in Cosmos DB. The formula is in
//! `docs/compatibility.md`; applications use charges to find requests that would be expensive there.

use std::sync::Arc;

use changefeed_core::{
    Backend, Batch, Capabilities, Change, ChangePage, Container, ContainerIdentity, Continuation, FeedRange, Item,
    ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, TimeToLive, Write, WriteResult,
    async_trait,
};

/// The unit of point reads and writes.
const KIBIBYTE: usize = 1024;

/// The unit of pages, which are cheaper to read than single items.
const PAGE_UNIT: usize = 10 * KIBIBYTE;

/// Request units of a new item for each started KiB: the item and its index.
const CREATE: f64 = 5.0;

/// The same for a new version: the index of the old one goes, too.
const REPLACE: f64 = 10.0;

/// Request units of a delete.
const DELETE: f64 = 5.0;

/// Request units of a page before its items: of the feed, and of a listing or query.
const FEED_PAGE: f64 = 1.0;
const LIST_PAGE: f64 = 2.0;

/// Request units of the settings of a container.
const SETTINGS: f64 = 1.0;

/// Wraps a container so that every response has a charge.
pub(crate) fn charged(container: &Container) -> Container {
    Container::new(Arc::new(ChargedBackend(Arc::clone(container.backend()))))
}

#[derive(Debug)]
struct ChargedBackend(Arc<dyn Backend>);

/// Sets the charge of a response that has none.
fn charge<T>(mut response: Response<T>, of: impl FnOnce(&T) -> f64) -> Response<T> {
    if response.request_charge == 0.0 {
        response.request_charge = of(&response.value);
    }
    response
}

#[expect(clippy::cast_precision_loss, reason = "bodies have a few MiB")]
fn units(bytes: usize, unit: usize) -> f64 {
    bytes.div_ceil(unit).max(1) as f64
}

fn read_charge(item: &Item) -> f64 {
    units(item.body.len(), KIBIBYTE)
}

/// The charge of writes, by the sizes that were sent.
fn write_charge(sizes: &[Option<usize>], written: &[WriteResult]) -> f64 {
    let one = |(size, written): (&Option<usize>, &WriteResult)| match size {
        None => DELETE,
        Some(bytes) => units(*bytes, KIBIBYTE) * if written.created { CREATE } else { REPLACE },
    };
    sizes.iter().zip(written).map(one).sum()
}

fn feed_charge(page: &ChangePage) -> f64 {
    let bytes =
        |change: &Change| [&change.current, &change.previous].into_iter().flatten().map(|body| body.len()).sum();
    let bytes: usize = page.changes.iter().map(|change| -> usize { bytes(change) }).sum();
    if page.changes.is_empty() { FEED_PAGE } else { FEED_PAGE + units(bytes, PAGE_UNIT) }
}

fn list_charge(page: &ItemPage) -> f64 {
    let bytes: usize = page.items.iter().map(|item| item.body.len()).sum();
    if page.items.is_empty() { LIST_PAGE } else { LIST_PAGE + units(bytes, PAGE_UNIT) }
}

#[async_trait]
impl Backend for ChargedBackend {
    fn identity(&self) -> &ContainerIdentity {
        self.0.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.0.feed_ranges().await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.0.read_changes(request).await.map(|page| charge(page, feed_charge))
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.0.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.0.read_item(key).await.map(|item| charge(item, read_charge))
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        let size = |write: &Write| match write {
            Write::Create { body } | Write::Upsert { body, .. } | Write::Replace { body, .. } => Some(body.len()),
            Write::Delete { .. } => None,
        };
        let sizes: Vec<Option<usize>> = batch.writes.iter().map(size).collect();
        self.0.write(batch).await.map(|written| charge(written, |written| write_charge(&sizes, written)))
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.0.list_items(request).await.map(|page| charge(page, list_charge))
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.0.time_to_live().await.map(|found| charge(found, |_| SETTINGS))
    }

    /// Of the new container nothing is charged.
    async fn reopen(&self) -> Result<Container> {
        self.0.reopen().await
    }
}
