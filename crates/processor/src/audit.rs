//! The audit of a host: leases must cover the key space once, whatever happened to their documents.

use std::{collections::BTreeMap, sync::Arc};

use changefeed_core::{Error, ErrorKind, PhysicalRange, Result};

use crate::{
    host::Host,
    lease::{
        bootstrap::{Start, covered},
        coverage::{self, Audit},
        lock::{self, Lock},
        prefix::LeaseToken,
        store::Listing,
    },
    mutant::{self, Mutant},
    notification::{Failure, Notification},
};

/// A split by another host makes leases overlap for a moment; only what lasts this many cycles is looked into.
const PATIENCE_CYCLES: u32 = 2;

impl Host {
    /// Creates leases that are missing, deletes those that are left over, has overlaps resolved. Returns whether all was
    /// well.
    pub(crate) async fn audit(&mut self, listing: &Listing) -> Result<bool> {
        if !listing.broken.is_empty() {
            // The range of a document that cannot be read is unknown: a new lease might work beside its owner.
            return Ok(false);
        }
        let known = covered(listing, &[]);
        if known.len() == listing.leases.len() {
            let audit = coverage::audit(&known);
            for token in &audit.covered_by_others {
                self.bury(listing, token).await?;
            }
            self.resolve_overlaps(&audit);
            if audit.holes.is_empty() {
                return Ok(audit == Audit::default());
            }
        }
        let live = self.shared.monitored.feed_ranges().await?;
        self.repair(listing, &live).await?;
        Ok(false)
    }

    /// Deletes a lease whose whole range is covered by leases inside it, if nobody works on it.
    async fn bury(&self, listing: &Listing, token: &LeaseToken) -> Result<()> {
        let (expiration, now) = (self.shared.options.timing.expiration, self.shared.runtime.monotonic());
        let lease = listing.leases.iter().find(|lease| lease.document.token == *token).filter(|lease| {
            let document = &lease.document;
            document.is_gone() || document.owner.is_none() || self.observations.is_silent(token, expiration, now)
        });
        match lease {
            None => Ok(()),
            Some(lease) => match self.shared.store.delete(lease).await {
                Err(error) if error.kind() == ErrorKind::PreconditionFailed => Ok(()),
                Err(error) if error.kind() == ErrorKind::ItemNotFound => Ok(()),
                // Still not allowed: the tombstone does no harm.
                Err(error) if error.kind() == ErrorKind::Forbidden => Ok(()),
                other => other,
            },
        }
    }

    /// Has workers whose leases overlap others see whether their range is still theirs; says so, once.
    fn resolve_overlaps(&mut self, audit: &Audit) {
        let mut overlapping = BTreeMap::new();
        for (a, b) in &audit.overlaps {
            for token in [a, b] {
                let cycles = self.overlapping.get(token).copied().unwrap_or(0) + 1;
                overlapping.insert(token.clone(), cycles);
                if let Some(running) = self.running.get(token).filter(|_| cycles % PATIENCE_CYCLES == 0) {
                    running.reconsider.send_replace(true);
                }
            }
            let lasting = self.overlapping.get(a).is_some_and(|cycles| *cycles >= 2 * PATIENCE_CYCLES);
            let key = format!("overlap {a} {b}");
            if lasting && self.reported.insert(key, String::new()).is_none() {
                let message = format!("leases {a} and {b} overlap: changes in both are processed twice");
                self.report(Some(a.clone()), Failure::Balancer(Arc::new(Error::new(ErrorKind::Corrupt, message))));
            }
        }
        self.overlapping = overlapping;
    }

    /// Makes leases for ranges that none covers, one host at a time: what is missing in our listing may have been made and
    /// split again by another host meanwhile.
    async fn repair(&mut self, listing: &Listing, live: &[PhysicalRange]) -> Result<()> {
        if coverage::missing(live, &covered(listing, live)).is_empty() || mutant::is(Mutant::HolesNotRepaired) {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let Some(mut lock) = Lock::take(&shared.store, &shared.runtime).await? else {
            return lock::free_stale(&shared.store, &shared.runtime, &mut self.locked_by).await;
        };
        let mut created = Vec::new();
        let filled = self.fill(&mut lock, &mut created).await;
        lock.release().await;
        if !created.is_empty() {
            self.shared.notifier.notify(Notification::Repaired(created));
        }
        filled
    }

    /// Looks again, now that nobody else can make leases, and makes those that are missing.
    async fn fill(&self, lock: &mut Lock<'_>, created: &mut Vec<LeaseToken>) -> Result<()> {
        let bootstrap = self.shared.bootstrap();
        let anchors = bootstrap.anchors().await?.unwrap_or_else(|| self.shared.anchors.clone());
        let live = self.shared.monitored.feed_ranges().await?;
        let listing = self.shared.store.list().await?;
        if !listing.broken.is_empty() {
            return Ok(());
        }
        for child in coverage::missing(&live, &covered(&listing, &live)) {
            // A worker whose document was deleted still has the range: its loss comes first.
            if let Some(running) = self.running.get(&child.token) {
                running.keeper.refresh();
                continue;
            }
            let until = lock.keep().await?;
            bootstrap.create(&child, &anchors, Start::Written, until).await?;
            created.push(child.token);
        }
        Ok(())
    }
}
