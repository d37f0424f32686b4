//! Explain: one sentence per lease why it is, or is not, moving. Looks from outside, writes nothing.

mod cause;
mod classify;

use std::{sync::Arc, time::Duration};

use changefeed_core::{Container, ErrorKind, ReadChanges, Result, Timestamp};
use serde::Serialize;

pub use self::cause::Cause;
use self::classify::{Evidence, Liveness, classify};
use super::{
    estimator::sum,
    snapshot::{Backlog, ProcessorRef, Snapshot},
};
use crate::{
    join::join_bounded,
    lease::{
        document::{LeaseDocument, Status},
        listing::{BrokenDocument, Listing, StoredLease},
        prefix::LeaseToken,
        timing::LeaseTiming,
    },
    runtime::{BoxFuture, Runtime, TokioRuntime},
};

/// Says of each lease of a processor why it is, or is not, moving.
///
/// ```
/// use changefeed::{Explain, core::{Container, Result}};
///
/// # async fn example(orders: &Container, leases: &Container) -> Result<()> {
/// for lease in Explain::new("mailer", orders, leases).leases().await? {
///     println!("lease {}: {}", lease.lease, lease.sentence);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Explain {
    processor: ProcessorRef,
    timing: LeaseTiming,
    observe: Duration,
    runtime: Option<Arc<dyn Runtime>>,
}

/// What is the matter with one lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The lease.
    pub lease: LeaseToken,
    /// The host that works on it, as far as its document says.
    pub owner: Option<String>,
    /// Which of the known situations it is in.
    pub cause: Cause,
    /// The same for people, with names and numbers.
    pub sentence: String,
    /// After how many attempts items of the batch that fails become dead letters; none if no batch fails, or if the host has
    /// no container for dead letters.
    pub dead_letter_after: Option<u32>,
}

impl Explain {
    /// Explains the processor `name`.
    pub fn new(name: &str, monitored: &Container, leases: &Container) -> Self {
        let timing = LeaseTiming::for_container(leases);
        Self { processor: ProcessorRef::new(name, monitored, leases), timing, observe: Duration::ZERO, runtime: None }
    }

    /// Sets the intervals that the hosts use. Default: as for a processor.
    #[must_use]
    pub fn lease_timing(mut self, timing: LeaseTiming) -> Self {
        self.timing = timing;
        self
    }

    /// Looks twice, this far apart: then signs of life and progress are what we saw ourselves. With one look, an
    /// owner is judged by comparing the time it wrote into the lease with this machine's clock: it counts as silent if it
    /// has not written for two thirds of the expiration interval that it promised, which is twice the longest renew
    /// interval. Default: one look.
    #[must_use]
    pub fn observe(mut self, interval: Duration) -> Self {
        self.observe = interval;
        self
    }

    /// Sets where time comes from: for simulations. Default: tokio and the operating system.
    #[doc(hidden)]
    #[must_use]
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.processor = self.processor.with_runtime(&runtime);
        self.runtime = Some(runtime);
        self
    }

    /// Returns one explanation per lease, by token.
    ///
    /// # Errors
    /// `ItemNotFound` if the processor was never started, and those of the stores.
    pub async fn leases(&self) -> Result<Vec<Explanation>> {
        let runtime = self.runtime.clone().unwrap_or_else(TokioRuntime::new);
        let before = match self.observe {
            Duration::ZERO => None,
            interval => {
                let listing = self.snapshot(&runtime).await?.listing;
                runtime.sleep(interval).await;
                Some(listing)
            }
        };
        let snapshot = self.snapshot(&runtime).await?;
        let (snapshot, now) = (&snapshot, runtime.wall());
        let one = |lease: &StoredLease| {
            let liveness = match snapshot.listing.dead.contains(&lease.document.token) {
                true => Liveness::Ended,
                false => self.liveness(lease, before.as_ref(), now),
            };
            let document = LeaseDocument::clone(&lease.document);
            let explained: BoxFuture<'_, Result<Explanation>> = Box::pin(self.explain(snapshot, document, liveness));
            explained
        };
        let explained = join_bounded(snapshot.listing.leases.iter().map(one).collect()).await;
        let mut explained = explained.into_iter().collect::<Result<Vec<_>>>()?;
        explained.extend(broken(snapshot));
        explained.extend(missing(snapshot));
        explained.sort_by(|a, b| a.lease.cmp(&b.lease));
        Ok(explained)
    }

    /// Everything that is stored about the processor. A lease store in this process tells which owners have ended.
    async fn snapshot(&self, runtime: &Arc<dyn Runtime>) -> Result<Snapshot> {
        self.processor.snapshot_seen_from(&**runtime).await?.with_own_positions()
    }

    /// What is known of the owner's signs of life.
    fn liveness(&self, lease: &StoredLease, before: Option<&Listing>, now: Timestamp) -> Liveness {
        let written = lease.document.written_at();
        let by_clock = written.map(|at| Duration::from_millis(now.as_millis().saturating_sub(at.as_millis())));
        match before.and_then(|listing| listing.find(&lease.document.token)) {
            Some(earlier) if earlier.etag != lease.etag => {
                let stored = earlier.document.continuation != lease.document.continuation;
                Liveness::Alive { without_progress: (!stored).then_some(self.observe) }
            }
            // Too short a watch to judge by alone: hosts write once in a renew interval, give or take.
            Some(_) if self.observe < self.timing.renew * 2 => Liveness::ByClock(by_clock),
            Some(_) => Liveness::Watched(self.observe),
            None => Liveness::ByClock(by_clock),
        }
    }

    async fn explain(&self, snapshot: &Snapshot, lease: LeaseDocument, liveness: Liveness) -> Result<Explanation> {
        let measured = match lease.is_gone() {
            true => Ok((Backlog::default(), false)),
            false => sum(snapshot, lease.mode.unwrap_or_default(), &snapshot.ranges_from(&lease)).await,
        };
        let (measured, unreadable) = match measured {
            Ok(measured) => (measured, None),
            // What is wrong with the feed for us is wrong for the host, too: that is an explanation.
            Err(error) if error.kind() != ErrorKind::ContainerNotFound => {
                ((Backlog::default(), false), Some((error.kind() == ErrorKind::Throttled, error.to_string())))
            }
            Err(error) => return Err(error),
        };
        let (backlog, expired) = measured;
        let status = lease.status();
        let dead_letter_after = match &status {
            Some(Status::Retrying { of, .. }) => *of,
            _ => None,
        };
        let is_failing =
            matches!(status, Some(Status::Retrying { .. } | Status::Outage { .. })) || lease.attempts().count > 0;
        let next = match is_failing && unreadable.is_none() {
            true => next_change(snapshot, &lease).await,
            false => None,
        };
        let evidence = Evidence {
            owner: lease.owner.as_deref(),
            gone: lease.is_gone(),
            paused: lease.is_paused(),
            split: snapshot.is_split(&lease),
            hand_over: lease.hand_over().map(|asked| asked.to),
            status,
            failures: lease.attempts().count,
            changes: backlog.changes,
            next,
            untouched: backlog.untouched,
            expired,
            unreadable,
            liveness,
            expiration: lease.expires_after(self.timing.expiration),
        };
        let (cause, sentence) = classify(&evidence);
        let (token, owner) = (lease.token.clone(), lease.owner.clone());
        // What the status says counts only if it is the cause.
        let dead_letter_after = dead_letter_after.filter(|_| cause == Cause::Retrying);
        Ok(Explanation { lease: token, owner, cause, sentence, dead_letter_after })
    }
}

/// Id and LSN of the first change after the checkpoint of a lease; none if it cannot be read, which is no reason to explain
/// nothing.
async fn next_change(snapshot: &Snapshot, lease: &LeaseDocument) -> Option<String> {
    for range_from in snapshot.ranges_from(lease) {
        let Some(start) = range_from.start else { continue };
        let request = ReadChanges::new(range_from.range, start).mode(lease.mode.unwrap_or_default()).max_items(1);
        let page = snapshot.monitored.read_changes(request).await.ok()?.into_value();
        if let Some(first) = page.changes.first() {
            return Some(format!("{} at lsn {}", first.id, first.lsn));
        }
    }
    None
}

fn broken(snapshot: &Snapshot) -> impl Iterator<Item = Explanation> {
    snapshot.listing.broken.iter().filter_map(|BrokenDocument { id, error, .. }| {
        let lease = snapshot.store.prefix().token_of(id)?;
        let sentence =
            format!("document {id} cannot be read: {error}; hosts create no missing lease as long as it is there");
        Some(Explanation { lease, owner: None, cause: Cause::Broken, sentence, dead_letter_after: None })
    })
}

fn missing(snapshot: &Snapshot) -> impl Iterator<Item = Explanation> {
    snapshot.missing().into_iter().map(|child| Explanation {
        lease: child.token,
        owner: None,
        cause: Cause::Missing,
        sentence: format!("keys {} have no lease: the next host to run makes one", child.range),
        dead_letter_after: None,
    })
}
