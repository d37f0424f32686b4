//! Replaces the lease of a range that was split or merged: its successors begin at its checkpoint, and it is deleted
//! last. Every step can be repeated, by any host.

use std::sync::Arc;

use changefeed_core::{Effect, Error, ErrorKind, FeedRange, PhysicalRange, Result};

use super::{
    coverage::{self, NewLease, RangeLease, SplitPlan},
    document::{Attempts, LeaseDocument, StartPosition},
    events::{Replacement, Written},
    host_context::HostContext,
    listing::{Listing, StoredLease},
    loss::Loss,
    prefix::LeaseToken,
    update::{LeaseUpdate, end_ownership},
    writer::{Deleted, LeaseWriter},
};
use crate::notification::{Failure, Notification};

/// What must be known to replace a lease.
#[derive(Debug)]
pub(crate) struct SplitInput {
    live: Vec<PhysicalRange>,
    listing: Listing,
}

/// Reads the live ranges and the leases.
///
/// # Errors
/// Those of the stores.
pub(crate) async fn prepare(context: &HostContext) -> Result<SplitInput> {
    let live = context.monitored.feed_ranges().await?;
    Ok(SplitInput { live, listing: context.store.list().await? })
}

/// A lease that is replaced.
pub(crate) struct Split<'a> {
    pub(crate) context: &'a HostContext,
    pub(crate) token: &'a LeaseToken,
    pub(crate) range: &'a FeedRange,
}

/// A lease that a split created in this host's name.
pub(crate) type Adopted = Box<LeaseWriter>;

impl Split<'_> {
    /// Stores pending progress, creates the successors, deletes the lease. Ends early if the host stops or the own
    /// deadline passes. Successors that this host owns are added to `adopted`.
    pub(crate) async fn replace(
        &self,
        writer: &mut LeaseWriter,
        update: LeaseUpdate,
        SplitInput { live, listing }: SplitInput,
        adopted: &mut Vec<Adopted>,
    ) -> Replacement {
        // The write proves that the lease is owned at this moment.
        let facts = match writer.write(update).await {
            Written::Owned(facts) => facts,
            Written::Transferred(by) => return Replacement::Lost(Loss::Taken { by }),
            Written::Lost(loss) => return Replacement::Lost(loss),
            Written::Failed(update, error) => return Replacement::Failed(update, error),
        };
        let leases = listing.range_leases(&live);
        let generation = writer.document().generation();
        let own = RangeLease { token: self.token.clone(), range: self.range.clone(), gone: false, generation };
        let children = match coverage::split_plan(&own, &live, &leases) {
            SplitPlan::Keep => return Replacement::Stays(facts),
            SplitPlan::Replace(children) => children,
        };
        crate::planted!(ParentDeletedFirst => drop(writer.delete(self.range).await));
        for child in &children {
            let (context, now) = (self.context, self.context.runtime.monotonic());
            if context.signals.stop.is_cancelled() {
                return Replacement::Interrupted(facts);
            }
            if now >= writer.confirmed() + context.settings.timing.fence() {
                return Replacement::Lost(Loss::Expired);
            }
            match self.create(writer.document(), child).await {
                Ok(ours) => adopted.extend(ours),
                Err(error) => return Replacement::Incomplete(facts, error),
            }
        }
        if let Err(error) = self.move_outdated(writer.document(), &listing, &leases).await {
            return Replacement::Incomplete(facts, error);
        }
        match writer.delete(self.range).await {
            Deleted::Done => {}
            Deleted::Lost(loss) => tracing::info!(lease = %self.token, %loss, "lease of a split range lost"),
            Deleted::Tombstone(error) | Deleted::Failed(error) => {
                let failure = Failure::Lease(Arc::new(error));
                self.context.notifier.notify(Notification::error(Some(self.token.clone()), failure));
            }
        }
        Replacement::Done(children.into_iter().map(|child| child.token).collect())
    }

    /// Moves successors that were created before an operator moved the parent: its position counts.
    async fn move_outdated(&self, parent: &LeaseDocument, listing: &Listing, leases: &[RangeLease]) -> Result<()> {
        let inside =
            leases.iter().filter(|lease| lease.token != *self.token && self.range.contains_range(&lease.range));
        for lease in inside.filter(|lease| !lease.gone && lease.generation < parent.generation()) {
            if let Some(child) = listing.find(&lease.token) {
                self.context.store.replace(&moved_to(&child.document, parent), &child.etag).await?;
            }
        }
        Ok(())
    }

    /// Creates a successor in this host's name, at the parent's checkpoint. Returns `None` if it exists already.
    async fn create(&self, parent: &LeaseDocument, child: &NewLease) -> Result<Option<Adopted>> {
        let HostContext { store, runtime, identity, .. } = self.context;
        let id = store.lease_id(&child.token);
        let mut document = parent.child(id.clone(), child.version, child.token.clone(), child.range.clone());
        document.partition_key = store.partition_key_field(&id);
        document.owner = Some(identity.instance.clone());
        document.set_epoch(1);
        document.set_session(Some(&identity.session));
        document.set_promise(&identity.instance, identity.expiration);
        document.touch(store.time(runtime.wall()));
        let begun = runtime.monotonic();
        let stored = match store.create(document.clone()).await {
            Ok(None) => {
                // Another host was faster, perhaps before an operator moved the parent.
                if let Some(child) = store.read(&document).await? {
                    if child.document.generation() < parent.generation() {
                        store.replace(&moved_to(&child.document, parent), &child.etag).await?;
                    } else if child.document.is_gone() {
                        store.replace(&unmarked(&child.document), &child.etag).await?;
                    }
                }
                None
            }
            Ok(stored) => stored,
            Err(error) if error.effect() == Effect::Unknown => self.find_created(&document, error).await?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
            Err(error) => return Err(error),
        };
        let adopt = |stored| Box::new(LeaseWriter::adopt(store, runtime, identity, stored, begun));
        Ok(stored.map(adopt))
    }

    /// Whether a lease whose creation has an unknown outcome is this host's.
    async fn find_created(&self, document: &LeaseDocument, error: Error) -> Result<Option<StoredLease>> {
        let session = self.context.identity.session.as_str();
        match self.context.store.read(document).await? {
            None => Err(error),
            Some(stored) => {
                // A .NET host that acquired it has copied session and epoch.
                let ours = stored.document.owner.as_deref() == Some(&self.context.identity.instance)
                    && stored.document.session() == Some(session)
                    && stored.document.epoch() == 1;
                Ok(ours.then_some(stored))
            }
        }
    }
}

/// The lease `child` at the position of `parent`, taken from its owner.
pub(crate) fn moved_to(child: &LeaseDocument, parent: &LeaseDocument) -> LeaseDocument {
    let mut document = child.clone();
    end_ownership(&mut document, None);
    document.set_generation(parent.generation());
    document.set_gone(false);
    document.set_attempts(&Attempts::default());
    document.set_search(None);
    match (&parent.continuation, parent.start()) {
        (Some(token), _) => document.set_start(&StartPosition::Continuation(token.clone())),
        (None, Some(start)) => document.set_start(&start),
        (None, None) => document.continuation = None,
    }
    document
}

/// The lease without the mark of a tombstone, at its own position: a .NET host that acquires a tombstone copies the mark
/// into the leases that it creates from it, and works on them.
pub(crate) fn unmarked(lease: &LeaseDocument) -> LeaseDocument {
    crate::planted!(CopiedMarkKept => return lease.clone());
    let mut document = lease.clone();
    document.set_gone(false);
    document
}
