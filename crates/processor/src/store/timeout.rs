//! Bounds every request to a store in time, turns a panic inside the store into an error, and measures.

use std::{any::Any, fmt, future::Future, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, Error, ErrorKind, FeedRange,
    Item, ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, TimeToLive, WriteResult,
    async_trait,
};

use futures_util::{FutureExt, future::poll_immediate};

use crate::{
    metrics::requests::{Operation, RequestMetrics, StoreRole},
    notification::{Failure, Notification},
    notifier::Notifier,
    runtime::{Runtime, panic_message},
    store::{presence::Presence, replacement::is_missing},
};

/// A store with a timeout for every request. A request that panics fails.
pub(crate) struct TimeoutBackend {
    inner: Arc<dyn Backend>,
    runtime: Arc<dyn Runtime>,
    limits: Limits,
    notifier: Notifier,
    metrics: RequestMetrics,
    presence: Arc<Presence>,
}

/// How long requests may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) requests: Duration,
    /// For the feed ranges: a host that waits for them neither balances nor follows a split.
    pub(crate) ranges: Duration,
}

impl Limits {
    /// The same for all requests.
    pub(crate) fn same(limit: Duration) -> Self {
        Self { requests: limit, ranges: limit }
    }
}

impl TimeoutBackend {
    /// The container, with a limit on every request.
    pub(crate) fn new(
        container: &Container,
        runtime: &Arc<dyn Runtime>,
        limits: Limits,
        notifier: &Notifier,
        role: StoreRole,
    ) -> Self {
        let (inner, runtime) = (Arc::clone(container.backend()), Arc::clone(runtime));
        let metrics = notifier.metrics().requests(role);
        Self { inner, runtime, limits, notifier: notifier.clone(), metrics, presence: Arc::default() }
    }

    /// What the answers say about whether the container is there.
    pub(crate) fn presence(&self) -> Arc<Presence> {
        Arc::clone(&self.presence)
    }

    pub(crate) fn into_container(self) -> Container {
        Container::new(Arc::new(self))
    }

    /// Reports a panic inside the store: whoever made the request may find out what it did and go on.
    fn panicked(&self, panic: &(dyn Any + Send)) -> Error {
        let message = format!("the store of {} panicked: {}", self.identity().container_name, panic_message(panic));
        let failure = Failure::Panic(Arc::new(Error::new(ErrorKind::Unavailable, message.clone())));
        crate::planted!(PanicUnreported => return Error::new(ErrorKind::Unavailable, message).with_unknown_effect());
        self.notifier.notify(Notification::error(None, failure));
        // What a write did before it panicked is not known.
        Error::new(ErrorKind::Unavailable, message).with_unknown_effect()
    }

    async fn within<T>(
        &self,
        operation: Operation,
        limit: Duration,
        request: impl Future<Output = Result<Response<T>>> + Send,
    ) -> Result<Response<T>> {
        let begun = self.runtime.monotonic();
        let mut request = pin!(AssertUnwindSafe(request).catch_unwind());
        let answer = match poll_immediate(request.as_mut()).await {
            // A store in the same process answers at once: it needs no timer.
            Some(answer) => Ok(answer),
            None => tokio::select! {
                biased;
                answer = request => Ok(answer),
                () = self.runtime.sleep(limit) => {
                    let message = format!("{} did not answer within {limit:?}", self.identity().container_name);
                    Err(Error::new(ErrorKind::Timeout, message))
                }
            },
        };
        let answer = answer.and_then(|answer| answer.unwrap_or_else(|panic| Err(self.panicked(&*panic))));
        self.metrics.record(operation, &answer, self.runtime.monotonic().saturating_sub(begun));
        match &answer {
            Ok(_) => self.presence.confirm(),
            Err(error) if is_missing(error.kind()) => self.presence.miss(),
            Err(_) => {}
        }
        answer
    }
}

impl fmt::Debug for TimeoutBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimeoutBackend({:?}, {:?})", self.inner, self.limits)
    }
}

#[async_trait]
impl Backend for TimeoutBackend {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.within(Operation::FeedRanges, self.limits.ranges, self.inner.feed_ranges()).await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.within(Operation::ReadChanges, self.limits.requests, self.inner.read_changes(request)).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        if let Err(panic) = AssertUnwindSafe(self.inner.changed(range, continuation)).catch_unwind().await {
            self.panicked(&*panic);
            // The caller polls.
            std::future::pending::<()>().await;
        }
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.within(Operation::ReadItem, self.limits.requests, self.inner.read_item(key)).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        let written = self.within(Operation::Write, self.limits.requests, self.inner.write(batch)).await;
        // A write that timed out may still be performed.
        written.map_err(|error| if error.kind() == ErrorKind::Timeout { error.with_unknown_effect() } else { error })
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.within(Operation::ListItems, self.limits.requests, self.inner.list_items(request)).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.within(Operation::TimeToLive, self.limits.requests, self.inner.time_to_live()).await
    }

    /// Requests to the new container have no limit.
    async fn reopen(&self) -> Result<Container> {
        self.inner.reopen().await
    }
}
