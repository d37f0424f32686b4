//! All leases of a processor, as they were listed at one time. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use changefeed_core::{ETag, FeedRange, PhysicalRange, RangeId};

use super::{
    coverage::RangeLease,
    document::{DocumentError, LeaseDocument, LeaseSummary},
    prefix::LeaseToken,
    ranges::{Lineage, NamedRange},
};

/// A lease document and the version of it that was read or written.
#[derive(Clone, Debug)]
pub(crate) struct StoredLease {
    /// The document: immutable, and shared with other hosts of the process that have listed it.
    pub(crate) document: Arc<LeaseDocument>,
    /// Its version.
    pub(crate) etag: ETag,
}

/// All leases of a processor.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Those that can be read, by token.
    pub(crate) leases: Vec<StoredLease>,
    /// Their summaries, in the same order.
    summaries: Vec<Arc<LeaseSummary>>,
    /// Those that cannot, with the reason: reported, never touched.
    pub(crate) broken: Vec<(String, DocumentError)>,
    /// Documents that claim the token of a lease in `leases`: reported, never processed.
    pub(crate) duplicates: Vec<StoredLease>,
    /// For how long nothing was written to a lease, by the store's clock; see [`LeaseStore::with_store_time`].
    pub(crate) ages: BTreeMap<LeaseToken, Duration>,
    /// Leases whose owners are known to be dead; see [`LeaseStore::of_process`].
    pub(crate) dead: BTreeSet<LeaseToken>,
}

impl Listing {
    /// Takes in leases in any order. Of two documents for one token the one with the higher epoch counts; at a tie the
    /// one at the earlier position: it may repeat changes, and skips none.
    pub(super) fn add_all(&mut self, mut leases: Vec<(StoredLease, Arc<LeaseSummary>)>) {
        leases.sort_by(|(a, _), (b, _)| {
            a.document.token.cmp(&b.document.token).then_with(|| precedence(&a.document, &b.document))
        });
        self.leases.reserve_exact(leases.len());
        self.summaries.reserve_exact(leases.len());
        for (lease, summary) in leases {
            match self.leases.last() {
                Some(first) if first.document.token == lease.document.token => self.duplicates.push(lease),
                _ => {
                    self.leases.push(lease);
                    self.summaries.push(summary);
                }
            }
        }
    }

    /// The leases, each with its summary.
    pub(crate) fn summarised(&self) -> impl Iterator<Item = (&StoredLease, &Arc<LeaseSummary>)> {
        self.leases.iter().zip(&self.summaries)
    }

    /// Whether all leases are paused; `None` if there is none.
    pub(crate) fn all_paused(&self) -> Option<bool> {
        let mut leases = self.leases.iter().filter(|lease| !lease.document.is_gone()).peekable();
        leases.peek().is_some().then(|| leases.all(|lease| lease.document.is_paused()))
    }

    /// The leases as far as coverage is concerned; those whose range cannot be determined are left out, see
    /// [`Listing::unresolved`].
    pub(crate) fn range_leases(&self, live: &[PhysicalRange]) -> Vec<RangeLease> {
        let lineage = Lineage::new(live);
        let leases = self.leases.iter().filter_map(|lease| {
            let document = &lease.document;
            let range = self.range_by(document, &lineage).ok()?;
            let (token, gone, generation) = (document.token.clone(), document.is_gone(), document.generation());
            Some(RangeLease { token, range, gone, generation })
        });
        leases.collect()
    }

    /// The range of a lease. An old lease that has none gets that of the physical range that it names; if that cannot be
    /// determined, the reason and what to do.
    fn range_by(&self, document: &LeaseDocument, lineage: &Lineage<'_>) -> Result<FeedRange, String> {
        if let Some(range) = document.range() {
            return Ok(range);
        }
        let named = lineage.named_range(&document.token);
        crate::planted!(OldLeasesIgnored => if !matches!(named, NamedRange::Live(_)) { return Err(String::new()) });
        let lease_of = |id: &RangeId| self.find(&LeaseToken::from(id));
        match named {
            NamedRange::Live(range) => Ok(range),
            NamedRange::Split(range, parents) => {
                // Leases do not contain one another: a second one among the ancestors is that of a merged range.
                let other = |id: &RangeId| id.as_str() != document.token.as_str() && lease_of(id).is_some();
                if parents.iter().any(other) {
                    return Err(unresolved(&document.token, "its physical range was merged with others"));
                }
                Ok(range)
            }
            NamedRange::Merged(merged, parents) => {
                // Where all leases of the merged ranges have one checkpoint, it is that of the merged range.
                let same = |parent: &RangeId| {
                    lease_of(parent).is_some_and(|lease| lease.document.continuation == document.continuation)
                };
                if document.continuation.is_some() && parents.iter().all(same) {
                    return Ok(merged);
                }
                Err(unresolved(&document.token, "its physical range was merged with others"))
            }
            NamedRange::Unknown => Err(unresolved(&document.token, "no live physical range descends from it alone")),
        }
    }

    /// The ranges of old leases that do not say theirs.
    pub(crate) fn resolved(&self, live: &[PhysicalRange]) -> BTreeMap<LeaseToken, FeedRange> {
        let lineage = Lineage::new(live);
        let found = self
            .without_range()
            .filter_map(|document| Some((document.token.clone(), self.range_by(document, &lineage).ok()?)));
        found.collect()
    }

    /// Old leases whose range cannot be determined, each with the reason and what to do.
    pub(crate) fn unresolved(&self, live: &[PhysicalRange]) -> Vec<(LeaseToken, String)> {
        crate::planted!(OldLeasesIgnored => return Vec::new());
        let lineage = Lineage::new(live);
        let reasons = self
            .without_range()
            .filter_map(|document| Some((document.token.clone(), self.range_by(document, &lineage).err()?)));
        reasons.collect()
    }

    fn without_range(&self) -> impl Iterator<Item = &LeaseDocument> {
        self.leases.iter().map(|lease| &*lease.document).filter(|document| document.has_no_range())
    }

    /// The lease with this token.
    pub(crate) fn find(&self, token: &LeaseToken) -> Option<&StoredLease> {
        let at = self.leases.binary_search_by(|lease| lease.document.token.cmp(token)).ok()?;
        self.leases.get(at)
    }
}

fn unresolved(token: &LeaseToken, reason: &str) -> String {
    format!(
        "lease {token} has no FeedRange, and {reason}: write its range into FeedRange of the document, or delete the \
         document and seek"
    )
}

/// Which of two documents for one token comes first.
fn precedence(a: &LeaseDocument, b: &LeaseDocument) -> std::cmp::Ordering {
    // A position that is not a number of ours is left to the tie-break: it cannot be compared.
    let position =
        |document: &LeaseDocument| -> Option<u64> { document.continuation.as_ref()?.trim_matches('"').parse().ok() };
    b.epoch().cmp(&a.epoch()).then_with(|| position(a).cmp(&position(b))).then_with(|| a.id.cmp(&b.id))
}
