//! Notifications of a host.

use std::{fmt, sync::Arc, time::Duration};

use changefeed_core::{Error, Lsn};

use crate::{
    delegate::DelegateError,
    lease::{loss::Loss, prefix::LeaseToken},
};

/// Something that happened on a host.
///
/// ```
/// use changefeed::{Notification, Running};
///
/// # async fn example(running: &Running) {
/// let mut notifications = running.notifications();
/// while let Some(notification) = notifications.recv().await {
///     match notification {
///         Notification::Error(report) => println!("lease {:?}: {}", report.lease, report.failure),
///         Notification::DeadLettered { item, reason, .. } => println!("{item} is a dead letter: {reason}"),
///         Notification::Missed { count } => println!("{count} notifications came too fast"),
///         _ => {}
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notification {
    /// A lease was acquired; its first batch comes next.
    LeaseAcquired(LeaseToken),
    /// A lease is no longer owned, and no delegate call for it is running, unless one blocks its thread.
    LeaseReleased(LeaseToken, Release),
    /// Something failed; work goes on by itself where it can.
    Error(ErrorReport),
    /// A range was split or merged: its lease was replaced by these.
    Split {
        /// The lease that ended.
        parent: LeaseToken,
        /// Those that took its place.
        children: Vec<LeaseToken>,
    },
    /// A lease was handed to another host that asked for it.
    HandedOver {
        /// The lease.
        lease: LeaseToken,
        /// Its new owner.
        to: String,
    },
    /// A lease was taken from an owner that is alive: a host of another implementation, to balance, or by
    /// [`ProcessorBuilder::steal_after`](crate::ProcessorBuilder::steal_after). Its batch may be delivered twice.
    Stolen {
        /// The lease.
        lease: LeaseToken,
        /// Its owner until then.
        from: String,
    },
    /// An item was written to the dead-letter container.
    DeadLettered {
        /// The lease.
        lease: LeaseToken,
        /// The item's id.
        item: String,
        /// Why.
        reason: String,
    },
    /// A batch keeps failing: nothing behind it moves.
    Stalled {
        /// The lease.
        lease: LeaseToken,
        /// How often it has failed.
        attempts: u32,
        /// The last failure.
        reason: String,
    },
    /// A lease has delivered everything there is.
    CaughtUp(LeaseToken),
    /// Leases did not cover the key space; these were created.
    Repaired(Vec<LeaseToken>),
    /// Items fail one after the other and none succeeds: they are not dead-lettered but retried, with back-off. See [`DeadLetter`](crate::DeadLetter).
    Outage {
        /// The lease.
        lease: LeaseToken,
        /// The last failure.
        reason: String,
    },
    /// A delegate call has been running for this long. Sent again whenever that has doubled; see
    /// [`ProcessorBuilder::slow_after`](crate::ProcessorBuilder::slow_after).
    Slow {
        /// The lease.
        lease: LeaseToken,
        /// For how long.
        running: Duration,
    },
    /// The monitored container was deleted and another one created with its name. The host ends its work on the old one. It
    /// waits for delegate calls that run, for up to [`ProcessorBuilder::stop_deadline`](crate::ProcessorBuilder::stop_deadline);
    /// those that take longer are reported as an error and go on beside the calls for the new container. Whatever was not
    /// given to a delegate yet is dropped, since the old container cannot be read any more. Then the host creates leases for
    /// the new one unless there are some, and goes on there from the beginning: everything in it is newer than the processor.
    /// If [`ProcessorBuilder::start_from`](crate::ProcessorBuilder::start_from) names a time, that counts; with all versions
    /// it goes on from now if the store cannot read them from the beginning. Leases that a new host has created at a later
    /// position are moved back, unless nothing lies between. If all leases were paused, the new ones are. Leases of both
    /// containers may have the same tokens: [`Running::owned_leases`](crate::Running::owned_leases) and
    /// [`Running::health`](crate::Running::health) show the new ones as soon as the host works on them.
    ContainerReplaced {
        /// The name of both.
        name: String,
    },
    /// The host ended by itself, without [`Running::stop`](crate::Running::stop): a bug, or its tokio runtime was shut
    /// down. Other hosts take its leases over when they have expired.
    HostDied {
        /// Why.
        reason: String,
    },
    /// This receiver was too slow and missed so many notifications. Only in [`Notifications`](crate::Notifications) and
    /// for async callbacks.
    Missed {
        /// How many.
        count: u64,
    },
}

impl Notification {
    /// A failure that concerns this lease, if any.
    pub(crate) fn error(lease: Option<LeaseToken>, failure: Failure) -> Self {
        Self::Error(ErrorReport { lease, batch: None, failure })
    }
}

/// A failure and what it concerns.
///
/// ```
/// use changefeed::{ErrorReport, Failure};
///
/// fn alert(report: &ErrorReport) {
///     if let (Failure::Delegate(error), Some(batch)) = (&report.failure, &report.batch) {
///         println!("attempt {} of LSNs {} to {} failed: {error}", batch.attempt, batch.first_lsn, batch.last_lsn);
///     }
/// }
/// # fn example(builder: changefeed::ProcessorBuilder) -> changefeed::ProcessorBuilder {
/// builder.on_error(alert)
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ErrorReport {
    /// The lease, if it concerns one.
    pub lease: Option<LeaseToken>,
    /// The batch, if it was being delivered.
    pub batch: Option<FailedBatch>,
    /// What has failed, with the error.
    pub failure: Failure,
}

/// The delegate call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedBatch {
    /// The LSN of its first change.
    pub first_lsn: Lsn,
    /// The LSN of its last change.
    pub last_lsn: Lsn,
    /// How many changes it has.
    pub items: usize,
    /// The number of the attempt, from 1; attempts on other hosts and before restarts count too.
    pub attempt: u32,
}

/// Why a lease is no longer owned.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Release {
    /// The host stopped.
    Stopped,
    /// An operator paused the lease.
    Paused,
    /// Another host asked for it.
    HandedOver(String),
    /// Its range was split or merged.
    RangeGone,
    /// Ownership was lost.
    Lost(Loss),
}

/// What has failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The user's delegate.
    Delegate(Arc<DelegateError>),
    /// Reading the feed.
    Feed(Arc<Error>),
    /// Writing a lease.
    Lease(Arc<Error>),
    /// Writing a dead letter.
    DeadLetter(Arc<Error>),
    /// Balancing leases, or checking that they cover the key space.
    Balancer(Arc<Error>),
    /// Replacing a lease whose range was split or merged.
    Split(Arc<Error>),
    /// A panic in a store or in this library: a bug. Work goes on; a lease whose task panicked is released and acquired
    /// again later.
    Panic(Arc<Error>),
}

impl Failure {
    /// What failed, for the log.
    pub(crate) fn operation(&self) -> &'static str {
        match self {
            Self::Delegate(_) => "delegate call",
            Self::Feed(_) => "feed read",
            Self::Lease(_) => "lease write",
            Self::DeadLetter(_) => "dead-letter write",
            Self::Balancer(_) => "lease balancing",
            Self::Split(_) => "lease replacement",
            Self::Panic(_) => "host or store",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delegate(error) => write!(f, "delegate: {error:?}"),
            Self::Feed(error) => write!(f, "read the feed: {error:?}"),
            Self::Lease(error) => write!(f, "write the lease: {error:?}"),
            Self::DeadLetter(error) => write!(f, "write a dead letter: {error:?}"),
            Self::Balancer(error) => write!(f, "balance leases: {error:?}"),
            Self::Split(error) => write!(f, "replace a split lease: {error:?}"),
            Self::Panic(error) => write!(f, "{error:?}"),
        }
    }
}
