//! The task of a host: it runs to its end, and goes on with another container if the monitored one was deleted and created
//! again.

use std::{panic::AssertUnwindSafe, sync::Arc};

use changefeed_core::{Container, ErrorKind, Mode, Result, StartFrom};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    host::Host,
    launch::{Launch, Prepared, Takeover},
    lease::store::LeaseStore,
    notification::{Failure, Notification},
    notifier::Notifier,
    runtime::panic_message,
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
            let Prepared { context, monitored, missing } = prepared;
            let (store, signals) = (Arc::clone(&context.store), context.signals.clone());
            let mut host = Box::pin(Host::new(context).run());
            let replacement = tokio::select! {
                biased;
                () = &mut host => return,
                replacement = self.replacement(&monitored, &missing) => replacement,
            };
            signals.stop.cancel();
            tokio::select! {
                biased;
                () = &mut host => {}
                () = self.launch.runtime.sleep(self.launch.options.stop_deadline) => {
                    signals.abort.cancel();
                    host.await;
                }
            }
            let stop = self.launch.signals.stop.clone();
            next = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                prepared = self.go_on_with(replacement, &store) => Some(prepared),
            };
        }
    }

    /// Waits until another container has the name of the monitored one.
    async fn replacement(&self, monitored: &Container, missing: &Notify) -> Container {
        let mut looked = 0;
        loop {
            missing.notified().await;
            if let Some(found) = self.reopen(monitored).await {
                return found;
            }
            looked += 1;
            self.pause(looked).await;
        }
    }

    /// The container of the same store that has the name now, if it is another one. In another store, positions and leases
    /// are not this processor's.
    async fn reopen(&self, monitored: &Container) -> Option<Container> {
        let Launch { runtime, options, .. } = &self.launch;
        let opening = AssertUnwindSafe(monitored.reopen()).catch_unwind();
        let found = tokio::select! {
            biased;
            found = opening => found.ok()?.ok()?,
            () = runtime.sleep(options.read_timeout) => return None,
        };
        let (old, new) = (monitored.identity(), found.identity());
        (old.store == new.store && old.container != new.container).then_some(found)
    }

    /// Prepares a host for the container that replaces the monitored one, however often that fails.
    async fn go_on_with(&self, replacement: Container, old_leases: &LeaseStore) -> Prepared {
        let Launch { notifier, mode, options, .. } = &self.launch;
        let name = replacement.identity().container_name.clone();
        notifier.notify(Notification::ContainerReplaced { name });
        delete_free_leases(old_leases).await.unwrap_or_else(|error| tracing::debug!(%error, "old leases stay"));
        let (mut monitored, mut failures) = (replacement, 0);
        loop {
            let start = start_in_replacement(&options.start, *mode);
            match self.launch.prepare(&monitored, start, Takeover::AfterExpiration).await {
                Ok(prepared) => {
                    *self.monitored.lock() = monitored;
                    return prepared;
                }
                Err(error) => {
                    let gone = error.kind() == ErrorKind::ContainerNotFound;
                    notifier.notify(Notification::error(None, Failure::Balancer(Arc::new(error))));
                    failures += 1;
                    self.pause(failures).await;
                    if let Some(found) = if gone { self.reopen(&monitored).await } else { None } {
                        monitored = found;
                    }
                }
            }
        }
    }

    async fn pause(&self, failures: u32) {
        let Launch { runtime, options, .. } = &self.launch;
        let pause = options.store_retry.after(failures, runtime.random()).min(options.timing.acquire);
        runtime.sleep(pause).await;
    }
}

/// Where the processor begins in a container that was created while it ran: all that is in there came after its start.
/// All versions cannot be read from the beginning.
fn start_in_replacement(start: &StartFrom, mode: Mode) -> StartFrom {
    match (start, mode) {
        (StartFrom::Time(time), _) => StartFrom::Time(*time),
        (_, Mode::AllVersions) => StartFrom::Now,
        (StartFrom::Beginning | StartFrom::Now | StartFrom::Continuation(_), _) => StartFrom::Beginning,
    }
}

/// Deletes leases of a container that does not exist any more, unless a host owns them. Hosts that own none learn from it
/// that something has happened: a hole in the key space makes them look at the container.
async fn delete_free_leases(store: &LeaseStore) -> Result<()> {
    let prefix = store.prefix();
    for id in [prefix.info_id(), prefix.time_id()] {
        let field = store.partition_key_field(&id);
        if let Some(item) = store.read_raw(&id, field.as_deref()).await? {
            store.delete_raw(&id, field.as_deref(), &item.etag).await?;
        }
    }
    for lease in store.list().await?.leases.iter().filter(|lease| lease.document.owner.is_none()) {
        store.delete(lease).await?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use changefeed_core::Timestamp;

    use super::*;

    #[test]
    fn a_replacement_is_read_from_its_beginning_unless_the_user_named_a_time() {
        let time = StartFrom::Time(Timestamp::from_millis(7));
        assert_eq!(start_in_replacement(&StartFrom::Now, Mode::LatestVersion), StartFrom::Beginning);
        assert_eq!(start_in_replacement(&StartFrom::Beginning, Mode::LatestVersion), StartFrom::Beginning);
        assert_eq!(start_in_replacement(&time, Mode::LatestVersion), time);
        assert_eq!(start_in_replacement(&StartFrom::Now, Mode::AllVersions), StartFrom::Now);
    }
}
