//! What a delegate is told about its batch.

use std::{fmt, sync::Arc};

use changefeed_core::{Error, ErrorKind, FeedRange, Lsn, Result};
use tokio::sync::watch;

use crate::lease::{
    keeper::{KeeperHandle, Progress},
    prefix::LeaseToken,
};

/// The surroundings of one delegate call. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) lease: LeaseToken,
    pub(crate) range: FeedRange,
    pub(crate) instance: Arc<str>,
    pub(crate) attempt: u32,
    pub(crate) first_lsn: Lsn,
    pub(crate) last_lsn: Lsn,
    pub(crate) request_charge: f64,
    pub(crate) cancelled: watch::Receiver<bool>,
    pub(crate) keeper: KeeperHandle,
    /// What a checkpoint stores; none if the page goes on after this batch.
    pub(crate) progress: Option<Progress>,
}

impl Context {
    /// The lease that the batch belongs to.
    pub fn lease(&self) -> &LeaseToken {
        &self.inner.lease
    }

    /// The part of the key space that the lease covers.
    pub fn range(&self) -> &FeedRange {
        &self.inner.range
    }

    /// The host that this runs on.
    pub fn instance(&self) -> &str {
        &self.inner.instance
    }

    /// Which try this is, from 1; counts tries on other hosts and before restarts too.
    pub fn attempt(&self) -> u32 {
        self.inner.attempt
    }

    /// The first position in the batch.
    pub fn first_lsn(&self) -> Lsn {
        self.inner.first_lsn
    }

    /// The last position in the batch.
    pub fn last_lsn(&self) -> Lsn {
        self.inner.last_lsn
    }

    /// What reading the page cost, in request units; zero where nobody charges.
    pub fn request_charge(&self) -> f64 {
        self.inner.request_charge
    }

    /// Whether the work has lost its point: the lease is gone, or the host wants to stop.
    pub fn is_cancelled(&self) -> bool {
        *self.inner.cancelled.borrow()
    }

    /// Ends when the work has lost its point.
    pub async fn cancelled(&self) {
        let mut cancelled = self.inner.cancelled.clone();
        drop(cancelled.wait_for(|cancelled| *cancelled).await);
    }

    /// Stores that this batch and everything before it was handled. For processors with manual checkpoints; a call for
    /// an earlier batch after a later one does nothing. A batch that was cut to find the item to blame is stored by a
    /// call for its last piece.
    ///
    /// # Errors
    /// `PreconditionFailed` if the lease was lost: another host will handle the batch again.
    pub async fn checkpoint(&self) -> Result<()> {
        let Some(progress) = self.inner.progress.clone() else { return Ok(()) };
        self.inner.keeper.checkpoint_now(progress).await.map_err(|loss| {
            Error::new(ErrorKind::PreconditionFailed, format!("checkpoint lease {}: {loss}", self.inner.lease))
        })
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { lease, instance, attempt, first_lsn, last_lsn, .. } = &*self.inner;
        write!(f, "Context(lease {lease}, {instance}, attempt {attempt}, lsn {first_lsn}..={last_lsn})")
    }
}
