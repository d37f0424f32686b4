//! Sends notifications: to callbacks, to streams, to the log, to metrics and to the record of the host's health.

use std::{
    fmt,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    health::{HealthRecord, HostState},
    lease::prefix::LeaseToken,
    metrics::HostMetrics,
    notification::{ErrorReport, Notification},
    runtime::{BoxFuture, Runtime},
};

pub(crate) type Callback = Arc<dyn Fn(&Notification) + Send + Sync>;
pub(crate) type AsyncCallback = Arc<dyn Fn(Notification) -> BoxFuture<'static, ()> + Send + Sync>;

/// Sends the notifications of one host. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Notifier {
    callbacks: Arc<[Callback]>,
    stream: broadcast::Sender<Notification>,
    record: Arc<Mutex<HealthRecord>>,
    metrics: Arc<HostMetrics>,
    /// Fires when nothing more is sent.
    closed: CancellationToken,
    /// Whether another host counts for the record: leases of two containers can have the same tokens.
    retired: Arc<AtomicBool>,
}

impl Notifier {
    /// Sends to these callbacks and to streams, which may be `capacity` behind before they miss some.
    pub(crate) fn new(callbacks: &[Callback], capacity: usize, metrics: Arc<HostMetrics>) -> Self {
        Self {
            callbacks: callbacks.into(),
            stream: broadcast::Sender::new(capacity),
            record: Arc::default(),
            metrics,
            closed: CancellationToken::new(),
            retired: Arc::default(),
        }
    }

    /// A notifier for one of several hosts that follow one another.
    pub(crate) fn of_host(&self) -> Self {
        Self { retired: Arc::default(), ..self.clone() }
    }

    /// From now on what this host does is no part of the record: its leases are those of a deleted container.
    pub(crate) fn retire(&self) {
        let mut record = self.record.lock();
        self.retired.store(true, Ordering::Release);
        record.forget_leases();
    }

    /// A delegate call of this lease begins.
    pub(crate) fn called(&self, lease: &LeaseToken) {
        self.record_unless_retired(|record| record.called(lease));
    }

    /// A delegate call of this lease has succeeded.
    pub(crate) fn handled(&self, lease: &LeaseToken) {
        self.record_unless_retired(|record| record.handled(lease));
    }

    /// A read of the feed of this lease has succeeded.
    pub(crate) fn feed_read(&self, lease: &LeaseToken) {
        self.record_unless_retired(|record| record.feed_read(lease));
    }

    fn record_unless_retired(&self, change: impl FnOnce(&mut HealthRecord)) {
        let mut record = self.record.lock();
        if !self.retired.load(Ordering::Acquire) {
            change(&mut record);
        }
    }

    pub(crate) fn subscribe(&self) -> Notifications {
        Notifications { receiver: self.stream.subscribe(), closed: self.closed.clone() }
    }

    /// What is known of the host.
    pub(crate) fn record(&self) -> &Mutex<HealthRecord> {
        &self.record
    }

    /// What the host measures.
    pub(crate) fn metrics(&self) -> &HostMetrics {
        &self.metrics
    }

    /// The host has ended in good order: nothing more is sent.
    pub(crate) fn stopped(&self) {
        self.record.lock().end(HostState::Stopped);
        self.closed.cancel();
    }

    /// The host has ended by itself.
    pub(crate) fn died(&self, reason: String) {
        self.notify(Notification::HostDied { reason });
        self.closed.cancel();
    }

    /// The task of the host was dropped. Callbacks are not called: whoever drops it knows, and a runtime that shuts down
    /// runs nothing any more.
    pub(crate) fn dropped(&self) {
        let reason = "its task was dropped: the tokio runtime was shut down".to_owned();
        self.record.lock().notified(&Notification::HostDied { reason });
        self.closed.cancel();
    }

    pub(crate) fn notify(&self, notification: Notification) {
        log(&notification);
        self.metrics.notified(&notification);
        self.record_unless_retired(|record| record.notified(&notification));
        for callback in self.callbacks.iter() {
            // A callback that panics is the user's bug; it must not take the host down.
            if std::panic::catch_unwind(AssertUnwindSafe(|| callback(&notification))).is_err() {
                tracing::error!("notification callback panicked");
            }
        }
        // Without a receiver there is nothing to do.
        drop(self.stream.send(notification));
    }

    /// Runs an async callback in a task of its own, one notification after the other. The token fires when it has
    /// received everything.
    pub(crate) fn spawn(
        &self,
        runtime: &dyn Runtime,
        callback: AsyncCallback,
    ) -> (AbortOnDropHandle<()>, CancellationToken) {
        let (mut notifications, finished) = (self.subscribe(), CancellationToken::new());
        let guard = finished.clone().drop_guard();
        let task = async move {
            let _guard = guard;
            while let Some(notification) = notifications.recv().await {
                let call = AssertUnwindSafe(async { callback(notification).await });
                if call.catch_unwind().await.is_err() {
                    tracing::error!("notification callback panicked");
                }
            }
        };
        (AbortOnDropHandle::new(runtime.spawn("notifications", Box::pin(task))), finished)
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Notifier({} callbacks)", self.callbacks.len())
    }
}

/// The notifications of a host, from [`Running::notifications`](crate::Running::notifications).
///
/// The newest 1,024 are kept for a receiver, unless
/// [`notification_capacity`](crate::ProcessorBuilder::notification_capacity) says otherwise. One that is further behind gets
/// [`Notification::Missed`] with the number of those that it missed, then goes on with the oldest that is kept.
///
/// ```
/// use changefeed::{Notification, Running};
///
/// # async fn example(running: &Running) {
/// let mut notifications = running.notifications();
/// while let Some(notification) = notifications.recv().await {
///     match notification {
///         Notification::LeaseAcquired(lease) => println!("lease {lease} acquired"),
///         Notification::Missed { count } => println!("too slow: missed {count} notifications"),
///         other => println!("{other:?}"),
///     }
/// } // the host has ended
/// # }
/// ```
#[derive(Debug)]
pub struct Notifications {
    receiver: broadcast::Receiver<Notification>,
    closed: CancellationToken,
}

impl Notifications {
    /// Returns the next notification; `None` when the host has ended and everything was received. Dropping the future
    /// loses nothing.
    pub async fn recv(&mut self) -> Option<Notification> {
        tokio::select! {
            biased;
            received = self.receiver.recv() => match received {
                Ok(notification) => Some(notification),
                Err(RecvError::Lagged(count)) => Some(Notification::Missed { count }),
                Err(RecvError::Closed) => None,
            },
            () = self.closed.cancelled() => self.try_recv(),
        }
    }

    /// Returns the next notification if there is one.
    pub fn try_recv(&mut self) -> Option<Notification> {
        match self.receiver.try_recv() {
            Ok(notification) => Some(notification),
            Err(TryRecvError::Lagged(count)) => Some(Notification::Missed { count }),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

/// Writes a notification to the log: the event as the message, details as fields.
fn log(notification: &Notification) {
    match notification {
        Notification::LeaseAcquired(lease) => tracing::info!(%lease, "lease acquired"),
        Notification::LeaseReleased(lease, release) => tracing::info!(%lease, ?release, "lease released"),
        Notification::Error(report) => log_error(report),
        Notification::Split { parent, children } => tracing::info!(lease = %parent, ?children, "range split or merged"),
        Notification::HandedOver { lease, to } => tracing::info!(%lease, to, "lease handed over"),
        Notification::Stolen { lease, from } => tracing::info!(%lease, from, "lease stolen"),
        Notification::DeadLettered { lease, item, reason } => {
            tracing::warn!(%lease, item, reason, "item dead-lettered");
        }
        Notification::Stalled { lease, attempts, reason } => tracing::warn!(%lease, attempts, reason, "lease stalled"),
        Notification::CaughtUp(lease) => tracing::debug!(%lease, "lease caught up"),
        Notification::Repaired(leases) => tracing::warn!(?leases, "missing leases created"),
        Notification::Outage { lease, reason } => tracing::warn!(%lease, reason, "outage detected"),
        Notification::Slow { lease, running } => tracing::warn!(%lease, ?running, "delegate call is slow"),
        Notification::ContainerReplaced { name } => {
            tracing::warn!(
                container = name,
                "monitored container was deleted and created again, going on with the new one"
            );
        }
        Notification::HostDied { reason } => tracing::error!(reason, "host died"),
        Notification::Missed { .. } => {}
    }
}

fn log_error(report: &ErrorReport) {
    let (lease, error) = (report.lease.as_ref().map(LeaseToken::as_str), &report.failure);
    match &report.batch {
        Some(batch) => tracing::warn!(
            lease,
            attempt = batch.attempt,
            first_lsn = %batch.first_lsn,
            last_lsn = %batch.last_lsn,
            %error,
            "batch failed"
        ),
        None => tracing::warn!(lease, %error, "{} failed", report.failure.operation()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::Level;

    use super::*;
    use crate::{delegate::DelegateError, notification::Failure};

    fn notifier(capacity: usize) -> Notifier {
        Notifier::new(&[], capacity, Arc::new(HostMetrics::new(&"mailer".into(), false)))
    }

    fn caught_up(number: usize) -> Notification {
        Notification::CaughtUp(number.to_string().parse().unwrap())
    }

    #[tokio::test]
    async fn a_slow_receiver_learns_how_many_notifications_it_missed() {
        // A power of two: tokio rounds up.
        const KEPT: usize = 64;
        let notifier = notifier(KEPT);
        let mut notifications = notifier.subscribe();
        (0..KEPT + 7).for_each(|number| notifier.notify(caught_up(number)));
        notifier.stopped();
        let first = notifications.recv().await;
        assert!(matches!(first, Some(Notification::Missed { count: 7 })), "{first:?}");
        let mut received = 0;
        while let Some(notification) = notifications.recv().await {
            assert!(matches!(notification, Notification::CaughtUp(_)), "{notification:?}");
            received += 1;
        }
        assert_eq!(received, KEPT);
    }

    /// Counts how often it is formatted.
    #[derive(Debug)]
    struct Counted(Arc<AtomicUsize>);

    impl fmt::Display for Counted {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fetch_add(1, Ordering::Relaxed);
            f.write_str("counted")
        }
    }

    impl std::error::Error for Counted {}

    /// A subscriber that wants lines of a level and above, and formats them.
    struct Wants(Level);

    impl tracing::field::Visit for Wants {
        fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn fmt::Debug) {
            drop(format!("{value:?}"));
        }
    }

    impl tracing::Subscriber for Wants {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            *metadata.level() <= self.0
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut Self(self.0));
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn a_line_of_a_disabled_level_is_not_formatted() {
        let formatted = Arc::new(AtomicUsize::default());
        let warn = || {
            let failure = Failure::Delegate(Arc::new(DelegateError::from(Counted(Arc::clone(&formatted)))));
            notifier(1).notify(Notification::error(None, failure));
            formatted.swap(0, Ordering::Relaxed)
        };
        assert_eq!(tracing::subscriber::with_default(Wants(Level::ERROR), warn), 0);
        assert_eq!(tracing::subscriber::with_default(Wants(Level::WARN), warn), 1);
    }
}
