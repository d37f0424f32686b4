//! Counts what a store charges towards the request units of the host.

use std::{fmt, future::Future, sync::Arc};

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, FeedRange, Item, ItemKey,
    ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, TimeToLive, WriteResult, async_trait,
};

use crate::limits::request_units::RequestUnits;

/// Which requests wait while the host has spent too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Reads of the feed.
    FeedReads,
    /// None: a lease that is not renewed expires.
    Nothing,
}

/// A store whose charges are counted.
pub(crate) struct ChargedBackend {
    inner: Arc<dyn Backend>,
    units: Arc<RequestUnits>,
    waits: Waits,
}

impl ChargedBackend {
    /// The container, with its charges counted if the host has a limit.
    pub(crate) fn container(container: Container, units: Option<&Arc<RequestUnits>>, waits: Waits) -> Container {
        let Some(units) = units else { return container };
        let inner = Arc::clone(container.backend());
        Container::new(Arc::new(Self { inner, units: Arc::clone(units), waits }))
    }

    async fn counted<T>(&self, request: impl Future<Output = Result<Response<T>>> + Send) -> Result<Response<T>> {
        let answer = request.await;
        self.units.spend(charge(&answer));
        answer
    }
}

fn charge<T>(answer: &Result<Response<T>>) -> f64 {
    match answer {
        Ok(response) => response.request_charge,
        Err(error) => error.request_charge(),
    }
}

impl fmt::Debug for ChargedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChargedBackend({:?})", self.inner)
    }
}

#[async_trait]
impl Backend for ChargedBackend {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.counted(self.inner.feed_ranges()).await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        if self.waits == Waits::Nothing {
            return self.counted(self.inner.read_changes(request)).await;
        }
        let reserved = self.units.reserve().await;
        let answer = self.inner.read_changes(request).await;
        self.units.settle(reserved, charge(&answer));
        answer
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.inner.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.counted(self.inner.read_item(key)).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        self.counted(self.inner.write(batch)).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.counted(self.inner.list_items(request)).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.counted(self.inner.time_to_live()).await
    }

    /// Requests to the new container are not counted.
    async fn reopen(&self) -> Result<Container> {
        self.inner.reopen().await
    }
}
