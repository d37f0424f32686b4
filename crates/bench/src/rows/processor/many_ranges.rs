//! A container that shows its only range as many: the store creates at most 1,000, and more would need thousands of splits.

use std::sync::Arc;

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, Epk, FeedRange, Item,
    ItemKey, ItemPage, ListItems, PhysicalRange, RangeId, ReadChanges, Response, Result, TimeToLive, WriteResult,
    async_trait,
};

/// Passes every call on but the one for the ranges.
#[derive(Debug)]
pub(super) struct ManyRanges {
    inner: Arc<dyn Backend>,
    ranges: Vec<PhysicalRange>,
}

impl ManyRanges {
    /// A container that behaves like `inner`, which has one range, but shows it as so many of equal size.
    pub(super) fn around(inner: &Container, count: usize) -> Result<Container> {
        let ranges = (0..count)
            .map(|at| {
                let range = FeedRange::new(bound(at, count), bound(at + 1, count))?;
                Ok(PhysicalRange { id: RangeId::from(at as u64), range, parents: Vec::new() })
            })
            .collect::<Result<_>>()?;
        Ok(Container::new(Arc::new(Self { inner: Arc::clone(inner.backend()), ranges })))
    }
}

/// Where a range begins.
fn bound(at: usize, count: usize) -> Epk {
    match at {
        0 => Epk::MIN,
        last if last == count => Epk::MAX,
        at => {
            let key = 0xFF00_0000 * at as u64 / count as u64;
            Epk::from_bytes(&key.to_be_bytes()[4..])
        }
    }
}

#[async_trait]
impl Backend for ManyRanges {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        Ok(Response::free(self.ranges.clone()))
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.inner.read_changes(request).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.inner.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.inner.read_item(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        self.inner.write(batch).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.inner.list_items(request).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.inner.time_to_live().await
    }

    async fn reopen(&self) -> Result<Container> {
        self.inner.reopen().await
    }
}
