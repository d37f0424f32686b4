//! Coverage: what a campaign must have met at least once. Passing proves little if nothing happened.

use std::{collections::BTreeMap, fmt};

macro_rules! sometimes {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// Something that should happen in some run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Sometimes { $($(#[$doc])* $name,)* }

        impl Sometimes {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }

        impl fmt::Display for Sometimes {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)* })
            }
        }
    };
}

sometimes! {
    /// A lease was taken over because its owner was silent.
    ExpiryTakeover => "takeover after expiry",
    /// The owner granted a lease to the host that requested it.
    Granted => "hand-over granted",
    /// The owner did not answer a request, and the lease was stolen.
    Forced => "hand-over forced",
    /// A lease of a gone range changed owners before its successors were complete.
    TakeoverDuringSplit => "takeover during a split or merge",
    /// Two processes created successors of one lease.
    TwoSplitters => "two hosts split the same parent",
    /// A write was committed after the process that sent it had crashed.
    LateCommit => "late commit from a dead host",
    /// A conflicting write was refused, and the lease was still the writer's own.
    ConflictStillMine => "412 then still mine",
    /// A write was done and its answer lost.
    LostResponse => "response lost after the commit",
    /// A write timed out and was not done.
    LostRequest => "request lost",
    /// A request was refused because there were too many.
    Throttled => "throttled",
    /// A store could not be reached.
    Unavailable => "store unavailable",
    /// A request was never answered.
    Hung => "request without an answer",
    /// The store refused a delete.
    DeleteForbidden => "delete forbidden",
    /// A lease was left as a tombstone.
    Tombstone => "tombstone left",
    /// A delegate was called in the name of a lease that had been taken abruptly.
    AbruptZombie => "zombie after an abrupt takeover",
    /// A host gave up leases that it could not renew.
    SelfFenced => "a host fenced itself",
    /// A batch was cut to find the item that fails.
    Bisected => "batch bisected",
    /// An item was delivered alone, and was named in the lease before.
    Isolated => "item delivered alone after a crash",
    /// An item became a dead letter.
    DeadLetter => "dead letter",
    /// The dead-letter store was down when it was needed.
    DeadLetterDown => "dead-letter store down",
    /// An item that crashes processes became a dead letter.
    KillerIsolated => "item that crashes processes dead-lettered",
    /// Two processes had the same name.
    DuplicateInstance => "two processes with one instance name",
    /// An operator deleted a lease document.
    DocumentDeleted => "lease document deleted by an operator",
    /// An operator deleted the lease container and created it again.
    LeasesRecreated => "lease container created again",
    /// A hole was found and filled.
    Repaired => "hole repaired",
    /// A change was handled twice.
    Duplicate => "change handled twice",
    /// A host stopped while it had a call under way.
    StopDuringCall => "stop during a delegate call",
    /// A host stopped while the store refused.
    StopDuringOutage => "stop during an outage",
    /// A range was split.
    Split => "range split",
    /// Ranges were merged.
    Merge => "ranges merged",
    /// A delegate panicked.
    Panicked => "delegate panicked",
    /// A delegate did not return in time.
    TimedOut => "delegate timed out",
    /// Several hosts created the first leases at once.
    BootstrapRace => "hosts bootstrapped at once",
    /// A delegate of typed changes was called.
    TypedCall => "typed delegate called",
    /// A batch had an item that does not parse.
    Unparsable => "item that does not parse written",
    /// The delegate checkpointed before the end of its call.
    EarlyCheckpoint => "manual checkpoint before the end of the call",
    /// The delegate checkpointed after the end of its call.
    LateCheckpoint => "manual checkpoint after the end of the call",
    /// A manual checkpoint was refused.
    RefusedCheckpoint => "manual checkpoint refused",
    /// A call took longer than the expiration.
    LongCall => "call longer than the expiration",
    /// A call saw `cancelled`.
    Cancelled => "call cancelled and ended early",
    /// A host was dropped without a stop while contexts were alive.
    Dropped => "host dropped with contexts alive",
    /// An operator paused a lease.
    Paused => "lease paused",
    /// Every delegate call failed for a while.
    DelegateOutage => "outage of what the delegate needs",
    /// A lease was paused while its batch was failing.
    PausedWhileFailing => "lease paused during such an outage",
    /// An operator resumed a lease.
    Resumed => "lease resumed",
    /// An operator moved a lease.
    Sought => "lease moved by a seek",
    /// An operator moved a lease while its successors were being created.
    SoughtDuringSplit => "seek during a split or merge",
    /// An operator reset the processor.
    Reset => "processor reset",
    /// An operator's command failed.
    CommandFailed => "operator command failed",
    /// A read of the feed took long.
    SlowRead => "slow feed read",
    /// A read of the feed never returned.
    HungRead => "feed read without an answer",
    /// A store panicked.
    StorePanicked => "store panicked",
    /// .NET hosts had created the leases.
    DotNetBootstrap => "leases created by .NET hosts",
    /// A .NET host worked on a lease without a continuation that .NET hosts had created.
    DotNetStart => "lease without a continuation acquired by a .NET host",
    /// A .NET host acquired a lease.
    DotNetTake => "lease acquired by a .NET host",
    /// A .NET host tried to write a lease under an etag that was outdated.
    DotNetStale => "lease written by a .NET host under an old etag",
    /// A .NET host replaced the lease of a range that was gone.
    DotNetSplit => "range split or merged by a .NET host",
    /// A .NET host acquired the tombstone of a lease.
    DotNetTombstone => "tombstone acquired by a .NET host",
    /// A .NET host copied the mark of a tombstone into a lease.
    DotNetMark => "mark of a tombstone copied by a .NET host",
    /// A neighbour handled changes.
    NeighbourHandled => "changes handled by a neighbour",
    /// A host of ours took a lease from a .NET host that was alive.
    StolenFromDotNet => "lease stolen from a .NET host to balance",
    /// A host of the version before acquired a lease.
    PreviousTake => "lease acquired by a host of the version before",
    /// Hosts found leases without ranges.
    Legacy => "old leases without ranges",
    /// Ranges of old leases were split or merged while no host ran.
    LegacyReshaped => "old leases reshaped while no host ran",
    /// All hosts were restarted one after the other.
    RollingDeploy => "rolling deployment",
    /// A machine slept.
    Suspended => "machine suspended",
    /// A second document for a token appeared.
    DuplicateDocument => "two documents for one token",
    /// A lease document was damaged.
    DamagedDocument => "lease document damaged",
    /// A host ran with a type that fits no item.
    Mismatched => "deployment whose type fits nothing",
    /// A delegate asked for a whole batch again.
    RetriedAll => "whole batch to be retried",
}

/// How often each was met.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<Sometimes, u64>);

impl Coverage {
    /// Notes one.
    pub fn note(&mut self, what: Sometimes) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(*what).or_default() += count;
        }
    }

    /// How often.
    pub fn count(&self, what: Sometimes) -> u64 {
        self.0.get(&what).copied().unwrap_or_default()
    }

    /// Those that were never met.
    pub fn missing(&self) -> impl Iterator<Item = Sometimes> {
        Sometimes::ALL.iter().copied().filter(|what| self.count(*what) == 0)
    }
}
