//! Planted bugs. With the feature `mutants` a simulation switches one on and must then find it; without, `planted!`
//! expands to nothing, or to the right value.

/// A bug that a processor could have and that no seam outside can express. Each is one line in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mutant {
    /// After a conflict only the owner's name is compared, not epoch and session.
    OwnerNameFence,
    /// A write with unknown outcome is taken as not performed.
    UnknownTakenAsNotWritten,
    /// The checkpoint is stored before the delegate ran.
    CheckpointBeforeDelegate,
    /// The checkpoint passes before the dead letter is stored.
    CheckpointBeforeDeadLetter,
    /// A manual checkpoint passes items that do not parse.
    CheckpointPassesUnparsed,
    /// Children of a split begin where the parent had read to.
    SplitFromReadPosition,
    /// The parent's lease is deleted before its children exist.
    ParentDeletedFirst,
    /// Children that a split created during a seek keep the old position.
    OutdatedChildrenKept,
    /// Old leases without a range whose range was split do not count.
    OldLeasesIgnored,
    /// A second document for one token is neither reported nor deleted.
    DuplicateDocumentKept,
    /// The mark of a tombstone stays in a lease that a .NET host has copied it into.
    CopiedMarkKept,
    /// A host that cannot renew goes on working.
    NoSelfFencing,
    /// Time in which a host could not read leases counts as silence of their owners.
    OutageCountedAsSilence,
    /// Progress that is not stored when the own deadline passes is dropped.
    ProgressDroppedAtDeadline,
    /// A lease is not renewed while a delegate call is running.
    CallNotRenewed,
    /// A read that lasts longer than a renewal is dropped.
    SlowReadDropped,
    /// A lease is granted without the progress that was made.
    GrantBeforeCheckpoint,
    /// A lease is stolen from an owner that is alive but does not answer a request.
    ImpatientSteal,
    /// A processor that starts from now does not store where that was.
    StartNotStored,
    /// Where leases begin that .NET hosts created is not stored: at now, whenever that is.
    DotNetStartNotStored,
    /// After a reset hosts begin where they last knew, not where the reset says that an operator has moved ranges since.
    ResetPositionsIgnored,
    /// Holes in the coverage are not repaired.
    HolesNotRepaired,
    /// Hosts do not use a lease container that was created again.
    ReplacementIgnored,
    /// A panic inside a store is not reported.
    PanicUnreported,
    /// Items that do not parse are dead-lettered without outage detection.
    UnparsedDeadLettered,
    /// Items that ask for a retry are delivered one by one.
    RetryOneByOne,
    /// Any number of delegate calls run at the same time.
    CallsUnlimited,
    /// A page is read however many bytes are in memory.
    BytesUnlimited,
    /// Feed reads do not wait for request units.
    RequestUnitsUnlimited,
}

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Switches a bug on for everything that runs on this thread; `None`: all off.
    pub fn plant(mutant: Option<Mutant>) {
        ACTIVE.set(mutant);
    }

    pub(crate) fn is(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant)
    }
}

#[cfg(feature = "mutants")]
pub(crate) use switch::is;
#[cfg(feature = "mutants")]
pub use switch::plant;

/// `planted!(Bug => statement)` runs the statement if the bug is switched on; `planted!(Bug => wrong; right)` is the
/// wrong value then, the right one otherwise.
#[macro_export]
#[doc(hidden)]
macro_rules! planted {
    ($mutant:ident => $wrong:expr; $right:expr) => {{
        #[cfg(feature = "mutants")]
        {
            if $crate::mutant::is($crate::mutant::Mutant::$mutant) { $wrong } else { $right }
        }
        #[cfg(not(feature = "mutants"))]
        {
            $right
        }
    }};
    ($mutant:ident => $bug:expr) => {
        #[cfg(feature = "mutants")]
        if $crate::mutant::is($crate::mutant::Mutant::$mutant) {
            $bug;
        }
    };
}
