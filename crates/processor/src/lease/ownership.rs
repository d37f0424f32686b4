//! A lease that is ours: every write is fenced by etag and epoch, and an unknown outcome is resolved by reading.

use std::{fmt, sync::Arc, time::Duration};

use changefeed_core::{Effect, Error, ErrorKind, Result};

use super::{
    document::{Attempts, LeaseDocument},
    store::{LeaseStore, StoredLease},
};
use crate::{
    mutant::{self, Mutant},
    runtime::Runtime,
};

/// How often a write is tried against a lease that others keep changing, before the next renewal tries again.
const CONFLICT_TRIES: u32 = 8;

/// Who we are: the instance name that others see, and a session that no other process shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The instance name.
    pub instance: String,
    /// Drawn at start: tells two processes with one name apart.
    pub session: String,
}

/// Why a lease is no longer ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Another instance, or another process with our name, has it.
    Taken {
        /// Its owner now, if any.
        by: Option<String>,
    },
    /// The document was deleted.
    Deleted,
    /// It could not be renewed in time.
    Expired,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { by: Some(owner) } => write!(f, "taken by {owner}"),
            Self::Taken { by: None } => f.write_str("released by an operator"),
            Self::Deleted => f.write_str("its document was deleted"),
            Self::Expired => f.write_str("it could not be renewed in time"),
        }
    }
}

/// Why a write to a lease did not succeed.
#[derive(Debug)]
pub enum WriteError {
    /// It is not ours any more: stop.
    Lost(Loss),
    /// The store failed; the lease may still be ours: try again before it expires.
    Store(Error),
}

/// A lease that is ours.
#[derive(Debug)]
pub struct OwnedLease {
    store: Arc<LeaseStore>,
    runtime: Arc<dyn Runtime>,
    identity: Identity,
    stored: StoredLease,
    epoch: u64,
    /// When the last successful write was begun, on our own monotonic clock.
    confirmed: Duration,
}

impl OwnedLease {
    /// Takes a lease as it was last seen: one compare-and-swap that changes owner and epoch together. `None` if
    /// somebody was faster.
    ///
    /// # Errors
    /// Those of the store; then it is not ours, though it may yet come into our name.
    pub async fn take(
        store: &Arc<LeaseStore>,
        runtime: &Arc<dyn Runtime>,
        identity: &Identity,
        seen: &StoredLease,
    ) -> Result<Option<Self>> {
        let mut document = seen.document.clone();
        let epoch = document.epoch() + 1;
        // A lease that was granted to us has our name and no session yet: its owner went in good order.
        let granted = document.owner.as_deref() == Some(&identity.instance) && document.session().is_none();
        // One that our own session has did not see us die either.
        let ours = document.session() == Some(&identity.session);
        if document.owner.is_some() && !granted && !ours {
            count_crash(&mut document);
        }
        document.owner = Some(identity.instance.clone());
        document.set_epoch(epoch);
        document.set_session(Some(&identity.session));
        document.set_hand_over(None);
        document.touch(runtime.wall());
        let confirmed = runtime.monotonic();
        let own = |stored: StoredLease| Self {
            store: Arc::clone(store),
            runtime: Arc::clone(runtime),
            identity: identity.clone(),
            stored,
            epoch,
            confirmed,
        };
        match store.replace(&document, &seen.etag).await {
            Ok(etag) => Ok(Some(own(StoredLease { document, etag }))),
            Err(error) if error.effect() == Effect::Unknown => {
                let read = store.read(&document).await?;
                // As long as it is as it was, our write may still be done.
                if read.as_ref().is_some_and(|stored| stored.etag == seen.etag) {
                    return Err(error);
                }
                Ok(read.filter(|stored| is_mine(&stored.document, identity, epoch)).map(own))
            }
            Err(error) => match error.kind() {
                ErrorKind::PreconditionFailed | ErrorKind::ItemNotFound => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Adopts a lease that we have just created in our own name.
    pub fn adopt(
        store: &Arc<LeaseStore>,
        runtime: &Arc<dyn Runtime>,
        identity: &Identity,
        stored: StoredLease,
        confirmed: Duration,
    ) -> Self {
        let epoch = stored.document.epoch();
        let (store, runtime) = (Arc::clone(store), Arc::clone(runtime));
        Self { store, runtime, identity: identity.clone(), stored, epoch, confirmed }
    }

    /// The document as last written or read.
    pub fn document(&self) -> &LeaseDocument {
        &self.stored.document
    }

    /// The document with its version.
    pub fn stored(&self) -> &StoredLease {
        &self.stored
    }

    /// When the last successful write was begun.
    pub fn confirmed(&self) -> Duration {
        self.confirmed
    }

    /// Changes the lease. `change` may run several times, each time on a fresh copy, and must set values, not add.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn update(&mut self, change: impl Fn(&mut LeaseDocument) + Send + Sync) -> Result<(), WriteError> {
        for _ in 0..CONFLICT_TRIES {
            let begun = self.runtime.monotonic();
            let mut document = self.stored.document.clone();
            change(&mut document);
            document.touch(self.runtime.wall());
            match self.store.replace(&document, &self.stored.etag).await {
                Ok(etag) => {
                    self.stored = StoredLease { document, etag };
                    self.confirmed = begun;
                    return Ok(());
                }
                Err(error) if error.effect() == Effect::Unknown => {
                    if mutant::is(Mutant::UnknownTakenAsNotWritten) {
                        continue;
                    }
                    self.reread(&change).await?;
                }
                Err(error) => match error.kind() {
                    ErrorKind::PreconditionFailed if mutant::is(Mutant::UnknownTakenAsNotWritten) => {
                        return Err(WriteError::Lost(Loss::Taken { by: None }));
                    }
                    ErrorKind::PreconditionFailed => self.reread(&change).await?,
                    ErrorKind::ItemNotFound => return Err(WriteError::Lost(Loss::Deleted)),
                    _ => return Err(WriteError::Store(error)),
                },
            }
        }
        let token = &self.stored.document.token;
        let message = format!("lease {token} changed {CONFLICT_TRIES} times while it was being written");
        Err(WriteError::Store(Error::new(ErrorKind::Unavailable, message)))
    }

    /// Reads the lease again after a conflict or an unknown outcome; goes on only if it is still ours.
    async fn reread(&mut self, change: &(impl Fn(&mut LeaseDocument) + Send + Sync)) -> Result<(), WriteError> {
        let read = self.store.read(&self.stored.document).await.map_err(WriteError::Store)?;
        let Some(stored) = read else { return Err(WriteError::Lost(Loss::Deleted)) };
        if is_mine(&stored.document, &self.identity, self.epoch) {
            self.stored = stored;
            return Ok(());
        }
        // A release or grant of ours whose answer was lost has taken the lease out of our hands, as it should.
        let mut done = self.stored.document.clone();
        change(&mut done);
        if done.owner != self.stored.document.owner && done.owner == stored.document.owner {
            self.stored = stored;
            return Err(WriteError::Lost(Loss::Taken { by: done.owner }));
        }
        Err(WriteError::Lost(Loss::Taken { by: stored.document.owner }))
    }

    /// Deletes the lease if nobody has changed it meanwhile.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn delete(&mut self) -> Result<(), WriteError> {
        for _ in 0..CONFLICT_TRIES {
            match self.store.delete(&self.stored).await {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ItemNotFound => return Ok(()),
                Err(error) if error.kind() == ErrorKind::PreconditionFailed || error.effect() == Effect::Unknown => {
                    match self.reread(&|_| {}).await {
                        Ok(()) => {}
                        Err(WriteError::Lost(Loss::Deleted)) => return Ok(()),
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(WriteError::Store(error)),
            }
        }
        Err(WriteError::Store(Error::new(ErrorKind::Unavailable, "the lease kept changing while it was being deleted")))
    }
}

fn is_mine(document: &LeaseDocument, identity: &Identity, epoch: u64) -> bool {
    if mutant::is(Mutant::OwnerNameFence) {
        return document.owner.as_deref() == Some(&identity.instance);
    }
    document.owner.as_deref() == Some(&identity.instance)
        && document.epoch() == epoch
        && document.session() == Some(&identity.session)
}

/// The owner before us went without a word: its process may have died of the batch after the checkpoint.
fn count_crash(document: &mut LeaseDocument) {
    let continuation = document.continuation.clone();
    let before = document.attempts();
    let count = if before.continuation == continuation { before.count } else { 0 };
    document.set_attempts(&Attempts { continuation, count: count.saturating_add(1) });
}
