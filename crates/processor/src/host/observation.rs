//! Which time a host could observe leases in. Pure.

use std::time::Duration;

/// The reads of the lease container: listings and pages of its feed. Between the last read before a failure and the next one
/// that succeeds, an owner may have been alive and just as unable to reach the store as this host.
#[derive(Debug, Default)]
pub(super) struct Observation {
    last_read: Option<Duration>,
    failed: bool,
}

impl Observation {
    /// A read failed.
    pub(super) fn failed(&mut self) {
        self.failed = true;
    }

    /// A read succeeded at `now`. Returns the time before it that proves nothing about owners; zero if no read has failed.
    pub(super) fn succeeded(&mut self, now: Duration) -> Duration {
        let before = self.last_read.replace(now);
        match std::mem::take(&mut self.failed) {
            true => before.map_or(Duration::ZERO, |before| now.saturating_sub(before)),
            false => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_around_failed_reads_is_not_observed() {
        let at = Duration::from_secs;
        let mut observation = Observation::default();
        observation.failed();
        assert_eq!(observation.succeeded(at(5)), at(0), "nothing was known before");
        assert_eq!(observation.succeeded(at(7)), at(0));
        observation.failed();
        observation.failed();
        assert_eq!(observation.succeeded(at(60)), at(53));
        assert_eq!(observation.succeeded(at(70)), at(0), "the store is back");
    }
}
