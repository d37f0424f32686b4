//! Repeats requests that a store refused without having done anything.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, Effect, FeedRange, Item,
    ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, WriteResult, async_trait,
};

use crate::{backoff::Backoff, runtime::Runtime};

/// Requests that are refused so often in a row fail, after about three seconds of pauses.
const TRIES: u32 = 6;

/// Between two attempts.
const PAUSE: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(2) };

/// A store whose requests are repeated while it is throttled or unavailable, as long as nothing was done.
pub(crate) struct RetryBackend {
    inner: Arc<dyn Backend>,
    runtime: Arc<dyn Runtime>,
}

impl RetryBackend {
    /// The container, with every request tried several times.
    pub(crate) fn container(container: &Container, runtime: &Arc<dyn Runtime>) -> Container {
        let (inner, runtime) = (Arc::clone(container.backend()), Arc::clone(runtime));
        Container::new(Arc::new(Self { inner, runtime }))
    }

    async fn retried<T, R: Future<Output = Result<T>> + Send>(
        &self,
        request: impl Fn() -> R + Send + Sync,
    ) -> Result<T> {
        let mut failures = 0;
        loop {
            let answer = request().await;
            failures += 1;
            match answer {
                Err(error) if error.kind().is_transient() && error.effect() == Effect::None && failures < TRIES => {
                    let pause = PAUSE.after(failures, self.runtime.random());
                    let container = &self.identity().container_name;
                    tracing::info!(container, attempt = failures, ?pause, %error, "request to the store failed, retrying");
                    self.runtime.sleep(pause).await;
                }
                answer => return answer,
            }
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
}
