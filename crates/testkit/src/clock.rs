//! A wall clock that moves only when a test moves it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use changefeed_core::{Clock, Timestamp};

/// 2026-01-01T00:00:00Z: a round date, so that timestamps in failures are easy to read.
const START_SECONDS: u64 = 1_767_225_600;

/// A clock that stands still until [`advance`](Self::advance) or [`set`](Self::set). Clones are the same clock.
#[derive(Clone, Debug)]
pub struct TestClock {
    millis: Arc<AtomicU64>,
}

impl TestClock {
    /// A clock that shows 2026-01-01T00:00:00Z.
    pub fn new() -> Self {
        Self::at(Timestamp::from_secs(START_SECONDS))
    }

    /// A clock that shows `moment`.
    pub fn at(moment: Timestamp) -> Self {
        Self { millis: Arc::new(AtomicU64::new(moment.as_millis())) }
    }

    /// What it shows.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.load(Ordering::SeqCst))
    }

    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        let moved = |millis| Some(Timestamp::from_millis(millis).saturating_add(by).as_millis());
        // The closure never answers `None`, so the update cannot be refused.
        let _ = self.millis.fetch_update(Ordering::SeqCst, Ordering::SeqCst, moved);
    }

    /// Moves it to `moment`, which may lie in its past: wall clocks jump.
    pub fn set(&self, moment: Timestamp) {
        self.millis.store(moment.as_millis(), Ordering::SeqCst);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn wall(&self) -> Timestamp {
        self.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_clock_stands_still_until_it_is_moved() {
        let clock = TestClock::new();
        assert_eq!(clock.wall(), Timestamp::from_secs(START_SECONDS));
        assert_eq!(clock.wall(), clock.wall());
        clock.advance(Duration::from_millis(1500));
        assert_eq!(clock.wall().as_millis(), START_SECONDS * 1000 + 1500);
    }

    #[test]
    fn clones_are_the_same_clock_and_may_be_set_back() {
        let clock = TestClock::at(Timestamp::from_secs(100));
        clock.clone().set(Timestamp::from_secs(40));
        assert_eq!(clock.wall(), Timestamp::from_secs(40));
    }

    #[test]
    fn a_test_clock_stops_at_the_end_of_time() {
        let clock = TestClock::at(Timestamp::from_millis(u64::MAX - 1));
        clock.advance(Duration::from_secs(60));
        assert_eq!(clock.wall(), Timestamp::from_millis(u64::MAX));
    }
}
