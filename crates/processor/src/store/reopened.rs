//! Follows a container of leases or dead letters that was deleted and created again.

use std::{fmt, sync::Arc};

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, Error, ErrorKind, FeedRange,
    Item, ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, WriteResult, async_trait,
};
use parking_lot::RwLock;

/// A container that is opened again by its name once it is not found. A read that notices is answered by the new container,
/// which begins empty; a write fails.
pub(crate) struct ReopenedBackend {
    first: Arc<dyn Backend>,
    current: RwLock<Arc<dyn Backend>>,
}

impl ReopenedBackend {
    pub(crate) fn container(container: &Container) -> Container {
        let first = Arc::clone(container.backend());
        Container::new(Arc::new(Self { current: RwLock::new(Arc::clone(&first)), first }))
    }

    fn current(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.current.read())
    }

    /// Looks at an answer of the container `of`: if that is gone, later requests go to the one that has its name now. Returns
    /// whether there is one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if its items are keyed in another way.
    async fn follows<T>(&self, answer: &Result<T>, of: &Arc<dyn Backend>) -> Result<bool> {
        if !answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::ContainerNotFound) {
            return Ok(false);
        }
        let Ok(found) = of.reopen().await else { return Ok(false) };
        let (old, new) = (of.identity(), found.identity());
        if old.store != new.store || old.container == new.container {
            return Ok(false);
        }
        if old.partition_key != new.partition_key {
            let message = format!(
                "container {} was deleted and created again with partition key {}: create it with {}, as it was",
                new.container_name, new.partition_key, old.partition_key
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        tracing::warn!(container = new.container_name, "container was deleted and created again, using the new one");
        *self.current.write() = Arc::clone(found.backend());
        Ok(true)
    }

    async fn read<T, R: Future<Output = Result<T>> + Send>(
        &self,
        request: impl Fn(Arc<dyn Backend>) -> R + Send + Sync,
    ) -> Result<T> {
        let current = self.current();
        let answer = request(Arc::clone(&current)).await;
        if self.follows(&answer, &current).await? { request(self.current()).await } else { answer }
    }
}

impl fmt::Debug for ReopenedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReopenedBackend({:?})", self.current())
    }
}

#[async_trait]
impl Backend for ReopenedBackend {
    /// That of the first container.
    fn identity(&self) -> &ContainerIdentity {
        self.first.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.first.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.read(|backend| async move { backend.feed_ranges().await }).await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        let current = self.current();
        let page = current.read_changes(request).await;
        // The position is one in the old container.
        self.follows(&page, &current).await?;
        page
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.current().changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.read(|backend| async move { backend.read_item(key).await }).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        let current = self.current();
        let written = current.write(batch).await;
        self.follows(&written, &current).await?;
        written
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        let request = &request;
        self.read(|backend| async move { backend.list_items(request.clone()).await }).await
    }

    async fn reopen(&self) -> Result<Container> {
        self.current().reopen().await
    }
}
