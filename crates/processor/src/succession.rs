//! What happens to a lease whose range was split or merged: its successors begin at its checkpoint, and it goes last.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Effect, ErrorKind, FeedRange, PhysicalRange, Result};
use tokio::sync::{mpsc, watch};

use crate::{
    deliver::told,
    host::{Report, Shared},
    lease::{
        bootstrap::covered,
        coverage::{self, Child, Covered, Succession},
        document::LeaseDocument,
        keeper::{Ended, Ending, KeeperHandle},
        ownership::{Loss, OwnedLease},
        prefix::LeaseToken,
        store::Listing,
    },
    mutant::{self, Mutant},
    notification::{Failure, Notification, Release},
};

/// How it went.
pub(crate) enum Succeeded {
    /// The lease was replaced; the host knows which of its successors are ours.
    Replaced,
    /// The lease stays: its range lies within one physical range after all, or the host stops.
    Keep,
    /// The lease was lost on the way; whoever has it now does the rest.
    Lost(Loss),
}

/// Replaces the lease of a gone range by leases of the ranges that live now. Can be repeated at any step, by anybody, and
/// is left to others if the host wants to stop while it looks or pauses.
pub(crate) async fn succeed(
    shared: &Shared,
    token: &LeaseToken,
    range: &FeedRange,
    keeper: &KeeperHandle,
    mut stopping: watch::Receiver<bool>,
    reports: &mpsc::UnboundedSender<Report>,
) -> Succeeded {
    let mut failures = 0;
    loop {
        let looked = tokio::select! {
            biased;
            () = told(&mut stopping) => return Succeeded::Keep,
            looked = look(shared) => looked,
        };
        let attempt = match looked {
            Ok(look) => attempt(shared, token, range, keeper, reports, look).await,
            Err(error) => Err(error),
        };
        match attempt {
            Ok(succeeded) => return succeeded,
            Err(error) => {
                failures += 1;
                shared.notifier.notify(Notification::Error(Some(token.clone()), Failure::Feed(Arc::new(error))));
                let pause = shared.options.store_retry.after(failures, shared.runtime.random());
                if let Some(loss) = wait(shared, keeper, &mut stopping, pause).await
                    && !matches!(keeper.end(Ending::Expire).await, Ended::Kept)
                {
                    return Succeeded::Lost(loss);
                }
            }
        }
    }
}

async fn wait(
    shared: &Shared,
    keeper: &KeeperHandle,
    stopping: &mut watch::Receiver<bool>,
    pause: Duration,
) -> Option<Loss> {
    let mut fence = keeper.fence.clone();
    let sleep = shared.runtime.sleep(pause);
    tokio::select! {
        biased;
        () = told(stopping) => {}
        () = fence.until(|status| status.lost.is_some()) => {}
        () = sleep => {}
    }
    let expired = !keeper.fence.holds(shared.runtime.monotonic());
    keeper.fence.status().lost.or(expired.then_some(Loss::Expired))
}

/// The ranges that live now, and the leases.
struct Look {
    live: Vec<PhysicalRange>,
    listing: Listing,
}

async fn look(shared: &Shared) -> Result<Look> {
    let live = shared.monitored.feed_ranges().await?;
    Ok(Look { live, listing: shared.store.list().await? })
}

async fn attempt(
    shared: &Shared,
    token: &LeaseToken,
    range: &FeedRange,
    keeper: &KeeperHandle,
    reports: &mpsc::UnboundedSender<Report>,
    Look { live, listing }: Look,
) -> Result<Succeeded> {
    let parent = match keeper.document().await {
        Ok(document) => document,
        Err(loss) => return Ok(Succeeded::Lost(loss)),
    };
    let leases = covered(&listing, &live);
    let own = Covered { token: token.clone(), range: range.clone(), gone: false };
    let children = match coverage::successors(&own, &live, &leases) {
        Succession::Keep => return Ok(Succeeded::Keep),
        Succession::Replace(children) => children,
    };
    if mutant::is(Mutant::ParentDeletedFirst) {
        keeper.end(Ending::Delete).await;
        shared.runtime.sleep(shared.options.store_retry.first).await;
    }
    for child in &children {
        if !keeper.fence.holds(shared.runtime.monotonic()) {
            return Ok(Succeeded::Lost(keeper.fence.status().lost.unwrap_or(Loss::Expired)));
        }
        if let Some(ours) = create(shared, &parent, child).await? {
            drop(reports.send(Report::Adopted(Box::new(ours))));
        }
    }
    match keeper.end(Ending::Delete).await {
        Ended::Done | Ended::Granted(_) | Ended::Kept => {}
        Ended::Lost(loss) => tracing::info!(lease = %token, %loss, "the lease of a gone range was lost"),
        Ended::Tombstone(error) | Ended::Unreachable(error) => {
            shared.notifier.notify(Notification::Error(Some(token.clone()), Failure::Lease(Arc::new(error))));
        }
    }
    let names = children.into_iter().map(|child| child.token).collect();
    shared.notifier.notify(Notification::Split { parent: token.clone(), children: names });
    shared.notifier.notify(Notification::LeaseReleased(token.clone(), Release::RangeGone));
    Ok(Succeeded::Replaced)
}

/// Creates a successor in our own name, at the parent's checkpoint. None if it exists already.
async fn create(shared: &Shared, parent: &LeaseDocument, child: &Child) -> Result<Option<OwnedLease>> {
    let id = shared.store.lease_id(&child.token);
    let mut document = parent.child(id.clone(), child.version, child.token.clone(), child.range.clone());
    document.partition_key = shared.store.partition_key_field(&id);
    document.owner = Some(shared.identity.instance.clone());
    document.set_epoch(1);
    document.set_session(Some(&shared.identity.session));
    document.touch(shared.runtime.wall());
    let begun = shared.runtime.monotonic();
    let stored = match shared.store.create(document.clone()).await {
        Ok(stored) => stored,
        Err(error) if error.effect() == Effect::Unknown => {
            let read = shared.store.read(&document).await?;
            let session = shared.identity.session.as_str();
            if read.is_none() {
                return Err(error);
            }
            read.filter(|stored| stored.document.session() == Some(session) && stored.document.epoch() == 1)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
        Err(error) => return Err(error),
    };
    let adopt = |stored| OwnedLease::adopt(&shared.store, &shared.runtime, &shared.identity, stored, begun);
    Ok(stored.map(adopt))
}
