//! What happens to a lease, and what its task is to do about it.

use std::time::Duration;

use changefeed_core::{Continuation, Error, StartFrom};

use super::{
    interrupts::Activity, loss::Loss, prefix::LeaseToken, signals::Progress, update::LeaseUpdate, writes::Waiter,
};
use crate::{
    delegate::{DelegateError, Returned},
    delivery::{Call, outage::FailedItem},
    notification::{Notification, Release},
};

/// The circumstances of an event.
#[derive(Clone, Copy)]
pub(crate) struct Moment<'a> {
    /// The time on this host's monotonic clock.
    pub(crate) now: Duration,
    /// A random number.
    pub(crate) random: u64,
    /// Names the item with this index in the first page in memory.
    pub(crate) name: &'a dyn Fn(usize) -> Option<String>,
}

/// Something happened to a lease.
#[derive(Debug)]
pub(crate) enum Event {
    /// The host stops.
    Stop,
    /// The stop deadline has passed.
    Abort,
    /// Somebody wrote into the lease document.
    Refresh,
    /// The lease overlaps another.
    CheckRange,
    /// Another document with the same token counts.
    Superseded,
    /// The user stores progress.
    Checkpoint(Progress, Waiter),
    /// A page was read.
    Read(Page),
    /// There may be changes.
    Changed,
    /// The delegate call has ended.
    Called(CallEnd),
    /// The write to the lease has ended.
    Wrote(Written),
    /// The write to the dead-letter container has ended.
    DeadLettered(Result<(), Error>),
    /// It is this lease's turn to deliver in isolation.
    TurnTaken,
    /// The host permits a call.
    CallPermitted,
    /// The ranges and leases were read that a split needs to know.
    SplitReady(Result<(), Error>),
    /// The replacement of the lease has ended.
    Replaced(Replacement),
    /// A moment that [`LeaseState::wake_at`](super::state::LeaseState::wake_at) named has come.
    Tick,
}

/// What a read returned.
#[derive(Debug)]
pub(crate) enum Page {
    /// Changes; `last` if the store says that there were no others when it was read.
    Changes { count: usize, continuation: Continuation, last: bool },
    /// Nothing new.
    Empty(Continuation),
    /// The range was split or merged.
    Gone,
    /// It failed.
    Failed(Error),
}

/// How a delegate call ended.
#[derive(Debug)]
pub(crate) enum CallEnd {
    /// It returned, failed or panicked.
    Returned(Result<Returned, DelegateError>),
    /// It was dropped.
    Dropped,
}

/// How a write to the lease ended.
#[derive(Debug)]
pub(crate) enum Written {
    /// It succeeded, and the lease is still owned.
    Owned(Facts),
    /// It succeeded and ended the ownership: the instance that the lease was granted to, if any.
    Transferred(Option<String>),
    /// The lease is not owned any more.
    Lost(Loss),
    /// The store failed.
    Failed(LeaseUpdate, Error),
}

/// What others wrote into the lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The instance that asks for it.
    pub(crate) requested_by: Option<String>,
    /// Whether an operator paused it.
    pub(crate) paused: bool,
    /// When the last successful write was begun: it may have been repeated after a conflict.
    pub(crate) confirmed: Duration,
}

/// How the replacement of a lease ended.
#[derive(Debug)]
pub(crate) enum Replacement {
    /// These leases took its place.
    Done(Vec<LeaseToken>),
    /// It stays: its range lies within one physical range after all.
    Stays(Facts),
    /// The host stops: others do the rest.
    Interrupted(Facts),
    /// The lease was lost on the way; its new owner does the rest.
    Lost(Loss),
    /// The store failed before anything was stored; to be repeated.
    Failed(LeaseUpdate, Error),
    /// The update is stored, then the store failed; the rest is to be repeated.
    Incomplete(Facts, Error),
}

/// What the task of a lease is to do.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Read a page; append it to the pages in memory. `likely_last`: everything before it was delivered, so that it likely
    /// has all that there is.
    Read { from: StartFrom, max_items: usize, likely_last: bool },
    /// Drop the read under way, and all pages in memory.
    DropPages,
    /// Drop the first page in memory.
    DropPage,
    /// Wait for changes after this position.
    Wait(Continuation),
    /// End the wait.
    StopWaiting,
    /// Call the delegate with items of the first page.
    Call { call: Call, progress: Option<Progress>, whole: bool },
    /// Let `Context::cancelled` fire.
    CancelCall,
    /// Drop the call.
    DropCall,
    /// Write the lease.
    Write(LeaseUpdate),
    /// Write an item of the first page to the dead-letter container.
    DeadLetter(FailedItem),
    /// Drop that write.
    DropDeadLetter,
    /// Wait for this lease's turn to deliver in isolation.
    TakeTurn,
    /// Let others have their turn.
    EndTurn,
    /// Wait until the host permits a call.
    AwaitPermit,
    /// Give up the permit, or the wait for it.
    DropPermit,
    /// Read ranges and leases for a split.
    PrepareSplit,
    /// Drop that.
    DropSplit,
    /// Store the update, create the successors, delete the lease.
    Replace(LeaseUpdate),
    /// Answer those who wait for a checkpoint.
    Reply(Vec<Waiter>, Result<(), Loss>),
    /// Tell the user.
    Notify(Notification),
    /// Tell what the stop deadline has interrupted.
    Interrupted(Activity),
    /// The work on the lease is over.
    End(Release),
}
