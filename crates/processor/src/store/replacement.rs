//! Which container has the name of another one now. The only place that decides it: for hosts, lease stores, tools and
//! health checks.
//!
//! A store may answer from a replica whose names are out of date. So its answer alone decides nothing: the old container
//! itself must say that it is gone, and the one that was found must answer.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use changefeed_core::{Container, ContainerIdentity, Error, ErrorKind, Result};
use futures_util::FutureExt;

use crate::{
    metrics::requests::StoreRole,
    runtime::{Runtime, TokioRuntime, panic_message},
};

/// How long one request may take if there is no option for it.
const LIMIT: Duration = Duration::from_secs(10);

/// Finds the containers that replace others. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Replacements {
    runtime: Arc<dyn Runtime>,
    limit: Duration,
}

impl Replacements {
    /// Each request may take up to `limit`.
    pub(crate) fn new(runtime: &Arc<dyn Runtime>, limit: Duration) -> Self {
        Self { runtime: Arc::clone(runtime), limit }
    }

    /// For callers without options.
    pub(crate) fn with_defaults(runtime: Option<&Arc<dyn Runtime>>) -> Self {
        Self { runtime: runtime.cloned().unwrap_or_else(TokioRuntime::new), limit: LIMIT }
    }

    /// The container that has the name of `old` now, if `old` was deleted and another one was created in the same store;
    /// none if `old` is there, or if its store opens nothing by name.
    ///
    /// # Errors
    /// `ContainerNotFound` or `DatabaseNotFound` if there is none in that store, `InvalidArgument` if its partition key does
    /// not fit or if leases would expire in it, `Timeout`, `Unavailable` if the store panics, and those of the store.
    pub(crate) async fn of(&self, old: &Container, role: StoreRole) -> Result<Option<Container>> {
        let found = match self.bounded(old, "open container", old.reopen()).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(None),
            found => found?,
        };
        if !replaces(old.identity(), found.identity(), role)? || !self.is_gone(old).await? {
            return Ok(None);
        }
        self.bounded(&found, "read the feed ranges of", found.feed_ranges()).await?;
        if role == StoreRole::Leases {
            let time_to_live = self.bounded(&found, "read the time to live of", found.time_to_live()).await?;
            time_to_live.check_for_leases(found.identity())?;
        }
        Ok(Some(found))
    }

    /// Whether a container itself answers that it was deleted.
    ///
    /// # Errors
    /// `Timeout`, `Unavailable` if the store panics, and those of the store.
    pub(crate) async fn is_gone(&self, container: &Container) -> Result<bool> {
        match self.bounded(container, "read the feed ranges of", container.feed_ranges()).await {
            Ok(_) => Ok(false),
            Err(error) if is_missing(error.kind()) => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn bounded<T>(
        &self,
        container: &Container,
        doing: &str,
        request: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let failed = |kind, problem: &str| {
            let ContainerIdentity { database_name, container_name, .. } = container.identity();
            Error::new(kind, format!("{doing} {database_name}/{container_name}: {problem}"))
        };
        tokio::select! {
            biased;
            answer = AssertUnwindSafe(request).catch_unwind() => answer.unwrap_or_else(|panic| {
                Err(failed(ErrorKind::Unavailable, &format!("the store panicked: {}", panic_message(&*panic))))
            }),
            () = self.runtime.sleep(self.limit) => {
                Err(failed(ErrorKind::Timeout, &format!("no answer within {:?}", self.limit)))
            }
        }
    }
}

/// Whether a request failed because its container does not exist.
pub(crate) fn is_missing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ContainerNotFound | ErrorKind::DatabaseNotFound)
}

/// Whether the container that was found under the name of another one is to replace it. Items of hosts are found by their
/// partition keys; of the monitored container only the feed is read. Pure.
fn replaces(old: &ContainerIdentity, found: &ContainerIdentity, role: StoreRole) -> Result<bool> {
    let name = || format!("{}/{}", old.database_name, old.container_name);
    if old.store != found.store {
        let message = format!(
            "container {} is in store {} now, not in {}: its store was restored or replaced; open it and start again",
            name(),
            found.store.as_str(),
            old.store.as_str()
        );
        return Err(Error::new(ErrorKind::ContainerNotFound, message));
    }
    if old.container == found.container {
        return Ok(false);
    }
    if role != StoreRole::Monitored && old.partition_key != found.partition_key {
        let message = format!(
            "container {} was deleted and created again with partition key {}: create it with {}, as it was",
            old.container_name, found.partition_key, old.partition_key
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    Ok(true)
}

/// Returns the container that has the name of this one now, if this one was deleted and another one was created in the same
/// store; `None` if this one is there. Running hosts follow by themselves; this is for programs that hold a container beside
/// them, as for a health check.
///
/// ```
/// # async fn example(orders: &mut changefeed::core::Container) -> changefeed::core::Result<()> {
/// if let Some(newer) = changefeed::replacement(orders).await? {
///     *orders = newer;
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `ContainerNotFound` if no container of the same store has the name, `Timeout` if the store does not answer within 10 s,
/// `Unavailable` if it panics, and those of the store.
pub async fn replacement(container: &Container) -> Result<Option<Container>> {
    Replacements::with_defaults(None).of(container, StoreRole::Monitored).await
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use changefeed_embedded::Engine;

    use super::*;

    /// The identities of a container, of one that replaces it, of one that does with another key, and of one in another
    /// store.
    async fn identities() -> [ContainerIdentity; 4] {
        let mut found = Vec::new();
        let engine = Engine::in_memory().expect("open");
        for key in ["/id", "/id", "/owner"] {
            let made = engine.database("shop").container("leases").partition_key(key).create().await.expect("create");
            found.push(made.identity().clone());
            engine.catalog().delete_container("shop", "leases").await.expect("delete");
        }
        let other = Engine::in_memory().expect("open");
        found.push(other.database("shop").container("leases").create().await.expect("create").identity().clone());
        found.try_into().expect("four")
    }

    #[tokio::test]
    async fn another_container_of_the_same_store_replaces_one_if_its_key_fits() {
        let [old, same_key, other_key, other_store] = &identities().await;
        let decided = |found, role| replaces(old, found, role).map_err(|error| error.kind());
        for role in [StoreRole::Monitored, StoreRole::Leases, StoreRole::DeadLetters] {
            assert_eq!(decided(old, role), Ok(false));
            assert_eq!(decided(same_key, role), Ok(true));
            assert_eq!(decided(other_store, role), Err(ErrorKind::ContainerNotFound));
        }
        assert_eq!(decided(other_key, StoreRole::Monitored), Ok(true));
        assert_eq!(decided(other_key, StoreRole::Leases), Err(ErrorKind::InvalidArgument));
        assert_eq!(decided(other_key, StoreRole::DeadLetters), Err(ErrorKind::InvalidArgument));
    }
}
