//! The task of a host: it runs to its end, and goes on with another container if the monitored one was deleted and created
//! again.

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use changefeed_core::{Container, ErrorKind, Result};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    host::{Host, audit::changed_is_fine},
    join::join_bounded,
    launch::{Launch, Origin, Prepared, START_GRACE, Takeover},
    lease::store::LeaseStore,
    notification::{Failure, Notification},
    notifier::Notifier,
    runtime::{BoxFuture, panic_message},
    store::presence::Presence,
};

/// Runs hosts until the processor is stopped.
pub(crate) struct HostTask {
    pub(crate) launch: Launch,
    /// The monitored container as the processor knows it: another one once this task has followed it.
    pub(crate) monitored: Arc<Mutex<Container>>,
    /// Fire when async callbacks have received everything.
    pub(crate) received: Vec<CancellationToken>,
    /// Fires however the task ends.
    pub(crate) finished: CancellationToken,
}

impl HostTask {
    /// Runs to the end, then waits until async callbacks have received everything.
    pub(crate) async fn run(self, first: Prepared) {
        let _finished = self.finished.clone().drop_guard();
        let Launch { span, signals, stop_report, notifier, .. } = &self.launch;
        let mut death = NoteDeath(Some(notifier.clone()));
        let ended = AssertUnwindSafe(self.run_hosts(first).instrument(span.clone())).catch_unwind().await;
        if let Some(notifier) = death.0.take() {
            match ended {
                Ok(()) => notifier.stopped(),
                Err(panic) => notifier.died(format!("bug: it panicked: {}", panic_message(&*panic))),
            }
        }
        for received in &self.received {
            tokio::select! {
                biased;
                () = received.cancelled() => {}
                () = signals.abort.cancelled() => return stop_report.add_host("a notification callback is running"),
            }
        }
    }

    /// Runs a host until it is stopped, and another one whenever the monitored container was deleted and created again.
    async fn run_hosts(&self, first: Prepared) {
        let mut next = Some(first);
        while let Some(prepared) = next.take() {
            let Prepared { context, monitored, presence } = prepared;
            let (store, signals) = (Arc::clone(&context.store), context.signals.clone());
            let mut host = Box::pin(Host::new(context).run());
            let replacement = tokio::select! {
                biased;
                () = &mut host => return,
                replacement = self.replacement(&monitored, &presence) => replacement,
            };
            // Calls that run are waited for, however long: nobody can deliver their changes again.
            signals.stop.cancel();
            host.await;
            next = self.follow(replacement, &store).await;
        }
    }

    /// Waits until another container has the name of the monitored one.
    async fn replacement(&self, monitored: &Container, presence: &Presence) -> Container {
        loop {
            tokio::select! {
                biased;
                () = presence.missed() => {}
                () = self.silence(presence) => {}
            }
            let mut failures = 0;
            loop {
                match self.launch.reopen(monitored).await {
                    Ok(Some(found)) => return found,
                    Ok(None) => break,
                    // It need not be missing any more when reads fail for another reason, such as a key that was replaced.
                    Err(_) => failures += 1,
                }
                self.pause(failures).await;
            }
        }
    }

    /// Completes when the host may have read nothing for long, so that it would not notice that the container is missing: it
    /// has no lease, since all may be paused, or it does nothing but deliver batches again.
    async fn silence(&self, presence: &Presence) {
        let Launch { runtime, options, notifier, .. } = &self.launch;
        let interval = options.timing.expiration;
        // An idle lease is read once in a poll interval.
        let longest = interval.max(2 * options.poll_interval);
        let mut silent = Duration::ZERO;
        loop {
            runtime.sleep(interval).await;
            silent = if presence.take_answered() { Duration::ZERO } else { silent + interval };
            if silent >= longest || notifier.record().lock().leases().is_empty() {
                return;
            }
        }
    }

    /// Prepares a host for the container that replaces the monitored one, unless the processor is stopped. A stop waits for
    /// a moment, so that no bootstrap lock is left behind.
    async fn follow(&self, replacement: Container, old: &LeaseStore) -> Option<Prepared> {
        let Launch { runtime, signals, stop_report, .. } = &self.launch;
        if signals.stop.is_cancelled() {
            return None;
        }
        let mut following = pin!(self.go_on_with(replacement, old));
        tokio::select! {
            biased;
            () = signals.stop.cancelled() => {}
            prepared = following.as_mut() => return prepared,
        }
        tokio::select! {
            biased;
            () = signals.abort.cancelled() => {
                stop_report.add_host("leases are being created for a container that was created again");
            }
            _ = following => {}
            () = runtime.sleep(START_GRACE) => {}
        }
        None
    }

    /// Prepares a host for the container that replaces the monitored one, however often that fails; none at a stop.
    async fn go_on_with(&self, replacement: Container, old: &LeaseStore) -> Option<Prepared> {
        let Launch { notifier, mode, options, signals, paused, .. } = &self.launch;
        let name = replacement.identity().container_name.clone();
        notifier.notify(Notification::ContainerReplaced { name });
        let (mut monitored, mut failures) = (replacement, 0);
        loop {
            let preparing = async {
                paused.listed(&old.list().await?);
                let origin = Origin::replacement(&monitored, &options.start, *mode, paused.get()).await?;
                self.launch.prepare(&monitored, &origin, Takeover::AfterExpiration).await
            };
            let error = match preparing.await {
                Ok(prepared) => {
                    *self.monitored.lock() = monitored;
                    // Only now: until then they say whether the processor is paused.
                    delete_free_leases(old).await.unwrap_or_else(|error| tracing::debug!(%error, "old leases stay"));
                    return Some(prepared);
                }
                Err(error) => error,
            };
            let gone = error.kind() == ErrorKind::ContainerNotFound;
            notifier.notify(Notification::error(None, Failure::Balancer(Arc::new(error))));
            failures += 1;
            tokio::select! {
                biased;
                () = signals.stop.cancelled() => return None,
                () = self.pause(failures) => {}
            }
            if gone && let Ok(Some(found)) = self.launch.reopen(&monitored).await {
                monitored = found;
            }
        }
    }

    async fn pause(&self, failures: u32) {
        let Launch { runtime, options, .. } = &self.launch;
        let pause = options.store_retry.after(failures, runtime.random()).min(options.timing.acquire);
        runtime.sleep(pause).await;
    }
}

/// Deletes leases of a container that does not exist any more, unless a host owns them; other hosts do the same. Hosts that
/// have not noticed see a hole in the key space, and look at the container.
async fn delete_free_leases(store: &LeaseStore) -> Result<()> {
    let prefix = store.prefix();
    for id in [prefix.info_id(), prefix.time_id()] {
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

/// Notes the death of a host whose task is dropped.
struct NoteDeath(Option<Notifier>);

impl Drop for NoteDeath {
    fn drop(&mut self) {
        if let Some(notifier) = self.0.take() {
            notifier.dropped();
        }
    }
}
