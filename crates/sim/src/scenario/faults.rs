//! Faults and operator commands of a scenario.

use serde::{Deserialize, Serialize};

/// A fault or command at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// When.
    pub at: u64,
    /// What happens.
    #[serde(rename = "what")]
    pub kind: FaultKind,
}

/// What happens. Times are in milliseconds; a pick is reduced to the number of candidates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum FaultKind {
    /// A host crashes, and is started again.
    Crash { host: usize, down: u64 },
    /// A host is stopped gracefully, and started again.
    Stop { host: usize, down: u64 },
    /// The tasks of a host do not run for a while.
    Stall { host: usize, length: u64 },
    /// A machine sleeps: its tasks do not run, and a clock that ignores sleep stands still.
    Suspend { host: usize, length: u64 },
    /// A second process with the instance name of a host runs for a while.
    #[serde(alias = "Twin")]
    DuplicateInstance { host: usize, length: u64 },
    /// The wall clock of a host jumps.
    Jump { host: usize, by: i64 },
    /// Requests to a store fail for a while; of one host or of all.
    #[serde(alias = "Trouble")]
    StoreFault { store: Store, host: Option<usize>, kind: StoreFault, length: u64 },
    /// A range is split.
    Split { pick: u64 },
    /// Two adjacent ranges are merged.
    Merge { pick: u64 },
    /// An operator deletes a lease document.
    DeleteLease { pick: u64 },
    /// An operator damages a lease document, and restores it later.
    DamageLease { pick: u64, damage: Damage, length: u64 },
    /// A second document for the token of a lease appears.
    DuplicateLease { pick: u64 },
    /// An operator deletes the lease container, and creates it again after `length`.
    RecreateLeases { length: u64 },
    /// A host drops its running processor without stopping it; the process lives on and keeps its contexts.
    Drop { host: usize, down: u64 },
    /// A host is restarted with a delegate whose type fits no item, and later with the right one.
    Mismatch { host: usize, length: u64 },
    /// All hosts are stopped and started one after the other.
    RollingDeploy { pause: u64 },
    /// Every delegate call fails for a while.
    DelegateOutage { length: u64 },
    /// An operator uses `Control`.
    Operator(OperatorCommand),
}

/// A command of an operator; the pick chooses one lease, none means all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum OperatorCommand {
    /// Pauses, and resumes after `length`.
    Pause { pick: Option<u64>, length: u64 },
    /// Moves leases to another position.
    Seek { pick: Option<u64>, to: SeekTarget },
    /// Deletes the state of the processor while hosts run.
    Reset,
}

/// The target of a seek; per mille of what was written so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeekTarget {
    /// The oldest change.
    Beginning,
    /// After the newest change.
    Now,
    /// A moment of the past.
    Time(u64),
    /// After a change of the past.
    Continuation(u64),
}

/// How a lease document is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Damage {
    /// It has no token.
    Unreadable,
    /// `properties` is empty.
    NoProperties,
    /// `FeedRange` is missing.
    NoFeedRange,
    /// The owner is a host that does not exist.
    UnknownOwner,
    /// Numbers of ours are not numbers.
    BadNumbers,
}

/// One of the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Store {
    /// The monitored container.
    Feed,
    /// The lease container.
    Leases,
    /// The dead-letter container.
    Letters,
}

/// How a store fails for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreFault {
    /// It refuses all requests.
    Unavailable,
    /// It throttles all requests.
    Throttled,
    /// It performs requests, but responses are lost.
    NoAnswers,
    /// Requests are lost, and time out.
    NoRequests,
    /// Requests take up to this long.
    Slow(u64),
    /// Requests are never answered, and do not time out.
    Hang,
    /// Deletes are forbidden.
    NoDeletes,
    /// Reads of the feed never return.
    HungReads,
    /// Reads of the feed take this long.
    SlowReads(u64),
}
