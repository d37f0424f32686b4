//! Follows a container of leases or dead letters that was deleted and created again.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, FeedRange, Item, ItemKey,
    ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, TimeToLive, WriteResult, async_trait,
};
use parking_lot::RwLock;

use crate::metrics::requests::StoreRole;

use super::replacement::{Replacements, is_missing};

/// A container that is opened again by its name once it is not found. A read that notices is answered by the new container,
/// which begins empty; a write fails. If the new one cannot be used, requests fail with the reason.
pub(crate) struct ReopenedBackend {
    first: Arc<dyn Backend>,
    current: RwLock<Arc<dyn Backend>>,
    replacements: Replacements,
    role: StoreRole,
    replaced: ReplacedCount,
}

/// How often a container was replaced by another one. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplacedCount(Arc<AtomicU64>);

impl ReplacedCount {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl ReopenedBackend {
    /// The container, and how often it was replaced so far.
    pub(crate) fn container(
        container: &Container,
        role: StoreRole,
        replacements: &Replacements,
    ) -> (Container, ReplacedCount) {
        let (first, replaced) = (Arc::clone(container.backend()), ReplacedCount::default());
        let current = RwLock::new(Arc::clone(&first));
        let (replacements, count) = (replacements.clone(), replaced.clone());
        (Container::new(Arc::new(Self { first, current, replacements, role, replaced: count })), replaced)
    }

    fn current(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.current.read())
    }

    /// Looks at an answer of the container `of`: if that is gone, later requests go to the one that has its name now. Returns
    /// whether there is one.
    ///
    /// # Errors
    /// Why the container that has the name cannot be used.
    async fn follows<T>(&self, answer: &Result<T>, of: &Arc<dyn Backend>) -> Result<bool> {
        if !answer.as_ref().is_err_and(|error| is_missing(error.kind())) {
            return Ok(false);
        }
        crate::planted!(ReplacementIgnored => return Ok(false));
        let found = match self.replacements.of(&Container::new(Arc::clone(of)), self.role).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(false),
            Err(error) if is_missing(error.kind()) => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut current = self.current.write();
        // Another request may have followed meanwhile, and further.
        if Arc::ptr_eq(&current, of) {
            let container = &found.identity().container_name;
            tracing::warn!(container, "container was deleted and created again, using the new one");
            *current = Arc::clone(found.backend());
            self.replaced.0.fetch_add(1, Ordering::AcqRel);
        }
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

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.read(|backend| async move { backend.time_to_live().await }).await
    }

    async fn reopen(&self) -> Result<Container> {
        self.current().reopen().await
    }
}
