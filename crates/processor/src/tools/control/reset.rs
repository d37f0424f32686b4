//! Reset: forgetting that a processor ever ran.

use changefeed_core::{Effect, Error, ErrorKind, Result};

use super::{
    handle::Control,
    update::{CONFLICT_TRIES, gone_is_fine, kept_changing},
};
use crate::{
    lease::{document::InfoDocument, listing::StoredLease, prefix::LeaseToken, store::LeaseStore},
    tools::snapshot::Snapshot,
};

/// A reset about to happen, from [`Control::reset`].
///
/// ```
/// # async fn example(control: changefeed::Control) -> changefeed::core::Result<()> {
/// let reset = control.reset();
/// println!("would delete {} leases", reset.dry_run().await?.len());
/// reset.apply().await?; // refused while a host runs
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before `apply`"]
pub struct Reset {
    control: Control,
    forced: bool,
}

impl Control {
    /// Forgets that the processor ever ran: deletes its leases and what says that they were made. The next host to
    /// start begins where its own `start_from` says.
    ///
    /// Nothing happens before [`Reset::apply`].
    pub fn reset(&self) -> Reset {
        Reset { control: self.clone(), forced: false }
    }
}

impl Reset {
    /// Does it even if hosts run. They create the leases again, at the positions where the processor once began or was moved
    /// to since, unless a host that starts is faster: stop them first if that is not wanted. Default: refused while a host
    /// runs.
    pub fn forced(mut self) -> Self {
        self.forced = true;
        self
    }

    /// Returns the leases that [`Reset::apply`] would delete now.
    ///
    /// # Errors
    /// `ItemNotFound` if there is no such processor, and those of the stores.
    pub async fn dry_run(&self) -> Result<Vec<LeaseToken>> {
        let snapshot = self.control.processor.snapshot().await?;
        Ok(snapshot.listing.leases.iter().map(|lease| lease.document.token.clone()).collect())
    }

    /// Deletes the processor's documents, readable or not; returns the leases.
    ///
    /// A lease that has an owner is watched for up to the expiration interval: if it changes, the owner lives and
    /// nothing is done.
    ///
    /// # Errors
    /// `InvalidArgument` if a host runs, `ItemNotFound` if there is no such processor, `Unavailable` if leases kept
    /// changing, and those of the store: what was deleted stays deleted, so try again.
    pub async fn apply(&self) -> Result<Vec<LeaseToken>> {
        let mut snapshot = self.control.processor.snapshot().await?;
        if !self.forced {
            snapshot = self.wait_for_silence(snapshot).await?;
        }
        let store = &snapshot.store;
        let mut deleted: Vec<LeaseToken> = Vec::new();
        // The marker goes first: a host that starts meanwhile then starts over instead of repairing the old leases.
        self.delete_info(store).await?;
        let prefix = store.prefix();
        // Without force no host runs that would need the positions.
        let unused = (!self.forced).then(|| prefix.reset_id());
        for id in [prefix.lock_id(), prefix.time_id()].into_iter().chain(unused) {
            let field = store.partition_key_field(&id);
            if let Some(item) = store.read_raw(&id, field.as_deref()).await? {
                gone_is_fine(store.delete_raw(&id, field.as_deref(), &item.etag).await)?;
            }
        }
        for lease in &snapshot.listing.leases {
            self.delete(&snapshot, lease).await?;
            deleted.push(lease.document.token.clone());
        }
        self.delete_broken(&snapshot).await?;
        Ok(deleted)
    }

    /// Deletes `.info`. If hosts may run, the start positions of the version that is deleted are stored for them before: they
    /// know `.info` only as they have read it, perhaps before the last seek.
    async fn delete_info(&self, store: &LeaseStore) -> Result<()> {
        let id = store.prefix().info_id();
        let field = store.partition_key_field(&id);
        for _ in 0..CONFLICT_TRIES {
            let Some(item) = store.read_raw(&id, field.as_deref()).await? else { return Ok(()) };
            // One that cannot be read is deleted as it is.
            if let Some(info) = InfoDocument::parse(&item.body).ok().filter(|_| self.forced) {
                keep_positions(store, &info).await?;
            }
            match gone_is_fine(store.delete_raw(&id, field.as_deref(), &item.etag).await) {
                Err(error) if error.kind() == ErrorKind::PreconditionFailed || error.effect() == Effect::Unknown => {}
                deleted => return deleted,
            }
        }
        Err(kept_changing(&id))
    }

    /// Returns the leases as they are when no owner has given a sign of life.
    async fn wait_for_silence(&self, first: Snapshot) -> Result<Snapshot> {
        let runtime = self.control.clock();
        let timing = self.control.timing;
        let begun = runtime.monotonic();
        let owned = |lease: &&StoredLease| lease.document.owner.is_some();
        while first.listing.leases.iter().any(|lease| owned(&lease)) {
            if runtime.monotonic().saturating_sub(begun) >= timing.expiration {
                break;
            }
            runtime.sleep(timing.renew / 2).await;
            let listing = first.store.list().await?;
            for lease in listing.leases.iter().filter(owned) {
                let same = |old: &&StoredLease| old.document.token == lease.document.token;
                if first.listing.leases.iter().find(same).is_none_or(|old| old.etag != lease.etag) {
                    let (owner, token) = (lease.document.owner.as_deref().unwrap_or_default(), &lease.document.token);
                    let message = format!("{owner} is alive and owns lease {token}: stop all hosts first, or force it");
                    return Err(Error::new(ErrorKind::InvalidArgument, message));
                }
            }
        }
        Ok(first)
    }

    async fn delete(&self, snapshot: &Snapshot, lease: &StoredLease) -> Result<()> {
        let mut current = lease.clone();
        for _ in 0..CONFLICT_TRIES {
            match gone_is_fine(snapshot.store.delete(&current).await) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::PreconditionFailed || error.effect() == Effect::Unknown => {
                    match snapshot.store.read(&current.document).await? {
                        None => return Ok(()),
                        Some(stored) if self.forced || stored.document.owner.is_none() => current = stored,
                        Some(_) => break,
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let message = format!("a host took lease {} meanwhile: stop all hosts first", lease.document.token);
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Documents that cannot be read are deleted as they are: there is no owner to ask.
    async fn delete_broken(&self, snapshot: &Snapshot) -> Result<()> {
        if snapshot.listing.broken.is_empty() {
            return Ok(());
        }
        for broken in &snapshot.store.list().await?.broken {
            gone_is_fine(snapshot.store.delete_broken(broken).await)?;
        }
        Ok(())
    }
}

/// Stores the positions of `.info` for hosts that run.
async fn keep_positions(store: &LeaseStore, info: &InfoDocument) -> Result<()> {
    let id = store.prefix().reset_id();
    let field = store.partition_key_field(&id);
    let mut kept = InfoDocument::new(&id, field.clone(), &info.start_positions());
    info.store().into_iter().for_each(|of| kept.set_store(of));
    for _ in 0..CONFLICT_TRIES {
        // Not an upsert: operators need no right to that.
        let written = match store.read_raw(&id, field.as_deref()).await? {
            Some(item) => store.replace_raw(&id, field.as_deref(), kept.to_json(), &item.etag).await.map(Some),
            None => store.create_raw(&id, field.as_deref(), kept.to_json()).await,
        };
        match written {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => {}
            Err(error) if error.effect() == Effect::Unknown => {}
            Err(error) if matches!(error.kind(), ErrorKind::PreconditionFailed | ErrorKind::ItemNotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Err(kept_changing(&id))
}
