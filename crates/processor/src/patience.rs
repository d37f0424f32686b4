//! Patience: no request to a store may keep a host waiting for ever, and where nobody else would ask again, none is given
//! up at the first refusal.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, Effect, Error, ErrorKind,
    FeedRange, Item, ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, WriteResult,
    async_trait,
};

use crate::{backoff::Backoff, runtime::Runtime};

/// Requests that are refused so often in a row are given up, after about three seconds of pauses.
const TRIES: u32 = 6;

/// Between two of them.
const PAUSE: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(2) };

/// A store whose every answer is awaited for so long and no longer.
pub(crate) struct Patient {
    inner: Arc<dyn Backend>,
    runtime: Arc<dyn Runtime>,
    limits: Limits,
}

/// How long an answer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) requests: Duration,
    /// To the question for the ranges: a host that waits for it neither balances nor follows a split.
    pub(crate) ranges: Duration,
}

impl Limits {
    /// The same for all requests.
    pub(crate) fn same(limit: Duration) -> Self {
        Self { requests: limit, ranges: limit }
    }
}

impl Patient {
    /// The container, with a limit on every request.
    pub(crate) fn container(container: &Container, runtime: &Arc<dyn Runtime>, limits: Limits) -> Container {
        let (inner, runtime) = (Arc::clone(container.backend()), Arc::clone(runtime));
        Container::new(Arc::new(Self { inner, runtime, limits }))
    }

    async fn within<T>(&self, limit: Duration, request: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let sleep = self.runtime.sleep(limit);
        tokio::select! {
            biased;
            answer = request => answer,
            () = sleep => {
                let message = format!("{} did not answer within {limit:?}", self.identity().container_name);
                Err(Error::new(ErrorKind::Timeout, message))
            }
        }
    }
}

impl fmt::Debug for Patient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Patient({:?}, {:?})", self.inner, self.limits)
    }
}

#[async_trait]
impl Backend for Patient {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.within(self.limits.ranges, self.inner.feed_ranges()).await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.within(self.limits.requests, self.inner.read_changes(request)).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.inner.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.within(self.limits.requests, self.inner.read_item(key)).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        let written = self.within(self.limits.requests, self.inner.write(batch)).await;
        // A write that was given up may land all the same.
        written.map_err(|error| if error.kind() == ErrorKind::Timeout { error.with_unknown_effect() } else { error })
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.within(self.limits.requests, self.inner.list_items(request)).await
    }
}

/// A store that is asked again while it is busy or away, as long as nothing has been done.
pub(crate) struct Stubborn {
    inner: Arc<dyn Backend>,
    runtime: Arc<dyn Runtime>,
}

impl Stubborn {
    /// The container, with every request tried several times.
    pub(crate) fn container(container: &Container, runtime: &Arc<dyn Runtime>) -> Container {
        let (inner, runtime) = (Arc::clone(container.backend()), Arc::clone(runtime));
        Container::new(Arc::new(Self { inner, runtime }))
    }

    async fn again<T, R: Future<Output = Result<T>> + Send>(&self, request: impl Fn() -> R + Send + Sync) -> Result<T> {
        let mut failures = 0;
        loop {
            let answer = request().await;
            failures += 1;
            match answer {
                Err(error) if error.kind().is_transient() && error.effect() == Effect::None && failures < TRIES => {
                    self.runtime.sleep(PAUSE.after(failures, self.runtime.random())).await;
                }
                answer => return answer,
            }
        }
    }
}

impl fmt::Debug for Stubborn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stubborn({:?})", self.inner)
    }
}

#[async_trait]
impl Backend for Stubborn {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.again(|| self.inner.feed_ranges()).await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.again(|| self.inner.read_changes(request.clone())).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.inner.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.again(|| self.inner.read_item(key)).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        self.again(|| self.inner.write(batch.clone())).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.again(|| self.inner.list_items(request.clone())).await
    }
}
