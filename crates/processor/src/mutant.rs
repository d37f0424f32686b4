//! Planted bugs. With the feature `mutants`, a simulation can switch one on and must then find it; without, every
//! question here is answered no at compile time.

/// A bug that a processor could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mutant {
    /// Leases are written without If-Match.
    CheckpointWithoutIfMatch,
    /// After a conflict only the owner's name is compared, not epoch and session.
    OwnerNameFence,
    /// The checkpoint is stored before the delegate ran.
    CheckpointBeforeDelegate,
    /// Children of a split begin where the parent had read to.
    SplitFromReadPosition,
    /// The parent's lease is deleted before its children exist.
    ParentDeletedFirst,
    /// Expiry is judged by comparing the timestamp in the lease with the own wall clock.
    ExpiryByWallClock,
    /// A host that cannot renew goes on working.
    NoSelfFencing,
    /// A write with unknown outcome is taken as not done.
    UnknownTakenAsNotWritten,
    /// A lease that is asked for is granted while its batch is still running.
    GrantBeforeCheckpoint,
    /// The checkpoint passes before the dead letter is stored.
    CheckpointBeforeDeadLetter,
    /// A processor that starts from now does not write down where that was.
    StartNotAnchored,
    /// Holes in the coverage are not repaired.
    HolesNotRepaired,
}

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Switches a bug on for everything that runs on this thread; none: all off.
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

#[cfg(not(feature = "mutants"))]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}
