//! When a host reads `.info` again: an operator's seek writes there where ranges begin from then on, after it has moved the
//! leases. Pure: takes listings and times, never reads a clock.

use std::time::Duration;

use crate::lease::listing::Listing;

/// When `.info` is to be read again.
#[derive(Debug, Default)]
pub(super) struct InfoReads {
    /// The sum of the generations of all leases in the last listing: every move of a lease raises it.
    generations: u64,
    due: bool,
    /// When it is read once more: what moved the leases may not have written it yet.
    again_at: Option<Duration>,
}

impl InfoReads {
    /// Takes in a listing; `delay` is longer than the time between the write of a lease and that of `.info`.
    pub(super) fn listed(&mut self, listing: &Listing, now: Duration, delay: Duration) {
        let generations = listing.leases.iter().map(|lease| lease.document.generation());
        self.seen(generations.fold(0, u64::wrapping_add), now, delay);
    }

    fn seen(&mut self, generations: u64, now: Duration, delay: Duration) {
        if generations != self.generations {
            (self.generations, self.due, self.again_at) = (generations, true, Some(now + delay));
        }
        if self.again_at.take_if(|at| *at <= now).is_some() {
            self.due = true;
        }
    }

    /// Whether it is to be read.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// It was read.
    pub(super) fn read(&mut self) {
        self.due = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_read_when_leases_were_moved_and_once_more_when_the_move_is_over() {
        let (mut reads, second) = (InfoReads::default(), Duration::from_secs);
        reads.seen(0, second(0), second(8));
        assert!(!reads.is_due(), "no lease was ever moved");
        for (generations, now) in [(1, 1), (3, 2)] {
            reads.seen(generations, second(now), second(8));
            assert!(reads.is_due(), "a lease was moved");
            reads.read();
        }
        reads.seen(3, second(9), second(8));
        assert!(!reads.is_due(), "it was read, and the last move is not over yet");
        reads.seen(3, second(10), second(8));
        assert!(reads.is_due(), "once more");
        reads.seen(3, second(11), second(8));
        assert!(reads.is_due(), "until it was read");
        reads.read();
        reads.seen(3, second(100), second(8));
        assert!(!reads.is_due());
    }
}
