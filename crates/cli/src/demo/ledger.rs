//! The ledger: which changes were written, and what became of each. Pure.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

/// An order is updated until it has this version; then it is left alone.
const LAST_VERSION: u32 = 3;

/// What the demo writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) customer: String,
    /// From 1, one more with each update.
    pub(crate) version: u32,
    /// In cents. A negative one cannot be handled: that is the poison.
    pub(crate) amount: i64,
}

type Key = (String, u32);

fn key(order: &Order) -> Key {
    (order.id.clone(), order.version)
}

/// All changes by item and version.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    written: BTreeSet<Key>,
    handled: BTreeSet<Key>,
    duplicates: u64,
    dead: BTreeSet<Key>,
    /// Written, and neither handled nor dead.
    open: BTreeSet<Key>,
    /// Orders whose newest version was handled, so that a further one cannot hide it.
    settled: Vec<Order>,
}

impl Ledger {
    /// The store has acknowledged this change. Hosts may have handled it before the writer knew.
    pub(crate) fn written(&mut self, order: &Order) {
        let key = key(order);
        if !self.handled.contains(&key) && !self.dead.contains(&key) {
            self.open.insert(key.clone());
        }
        self.written.insert(key);
    }

    /// A host has handled this change.
    pub(crate) fn handled(&mut self, order: &Order) {
        let key = key(order);
        self.open.remove(&key);
        if !self.handled.insert(key) {
            self.duplicates += 1;
        } else if order.version < LAST_VERSION {
            self.settled.push(order.clone());
        }
    }

    /// This version of an item is in the dead-letter container.
    pub(crate) fn dead(&mut self, order: &Order) {
        let key = key(order);
        self.open.remove(&key);
        self.dead.insert(key);
    }

    /// The next version of some order; none if no order is settled.
    pub(crate) fn update(&mut self, random: u64) -> Option<Order> {
        let count = u64::try_from(self.settled.len()).ok().filter(|count| *count > 0)?;
        let mut order = self.settled.swap_remove(usize::try_from(random % count).ok()?);
        order.version += 1;
        Some(order)
    }

    /// Changes that were written and are neither handled nor dead letters yet.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// The sums.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            written: self.written.len(),
            delivered: self.handled.len(),
            duplicates: self.duplicates,
            dead_letters: self.dead.len(),
            lost: self.open.len(),
        }
    }
}

/// The sums of a ledger. When nothing is under way, `written` is `delivered` + `dead_letters` + `lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    pub(crate) written: usize,
    pub(crate) delivered: usize,
    pub(crate) duplicates: u64,
    pub(crate) dead_letters: usize,
    pub(crate) lost: usize,
}

/// A ledger that the writer and all hosts keep together. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    /// Opens it for as long as the guard lives; never across an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(id: &str, version: u32) -> Order {
        Order { id: id.to_owned(), customer: "c".to_owned(), version, amount: 100 }
    }

    #[test]
    fn a_change_is_lost_until_it_is_handled_or_dead() {
        let mut ledger = Ledger::default();
        for id in ["a", "b", "c"] {
            ledger.written(&order(id, 1));
        }
        ledger.handled(&order("a", 1));
        ledger.dead(&order("b", 1));
        let expected = Totals { written: 3, delivered: 1, duplicates: 0, dead_letters: 1, lost: 1 };
        assert_eq!(ledger.totals(), expected);
        ledger.handled(&order("c", 1));
        assert_eq!((ledger.totals().lost, ledger.open()), (0, 0));
    }

    #[test]
    fn a_change_handled_before_its_acknowledgement_is_not_lost() {
        let mut ledger = Ledger::default();
        ledger.handled(&order("a", 1));
        ledger.written(&order("a", 1));
        assert_eq!(ledger.totals(), Totals { written: 1, delivered: 1, ..Totals::default() });
    }

    #[test]
    fn each_further_handling_is_a_duplicate_and_versions_count_apart() {
        let mut ledger = Ledger::default();
        ledger.written(&order("a", 1));
        ledger.written(&order("a", 2));
        for version in [1, 1, 1, 2] {
            ledger.handled(&order("a", version));
        }
        assert_eq!(ledger.totals(), Totals { written: 2, delivered: 2, duplicates: 2, ..Totals::default() });
    }

    #[test]
    fn an_order_is_updated_only_after_its_last_version_was_handled() {
        let mut ledger = Ledger::default();
        ledger.written(&order("a", 1));
        assert_eq!(ledger.update(7), None);
        ledger.handled(&order("a", 1));
        assert_eq!(ledger.update(7), Some(order("a", 2)));
        assert_eq!(ledger.update(7), None);
        ledger.handled(&order("a", 1));
        assert_eq!(ledger.update(7), None, "a duplicate settles nothing");
        ledger.handled(&order("a", LAST_VERSION));
        assert_eq!(ledger.update(7), None, "the last version stays the last");
    }
}
