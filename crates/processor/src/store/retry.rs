//! Repeats requests that a store refused without having done anything.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, Effect, FeedRange, Item,
    ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, TimeToLive, WriteResult, async_trait,
};

use crate::{backoff::Backoff, runtime::Runtime};

/// Between two attempts, unless the store names a longer time.
const PAUSE: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(2) };

/// A store whose requests are repeated while it is throttled or unavailable, as long as nothing was done.
pub(crate) struct RetryBackend {
    inner: Arc<dyn Backend>,
    runtime: Arc<dyn Runtime>,
    timeout: Duration,
}

impl RetryBackend {
    /// The container, with every request repeated for up to `timeout` after its first failure.
    pub(crate) fn container(container: &Container, runtime: &Arc<dyn Runtime>, timeout: Duration) -> Container {
        let (inner, runtime) = (Arc::clone(container.backend()), Arc::clone(runtime));
        Container::new(Arc::new(Self { inner, runtime, timeout }))
    }

    async fn retried<T, R: Future<Output = Result<T>> + Send>(
        &self,
        request: impl Fn() -> R + Send + Sync,
    ) -> Result<T> {
        let (mut attempt, mut failing_since) = (0, None);
        loop {
            let error = match request().await {
                Err(error) if error.kind().is_transient() && error.effect() == Effect::None => error,
                answer => return answer,
            };
            attempt += 1;
            let now = self.runtime.monotonic();
            let failing = now.saturating_sub(*failing_since.get_or_insert(now));
            let pause = PAUSE.after(attempt, self.runtime.random()).max(error.retry_after().unwrap_or_default());
            if failing + pause > self.timeout {
                return Err(error);
            }
            let container = &self.identity().container_name;
            tracing::info!(container, attempt, ?pause, %error, "request to the store failed, retrying");
            self.runtime.sleep(pause).await;
        }
    }
}

impl fmt::Debug for RetryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RetryBackend({:?})", self.inner)
    }
}

#[async_trait]
impl Backend for RetryBackend {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.retried(|| self.inner.feed_ranges()).await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.retried(|| self.inner.read_changes(request.clone())).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.inner.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.retried(|| self.inner.read_item(key)).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        self.retried(|| self.inner.write(batch.clone())).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.retried(|| self.inner.list_items(request.clone())).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.retried(|| self.inner.time_to_live()).await
    }

    /// Requests to the new container are not repeated.
    async fn reopen(&self) -> Result<Container> {
        self.inner.reopen().await
    }
}
