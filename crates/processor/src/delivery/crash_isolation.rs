//! Crash isolation: finds the item that crashes the process by delivering items in small batches, each named in the
//! lease before it is delivered. Pure.
//!
//! A crash is expensive and a lease write is cheap, so a batch during which a process crashed is cut into 32 parts, not
//! into halves. One crash during the delivery of a single item may be a coincidence; after two, unless the user sets
//! another number, the item is dead-lettered.

use super::policy::Policy;
use crate::lease::document::Search;

/// Into how many parts a batch is cut after a crash.
const PARTS: usize = 32;

/// A number of items that is not known.
const UNKNOWN: usize = 1 << 30;

/// How many pages after a manual checkpoint are delivered in isolation, if the item was not found before it. A user who
/// stores progress by time stores it after fewer items than usual, since isolation is slow.
const PAGES_AFTER_CHECKPOINT: usize = 10;

/// The isolation of items of one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CrashIsolation {
    /// How many items are delivered together.
    window: usize,
    /// How many items after the checkpoint are to be delivered so.
    remaining: usize,
    /// How many of them were passed since: after a crash delivery begins at the checkpoint again.
    passed: usize,
    /// The batch during which a process crashed.
    crashed: Option<Crashed>,
    /// Items after the checkpoint that are dead letters.
    dead: Vec<String>,
    /// So many crashes during the delivery of one item alone make it a dead letter.
    limit: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Crashed {
    first: String,
    window: usize,
    crashes: u32,
}

/// What to do with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemAction {
    /// Deliver it.
    Deliver,
    /// Dead-letter it: so many processes crashed while it was delivered alone.
    DeadLetter(u32),
    /// It is a dead letter already.
    Skip,
}

impl CrashIsolation {
    /// Continues what earlier owners stored. `attempts` is the number of failed attempts at the checkpoint, crashes
    /// included; isolation begins when they reach `limit`, which exists only with a dead-letter container.
    pub(crate) fn resume(search: Option<&Search>, attempts: u32, policy: Policy, max_items: usize) -> Option<Self> {
        let limit = policy.attempts?;
        // The user may store progress much later: how many items lie between the checkpoint and the crash is not known.
        let remaining = if policy.manual { UNKNOWN } else { max_items };
        match search {
            None if attempts < limit => None,
            None => {
                let window = (max_items / PARTS).max(1);
                Some(Self { window, remaining, passed: 0, crashed: None, dead: Vec::new(), limit: policy.crashes })
            }
            // A search for an item that fails, and no process crashed since.
            Some(search) if search.crashes == 0 && search.remaining == 0 && search.dead.is_empty() => None,
            Some(search) => {
                let crashed = search.first.clone().filter(|_| search.crashes > 0).map(|first| Crashed {
                    first,
                    window: search.window,
                    crashes: search.crashes,
                });
                let window = if crashed.is_some() { (search.window / PARTS).max(1) } else { search.window };
                // The search was over too early if a process crashed after it, and the checkpoint has not passed that place.
                let missed = search.first.is_none() && search.crashes > 0 && policy.manual;
                let remaining = if missed { UNKNOWN } else { search.remaining.max(search.window) };
                Some(Self { window, remaining, passed: 0, crashed, dead: search.dead.clone(), limit: policy.crashes })
            }
        }
    }

    /// How many items to read and deliver at a time.
    pub(crate) fn window(&self) -> usize {
        self.window
    }

    /// A page was read: if it begins with the batch during which a process crashed, nothing after that needs isolation.
    pub(crate) fn begin_page(&mut self, names: &[String]) {
        if let Some(crashed) = &self.crashed
            && names.first().is_some_and(|name| Search::is_name_of(&crashed.first, name))
        {
            self.remaining = self.remaining.min(self.passed + crashed.window);
        }
    }

    pub(crate) fn action_for(&self, item: &str) -> ItemAction {
        if self.dead.iter().any(|dead| Search::is_name_of(dead, item)) {
            return ItemAction::Skip;
        }
        match &self.crashed {
            Some(Crashed { first, window: 1, crashes })
                if Search::is_name_of(first, item) && *crashes >= self.limit =>
            {
                ItemAction::DeadLetter(*crashes)
            }
            _ => ItemAction::Deliver,
        }
    }

    /// What the lease must say while `count` items from `first` on are delivered.
    pub(crate) fn mark(&self, first: &str, count: usize) -> Search {
        let same = self
            .crashed
            .as_ref()
            .filter(|crashed| Search::is_name_of(&crashed.first, first) && crashed.window == count);
        let crashes = same.map_or(0, |crashed| crashed.crashes);
        Search {
            first: Some(first.to_owned()),
            window: count,
            crashes,
            remaining: self.remaining,
            dead: self.dead.clone(),
        }
    }

    /// What the lease must say between two batches; `None` if the isolation is over.
    pub(crate) fn mark_between(&self) -> Option<Search> {
        let (window, remaining, dead) = (self.window, self.remaining, self.dead.clone());
        (!self.is_over() || !dead.is_empty()).then_some(Search { first: None, window, crashes: 0, remaining, dead })
    }

    /// An item became a dead letter because it crashed processes.
    pub(crate) fn dead_lettered(&mut self, item: &str) {
        self.dead.push(item.to_owned());
        // It is found: what follows is delivered as usual.
        self.remaining = self.passed;
    }

    /// A page was handled. `checkpointed`: the checkpoint has passed it.
    pub(crate) fn passed(&mut self, items: usize, checkpointed: bool) {
        self.passed += items;
        if checkpointed {
            (self.remaining, self.passed) = (self.remaining.saturating_sub(self.passed), 0);
            self.crashed = None;
            self.dead.clear();
        }
    }

    /// The user has stored progress. The item is not far, if it was not passed; `None` if the isolation is over.
    pub(crate) fn after_checkpoint(mut self, max_items: usize) -> Option<Self> {
        self.remaining = self.remaining.min(PAGES_AFTER_CHECKPOINT * max_items).saturating_sub(self.passed);
        self.passed = 0;
        (!self.is_over()).then_some(self)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.passed >= self.remaining
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { attempts: Some(5), manual: false, dead_letter_unparsed: false, crashes: 2 };

    fn resume(search: &Search) -> CrashIsolation {
        CrashIsolation::resume(Some(search), 0, POLICY, 1000).unwrap()
    }

    /// What the lease says after the owner crashed.
    fn crash(mut search: Search) -> Search {
        search.crashes += 1;
        search
    }

    #[test]
    fn isolation_begins_with_the_allowed_attempts_and_only_with_a_dead_letter_container() {
        assert_eq!(CrashIsolation::resume(None, 4, POLICY, 1000), None);
        assert_eq!(CrashIsolation::resume(None, 9, Policy::default(), 1000), None);
        assert_eq!(CrashIsolation::resume(None, 5, POLICY, 1000).unwrap().window(), 31);
        assert_eq!(CrashIsolation::resume(None, 5, POLICY, 8).unwrap().window(), 1);
    }

    #[test]
    fn two_crashes_narrow_a_page_to_one_item_and_two_more_dead_letter_it() {
        let first = CrashIsolation::resume(None, 5, POLICY, 1000).unwrap();
        let second = resume(&crash(first.mark("7:x", first.window())));
        assert_eq!((second.window(), second.action_for("7:x")), (1, ItemAction::Deliver));
        let third = resume(&crash(second.mark("7:x", 1)));
        assert_eq!(third.action_for("7:x"), ItemAction::Deliver, "one crash may be a coincidence");
        let fourth = resume(&crash(third.mark("7:x", 1)));
        assert_eq!(fourth.action_for("7:x"), ItemAction::DeadLetter(2));
        assert_eq!(fourth.action_for("7:xy"), ItemAction::Deliver);
        assert_eq!(resume(&crash(third.mark("8:y", 1))).action_for("8:y"), ItemAction::Deliver, "its own first crash");
    }

    #[test]
    fn the_user_sets_how_many_crashes_dead_letter_an_item() {
        let stored = |crashes| Search { first: Some("7:x".into()), window: 1, crashes, remaining: 9, dead: vec![] };
        let action = |limit, crashes| {
            let policy = Policy { crashes: limit, ..POLICY };
            CrashIsolation::resume(Some(&stored(crashes)), 0, policy, 1000).unwrap().action_for("7:x")
        };
        assert_eq!(action(1, 1), ItemAction::DeadLetter(1));
        assert_eq!((action(3, 2), action(3, 3)), (ItemAction::Deliver, ItemAction::DeadLetter(3)));
    }

    #[test]
    fn an_item_of_another_key_with_the_id_and_lsn_of_a_dead_letter_is_delivered() {
        let stored = Search { first: None, window: 1, crashes: 0, remaining: 9, dead: vec!["7:x/AAA=".into()] };
        let isolation = resume(&stored);
        assert_eq!(isolation.action_for("7:x/AAA="), ItemAction::Skip);
        assert_eq!(isolation.action_for("7:x/AAB="), ItemAction::Deliver);
    }

    #[test]
    fn a_dead_letter_is_remembered_until_the_checkpoint_passes_and_ends_the_isolation() {
        let mut isolation =
            resume(&Search { first: Some("7:x".into()), window: 1, crashes: 2, remaining: 9, dead: vec![] });
        isolation.dead_lettered("7:x");
        assert!(isolation.is_over());
        let stored = isolation.mark_between().unwrap();
        assert_eq!(resume(&stored).action_for("7:x"), ItemAction::Skip);
        isolation.passed(1, true);
        assert_eq!(isolation.mark_between(), None);
    }

    #[test]
    fn with_manual_checkpoints_the_way_to_the_item_is_isolated_every_time() {
        let mut stored = Search { first: Some("7:x".into()), window: 1, crashes: 1, remaining: 10, dead: vec![] };
        for _ in 0..5 {
            let mut isolation = resume(&stored);
            for item in ["1:a", "2:b", "3:c"] {
                assert!(!isolation.is_over());
                isolation.begin_page(&[item.into()]);
                isolation.passed(1, false);
            }
            stored = isolation.mark("7:x", 1);
        }
        assert_eq!(stored.remaining, 10);
    }

    #[test]
    fn with_manual_checkpoints_an_item_that_crashes_after_the_isolation_was_over_is_searched_for_again() {
        let policy = Policy { manual: true, ..POLICY };
        let over = Search { first: None, window: 1, crashes: 0, remaining: 3, dead: vec!["2:b".into()] };
        let mut isolation = CrashIsolation::resume(Some(&over), 9, policy, 1000).unwrap();
        isolation.passed(3, false);
        assert!(isolation.is_over());
        let crashed = crash(isolation.mark_between().unwrap());
        let mut isolation = CrashIsolation::resume(Some(&crashed), 9, policy, 1000).unwrap();
        isolation.passed(500, false);
        assert!(!isolation.is_over());
        assert_eq!(isolation.action_for("2:b"), ItemAction::Skip);
    }

    #[test]
    fn a_manual_checkpoint_does_not_end_the_isolation_before_the_item_is_reached() {
        let policy = Policy { manual: true, ..POLICY };
        let mut isolation = CrashIsolation::resume(None, 5, policy, 8).unwrap();
        for _ in 0..79 {
            isolation.passed(1, false);
            isolation = isolation.after_checkpoint(8).expect("not over yet");
        }
        isolation.passed(1, false);
        assert_eq!(isolation.after_checkpoint(8), None, "crashes that no item caused must not slow it down for ever");
    }

    #[test]
    fn only_the_batch_of_the_crash_is_isolated_if_the_page_begins_with_it() {
        let stored = Search { first: Some("7:x".into()), window: 31, crashes: 1, remaining: 900, dead: vec![] };
        let mut isolation = resume(&stored);
        isolation.begin_page(&["7:x".into()]);
        isolation.passed(30, true);
        assert!(!isolation.is_over());
        isolation.passed(1, true);
        assert!(isolation.is_over());
        let mut elsewhere = resume(&stored);
        elsewhere.begin_page(&["3:a".into()]);
        elsewhere.passed(31, true);
        assert!(!elsewhere.is_over());
    }
}
