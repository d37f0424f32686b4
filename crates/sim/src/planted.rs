//! Planted bugs: each must be found, or the checks that should find it prove nothing.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use changefeed::mutant::Mutant;
use parking_lot::Mutex;

use crate::{run::run, scenario::Scenario, simulation::Violation};

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// In the simulation, by wrapping a store, a clock or the delegate.
    Seam(Seam),
    /// In the processor, behind its feature.
    Processor(Mutant),
}

/// A bug that a wrapper of a store, a clock or the delegate can express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seam {
    /// Leases are written and deleted without If-Match.
    LeaseWithoutIfMatch,
    /// The monotonic clock follows the wall clock, jumps included.
    ClockFollowsWallClock,
    /// The monotonic clock stands still while the machine sleeps.
    ClockIgnoresSleep,
    /// A host believes that every owner promised the host's own expiration.
    PromiseIgnored,
    /// A host does not see that an operator moved a lease.
    GenerationIgnored,
    /// A host does not see that an operator paused a lease.
    PauseIgnored,
    /// Dropping a running processor does not end it.
    RunningLeaked,
    /// `Context::cancelled` never fires.
    CancelledNeverFires,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 37] = [
        Self::Seam(Seam::LeaseWithoutIfMatch),
        Self::Seam(Seam::ClockFollowsWallClock),
        Self::Seam(Seam::ClockIgnoresSleep),
        Self::Seam(Seam::PromiseIgnored),
        Self::Seam(Seam::GenerationIgnored),
        Self::Seam(Seam::PauseIgnored),
        Self::Seam(Seam::RunningLeaked),
        Self::Seam(Seam::CancelledNeverFires),
        Self::Processor(Mutant::OwnerNameFence),
        Self::Processor(Mutant::UnknownTakenAsNotWritten),
        Self::Processor(Mutant::CheckpointBeforeDelegate),
        Self::Processor(Mutant::CheckpointBeforeDeadLetter),
        Self::Processor(Mutant::CheckpointPassesUnparsed),
        Self::Processor(Mutant::SplitFromReadPosition),
        Self::Processor(Mutant::ParentDeletedFirst),
        Self::Processor(Mutant::OutdatedChildrenKept),
        Self::Processor(Mutant::OldLeasesIgnored),
        Self::Processor(Mutant::DuplicateDocumentKept),
        Self::Processor(Mutant::CopiedMarkKept),
        Self::Processor(Mutant::NoSelfFencing),
        Self::Processor(Mutant::OutageCountedAsSilence),
        Self::Processor(Mutant::ProgressDroppedAtDeadline),
        Self::Processor(Mutant::CallNotRenewed),
        Self::Processor(Mutant::SlowReadDropped),
        Self::Processor(Mutant::GrantBeforeCheckpoint),
        Self::Processor(Mutant::ImpatientSteal),
        Self::Processor(Mutant::StartNotStored),
        Self::Processor(Mutant::DotNetStartNotStored),
        Self::Processor(Mutant::ResetPositionsIgnored),
        Self::Processor(Mutant::HolesNotRepaired),
        Self::Processor(Mutant::ReplacementIgnored),
        Self::Processor(Mutant::PanicUnreported),
        Self::Processor(Mutant::UnparsedDeadLettered),
        Self::Processor(Mutant::RetryOneByOne),
        Self::Processor(Mutant::CallsUnlimited),
        Self::Processor(Mutant::BytesUnlimited),
        Self::Processor(Mutant::RequestUnitsUnlimited),
    ];

    /// The bug with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|planted| planted.to_string() == name)
    }

    /// The bug in the processor, if it is one.
    pub fn in_processor(self) -> Option<Mutant> {
        match self {
            Self::Processor(mutant) => Some(mutant),
            Self::Seam(_) => None,
        }
    }

    /// The bug in the simulation, if it is one.
    pub fn in_seam(self) -> Option<Seam> {
        match self {
            Self::Seam(seam) => Some(seam),
            Self::Processor(_) => None,
        }
    }
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seam(seam) => write!(f, "{seam:?}"),
            Self::Processor(mutant) => write!(f, "{mutant:?}"),
        }
    }
}

/// The first seed below `budget` whose scenario shows the bug, and how. The result does not depend on the number of threads.
pub fn hunt(
    planted: Planted,
    budget: u64,
    threads: usize,
    draw: impl Fn(u64) -> Scenario + Sync,
) -> Option<(u64, Violation)> {
    let (next, found) = (AtomicU64::new(0), Mutex::new(None::<(u64, Violation)>));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let over = found.lock().as_ref().is_some_and(|(first, _)| *first < seed);
                    if seed >= budget || over {
                        return;
                    }
                    if let Some(violation) = run(&draw(seed), Some(planted), false).violation {
                        let mut found = found.lock();
                        if found.as_ref().is_none_or(|(first, _)| *first > seed) {
                            *found = Some((seed, violation));
                        }
                    }
                }
            });
        }
    });
    found.into_inner()
}
