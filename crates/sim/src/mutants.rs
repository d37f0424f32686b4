//! Planted bugs: each must be found, or the checks that should find it are worth nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use changefeed::mutant::Mutant;
use parking_lot::Mutex;

use crate::{run::run, scenario::Scenario, world::Violation};

/// All of them.
pub const ALL: [Mutant; 12] = [
    Mutant::CheckpointWithoutIfMatch,
    Mutant::OwnerNameFence,
    Mutant::CheckpointBeforeDelegate,
    Mutant::SplitFromReadPosition,
    Mutant::ParentDeletedFirst,
    Mutant::ExpiryByWallClock,
    Mutant::NoSelfFencing,
    Mutant::UnknownTakenAsNotWritten,
    Mutant::GrantBeforeCheckpoint,
    Mutant::CheckpointBeforeDeadLetter,
    Mutant::StartNotAnchored,
    Mutant::HolesNotRepaired,
];

/// The bug with this name.
pub fn by_name(name: &str) -> Option<Mutant> {
    ALL.into_iter().find(|mutant| format!("{mutant:?}") == name)
}

/// The first seed below `budget` that shows the bug, and how. Always the same seed, however many threads look.
pub fn hunt(mutant: Mutant, budget: u64, threads: usize) -> Option<(u64, Violation)> {
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
                    if let Some(violation) = run(&Scenario::from_seed(seed), Some(mutant), false).violation {
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
