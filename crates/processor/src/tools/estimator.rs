//! The estimator: how far a processor is behind, seen from outside. Reads leases and feed, writes nothing.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Container, Error, ErrorKind, Lsn, ReadChanges, Result, StartFrom, Timestamp};
use serde::{Serialize, Serializer};
use tokio::sync::watch;

use super::snapshot::{Backlog, ProcessorRef, RangeFrom, Snapshot};
use crate::{
    join::join_bounded,
    lease::{document::LeaseDocument, listing::BrokenDocument, prefix::LeaseToken},
    metrics::lag::{LagGauges, LeaseSample},
    runtime::{BoxFuture, Runtime, TokioRuntime},
};

/// Tells how far the leases of a processor are behind. Works with and without running hosts. Cheap to clone.
///
/// *Changes* are changes of items that were not yet handled: versions that were overwritten before anybody read them
/// do not count in latest-version mode, and each item of a transaction does. *Behind* is the age of the oldest of
/// them: the time since it was written, by this machine's clock and the store's. Both are measured from the stored
/// checkpoint, so a batch that is being handled still counts.
///
/// ```
/// use changefeed::{Estimator, core::{Container, Result}};
///
/// # async fn example(orders: &Container, leases: &Container) -> Result<()> {
/// let lag = Estimator::new("mailer", orders, leases).lag().await?;
/// println!("{} changes, {:?} behind", lag.changes, lag.behind);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Estimator {
    processor: ProcessorRef,
    lease_metrics: bool,
    runtime: Option<Arc<dyn Runtime>>,
}

/// How far a processor is behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Lag {
    /// Each lease, by token; tombstones are left out.
    pub leases: Vec<LeaseLag>,
    /// The sum over all leases.
    pub changes: u64,
    /// Of all leases, the longest; zero if there is nothing to do.
    #[serde(rename = "behind_seconds", serialize_with = "seconds")]
    pub behind: Duration,
    /// Lease documents that cannot be read, with the reason: their part is missing above.
    pub broken: Vec<String>,
}

/// How far one lease is behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeaseLag {
    /// The lease.
    pub lease: LeaseToken,
    /// The host that works on it.
    pub owner: Option<String>,
    /// Changes after its checkpoint.
    pub changes: u64,
    /// Whether `changes` is a guess: the store cannot count, or the position is not known. At least 1 then, unless
    /// there is certainly nothing, or the document cannot be read.
    pub estimated: bool,
    /// Age of the oldest of these changes; zero if there are none, or it is not known.
    #[serde(rename = "behind_seconds", serialize_with = "seconds")]
    pub behind: Duration,
    /// What the lease is in.
    pub state: LeaseState,
    /// The LSN of its checkpoint: how fast it grows tells how fast the lease proceeds. None where a store has other
    /// positions, before the first checkpoint of a processor that does not begin at the beginning, and while ranges of
    /// the lease stand at different positions.
    pub checkpoint: Option<Lsn>,
}

/// What a lease is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LeaseState {
    /// A host has it; whether that host is alive shows only over time: see [`Explain`](crate::Explain).
    Owned,
    /// No host has it.
    Free,
    /// An operator wants no work on it.
    Paused,
    /// Its range was split or merged, and no host has replaced it yet.
    SplitPending,
    /// It has no document any more: the next host to run creates it again.
    Missing,
    /// Its checkpoint has left the retention of an all-versions feed: changes were lost to it.
    Expired,
    /// Its document cannot be read, and so its lag is not known: `changes` is 0. Hosts leave such a document alone, and create
    /// no missing lease as long as it is there: see [`Control::import`](crate::Control::import).
    Broken,
}

impl LeaseState {
    /// The state as one word with underscores, as metrics and JSON have it.
    fn label(self) -> &'static str {
        match self {
            Self::Owned => "owned",
            Self::Free => "free",
            Self::Paused => "paused",
            Self::SplitPending => "split_pending",
            Self::Missing => "missing",
            Self::Expired => "expired",
            Self::Broken => "broken",
        }
    }
}

impl Estimator {
    /// Creates an estimator for the processor `name`.
    pub fn new(name: &str, monitored: &Container, leases: &Container) -> Self {
        Self { processor: ProcessorRef::new(name, monitored, leases), lease_metrics: false, runtime: None }
    }

    /// Sets whether [`Estimator::watch`] records the lag of each lease as well, with the label `lease`. Default: off.
    #[must_use]
    pub fn lease_metrics(mut self, wanted: bool) -> Self {
        self.lease_metrics = wanted;
        self
    }

    /// Sets where time and tasks come from: for simulations. Default: tokio and the operating system.
    #[doc(hidden)]
    #[must_use]
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.processor = self.processor.with_runtime(&runtime);
        self.runtime = Some(runtime);
        self
    }

    /// Measures once.
    ///
    /// # Errors
    /// `ItemNotFound` if the processor was never started: that is not the same as being caught up. And those of the
    /// stores.
    pub async fn lag(&self) -> Result<Lag> {
        let runtime = self.runtime.clone().unwrap_or_else(TokioRuntime::new);
        measure(&self.processor, &*runtime).await
    }

    /// Measures now and then every `interval`, in a task of its own that ends when the result is dropped. A slow
    /// listener sees the newest measurement only. Each measurement is recorded as metrics, too: `lag_changes`,
    /// `lag_seconds` and `lag_leases`, all with the prefix `changefeed_processor_`.
    pub fn watch(&self, interval: Duration) -> LagWatch {
        let runtime = self.runtime.clone().unwrap_or_else(TokioRuntime::new);
        let (sender, receiver) = watch::channel(None);
        let processor = self.processor.clone();
        let name = format!("estimator[{}]", processor.name);
        let clock = Arc::clone(&runtime);
        let mut gauges = LagGauges::new(&processor.name, self.lease_metrics);
        let task = async move {
            loop {
                let lag = measure(&processor, &*clock).await.map_err(Arc::new);
                record(&mut gauges, &lag);
                sender.send_replace(Some(lag));
                let pause = clock.sleep(interval);
                tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    () = pause => {}
                }
            }
        };
        drop(runtime.spawn(&name, Box::pin(task)));
        LagWatch { receiver }
    }
}

type Measured = std::result::Result<Lag, Arc<Error>>;

/// Measurements as they come.
#[derive(Debug)]
pub struct LagWatch {
    receiver: watch::Receiver<Option<Measured>>,
}

impl LagWatch {
    /// Returns the next measurement, or the error that it met; after an error, measuring continues.
    ///
    /// # Errors
    /// Those of [`Estimator::lag`]; `Closed` if the runtime has ended.
    pub async fn next(&mut self) -> Result<Lag, Arc<Error>> {
        let ended = || Arc::new(Error::new(ErrorKind::Closed, "the runtime that measured has ended"));
        self.receiver.changed().await.map_err(|_| ended())?;
        self.receiver.borrow_and_update().clone().unwrap_or_else(|| Err(ended()))
    }
}

fn record(gauges: &mut LagGauges, measured: &Measured) {
    let Ok(lag) = measured else { return gauges.failed() };
    let samples = lag.leases.iter().map(|LeaseLag { lease, state, changes, behind, .. }| LeaseSample {
        lease,
        state: state.label(),
        changes: *changes,
        behind: *behind,
    });
    let samples: Vec<LeaseSample<'_>> = samples.collect();
    gauges.record(lag.changes, lag.behind, &samples);
}

async fn measure(processor: &ProcessorRef, runtime: &dyn Runtime) -> Result<Lag> {
    let snapshot = &processor.snapshot_of_positions().await?;
    let known = snapshot.leases().map(|lease| -> BoxFuture<'_, _> { Box::pin(of_lease(snapshot, &lease.document)) });
    let lost = snapshot.missing().into_iter().map(|child| -> BoxFuture<'_, _> {
        Box::pin(async move {
            let ranges_from = snapshot.beginnings(&child.range);
            let (backlog, _) = sum(snapshot, snapshot.mode(), &ranges_from).await?;
            let (owner, checkpoint) = (None, lsn(snapshot, &ranges_from));
            Ok(Measurement { lease: child.token, owner, backlog, state: LeaseState::Missing, checkpoint })
        })
    });
    let measured = join_bounded(known.chain(lost).collect()).await;
    let now = runtime.wall();
    let mut leases = Vec::with_capacity(measured.len());
    for one in measured {
        let Measurement { lease, owner, backlog, state, checkpoint } = one?;
        let Backlog { changes, estimated, oldest, .. } = backlog;
        leases.push(LeaseLag { lease, owner, changes, estimated, behind: age(oldest, now), state, checkpoint });
    }
    leases.extend(snapshot.listing.broken.iter().filter_map(|document| of_broken(snapshot, document)));
    leases.sort_by(|a, b| a.lease.cmp(&b.lease));
    let broken =
        snapshot.listing.broken.iter().map(|document| format!("{}: {}", document.id, document.error)).collect();
    Ok(Lag {
        changes: leases.iter().map(|lease| lease.changes).sum(),
        behind: leases.iter().map(|lease| lease.behind).max().unwrap_or_default(),
        leases,
        broken,
    })
}

/// One lease, before its lag is an age.
struct Measurement {
    lease: LeaseToken,
    owner: Option<String>,
    backlog: Backlog,
    state: LeaseState,
    checkpoint: Option<Lsn>,
}

async fn of_lease(snapshot: &Snapshot, lease: &LeaseDocument) -> Result<Measurement> {
    let ranges_from = snapshot.ranges_from(lease);
    let (backlog, expired) = sum(snapshot, lease.mode.unwrap_or_default(), &ranges_from).await?;
    let state = match () {
        () if expired => LeaseState::Expired,
        () if lease.is_paused() => LeaseState::Paused,
        () if snapshot.is_split(lease) => LeaseState::SplitPending,
        () if lease.owner.is_some() => LeaseState::Owned,
        () => LeaseState::Free,
    };
    let checkpoint = lsn(snapshot, &ranges_from);
    Ok(Measurement { lease: lease.token.clone(), owner: lease.owner.clone(), backlog, state, checkpoint })
}

/// A lease whose document cannot be read: nothing is known of it but its token.
fn of_broken(snapshot: &Snapshot, document: &BrokenDocument) -> Option<LeaseLag> {
    let lease = snapshot.store.prefix().token_of(&document.id)?;
    let state = LeaseState::Broken;
    Some(LeaseLag { lease, owner: None, changes: 0, estimated: true, behind: Duration::ZERO, state, checkpoint: None })
}

/// The LSN that all ranges are read from, if it is the same for all and known.
fn lsn(snapshot: &Snapshot, ranges_from: &[RangeFrom]) -> Option<Lsn> {
    let container = &snapshot.monitored.identity().container;
    let mut found = ranges_from.iter().map(|range_from| match &range_from.start {
        Some(StartFrom::Beginning) => Some(Lsn::ZERO),
        Some(StartFrom::Continuation(continuation)) => continuation.to_lsn(container).ok(),
        _ => None,
    });
    let first = found.next()??;
    found.all(|other| other == Some(first)).then_some(first)
}

/// The backlog of several ranges_from, and whether one of them cannot be read any more.
pub(crate) async fn sum(
    snapshot: &Snapshot,
    mode: changefeed_core::Mode,
    ranges_from: &[RangeFrom],
) -> Result<(Backlog, bool)> {
    let mut total = Backlog { untouched: true, ..Backlog::default() };
    let mut expired = false;
    for range_from in ranges_from {
        match snapshot.backlog(mode, range_from).await {
            Ok(backlog) => total.add(backlog),
            Err(error) if error.kind() == ErrorKind::ContinuationExpired => {
                expired = true;
                total.add(distance(snapshot, mode, range_from).await?);
            }
            Err(error) => return Err(error),
        }
    }
    Ok((total, expired))
}

/// For a position that cannot be read any more: how many transactions the container has had since.
async fn distance(snapshot: &Snapshot, mode: changefeed_core::Mode, range_from: &RangeFrom) -> Result<Backlog> {
    let now = ReadChanges::new(range_from.range.clone(), StartFrom::Now).mode(mode).max_items(1);
    let newest = snapshot.monitored.read_changes(now).await?.newest_lsn;
    let from = lsn(snapshot, std::slice::from_ref(range_from)).unwrap_or(Lsn::ZERO);
    let changes = newest.get().saturating_sub(from.get()).max(1);
    Ok(Backlog { changes, estimated: true, oldest: None, untouched: false })
}

fn age(oldest: Option<Timestamp>, now: Timestamp) -> Duration {
    oldest.map_or(Duration::ZERO, |oldest| Duration::from_millis(now.as_millis().saturating_sub(oldest.as_millis())))
}

/// A span as a number of seconds.
fn seconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}
