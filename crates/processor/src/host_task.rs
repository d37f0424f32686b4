//! The task of a host: it runs to its end, and goes on with another container if the monitored one was deleted and created
//! again.

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use changefeed_core::{Container, Error, ErrorKind, Result};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    host::Host,
    launch::{Launch, Origin, Prepared, START_GRACE, Takeover},
    lease::{
        prefix::{LeasePrefix, LeaseToken},
        store::LeaseStore,
    },
    notification::{Failure, Notification},
    notifier::Notifier,
    retired_host::RetiredHost,
    runtime::{BoxFuture, panic_message},
    store::{presence::Presence, replacement::is_missing},
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
        let (mut next, mut retired) = (Some(first), Vec::new());
        while let Some(prepared) = next.take() {
            let Prepared { context, monitored, presence } = prepared;
            let (store, signals, notifier) =
                (Arc::clone(&context.store), context.signals.clone(), context.notifier.clone());
            let mut host: BoxFuture<'static, ()> = Box::pin(Host::new(context).run());
            let replacement = tokio::select! {
                biased;
                () = &mut host => break,
                replacement = self.replacement(&monitored, &presence) => replacement,
            };
            let name = replacement.identity().container_name.clone();
            self.launch.notifier.notify(Notification::ContainerReplaced { name });
            signals.stop.cancel();
            let old = RetiredHost::new(&self.launch, host, monitored, store, notifier);
            self.wait_for_calls(&old).await;
            next = self.follow(replacement, &old.store).await;
            if let Some(prepared) = &next {
                old.replaced_by(prepared.context.store.prefix());
            }
            retired.retain(|old: &RetiredHost| !old.is_finished());
            retired.push(old);
        }
        for old in retired {
            old.join().await;
        }
    }

    /// Waits until another container has the name of the monitored one.
    async fn replacement(&self, monitored: &Container, presence: &Presence) -> Container {
        // How often in a row requests did not find the container although it is there.
        let mut mistaken = 0;
        loop {
            tokio::select! {
                biased;
                () = presence.missed() => {}
                () = self.silence(presence) => mistaken = 0,
            }
            if let Some(found) = self.look(monitored).await {
                return found;
            }
            mistaken += 1;
            self.pause(mistaken).await;
        }
    }

    /// Looks for the container that has the name of the monitored one, as long as there is none; returns none if it is the
    /// monitored one itself. A host that works is stopped only if the same container was found twice.
    async fn look(&self, monitored: &Container) -> Option<Container> {
        let (mut failures, mut seen) = (0, None);
        loop {
            match self.launch.replacement(monitored).await {
                Ok(None) => return None,
                Ok(Some(found)) if seen == Some(found.identity().container) => return Some(found),
                Ok(Some(found)) => (seen, failures) = (Some(found.identity().container), 0),
                // It need not be missing any more when reads fail for another reason, such as a key that was replaced.
                Err(error) => {
                    (seen, failures) = (None, failures + 1);
                    self.report_unless_missing(error);
                }
            }
            self.pause(failures.max(1)).await;
        }
    }

    /// Reports why the container with the name of the monitored one cannot be found. Reads report that it is missing.
    fn report_unless_missing(&self, error: Error) {
        if !is_missing(error.kind()) {
            self.launch.notifier.notify(Notification::error(None, Failure::Feed(Arc::new(error))));
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

    /// Waits for the delegate calls of a host whose container was deleted: nobody can deliver their changes again. Those that
    /// take longer than a stop may are reported and not waited for, since everything else would wait with them.
    async fn wait_for_calls(&self, old: &RetiredHost) {
        let Launch { runtime, options, signals, notifier, .. } = &self.launch;
        tokio::select! {
            biased;
            () = old.ended() => return,
            () = signals.stop.cancelled() => return,
            () = runtime.sleep(options.stop_deadline) => {}
        }
        let leases = notifier.record().lock().leases();
        let leases: Vec<&str> = leases.iter().map(LeaseToken::as_str).collect();
        let message = format!(
            "{:?} after the monitored container was found deleted, calls for these leases of it still run: {}; they go on \
             beside those for the new container",
            options.stop_deadline,
            leases.join(", ")
        );
        let error = Arc::new(Error::new(ErrorKind::Timeout, message));
        notifier.notify(Notification::error(None, Failure::Balancer(error)));
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
        let Launch { notifier, signals, .. } = &self.launch;
        let (mut monitored, mut failures) = (replacement, 0);
        loop {
            let error = match self.prepare(&monitored, old).await {
                Ok(prepared) => {
                    *self.monitored.lock() = monitored;
                    return Some(prepared);
                }
                Err(error) => error,
            };
            notifier.notify(Notification::error(None, Failure::Balancer(Arc::new(error))));
            failures += 1;
            tokio::select! {
                biased;
                () = signals.stop.cancelled() => return None,
                () = self.pause(failures) => {}
            }
            // Whatever has failed: it may have been replaced as well, and not every error says so.
            match self.launch.replacement(&monitored).await {
                Ok(Some(found)) => monitored = found,
                Ok(None) => {}
                Err(error) => self.report_unless_missing(error),
            }
        }
    }

    async fn prepare(&self, monitored: &Container, old: &LeaseStore) -> Result<Prepared> {
        let Launch { name, paused, .. } = &self.launch;
        let origin = if LeasePrefix::new(name, monitored.identity())? == *old.prefix() {
            // An answer that was out of date had led away from it.
            Origin::First
        } else {
            let replaced = paused.replaced();
            let listing = old.list().await?;
            paused.listed(&listing, replaced);
            Origin::Replacement { paused: paused.beside(&listing) }
        };
        self.launch.prepare(monitored, origin, Takeover::AfterExpiration).await
    }

    async fn pause(&self, failures: u32) {
        let Launch { runtime, options, .. } = &self.launch;
        let pause = options.store_retry.after(failures, runtime.random()).min(options.timing.acquire);
        runtime.sleep(pause).await;
    }
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
