//! When a host reads `.info` again: an operator's seek writes there where ranges begin from then on, after it has moved the
//! leases, and a reset deletes it before the leases. Pure: takes listings and times, never reads a clock.

use std::time::Duration;

use crate::lease::listing::Listing;

/// When `.info` is to be read again.
#[derive(Debug, Default)]
pub(super) struct InfoReads {
    /// Of the last listing.
    sums: Sums,
    due: bool,
    /// When it is read once more: what moved the leases may not have written it yet.
    again_at: Option<Duration>,
    /// Whether it was not there when it was read last: an operator has reset the processor, and no host has finished to create
    /// the leases again.
    missing: bool,
}

/// Sums over all leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    /// Every move of a lease raises it.
    generations: u64,
    /// Every change of owner raises it. It falls if leases were deleted, by a reset, a split or a merge.
    epochs: u64,
}

impl InfoReads {
    /// Takes in a listing; `delay` is longer than the time between the write of a lease and that of `.info`.
    pub(super) fn listed(&mut self, listing: &Listing, now: Duration, delay: Duration) {
        let add = |sums: Sums, (generation, epoch): (u64, u64)| Sums {
            generations: sums.generations.wrapping_add(generation),
            epochs: sums.epochs.wrapping_add(epoch),
        };
        let leases = listing.leases.iter().map(|lease| (lease.document.generation(), lease.document.epoch()));
        self.seen(leases.fold(Sums::default(), add), now, delay);
    }

    fn seen(&mut self, sums: Sums, now: Duration, delay: Duration) {
        if sums.generations != self.sums.generations || sums.epochs < self.sums.epochs {
            (self.due, self.again_at) = (true, Some(now + delay));
        }
        self.sums = sums;
        if self.again_at.take_if(|at| *at <= now).is_some() {
            self.due = true;
        }
    }

    /// Whether it is to be read.
    pub(super) fn is_due(&self) -> bool {
        self.due || self.missing
    }

    /// It was read; `found`: it is there.
    pub(super) fn read(&mut self, found: bool) {
        (self.due, self.missing) = (false, !found);
    }

    /// Whether it is to be created.
    pub(super) fn is_missing(&self) -> bool {
        self.missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_read_when_leases_were_moved_and_once_more_when_the_move_is_over() {
        let (mut reads, second) = (InfoReads::default(), Duration::from_secs);
        let moved = |generations| Sums { generations, epochs: 5 };
        reads.seen(moved(0), second(0), second(8));
        assert!(!reads.is_due(), "no lease was ever moved");
        for (generations, now) in [(1, 1), (3, 2)] {
            reads.seen(moved(generations), second(now), second(8));
            assert!(reads.is_due(), "a lease was moved");
            reads.read(true);
        }
        reads.seen(moved(3), second(9), second(8));
        assert!(!reads.is_due(), "it was read, and the last move is not over yet");
        reads.seen(moved(3), second(10), second(8));
        assert!(reads.is_due(), "once more");
        reads.seen(moved(3), second(11), second(8));
        assert!(reads.is_due(), "until it was read");
        reads.read(true);
        reads.seen(moved(3), second(100), second(8));
        assert!(!reads.is_due());
    }

    #[test]
    fn info_is_read_when_leases_were_deleted_and_until_it_is_there() {
        let (mut reads, second) = (InfoReads::default(), Duration::from_secs);
        let acquired = |epochs| Sums { generations: 0, epochs };
        for (epochs, now) in [(4, 0), (8, 1)] {
            reads.seen(acquired(epochs), second(now), second(8));
            assert!(!reads.is_due(), "leases changed owners");
        }
        reads.seen(acquired(2), second(2), second(8));
        assert!(reads.is_due() && !reads.is_missing(), "leases were deleted");
        reads.read(false);
        assert!(reads.is_due() && reads.is_missing(), "it is to be created, unless another host does it");
        reads.read(true);
        assert!(!reads.is_due() && !reads.is_missing());
    }
}
