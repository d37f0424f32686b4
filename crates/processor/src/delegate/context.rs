//! The context of one delegate call.

use std::{fmt, sync::Arc};

use changefeed_core::{Change, FeedRange, Lsn};
use tokio_util::sync::CancellationToken;

use crate::lease::{
    prefix::LeaseToken,
    signals::{CommandSender, Progress},
};

/// The context of one delegate call: where its changes are from. Cheap to clone; keeping one keeps neither the lease nor its
/// host alive. With manual checkpoints a delegate gets a [`ManualContext`](crate::ManualContext).
///
/// ```
/// use changefeed::{Changes, Context, DelegateError};
///
/// # #[derive(serde::Deserialize)]
/// # struct Order { total: f64 }
/// # async fn charge(order: &Order) {}
/// async fn handle(orders: Changes<Order>, ctx: Context) -> Result<(), DelegateError> {
///     println!("lease {}, attempt {}: {} orders up to LSN {}", ctx.lease(), ctx.attempt(), orders.len(), ctx.last_lsn());
///     for (index, order) in orders.iter().enumerate() {
///         if ctx.is_cancelled() {
///             // Stop early: what comes before this item is handled, the rest is delivered again.
///             return Err(DelegateError::new("stopping").at(index));
///         }
///         charge(order).await;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<Inner>,
    pub(crate) last_lsn: Lsn,
    /// What a checkpoint stores; `None` if the page goes on after this batch.
    pub(crate) progress: Option<Progress>,
}

pub(crate) struct Inner {
    pub(crate) lease: LeaseToken,
    pub(crate) range: FeedRange,
    pub(crate) instance: Arc<str>,
    pub(crate) attempt: u32,
    pub(crate) first_lsn: Lsn,
    pub(crate) epoch: u64,
    pub(crate) request_charge: f64,
    pub(crate) cancelled: CancellationToken,
    pub(crate) commands: CommandSender,
}

impl Context {
    /// Returns the lease that the batch belongs to.
    pub fn lease(&self) -> &LeaseToken {
        &self.inner.lease
    }

    /// Returns the feed range that the lease covers.
    pub fn range(&self) -> &FeedRange {
        &self.inner.range
    }

    /// Returns the instance name of this host.
    pub fn instance(&self) -> &str {
        &self.inner.instance
    }

    /// Returns the number of this attempt, from 1; attempts on other hosts and before restarts count too.
    pub fn attempt(&self) -> u32 {
        self.inner.attempt
    }

    /// Returns the LSN of the first change of the batch.
    pub fn first_lsn(&self) -> Lsn {
        self.inner.first_lsn
    }

    /// Returns the LSN of the last change of the batch.
    pub fn last_lsn(&self) -> Lsn {
        self.last_lsn
    }

    /// Returns the position right after this batch, as a checkpoint stores it; `None` if the page goes on after this
    /// batch. A sink that stores it together with the results of the batch can recognise a batch that comes again.
    pub fn continuation(&self) -> Option<&str> {
        self.progress.as_ref().map(|progress| progress.continuation.as_str())
    }

    /// Returns the number of this ownership of the lease: raised with every change of owner. A sink that refuses writes
    /// with an epoch below the highest it has seen for a lease is safe from hosts that were taken for dead. Epochs begin
    /// again if the monitored container or the lease container is deleted and created again: such a sink must then forget
    /// those that it has seen.
    pub fn epoch(&self) -> u64 {
        self.inner.epoch
    }

    /// Returns the request charge of the page, in request units; zero where the store does not charge.
    pub fn request_charge(&self) -> f64 {
        self.inner.request_charge
    }

    /// Returns `true` if this call should stop early; see [`Context::cancelled`].
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.is_cancelled()
    }

    /// Completes when this call should stop early:
    ///
    /// | reason | what happens to the batch |
    /// |---|---|
    /// | [`Running::stop`](crate::Running::stop) | its result counts if the call returns before the stop deadline |
    /// | an operator paused the lease | its result counts |
    /// | another host asked for the lease | its result counts; the lease moves afterwards |
    /// | the lease was lost | its result is discarded; the new owner delivers the batch again |
    /// | the host was dropped | its result is discarded; another host delivers the batch again |
    ///
    /// A delegate may ignore it: a call is never interrupted but by the delegate timeout, the stop deadline and the
    /// drop of the host.
    pub async fn cancelled(&self) {
        self.inner.cancelled.cancelled().await;
    }

    /// The context of a call that receives only these first changes of its batch.
    pub(crate) fn limited_to(mut self, changes: &[Change]) -> Self {
        self.last_lsn = changes.last().map_or(self.last_lsn, |change| change.lsn);
        self.progress = None;
        self
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { lease, instance, attempt, first_lsn, .. } = &*self.inner;
        write!(f, "Context(lease {lease}, {instance}, attempt {attempt}, lsn {first_lsn}..={})", self.last_lsn)
    }
}
