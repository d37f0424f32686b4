//! Which write to the lease is due, and what it says. Pure.
//!
//! There is one write at a time. Progress of a busy lease is stored at most every 20 ms, or less often if the user says
//! so; an idle lease is written once in
//! a renew interval; a checkpoint is a renewal.

use std::time::Duration;

use super::{
    document::{Search, Status},
    signals::Progress,
    timing::LeaseTiming,
    update::{LeaseUpdate, Transfer},
};
use crate::backoff::Backoff;

/// Between two checkpoints that nobody waits for, at least: a store in the same process would otherwise store thousands in a second,
/// each with a sync, to save some milliseconds of work after a crash.
const SPACING: Duration = Duration::from_millis(20);

/// Identifies somebody who waits for a checkpoint.
pub(crate) type Waiter = u64;

/// What is to be written to a lease.
#[derive(Debug)]
pub(crate) struct Writes {
    timing: LeaseTiming,
    /// Between two checkpoints that nobody waits for.
    spacing: Duration,
    /// When the last successful write was begun.
    confirmed: Duration,
    in_flight: Option<InFlight>,
    /// The newest page whose progress is stored.
    stored: u64,
    /// The newest page that had changes and whose progress is to be stored.
    handled: u64,
    /// The checkpoint in the lease.
    continuation: Option<String>,
    progress: Option<Progress>,
    attempts: Option<u32>,
    search: Option<Option<Search>>,
    /// The position of the search, and the page that it lies in.
    mark: Option<(u64, Search)>,
    status: Option<Status>,
    urgency: Urgency,
    /// Whether others have written into the lease since the last read or write.
    outdated: bool,
    transfer: Option<Transfer>,
    waiters: Vec<(u64, Waiter)>,
    failures: u32,
    retry_at: Duration,
    /// Whether the lease is kept; `false` once its owner gives it up silently.
    renewing: bool,
}

#[derive(Debug)]
struct InFlight {
    begun: Duration,
    progress: Option<Progress>,
}

/// When pending changes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// With the next renewal.
    Deferred,
    /// When the interval of automatic checkpoints is over.
    Interval,
    /// Within the shortest spacing of checkpoints.
    Soon,
    /// At once.
    Now,
}

impl Writes {
    /// The lease was acquired by a write that was begun at `confirmed`.
    pub(crate) fn new(
        timing: LeaseTiming,
        interval: Duration,
        confirmed: Duration,
        continuation: Option<String>,
    ) -> Self {
        Self {
            timing,
            spacing: interval.max(SPACING),
            confirmed,
            in_flight: None,
            stored: 0,
            handled: 0,
            continuation,
            progress: None,
            attempts: None,
            search: None,
            mark: None,
            status: None,
            urgency: Urgency::Deferred,
            outdated: false,
            transfer: None,
            waiters: Vec::new(),
            failures: 0,
            retry_at: Duration::ZERO,
            renewing: true,
        }
    }

    /// Until when work may begin: the one computation of the deadline.
    pub(crate) fn deadline(&self) -> Duration {
        self.confirmed + self.timing.fence()
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether the progress of this page and all before it is stored.
    pub(crate) fn is_stored(&self, page: u64) -> bool {
        self.stored >= page
    }

    /// Whether changes would be delivered again if the lease were lost now: their progress is to be stored, and is not.
    pub(crate) fn has_unsaved_progress(&self) -> bool {
        self.handled > self.stored
    }

    /// The checkpoint in the lease.
    pub(crate) fn continuation(&self) -> Option<&str> {
        self.continuation.as_deref()
    }

    /// Stores progress soon; several calls may become one write.
    pub(crate) fn checkpoint_soon(&mut self, progress: Progress) {
        self.note(progress, Urgency::Interval);
    }

    /// Stores progress at once.
    pub(crate) fn checkpoint_now(&mut self, progress: Progress) {
        self.note(progress, Urgency::Now);
    }

    /// Stores progress with the next write: for empty pages.
    pub(crate) fn defer_checkpoint(&mut self, progress: Progress) {
        self.note(progress, Urgency::Deferred);
    }

    /// The user stores progress and waits for it. Returns `true` if it is stored already.
    pub(crate) fn checkpoint_for(&mut self, progress: Progress, waiter: Waiter) -> bool {
        if self.is_stored(progress.page) {
            return true;
        }
        self.waiters.push((progress.page, waiter));
        self.note(progress, Urgency::Now);
        false
    }

    fn note(&mut self, progress: Progress, urgency: Urgency) {
        if self.progress.as_ref().is_none_or(|noted| noted.page < progress.page) && !self.is_stored(progress.page) {
            let page = progress.page;
            if urgency > Urgency::Deferred {
                self.handled = page;
            }
            self.progress = Some(progress);
            // They belong to the batch that this passes, unless the user stores progress late.
            self.attempts = None;
            self.mark.take_if(|(marked, _)| *marked <= page);
            self.search = self.mark.clone().map(|(_, search)| Some(search));
            self.urgency = self.urgency.max(urgency);
        }
    }

    /// Stores how often the batch after the checkpoint has failed.
    pub(crate) fn set_attempts(&mut self, count: u32) {
        self.attempts = Some(count);
        self.urgency = self.urgency.max(Urgency::Soon);
    }

    /// Stores the position of the search for poison items in a page: at once if the next call waits for it.
    pub(crate) fn set_search(&mut self, search: Option<Search>, page: u64, now: bool) {
        self.mark = search.clone().map(|search| (page, search));
        self.search = Some(search);
        self.urgency = self.urgency.max(if now { Urgency::Now } else { Urgency::Soon });
    }

    /// Whether a position of the search waits to be stored.
    pub(crate) fn has_search(&self) -> bool {
        self.search.is_some()
    }

    /// Stores what the owner is doing, with the next write.
    pub(crate) fn set_status(&mut self, status: Option<Status>) {
        self.status = status;
    }

    /// Reads and writes the lease at once: others have written into it.
    pub(crate) fn refresh(&mut self) {
        self.urgency = Urgency::Now;
        self.outdated = true;
    }

    /// Writes the lease at once, even if the last attempt has just failed.
    pub(crate) fn retry_now(&mut self) {
        self.urgency = Urgency::Now;
        self.retry_at = Duration::ZERO;
    }

    /// Ends the ownership with the next write, at once.
    pub(crate) fn transfer(&mut self, transfer: Transfer) {
        self.transfer = Some(transfer);
        self.urgency = Urgency::Now;
    }

    /// Ends all writes, or begins them again.
    pub(crate) fn set_renewing(&mut self, renewing: bool) {
        self.renewing = renewing;
    }

    /// When the next write is due; `None` while one is in flight or the lease is given up.
    pub(crate) fn due_at(&self) -> Option<Duration> {
        if self.in_flight.is_some() || !self.renewing {
            return None;
        }
        let at = match self.urgency {
            Urgency::Now => Duration::ZERO,
            Urgency::Soon => self.confirmed + SPACING,
            Urgency::Interval => self.confirmed + self.spacing.min(self.timing.renew),
            Urgency::Deferred => self.confirmed + self.timing.renew,
        };
        Some(at.max(self.retry_at))
    }

    /// Begins a write: returns what it says.
    pub(crate) fn begin(&mut self, now: Duration) -> LeaseUpdate {
        self.in_flight = Some(InFlight { begun: now, progress: self.progress.clone() });
        self.urgency = Urgency::Deferred;
        crate::planted!(GrantBeforeCheckpoint => self.progress.take_if(|_| self.transfer == Some(Transfer::Grant)));
        LeaseUpdate {
            progress: self.progress.clone(),
            attempts: self.attempts.take(),
            search: self.search.take(),
            status: self.status.clone(),
            transfer: self.transfer.take(),
            range: None,
            read_first: std::mem::take(&mut self.outdated),
        }
    }

    /// The write in flight succeeded; the request that did was begun at `confirmed`. Returns those who waited for it.
    pub(crate) fn succeeded(&mut self, confirmed: Duration) -> Vec<Waiter> {
        let Some(sent) = self.in_flight.take() else { return Vec::new() };
        self.confirmed = sent.begun.max(confirmed);
        (self.failures, self.retry_at) = (0, Duration::ZERO);
        if let Some(sent) = sent.progress {
            self.stored = sent.page;
            self.progress.take_if(|progress| progress.page <= sent.page);
            self.continuation = Some(sent.continuation);
        }
        let stored = self.stored;
        self.waiters.extract_if(.., |(page, _)| *page <= stored).map(|(_, waiter)| waiter).collect()
    }

    /// The write in flight failed and is repeated after a pause, with what it said.
    pub(crate) fn failed(&mut self, update: &LeaseUpdate, now: Duration, random: u64) {
        self.in_flight = None;
        self.failures = self.failures.saturating_add(1);
        let pause = Backoff { first: self.timing.renew / 16, longest: self.timing.renew / 2 };
        self.retry_at = now + pause.after(self.failures, random);
        self.urgency = Urgency::Now;
        self.transfer = self.transfer.or(update.transfer);
        if self.progress == update.progress {
            self.attempts = self.attempts.or(update.attempts);
            self.search = self.search.take().or_else(|| update.search.clone());
        }
    }

    /// Writes nothing before this moment, unless the lease would expire: the store asks for a pause.
    pub(crate) fn not_before(&mut self, moment: Duration) {
        self.retry_at = self.retry_at.max(moment.min(self.deadline()));
    }

    /// Nobody owes an answer any more: returns all who wait.
    pub(crate) fn abandon(&mut self) -> Vec<Waiter> {
        self.renewing = false;
        self.waiters.drain(..).map(|(_, waiter)| waiter).collect()
    }
}
