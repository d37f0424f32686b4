//! Contention for free leases: how many to acquire at once, and when to list the leases again instead. Pure.
//!
//! Hosts that start at the same moment do not know of each other, and each would acquire far more than its share. So a
//! host begins with one lease, which makes it visible, and doubles the number with each step. Between the steps it looks
//! for hosts that its plan did not know of.

use std::collections::BTreeSet;

/// The largest step. Larger ones would take long on a slow store, and other hosts are looked for only between steps.
const LARGEST_STEP: usize = 128;

/// One in so many races lost: other hosts acquire free leases at the same time.
const LOST_RACES: usize = 4;

/// One new host for so many known ones changes the share of each by as much again: few enough for hand-overs.
const KNOWN_PER_NEW_HOST: usize = 8;

/// How often a host without a lease tries to acquire its first one. Until it has one, no other host knows of it and each
/// acquires some of its share.
const FIRST_TRIES: u32 = 3;

/// A host without a lease tries again only if there are so many free leases for each host: then it probably succeeds.
const FREE_PER_HOST: usize = 4;

/// The course of one host's acquisition of free leases.
#[derive(Debug)]
pub(super) struct Contention {
    /// The hosts among which the plan has divided the leases.
    planned: BTreeSet<String>,
    /// Hosts that have acquired leases since.
    new: BTreeSet<String>,
    /// Whether this host owns a lease.
    visible: bool,
    first_tries: u32,
    at_once: usize,
}

impl Contention {
    /// `planned` are the hosts that the plan knows, and `visible` says whether this host owns a lease already.
    pub(super) fn new(planned: BTreeSet<String>, visible: bool) -> Self {
        Self { planned, new: BTreeSet::new(), visible, first_tries: 0, at_once: 1 }
    }

    /// How many leases to acquire in the next step.
    pub(super) fn at_once(&self) -> usize {
        self.at_once
    }

    /// Whether the next step is still smaller than later ones.
    pub(super) fn is_growing(&self) -> bool {
        self.at_once < LARGEST_STEP
    }

    /// A lease of this owner was written since the leases were listed.
    pub(super) fn see(&mut self, owner: &str) {
        if !self.planned.contains(owner) && !self.new.contains(owner) {
            self.new.insert(owner.to_owned());
        }
    }

    /// Takes in a step: how many leases it tried to acquire, how many of these other hosts were faster to acquire, and how
    /// many are left. Returns whether to go on; otherwise the leases are to be listed again.
    pub(super) fn goes_on(&mut self, tried: usize, lost: usize, left: usize) -> bool {
        self.visible |= lost < tried;
        if lost > 0 && lost * LOST_RACES >= tried {
            self.first_tries += 1;
            let plenty = left >= FREE_PER_HOST * (self.planned.len() + self.new.len());
            return !self.visible && plenty && self.first_tries < FIRST_TRIES;
        }
        self.at_once = (self.at_once * 2).min(LARGEST_STEP);
        !changes_shares(self.new.len(), self.planned.len())
    }
}

/// Whether `new` hosts beside the `known` ones change everybody's share enough to plan again.
pub(super) fn changes_shares(new: usize, known: usize) -> bool {
    new * KNOWN_PER_NEW_HOST > known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contention(planned: usize, visible: bool) -> Contention {
        Contention::new((0..planned).map(|host| format!("host-{host}")).collect(), visible)
    }

    #[test]
    fn steps_grow_while_races_are_won_and_no_new_hosts_appear() {
        let mut alone = contention(1, false);
        let mut steps = Vec::new();
        for _ in 0..9 {
            steps.push(alone.at_once());
            alone.see("host-0");
            assert!(alone.goes_on(alone.at_once(), 0, 1000));
        }
        assert_eq!(steps, [1, 2, 4, 8, 16, 32, 64, 128, 128]);
        assert!(!alone.is_growing());
    }

    #[test]
    fn a_host_that_meets_another_one_lists_the_leases_again() {
        let mut alone = contention(1, false);
        alone.see("another");
        assert!(!alone.goes_on(1, 0, 99));
    }

    #[test]
    fn a_few_new_hosts_among_many_known_ones_change_nothing() {
        let mut fleet = contention(80, true);
        (0..10).for_each(|host| fleet.see(&format!("new-{host}")));
        assert!(fleet.goes_on(1, 0, 99));
        fleet.see("new-10");
        assert!(!fleet.goes_on(2, 0, 97));
    }

    #[test]
    fn a_lost_race_in_four_ends_the_acquisition() {
        assert!(contention(5, true).goes_on(8, 1, 50));
        assert!(!contention(5, true).goes_on(8, 2, 50));
        assert!(!contention(5, true).goes_on(1, 1, 50));
    }

    #[test]
    fn a_host_without_a_lease_tries_a_few_times_where_there_are_plenty() {
        let mut invisible = contention(5, false);
        assert!(invisible.goes_on(1, 1, 20));
        assert_eq!(invisible.at_once(), 1);
        assert!(invisible.goes_on(1, 1, 20));
        assert!(!invisible.goes_on(1, 1, 20), "three times");
        assert!(!contention(5, false).goes_on(1, 1, 19), "too few free leases");
        let mut crowd = contention(1, false);
        (0..100).for_each(|host| crowd.see(&format!("host-{host}")));
        assert!(!crowd.goes_on(1, 1, 50), "too many hosts");
    }
}
