//! Rewind: leases that another host has created at a later position are moved back.

use changefeed_core::{Result, StartFrom};

use super::{handle::Control, scope::Scope, seek::SeekTo};
use crate::{
    lease::{document::LeaseDocument, feed_positions::FeedPositions, listing::StoredLease},
    tools::snapshot::Snapshot,
};

impl Control {
    /// Moves leases back that began after `start` and so leave out changes; returns whether there were any. Those that were
    /// moved before stay where they are, whether an operator, another host or this one moved them: a call that has failed is
    /// repeated. Looks at the given containers only: leases of one that was created since are not those that are meant.
    ///
    /// # Errors
    /// As for [`Seek::apply`](super::Seek::apply).
    pub(crate) async fn rewind(&self, start: &StartFrom) -> Result<bool> {
        let to = match start {
            StartFrom::Beginning => SeekTo::Beginning,
            StartFrom::Time(moment) => SeekTo::Time(*moment),
            StartFrom::Continuation(continuation) => SeekTo::Continuation(continuation.clone()),
            // Every lease began before this moment.
            StartFrom::Now => return Ok(false),
        };
        let snapshot = self.processor.snapshot_here(&*self.clock()).await?;
        let mut late = Vec::new();
        for lease in snapshot.leases().filter(|lease| was_never_moved(&lease.document)) {
            if leaves_out(&snapshot, lease, start).await? {
                late.push(lease);
            }
        }
        if late.is_empty() {
            return Ok(false);
        }
        let seek = self.seek(to, Scope::All);
        let plan = seek.plan(&snapshot, &late).await?;
        seek.move_leases(&snapshot, &plan, was_never_moved).await?;
        Ok(true)
    }
}

fn was_never_moved(document: &LeaseDocument) -> bool {
    document.generation() == 0
}

/// Whether the keys of a lease began at a position that leaves out changes after `start`. Where nobody knows where they began,
/// they may begin anywhere.
async fn leaves_out(snapshot: &Snapshot, lease: &StoredLease, start: &StartFrom) -> Result<bool> {
    let feed = FeedPositions { monitored: &snapshot.monitored, mode: snapshot.mode() };
    for began in snapshot.beginnings_of(&lease.document) {
        if let Some(position) = &began.start
            && feed.leaves_out(&began.range, start, position).await?
        {
            return Ok(true);
        }
    }
    Ok(false)
}
