//! A store that this process may not delete from, as an identity without that right.

use std::sync::Arc;

use changefeed::core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, Error, ErrorKind, FeedRange,
    Item, ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, TimeToLive, Write, WriteResult,
    async_trait,
};

#[derive(Debug)]
struct NoDeletes(Container);

/// The same container, in which deletes are refused.
pub(crate) fn no_deletes(container: &Container) -> Container {
    Container::new(Arc::new(NoDeletes(container.clone())))
}

#[async_trait]
impl Backend for NoDeletes {
    fn identity(&self) -> &ContainerIdentity {
        self.0.backend().identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.backend().capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.0.backend().feed_ranges().await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.0.backend().read_changes(request).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.0.backend().changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.0.backend().read_item(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        if batch.writes.iter().any(|write| matches!(write, Write::Delete { .. })) {
            return Err(Error::new(ErrorKind::Forbidden, "this identity may not delete"));
        }
        self.0.backend().write(batch).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.0.backend().list_items(request).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.0.backend().time_to_live().await
    }

    async fn reopen(&self) -> Result<Container> {
        self.0.reopen().await
    }
}
