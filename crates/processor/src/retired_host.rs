//! The host of a container that was deleted: it finishes the delegate calls that run, beside the next host if they take
//! long, and then deletes what nobody can use any more.

use std::{panic::AssertUnwindSafe, sync::Arc};

use changefeed_core::{Container, Error, ErrorKind, Result};
use futures_util::FutureExt;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::Instrument;

use crate::{
    host::audit::changed_is_fine,
    join::join_bounded,
    launch::Launch,
    lease::{prefix::LeasePrefix, store::LeaseStore},
    notification::{Failure, Notification},
    notifier::Notifier,
    runtime::{BoxFuture, panic_message},
    store::replacement::Replacements,
};

/// A host that has been told to stop because its container was deleted.
pub(crate) struct RetiredHost {
    /// Its lease container, which may say whether the processor is paused.
    pub(crate) store: Arc<LeaseStore>,
    notifier: Notifier,
    task: AbortOnDropHandle<()>,
    /// Fires when no call runs any more.
    ended: CancellationToken,
    /// Fires when leases of another container have taken the place of its own.
    replaced: CancellationToken,
}

impl RetiredHost {
    /// Lets a host that is being stopped go on to its end, in a task of its own. `monitored` is the deleted container.
    pub(crate) fn new(
        launch: &Launch,
        host: BoxFuture<'static, ()>,
        monitored: Container,
        store: Arc<LeaseStore>,
        notifier: Notifier,
    ) -> Self {
        let (ended, replaced) = (CancellationToken::new(), CancellationToken::new());
        let (own_store, own_ended, own_replaced) = (Arc::clone(&store), ended.clone(), replaced.clone());
        let (own_notifier, stop, replacements) = (notifier.clone(), launch.signals.stop.clone(), launch.replacements());
        let task = async move {
            let end = own_ended.drop_guard();
            if let Err(panic) = AssertUnwindSafe(host).catch_unwind().await {
                let message = format!("bug: the host of a deleted container panicked: {}", panic_message(&*panic));
                let error = Arc::new(Error::new(ErrorKind::Corrupt, message));
                own_notifier.notify(Notification::error(None, Failure::Panic(error)));
            }
            drop(end);
            tokio::select! {
                biased;
                () = own_replaced.cancelled() => {}
                () = stop.cancelled() => return,
            }
            let deleted = delete_free_leases(&replacements, &monitored, &own_store).await;
            deleted.unwrap_or_else(|error| tracing::debug!(%error, "leases of a deleted container stay"));
        };
        let name = format!("retired-host[{}]", launch.name);
        let task = AbortOnDropHandle::new(launch.runtime.spawn(&name, Box::pin(task.instrument(launch.span.clone()))));
        Self { store, notifier, task, ended, replaced }
    }

    /// Completes when none of its calls runs any more and its leases are released.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Another host is about to work on leases with this prefix.
    pub(crate) fn replaced_by(&self, prefix: &LeasePrefix) {
        self.notifier.retire();
        // The old container itself can be the one that has the name, if a store gave an answer that was out of date.
        if prefix != self.store.prefix() {
            self.replaced.cancel();
        }
    }

    /// Whether nothing of it is left to do.
    pub(crate) fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits until the task has ended, at a stop: the calls, too, unless the stop deadline ends them.
    pub(crate) async fn join(self) {
        drop(self.task.await);
    }
}

/// Deletes leases of a container that says itself that it was deleted, unless a host owns them; other hosts do the same.
/// Hosts that have not noticed see a hole in the key space, and look at the container.
async fn delete_free_leases(replacements: &Replacements, monitored: &Container, store: &LeaseStore) -> Result<()> {
    if !replacements.is_gone(monitored).await? {
        return Ok(());
    }
    let prefix = store.prefix();
    for id in [prefix.info_id(), prefix.reset_id(), prefix.time_id()] {
        let field = store.partition_key_field(&id);
        if let Some(item) = store.read_raw(&id, field.as_deref()).await? {
            changed_is_fine(store.delete_raw(&id, field.as_deref(), &item.etag).await)?;
        }
    }
    let listing = store.list().await?;
    let free = listing.leases.iter().filter(|lease| lease.document.owner.is_none());
    let deleting = free.map(|lease| -> BoxFuture<'_, _> { Box::pin(store.delete(lease)) });
    join_bounded(deleting.collect()).await.into_iter().try_for_each(changed_is_fine)
}
