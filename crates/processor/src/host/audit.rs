//! The audit of a host: leases must cover the key space once, whatever happened to their documents.

use std::{collections::BTreeMap, sync::Arc};

use changefeed_core::{Error, ErrorKind, PhysicalRange, Result};

use super::{
    Host,
    bootstrap::{Bootstrap, Start},
    record::LeaseRecord,
};
use crate::{
    lease::{
        coverage::{self, Audit},
        document::{LeaseDocument, StartPositions},
        listing::{Listing, StoredLease},
        lock::{self, Lock},
        prefix::LeaseToken,
        split::{moved_to, unmarked},
        update::end_ownership,
    },
    notification::{Failure, Notification},
};

/// A split by another host makes leases overlap for a moment; only what lasts this many cycles is looked into.
const OVERLAP_CYCLES: u32 = 2;

impl Host {
    /// Creates leases that are missing, deletes those that are left over, has overlaps resolved. Returns whether
    /// everything was in order.
    pub(super) async fn audit(&mut self, listing: &Listing) -> Result<bool> {
        let mut live = Vec::new();
        if listing.leases.iter().any(|lease| lease.document.has_no_range()) {
            live = self.context.monitored.feed_ranges().await?;
        }
        self.resolved = listing.resolved(&live);
        self.remove_duplicates(listing).await;
        let unresolved = listing.unresolved(&live);
        for (token, reason) in &unresolved {
            self.report_once(format!("range {token}"), Some(token.clone()), ErrorKind::Corrupt, reason.clone());
        }
        if !listing.broken.is_empty() || !unresolved.is_empty() {
            // The range of such a lease is unknown: a new lease might work beside its owner, or past its checkpoint.
            return Ok(false);
        }
        let known = listing.range_leases(&live);
        let audit = coverage::audit(&known);
        for (child, parent) in &audit.outdated {
            self.move_outdated(listing, child, parent).await?;
        }
        for token in &audit.covered_by_others {
            self.delete_covered(listing, token).await?;
        }
        self.resolve_overlaps(&audit);
        if audit.holes.is_empty() && !self.info_reads.is_missing() {
            return Ok(audit == Audit::default() && listing.duplicates.is_empty());
        }
        let live = self.context.monitored.feed_ranges().await?;
        match self.repair(listing, &live).await {
            // All leases are there: they are balanced whether `.info` can be written or not.
            Err(error) if audit.holes.is_empty() => self.report(None, Failure::Balancer(Arc::new(error))),
            repaired => repaired?,
        }
        Ok(false)
    }

    /// Reports documents that claim the token of another lease, and deletes those that nobody works on.
    async fn remove_duplicates(&mut self, listing: &Listing) {
        crate::planted!(DuplicateDocumentKept => return);
        for lease in &listing.duplicates {
            let document = &lease.document;
            let token = document.token.clone();
            let message = format!(
                "two documents claim lease {token}: {} counts, {} is not processed and is deleted once no host owns it",
                listing.find(&token).map_or("another", |kept| kept.document.id.as_str()),
                document.id
            );
            self.report_once(format!("duplicate {}", document.id), Some(token.clone()), ErrorKind::Corrupt, message);
            let key = (document.id.clone(), document.partition_key.clone());
            let task = self.records.get(&token).and_then(LeaseRecord::task);
            if let Some(task) = task.filter(|task| task.document == key) {
                task.commands.superseded();
                continue;
            }
            let now = self.context.runtime.monotonic();
            let expiration = document.expires_after(self.context.options.timing.expiration);
            let silent = match self.duplicates_seen.get(&key) {
                Some((etag, since)) if *etag == lease.etag => now.saturating_sub(*since) >= expiration,
                _ => {
                    self.duplicates_seen.insert(key, (lease.etag.clone(), now));
                    false
                }
            };
            if document.owner.is_none() || silent {
                drop(self.context.store.delete(lease).await);
            }
        }
    }

    /// Moves a lease that was created from another after an operator had moved that one.
    async fn move_outdated(&self, listing: &Listing, child: &LeaseToken, parent: &LeaseToken) -> Result<()> {
        let (Some(child), Some(parent)) = (listing.find(child), listing.find(parent)) else { return Ok(()) };
        let document = moved_to(&child.document, &parent.document);
        changed_is_fine(self.context.store.replace(&document, &child.etag).await.map(drop))
    }

    /// Deletes a lease whose whole range is covered by leases inside it, if nobody works on it.
    async fn delete_covered(&self, listing: &Listing, token: &LeaseToken) -> Result<()> {
        let now = self.context.runtime.monotonic();
        let idle = |lease: &&StoredLease| {
            let silent = self.records.get(token).is_some_and(|record| record.is_silent(now));
            lease.document.is_gone() || lease.document.owner.is_none() || silent
        };
        match listing.find(token).filter(idle) {
            None => Ok(()),
            Some(lease) => match changed_is_fine(self.context.store.delete(lease).await) {
                // Still not allowed: the tombstone does no harm.
                Err(error) if error.kind() == ErrorKind::Forbidden => Ok(()),
                other => other,
            },
        }
    }

    /// Has tasks whose leases overlap others check their range; reports what lasts, once.
    fn resolve_overlaps(&mut self, audit: &Audit) {
        let mut overlapping: BTreeMap<&LeaseToken, u32> = BTreeMap::new();
        for token in audit.overlaps.iter().flat_map(|(a, b)| [a, b]) {
            let cycles = self.records.get(token).map_or(0, LeaseRecord::overlap_cycles) + 1;
            overlapping.insert(token, cycles);
        }
        for (token, record) in self.records.iter_mut() {
            record.set_overlap_cycles(overlapping.get(token).copied().unwrap_or(0));
        }
        for (token, cycles) in &overlapping {
            if let Some(commands) = self.records.task(token).filter(|_| cycles % OVERLAP_CYCLES == 0) {
                commands.check_range();
            }
        }
        for (a, b) in &audit.overlaps {
            if overlapping.get(a).is_some_and(|cycles| *cycles > 2 * OVERLAP_CYCLES) {
                let message = format!("leases {a} and {b} overlap: changes in both are processed twice");
                self.report_once(format!("overlap {a} {b}"), Some(a.clone()), ErrorKind::Corrupt, message);
            }
        }
    }

    /// Creates leases for ranges that none covers, and `.info` if that is missing, one host at a time: what is missing in this
    /// listing may have been created and split again by another host meanwhile.
    async fn repair(&mut self, listing: &Listing, live: &[PhysicalRange]) -> Result<()> {
        if coverage::missing(live, &listing.range_leases(live)).is_empty() && !self.info_reads.is_missing() {
            return Ok(());
        }
        crate::planted!(HolesNotRepaired => return Ok(()));
        let context = Arc::clone(&self.context);
        let Some(mut lock) = Lock::take(&context.store, &context.monitored_identity, &context.runtime).await? else {
            return lock::free_stale(&context.store, &context.runtime, &mut self.foreign_lock).await;
        };
        let mut created = Vec::new();
        let filled = self.fill(&mut lock, &mut created).await;
        lock.release().await;
        if !created.is_empty() {
            self.context.notifier.notify(Notification::Repaired(created));
        }
        filled
    }

    /// Lists again, now that nobody else can create leases, and creates those that are missing, and then `.info`.
    async fn fill(&mut self, lock: &mut Lock<'_>, created: &mut Vec<LeaseToken>) -> Result<()> {
        let context = Arc::clone(&self.context);
        let bootstrap = Bootstrap::of(&context);
        let live = context.monitored.feed_ranges().await?;
        // Listed before `.info` is read: a reset deletes leases after it has stored where ranges begin.
        let listing = context.store.list().await?;
        let (positions, found) = self.current_positions(&bootstrap, &live).await?;
        self.info_reads.read(found);
        // Should this attempt fail, the next one begins there, too.
        context.start_positions.set(positions.clone());
        if !listing.broken.is_empty() || !listing.unresolved(&live).is_empty() {
            return Ok(());
        }
        let bootstrap = Bootstrap { paused: self.context.paused.beside(&listing), ..bootstrap };
        for lease in coverage::missing(&live, &listing.range_leases(&live)) {
            // A task whose document was deleted still has the range: its loss comes first.
            if let Some(commands) = self.records.task(&lease.token) {
                commands.refresh();
                continue;
            }
            let until = lock.keep().await?;
            match listing.find(&lease.token).filter(|found| found.document.is_gone()) {
                Some(found) => {
                    let document = unmarked(&found.document);
                    changed_is_fine(self.context.store.replace(&document, &found.etag).await.map(drop))?;
                }
                None => bootstrap.create(&lease, &positions, Start::Written, until).await?,
            }
            created.push(lease.token);
        }
        if self.info_reads.is_missing() {
            // Hosts that start later must not bootstrap a second time beside these leases, and seeks must be stored.
            bootstrap.write_info(&positions, lock).await?;
            self.info_reads.read(true);
        }
        Ok(())
    }

    /// Where ranges begin, and whether `.info` says it. If that is missing: as it said when an operator reset the processor, else
    /// as this host has read it last.
    async fn current_positions(
        &self,
        bootstrap: &Bootstrap<'_>,
        live: &[PhysicalRange],
    ) -> Result<(StartPositions, bool)> {
        let known = self.context.start_positions.get();
        if let Some(stored) = bootstrap.start_positions(&known).await? {
            return Ok((stored, true));
        }
        if let Some(kept) = bootstrap.positions_before_reset().await? {
            return Ok((kept.or(&known), false));
        }
        // A reset deletes locks, so another host may have written `.info` meanwhile, and then deleted what the reset had left.
        if let Some(stored) = bootstrap.start_positions(&known).await? {
            return Ok((stored, true));
        }
        if known.is_empty() {
            // Nobody knows where they began: a position that moves with the time of the first read would lose changes.
            return Ok((bootstrap.first_positions(live).await?, false));
        }
        Ok((StartPositions::clone(&known), false))
    }

    /// A lease task panicked: releases its lease at the last checkpoint, and leaves it to others for a while.
    pub(super) async fn release_after_panic(&mut self, token: LeaseToken, message: String) {
        let error = Error::new(ErrorKind::Corrupt, format!("bug: the task of lease {token} panicked: {message}"));
        self.report(Some(token.clone()), Failure::Panic(Arc::new(error)));
        let now = self.context.runtime.monotonic();
        let own = self.records.own_mut(&token);
        own.task = None;
        own.not_before = Some(now + self.context.options.timing.renew);
        let release = async {
            let listing = self.context.store.list().await?;
            let session = Some(self.context.identity.session.as_str());
            let own = listing.find(&token).filter(|lease| lease.document.session() == session);
            let Some(lease) = own else { return Ok(()) };
            let mut document = LeaseDocument::clone(&lease.document);
            end_ownership(&mut document, None);
            self.context.store.replace(&document, &lease.etag).await.map(drop)
        };
        if let Err(error) = changed_is_fine(release.await) {
            self.report(Some(token), Failure::Lease(Arc::new(error)));
        }
    }
}

/// A lease that was changed or deleted meanwhile is looked at again in the next cycle.
pub(crate) fn changed_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::PreconditionFailed | ErrorKind::ItemNotFound) => Ok(()),
        other => other,
    }
}
