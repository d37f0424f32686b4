//! Metrics of a host, through the `metrics` facade: a program exports them with the recorder that it installs. Recorded for
//! pages, calls and requests, never for single changes; without a recorder each of them is a no-op.
//!
//! `docs/metrics.md` lists all names; a test compares it with what a host exports.

pub(crate) mod health;
pub(crate) mod labels;
pub(crate) mod lag;
pub(crate) mod names;
pub(crate) mod requests;

use std::{sync::Arc, time::Duration};

use ::metrics::{Counter, Histogram, counter, histogram};
use changefeed_core::Timestamp;

use self::{
    labels::{Values, labels, lease_labels},
    requests::{RequestMetrics, StoreRole},
};
use crate::{
    lease::prefix::LeaseToken,
    notification::{Failure, Notification, Release},
};

/// How a delegate call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallResult {
    Ok,
    Failed,
    /// It was dropped: by its timeout, or because the lease was lost or the host stops.
    Cancelled,
}

/// The metrics of one host. Those of several hosts of one processor in one process add up.
pub(crate) struct HostMetrics {
    processor: Arc<str>,
    /// Whether each lease has series of its own.
    by_lease: bool,
    changes: Counter,
    batch_changes: Histogram,
    ingest: Histogram,
    delivery: Histogram,
    delegate: Histogram,
    calls: Values<3>,
    retries: Counter,
    checkpoints: Counter,
    dead_letters: Counter,
    splits: Counter,
    repaired: Counter,
    moves: Values<7>,
    errors: Values<7>,
}

impl HostMetrics {
    /// The metrics of a host of `processor`. The recorder must be installed before.
    pub(crate) fn new(processor: &Arc<str>, by_lease: bool) -> Self {
        names::describe();
        let (count, measure) = (|name| counter!(name, labels(processor)), |name| histogram!(name, labels(processor)));
        Self {
            changes: count(names::CHANGES),
            batch_changes: measure(names::BATCH_CHANGES),
            ingest: measure(names::INGEST),
            delivery: measure(names::DELIVERY),
            delegate: measure(names::DELEGATE),
            calls: Values::new(names::CALLS, processor, "result", ["ok", "failed", "cancelled"]),
            retries: count(names::RETRIES),
            checkpoints: count(names::CHECKPOINTS),
            dead_letters: count(names::DEAD_LETTERS),
            splits: count(names::SPLITS),
            repaired: count(names::REPAIRED),
            moves: Values::new(
                names::LEASE_MOVES,
                processor,
                "move",
                ["acquired", "stolen", "released", "paused", "handed_over", "range_gone", "lost"],
            ),
            errors: Values::new(
                names::ERRORS,
                processor,
                "source",
                ["delegate", "feed", "lease", "dead_letter", "balancer", "split", "panic"],
            ),
            processor: Arc::clone(processor),
            by_lease,
        }
    }

    /// The metrics of requests to one of the host's containers.
    pub(crate) fn requests(&self, role: StoreRole) -> RequestMetrics {
        RequestMetrics::new(&self.processor, role)
    }

    /// The series of one lease; `None` unless they are wanted.
    pub(crate) fn of_lease(&self, lease: &LeaseToken) -> Option<LeaseMetrics> {
        self.by_lease.then(|| LeaseMetrics::new(&self.processor, lease))
    }

    /// Counts what the notification says.
    pub(crate) fn notified(&self, notification: &Notification) {
        match notification {
            Notification::LeaseAcquired(_) => self.moves.count("acquired"),
            Notification::Stolen { .. } => self.moves.count("stolen"),
            Notification::LeaseReleased(_, release) => self.moves.count(move_of(release)),
            Notification::Error(report) => self.errors.count(source_of(&report.failure)),
            Notification::DeadLettered { .. } => self.dead_letters.increment(1),
            Notification::Split { .. } => self.splits.increment(1),
            Notification::Repaired(leases) => self.repaired.increment(leases.len() as u64),
            _ => {}
        }
    }

    /// A page was read whose oldest change was committed at `oldest`.
    pub(crate) fn page_read(&self, oldest: Timestamp, now: Timestamp) {
        self.ingest.record(since(oldest, now));
    }

    /// A delegate call begins.
    pub(crate) fn call_begins(&self, changes: usize, attempt: u32) {
        self.batch_changes.record(f64::from(u32::try_from(changes).unwrap_or(u32::MAX)));
        if attempt > 1 {
            self.retries.increment(1);
        }
    }

    /// A delegate call has ended.
    pub(crate) fn call_ended(&self, result: CallResult, took: Duration) {
        self.delegate.record(took.as_secs_f64());
        self.calls.count(match result {
            CallResult::Ok => "ok",
            CallResult::Failed => "failed",
            CallResult::Cancelled => "cancelled",
        });
    }

    /// Everything of a page was handled, skipped or dead-lettered.
    pub(crate) fn page_done(&self, changes: usize, oldest: Timestamp, now: Timestamp) {
        self.changes.increment(changes as u64);
        self.delivery.record(since(oldest, now));
    }

    /// Progress was stored.
    pub(crate) fn checkpointed(&self) {
        self.checkpoints.increment(1);
    }
}

/// The series of one lease.
pub(crate) struct LeaseMetrics {
    pub(crate) changes: Counter,
    pub(crate) failures: Counter,
}

impl LeaseMetrics {
    fn new(processor: &str, lease: &LeaseToken) -> Self {
        let of = |name| counter!(name, lease_labels(processor, lease));
        Self { changes: of(names::LEASE_CHANGES), failures: of(names::LEASE_FAILURES) }
    }
}

fn move_of(release: &Release) -> &'static str {
    match release {
        Release::Stopped => "released",
        Release::Paused => "paused",
        Release::HandedOver(_) => "handed_over",
        Release::RangeGone => "range_gone",
        Release::Lost(_) => "lost",
    }
}

fn source_of(failure: &Failure) -> &'static str {
    match failure {
        Failure::Delegate(_) => "delegate",
        Failure::Feed(_) => "feed",
        Failure::Lease(_) => "lease",
        Failure::DeadLetter(_) => "dead_letter",
        Failure::Balancer(_) => "balancer",
        Failure::Split(_) => "split",
        Failure::Panic(_) => "panic",
    }
}

/// Seconds since a moment; zero if clocks disagree.
fn since(then: Timestamp, now: Timestamp) -> f64 {
    Duration::from_millis(now.as_millis().saturating_sub(then.as_millis())).as_secs_f64()
}
