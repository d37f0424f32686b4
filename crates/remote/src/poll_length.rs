//! How long a request for wake-ups may wait on the server: shorter behind proxies that end long requests. Pure.

use std::time::Duration;

/// As long as the server allows at most.
const LONGEST: Duration = Duration::from_secs(25);

/// Not shorter, so that idle hosts send few requests whatever is between.
const SHORTEST: Duration = Duration::from_secs(3);

/// After at most so many polls of full length without a failure a longer one is tried, in case the proxy is gone.
const MOST_PATIENCE: u32 = 64;

/// The length of the next poll.
#[derive(Debug)]
pub(crate) struct PollLength {
    length: Duration,
    /// Polls of this length that were answered, in a row.
    answered: u32,
    /// After how many of them a longer one is tried: twice as many after each failure, since one alone may have been the
    /// restart of a server.
    patience: u32,
}

impl Default for PollLength {
    fn default() -> Self {
        Self { length: LONGEST, answered: 0, patience: 1 }
    }
}

impl PollLength {
    /// In whole seconds.
    pub(crate) fn get(&self) -> Duration {
        Duration::from_secs(self.length.as_secs())
    }

    /// A poll failed after `elapsed`. One that had waited for a while may have met the limit of a proxy; others have other
    /// reasons.
    pub(crate) fn failed(&mut self, elapsed: Duration) {
        self.answered = 0;
        if elapsed >= SHORTEST {
            self.length = (elapsed * 3 / 4).clamp(SHORTEST, self.length);
            self.patience = (2 * self.patience).min(MOST_PATIENCE);
        }
    }

    /// A poll was answered after `elapsed`.
    pub(crate) fn answered(&mut self, elapsed: Duration) {
        if elapsed < self.get() {
            return;
        }
        self.answered += 1;
        if self.length == LONGEST {
            self.patience = 1;
        } else if self.answered >= self.patience {
            (self.length, self.answered) = ((self.length * 5 / 4).min(LONGEST), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn polls_stay_below_the_limit_of_a_proxy() {
        let mut length = PollLength::default();
        assert_eq!(length.get(), LONGEST);
        length.failed(15 * SECOND);
        assert_eq!(length.get(), 11 * SECOND);
        length.failed(SECOND);
        assert_eq!(length.get(), 11 * SECOND, "a connection that ends at once says nothing about long requests");
        length.failed(14 * SECOND);
        assert!(length.get() <= 11 * SECOND, "a poll that ended later than it should makes none longer");
        (0..100).for_each(|_| length.failed(4 * SECOND));
        assert_eq!(length.get(), SHORTEST);
    }

    #[test]
    fn polls_become_longer_again_sooner_after_one_failure_than_after_many() {
        let mut length = PollLength::default();
        length.failed(10 * SECOND);
        assert_eq!(length.get(), 7 * SECOND);
        (0..1000).for_each(|_| length.answered(SECOND));
        assert_eq!(length.get(), 7 * SECOND, "polls that had news early prove nothing");
        let polls = |length: &mut PollLength| {
            let polls = (0..10_000).take_while(|_| {
                length.answered(length.get());
                length.get() < LONGEST
            });
            polls.count()
        };
        assert!(polls(&mut length) < 15, "a server was restarted");
        // A proxy with a limit of 15 s is met more and more rarely.
        let before_it_is_met = |length: &mut PollLength| {
            let polls = (0..10_000).take_while(|_| {
                length.answered(length.get());
                length.get() < 15 * SECOND
            });
            let polls = polls.count();
            length.failed(15 * SECOND);
            polls
        };
        let met: Vec<usize> = (0..10).map(|_| before_it_is_met(&mut length)).collect();
        assert!(met.is_sorted() && met.last() > Some(&100), "{met:?}");
        assert!(polls(&mut length) < 1000, "the proxy is gone");
    }
}
