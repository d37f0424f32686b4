//! The initial delay: hosts of a fleet that starts wait for each other before they divide the free leases. Pure.
//!
//! A host that starts alone would acquire all leases within milliseconds where the store is fast, and hand most of them over
//! to hosts that start a moment later, at three writes for each. So a host that has just started acquires free leases in
//! steps with short pauses, and as long as other hosts keep appearing it waits for them. A host that stays alone is delayed
//! by the pauses only: a third of a second for a hundred leases, and not at all for a few.

use std::{collections::BTreeSet, time::Duration};

use super::contention::changes_shares;

/// Between two steps of a host that has just started: hosts that were started together appear within two or three of
/// these.
const LONGEST_STEP_PAUSE: Duration = Duration::from_millis(50);

/// For so long a fleet must not grow before its hosts divide the leases; processes of one deployment start at shorter
/// distances.
const LONGEST_QUIET: Duration = Duration::from_millis(400);

/// A fleet that still grows after this time is not waited for. Kafka waits as long for the members of a new group.
const LONGEST_DELAY: Duration = Duration::from_secs(3);

/// How long one host that has just started waits for others.
#[derive(Debug)]
pub(super) struct InitialDelay {
    /// The acquire interval bounds all times: hosts with short intervals are meant to react fast.
    acquire: Duration,
    /// When the host began its first cycle.
    began: Option<Duration>,
    /// The hosts that it knew after the last cycle.
    known: BTreeSet<String>,
    /// Whether it has waited since, and the fleet has not grown.
    complete: bool,
}

impl InitialDelay {
    pub(super) fn new(acquire: Duration) -> Self {
        Self { acquire, began: None, known: BTreeSet::new(), complete: false }
    }

    /// A cycle begins. The delay is counted from the first one.
    pub(super) fn begin(&mut self, now: Duration) {
        self.began.get_or_insert(now);
    }

    /// Whether the host has run for so long that it waits for nobody.
    fn is_over(&self, now: Duration) -> bool {
        // Shorter than the time after which any host may acquire a free lease.
        let longest = LONGEST_DELAY.min(self.acquire * 3 / 2);
        self.began.is_some_and(|began| now.saturating_sub(began) >= longest)
    }

    /// How long to wait between two steps of an acquisition; `None` if all hosts that start at the same time have had the
    /// time to appear.
    pub(super) fn step_pause(&self, now: Duration) -> Option<Duration> {
        (!self.complete && !self.is_over(now)).then(|| LONGEST_STEP_PAUSE.min(self.acquire / 20))
    }

    /// How long to wait for other hosts while the fleet grows; `None` if the delay is over.
    pub(super) fn quiet(&self, now: Duration) -> Option<Duration> {
        (!self.is_over(now)).then(|| LONGEST_QUIET.min(self.acquire / 4))
    }

    /// Takes in the hosts that a plan at `now` knows. Returns whether the fleet still grows, so that the plan is to wait.
    pub(super) fn take_in(&mut self, hosts: &BTreeSet<String>, now: Duration) -> bool {
        if self.is_over(now) {
            self.known.clear();
            return false;
        }
        let new = hosts.difference(&self.known).count();
        let grows = !self.known.is_empty() && changes_shares(new, self.known.len());
        self.complete = !self.known.is_empty() && !grows;
        self.known.clone_from(hosts);
        grows
    }

    /// Another host was seen since the plan.
    pub(super) fn see(&mut self, host: &str) {
        if !self.known.is_empty() && !self.known.contains(host) {
            self.known.insert(host.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_millis;

    fn started() -> InitialDelay {
        let mut delay = InitialDelay::new(Duration::from_secs(2));
        delay.begin(AT(1000));
        delay
    }

    fn hosts(count: usize) -> BTreeSet<String> {
        (0..count).map(|host| format!("host-{host}")).collect()
    }

    #[test]
    fn a_host_waits_as_long_as_others_keep_appearing_but_not_longer_than_the_delay() {
        let mut delay = started();
        assert!(!delay.take_in(&hosts(1), AT(1000)), "nobody else is known");
        assert!(delay.take_in(&hosts(2), AT(1300)));
        assert!(delay.take_in(&hosts(3), AT(1600)));
        assert!(!delay.take_in(&hosts(3), AT(1900)), "nobody has appeared since");
        assert!(delay.take_in(&hosts(4), AT(2200)));
        assert!(!delay.take_in(&hosts(9), AT(4000)), "3 s have passed");
    }

    #[test]
    fn hosts_that_were_there_before_are_not_waited_for() {
        assert!(!started().take_in(&hosts(9), AT(1000)));
    }

    #[test]
    fn a_host_that_was_seen_during_an_acquisition_is_known_to_the_next_plan() {
        let mut delay = started();
        delay.take_in(&hosts(1), AT(1000));
        delay.see("host-1");
        assert!(!delay.take_in(&hosts(2), AT(1300)));
    }

    #[test]
    fn one_new_host_among_many_is_not_waited_for() {
        let mut delay = started();
        delay.take_in(&hosts(20), AT(1000));
        assert!(!delay.take_in(&hosts(22), AT(1300)));
        assert!(delay.take_in(&hosts(25), AT(1600)));
    }

    #[test]
    fn pauses_are_short_against_the_acquire_interval_and_end_with_the_delay() {
        let delay = started();
        assert_eq!((delay.step_pause(AT(1000)), delay.quiet(AT(1000))), (Some(AT(50)), Some(AT(400))));
        assert_eq!((delay.step_pause(AT(4000)), delay.quiet(AT(4000))), (None, None));
        let mut hasty = InitialDelay::new(AT(200));
        hasty.begin(AT(0));
        assert_eq!((hasty.step_pause(AT(0)), hasty.quiet(AT(0))), (Some(AT(10)), Some(AT(50))));
        assert_eq!(hasty.quiet(AT(300)), None);
    }
}
