//! Patience: no request to a store may keep a host waiting for ever.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use changefeed_core::{
    Backend, Batch, ChangePage, Container, ContainerIdentity, Continuation, Error, ErrorKind, FeedRange, Item, ItemKey,
    ItemPage, ListItems, PhysicalRange, ReadChanges, Result, Written, async_trait,
};

use crate::runtime::Runtime;

/// A store whose every answer is awaited for so long and no longer.
pub(crate) struct Patient {
    inner: Arc<dyn Backend>,
    runtime: Arc<dyn Runtime>,
    limit: Duration,
}

impl Patient {
    /// The container, with a limit on every request.
    pub(crate) fn container(container: &Container, runtime: &Arc<dyn Runtime>, limit: Duration) -> Container {
        let (inner, runtime) = (Arc::clone(container.backend()), Arc::clone(runtime));
        Container::new(Arc::new(Self { inner, runtime, limit }))
    }

    async fn within<T>(&self, request: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let sleep = self.runtime.sleep(self.limit);
        tokio::select! {
            biased;
            answer = request => answer,
            () = sleep => {
                let message = format!("{} did not answer within {:?}", self.identity().container_name, self.limit);
                Err(Error::new(ErrorKind::Timeout, message))
            }
        }
    }
}

impl fmt::Debug for Patient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Patient({:?}, {:?})", self.inner, self.limit)
    }
}

#[async_trait]
impl Backend for Patient {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    async fn feed_ranges(&self) -> Result<Vec<PhysicalRange>> {
        self.within(self.inner.feed_ranges()).await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<ChangePage> {
        self.within(self.inner.read_changes(request)).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.inner.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Item> {
        self.within(self.inner.read_item(key)).await
    }

    async fn write(&self, batch: Batch) -> Result<Vec<Written>> {
        let written = self.within(self.inner.write(batch)).await;
        // A write that was given up may land all the same.
        written.map_err(|error| if error.kind() == ErrorKind::Timeout { error.with_unknown_effect() } else { error })
    }

    async fn list_items(&self, request: ListItems) -> Result<ItemPage> {
        self.within(self.inner.list_items(request)).await
    }
}
