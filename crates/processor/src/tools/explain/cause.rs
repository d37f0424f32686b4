//! The situations that a lease can be in.

use serde::Serialize;

/// The situations a lease can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// The container has never had a change.
    NoData,
    /// Everything was handled. A host waits for changes, or no host owns it.
    CaughtUp,
    /// There is work, and an owner who does it as far as is known.
    Working,
    /// There is work and a living owner, but no progress was stored while we watched.
    DelegateRunning,
    /// A delegate call runs for longer than the host's [`slow_after`](crate::ProcessorBuilder::slow_after).
    SlowDelegate,
    /// The delegate keeps failing.
    Retrying,
    /// All items fail one after the other: they are retried, and none becomes a dead letter.
    Outage,
    /// The store asks us to slow down.
    Throttled,
    /// The feed cannot be read.
    FeedFailing,
    /// The dead-letter container cannot be written.
    DeadLetterFailing,
    /// The checkpoint has left the retention of an all-versions feed.
    Expired,
    /// There is work, and no host owns it.
    Unowned,
    /// Its owner gives no sign of life.
    OwnerSilent,
    /// Another host asked for it.
    HandOver,
    /// Its range was split or merged, and its successors are not there yet. With changes waiting and no owner it is
    /// [`Unowned`](Self::Unowned).
    SplitPending,
    /// An operator paused it.
    Paused,
    /// Left over from a split or merge.
    Tombstone,
    /// Its document cannot be read.
    Broken,
    /// It has no document.
    Missing,
}
