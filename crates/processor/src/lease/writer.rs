//! Writes a lease that this host owns: every write is fenced by etag, epoch and session, and an unknown outcome is
//! resolved by reading.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Effect, Error, ErrorKind, FeedRange, Result};

use super::{
    document::{LeaseDocument, OwnerKind},
    events::{Facts, Written},
    listing::StoredLease,
    loss::Loss,
    store::LeaseStore,
    update::{LeaseUpdate, Promise, Transfer},
};
use crate::runtime::Runtime;

/// How often a write is tried against a lease that others keep changing, before the next renewal tries again.
const CONFLICT_TRIES: u32 = 8;

/// Who this host is: the instance name that others see, and a session that no other process shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) instance: String,
    /// Drawn at start: tells two processes with one name apart.
    pub(crate) session: String,
    /// How long this host may be silent before others may take its leases.
    pub(crate) expiration: Duration,
}

/// Why a lease is acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Acquire {
    /// No host owns it, it was granted to this host, or it is this host's own.
    Free,
    /// Its owner was silent for as long as it promised, or is an earlier process of this host.
    Expired,
    /// Its owner is alive: to balance leases of hosts that answer no requests, or by the user's option.
    Steal,
}

/// The owner's access to a lease.
#[derive(Debug)]
pub(crate) struct LeaseWriter {
    store: Arc<LeaseStore>,
    runtime: Arc<dyn Runtime>,
    identity: Arc<Identity>,
    stored: StoredLease,
    epoch: u64,
    /// When the last successful write was begun, on this host's monotonic clock.
    confirmed: Duration,
}

impl LeaseWriter {
    /// Acquires a lease as it was last seen: one compare-and-swap that changes owner and epoch together. Returns `None`
    /// if another host was faster.
    ///
    /// # Errors
    /// Those of the store; then the lease is not owned, though the write may yet be performed.
    pub(crate) async fn acquire(
        store: &Arc<LeaseStore>,
        runtime: &Arc<dyn Runtime>,
        identity: &Arc<Identity>,
        seen: &StoredLease,
        range: &FeedRange,
        why: Acquire,
    ) -> Result<Option<Self>> {
        let mut document = LeaseDocument::clone(&seen.document);
        // An old lease says its range from now on: after a merge nobody could tell it any more.
        document.feed_range.get_or_insert_with(|| range.clone());
        // A host of another implementation that stole the lease has copied what we wrote; its silence proves nothing.
        if why == Acquire::Expired && document.owner_kind() != Some(OwnerKind::Foreign) {
            document.count_crash();
        }
        let epoch = document.epoch() + 1;
        document.owner = Some(identity.instance.clone());
        document.set_epoch(epoch);
        document.set_session(Some(&identity.session));
        document.set_hand_over(None);
        document.set_promise(&identity.instance, identity.expiration);
        let confirmed = runtime.monotonic();
        let own = |stored: StoredLease, confirmed| Self::adopt(store, runtime, identity, stored, confirmed);
        match store.replace_at(&mut document, &seen.etag, &**runtime).await {
            Ok((etag, begun)) => Ok(Some(own(StoredLease { document: Arc::new(document), etag }, begun))),
            Err(error) if error.effect() == Effect::Unknown => {
                let read = store.read(&document).await?;
                // As long as it is as it was, the write may still be performed.
                if read.as_ref().is_some_and(|stored| stored.etag == seen.etag) {
                    return Err(error);
                }
                let owned = read.filter(|stored| is_owned(&stored.document, identity, epoch));
                Ok(owned.map(|stored| own(stored, confirmed)))
            }
            Err(error) => match error.kind() {
                ErrorKind::PreconditionFailed | ErrorKind::ItemNotFound => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Adopts a lease that was just created in this host's name.
    pub(crate) fn adopt(
        store: &Arc<LeaseStore>,
        runtime: &Arc<dyn Runtime>,
        identity: &Arc<Identity>,
        stored: StoredLease,
        confirmed: Duration,
    ) -> Self {
        let epoch = stored.document.epoch();
        let (store, runtime, identity) = (Arc::clone(store), Arc::clone(runtime), Arc::clone(identity));
        Self { store, runtime, identity, stored, epoch, confirmed }
    }

    /// The document as last written or read.
    pub(crate) fn document(&self) -> &LeaseDocument {
        &self.stored.document
    }

    /// When the last successful write was begun.
    pub(crate) fn confirmed(&self) -> Duration {
        self.confirmed
    }

    /// What others wrote into the lease, as last written or read.
    pub(crate) fn facts(&self) -> Facts {
        let document = self.document();
        let requested_by = document.hand_over().map(|request| request.to);
        Facts { requested_by, paused: document.is_paused(), confirmed: self.confirmed }
    }

    /// Writes an update.
    pub(crate) async fn write(&mut self, update: LeaseUpdate) -> Written {
        let identity = Arc::clone(&self.identity);
        let promise = Promise { instance: &identity.instance, expiration: identity.expiration };
        let mut outdated = update.read_first;
        for _ in 0..CONFLICT_TRIES {
            let conflict = if std::mem::take(&mut outdated) {
                let known = self.document().clone();
                self.read_again(&known).await
            } else {
                match self.try_write(&update, promise).await {
                    Tried::Ended(written) => return written,
                    Tried::Conflict(document) => self.read_again(&document).await,
                    Tried::Failed(error) => return Written::Failed(update, error),
                }
            };
            match conflict {
                Ok(Reread::Owned) => {}
                Ok(Reread::Transferred(to)) => return Written::Transferred(to),
                Ok(Reread::Lost(loss)) => return Written::Lost(loss),
                Err(error) => return Written::Failed(update, error),
            }
        }
        let message =
            format!("lease {} changed {CONFLICT_TRIES} times while it was being written", self.document().token);
        Written::Failed(update, Error::new(ErrorKind::Unavailable, message))
    }

    /// Writes an update to the document as it was last seen.
    async fn try_write(&mut self, update: &LeaseUpdate, promise: Promise<'_>) -> Tried {
        let begun = self.runtime.monotonic();
        let mut document = self.document().clone();
        update.apply(&mut document, promise);
        let left = document.epoch() != self.epoch;
        let etag = &self.stored.etag;
        let replaced = match left {
            false => self.store.replace_at(&mut document, etag, &*self.runtime).await,
            // One write: afterwards the lease is another's.
            true => {
                document.touch(self.store.time(self.runtime.wall()));
                self.store.replace(&document, etag).await.map(|etag| (etag, begun))
            }
        };
        match replaced {
            Ok((etag, begun)) => {
                self.stored = StoredLease { document: Arc::new(document), etag };
                self.confirmed = begun;
                Tried::Ended(match left {
                    true => Written::Transferred(self.document().owner.clone()),
                    false => Written::Owned(self.facts()),
                })
            }
            Err(error) if error.effect() == Effect::Unknown => {
                crate::planted!(UnknownTakenAsNotWritten => return Tried::Ended(Written::Lost(Loss::Taken { by: None })));
                Tried::Conflict(document)
            }
            Err(error) => match error.kind() {
                ErrorKind::PreconditionFailed => Tried::Conflict(document),
                ErrorKind::ItemNotFound => Tried::Ended(Written::Lost(Loss::Deleted)),
                _ => Tried::Failed(error),
            },
        }
    }

    /// Reads the lease after a conflict or an unknown outcome of writing `written`, or because others have written into it.
    async fn read_again(&mut self, written: &LeaseDocument) -> Result<Reread> {
        let stored = match self.store.read(&self.stored.document).await {
            Ok(Some(stored)) => stored,
            Ok(None) => return Ok(Reread::Lost(Loss::Deleted)),
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::UnknownFormat) => {
                return Ok(Reread::Lost(Loss::Unreadable));
            }
            Err(error) => return Err(error),
        };
        if is_owned(&stored.document, &self.identity, self.epoch) {
            self.stored = stored;
            return Ok(Reread::Owned);
        }
        // A release or grant whose answer was lost has ended the ownership, as it should.
        let left = written.epoch() != self.epoch;
        if left && written.epoch() <= stored.document.epoch() && written.owner == stored.document.owner {
            return Ok(Reread::Transferred(written.owner.clone()));
        }
        let by = stored.document.owner.clone();
        // An operator raises the epoch: a lower one is that of a document that was created again, as in a container that was.
        let created_again = by.is_none() && stored.document.epoch() < self.epoch;
        Ok(Reread::Lost(if created_again { Loss::Deleted } else { Loss::Taken { by } }))
    }

    /// Deletes the lease if nobody has changed it since; if the store refuses that, leaves a tombstone. It names its
    /// range: once the physical range is merged with others, nobody could find it out.
    pub(crate) async fn delete(&mut self, range: &FeedRange) -> Deleted {
        for _ in 0..CONFLICT_TRIES {
            let error = match self.store.delete(&self.stored).await {
                Ok(()) => return Deleted::Done,
                Err(error) if error.kind() == ErrorKind::ItemNotFound => return Deleted::Done,
                Err(error) => error,
            };
            if error.kind() != ErrorKind::PreconditionFailed && error.effect() != Effect::Unknown {
                let (transfer, range) = (Some(Transfer::Tombstone), Some(range.clone()));
                let tombstone = LeaseUpdate { transfer, range, ..LeaseUpdate::default() };
                return match self.write(tombstone).await {
                    Written::Transferred(_) => Deleted::Tombstone(error),
                    _ => Deleted::Failed(error),
                };
            }
            let unchanged = self.document().clone();
            match self.read_again(&unchanged).await {
                Ok(Reread::Owned) => {}
                Ok(Reread::Lost(Loss::Deleted)) => return Deleted::Done,
                Ok(Reread::Lost(loss)) => return Deleted::Lost(loss),
                Ok(Reread::Transferred(by)) => return Deleted::Lost(Loss::Taken { by }),
                Err(error) => return Deleted::Failed(error),
            }
        }
        Deleted::Failed(Error::new(ErrorKind::Unavailable, "the lease kept changing while it was being deleted"))
    }
}

/// How one attempt to write ended.
enum Tried {
    Ended(Written),
    /// Others have written into the lease, or the outcome of writing this document is unknown: it has to be read.
    Conflict(LeaseDocument),
    Failed(Error),
}

/// What a lease is found to be after a conflict.
enum Reread {
    Owned,
    Transferred(Option<String>),
    Lost(Loss),
}

/// How a delete ended.
#[derive(Debug)]
pub(crate) enum Deleted {
    Done,
    /// The store refused it: a tombstone is left.
    Tombstone(Error),
    Lost(Loss),
    /// The store did not answer: the lease will expire.
    Failed(Error),
}

fn is_owned(document: &LeaseDocument, identity: &Identity, epoch: u64) -> bool {
    crate::planted!(OwnerNameFence => return document.owner.as_deref() == Some(&identity.instance));
    document.owner.as_deref() == Some(&identity.instance)
        && document.epoch() == epoch
        && document.session() == Some(&identity.session)
}
