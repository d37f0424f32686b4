//! Reachability: what a long run must have met at least once. Silence proves little if nothing ever happened.

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
    /// A lease changed hands because its owner was silent.
    ExpiryTakeover => "takeover after expiry",
    /// The owner gave a lease to the host that asked.
    Granted => "hand-over granted",
    /// The owner did not answer, and the lease was taken.
    Forced => "hand-over forced",
    /// A lease of a gone range changed hands before its successors were complete.
    TakeoverDuringSplit => "takeover during a split or merge",
    /// Two processes created successors of one lease.
    TwoSplitters => "two hosts split the same parent",
    /// A write was committed after the process that sent it had died.
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
    /// A host gave leases up by itself.
    SelfFenced => "a host fenced itself",
    /// A delegate's call was cut into pieces.
    Bisected => "batch cut to find the guilty item",
    /// An item was delivered alone, and was named in the lease before.
    Careful => "careful delivery",
    /// An item became a dead letter.
    DeadLetter => "dead letter",
    /// The dead-letter store was down when it was needed.
    DeadLetterDown => "dead-letter store down",
    /// An item that kills processes became a dead letter.
    KillerBuried => "item that kills processes isolated",
    /// Two processes had the same name.
    Twin => "twin hosts",
    /// A lease document was deleted by somebody else.
    DocumentDeleted => "lease document deleted by an operator",
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
    /// A new host found the lock of a dead one.
    BootstrapRace => "hosts bootstrapped at once",
}

/// How often each was met.
#[derive(Clone, Debug, Default)]
pub struct Reach(BTreeMap<Sometimes, u64>);

impl Reach {
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
