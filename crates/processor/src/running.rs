//! A host that runs.

use std::{fmt, sync::Arc, time::Duration};

use changefeed_core::{Error, ErrorKind, Result};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};

use crate::{
    health::{Health, HostState},
    lease::{host_context::StopReport, prefix::LeaseToken, signals::Signals},
    notifier::{Notifications, Notifier},
    runtime::Runtime,
};

/// Of the stop deadline, this share is for finishing in good order; the rest is for giving up what does not finish.
const GRACE: f64 = 0.8;

/// A host that runs. Dropping it ends it at once, as a crash would: nothing is renewed any more, and other hosts take its
/// leases over when they have expired, or at once if the lease container is in the same process. [`Running::stop`] ends it
/// in good order.
///
/// ```
/// # async fn example(processor: changefeed::Processor) -> changefeed::core::Result<()> {
/// let running = processor.start().await?;
/// tokio::select! {
///     ended = running.join() => return ended, // the host died: the error says why
///     _ = tokio::signal::ctrl_c() => {}
/// }
/// println!("{:?}", running.health());
/// running.stop().await
/// # }
/// ```
#[must_use = "dropping it ends the host at once"]
pub struct Running {
    pub(crate) _task: AbortOnDropHandle<()>,
    pub(crate) _callbacks: Vec<AbortOnDropHandle<()>>,
    /// Lets the processor be started again.
    pub(crate) _ended: DropGuard,
    pub(crate) name: Arc<str>,
    pub(crate) signals: Signals,
    pub(crate) finished: CancellationToken,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) notifier: Notifier,
    pub(crate) stop_deadline: Duration,
    pub(crate) stop_report: StopReport,
}

impl Running {
    /// Returns the notifications of the host, from now on.
    pub fn notifications(&self) -> Notifications {
        self.notifier.subscribe()
    }

    /// Returns the leases that this host owns, sorted.
    pub fn owned_leases(&self) -> Vec<LeaseToken> {
        self.notifier.record().lock().leases()
    }

    /// Returns whether the host is alive and what each of its leases is doing. Reads nothing from a store: for a health
    /// check it can be asked as often as you like.
    pub fn health(&self) -> Health {
        self.notifier.record().lock().health()
    }

    /// Returns `true` if the host has ended, after a stop or by itself.
    pub fn is_finished(&self) -> bool {
        self.finished.is_cancelled()
    }

    /// Waits until the host has ended. Dropping the future changes nothing.
    ///
    /// # Errors
    /// `Unavailable` if the host died; the message says why.
    pub async fn join(&self) -> Result<()> {
        self.finished.cancelled().await;
        self.end()
    }

    /// Finishes running batches, stores progress, releases all leases, waits for async callbacks. Returns within the
    /// stop deadline, whatever the delegate does.
    ///
    /// # Errors
    /// `Timeout` if something did not finish; the message says what. A batch that was cut will be delivered again.
    /// `Unavailable` if the host had died; the message says why.
    pub async fn stop(self) -> Result<()> {
        self.signals.stop.cancel();
        if self.finished_within(self.stop_deadline.mul_f64(GRACE)).await {
            return self.end();
        }
        self.signals.abort.cancel();
        self.finished_within(self.stop_deadline.mul_f64(1.0 - GRACE)).await;
        let what = self.stop_report.sentence().unwrap_or_else(|| "the host did not answer".to_owned());
        let message = format!("stop did not finish within {:?}: {what}", self.stop_deadline);
        Err(Error::new(ErrorKind::Timeout, message))
    }

    async fn finished_within(&self, limit: Duration) -> bool {
        let sleep = self.runtime.sleep(limit);
        tokio::select! {
            biased;
            () = self.finished.cancelled() => true,
            () = sleep => false,
        }
    }

    /// How the host has ended.
    fn end(&self) -> Result<()> {
        match &self.notifier.record().lock().host {
            HostState::Died(reason) => {
                let message = format!("the host of processor {} died: {reason}", self.name);
                Err(Error::new(ErrorKind::Unavailable, message))
            }
            HostState::Running | HostState::Stopped => Ok(()),
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Running({}, {:?})", self.name, self.notifier.record().lock().host)
    }
}
