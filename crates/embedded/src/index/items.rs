//! The items of one container by key. Most comparisons are of numbers that lie in the map itself: following pointers
//! to keys all over memory is what would make a large map slow.

use std::{cmp::Ordering, collections::BTreeMap, ops::Bound, sync::Arc};

use changefeed_core::Epk;

use super::Key;
use crate::format::record::Place;

/// The newest record of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemState {
    pub(crate) place: Place,
    /// The document number in `_rid`.
    pub(crate) ordinal: u64,
    /// Whether it is an item, not a delete.
    pub(crate) live: bool,
    /// How many older versions of the item are on disk. While there are any, a delete must stay there too: without it
    /// they would come to life again when the folder is next opened. Older deletes do not count.
    pub(crate) stale: u32,
}

/// A map from keys to the newest record of each.
#[derive(Debug, Default)]
pub(crate) struct Items(BTreeMap<Slot, ItemState>);

impl Items {
    pub(crate) fn get(&self, key: &Arc<Key>) -> Option<&ItemState> {
        self.0.get(&Slot::new(key))
    }

    pub(crate) fn get_mut(&mut self, key: &Arc<Key>) -> Option<&mut ItemState> {
        self.0.get_mut(&Slot::new(key))
    }

    /// Sets the state of a key; returns the one before.
    pub(crate) fn insert(&mut self, key: &Arc<Key>, state: ItemState) -> Option<ItemState> {
        self.0.insert(Slot::new(key), state)
    }

    pub(crate) fn remove(&mut self, key: &Arc<Key>) {
        self.0.remove(&Slot::new(key));
    }

    /// All keys after `key`, or from the EPK `min` on, in order.
    pub(crate) fn from(&self, key: Option<Key>, min: &Epk) -> impl Iterator<Item = (&Arc<Key>, &ItemState)> {
        let bound = match key {
            Some(key) => Bound::Excluded(Slot::new(&Arc::new(key))),
            None => Bound::Included(Slot::lowest(min)),
        };
        self.0.range((bound, Bound::Unbounded)).filter_map(|(slot, state)| Some((slot.key.as_ref()?, state)))
    }
}

/// A key, with the parts that decide most comparisons in front. Without a key: before all keys of its EPK.
#[derive(Clone, Debug)]
struct Slot {
    /// The first 16 bytes of the EPK: all of it, for most containers.
    head: u128,
    hash: u64,
    epk_is_head: bool,
    key: Option<Arc<Key>>,
}

impl Slot {
    fn new(key: &Arc<Key>) -> Self {
        let (head, epk_is_head) = head(&key.epk);
        Self { head, hash: key.hash, epk_is_head, key: Some(Arc::clone(key)) }
    }

    fn lowest(epk: &Epk) -> Self {
        Self { head: head(epk).0, hash: 0, epk_is_head: true, key: None }
    }

    fn cmp_slow(&self, other: &Self) -> Ordering {
        match (&self.key, &other.key) {
            (Some(a), Some(b)) => a.cmp(b),
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        }
    }
}

fn head(epk: &Epk) -> (u128, bool) {
    let bytes = epk.as_bytes();
    match bytes.first_chunk() {
        Some(first) => (u128::from_be_bytes(*first), bytes.len() == first.len()),
        None => {
            let mut padded = [0; 16];
            padded[..bytes.len()].copy_from_slice(bytes);
            (u128::from_be_bytes(padded), false)
        }
    }
}

impl Ord for Slot {
    fn cmp(&self, other: &Self) -> Ordering {
        let heads = self.head.cmp(&other.head);
        if heads != Ordering::Equal {
            return heads;
        }
        // Two EPKs of 16 bytes with equal heads are equal, so the hashes of the ids are what comes next.
        let (whole, hashes) = (self.epk_is_head && other.epk_is_head, self.hash.cmp(&other.hash));
        if whole && hashes != Ordering::Equal && self.key.is_some() && other.key.is_some() {
            return hashes;
        }
        self.cmp_slow(other)
    }
}

impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Slot {}

#[cfg(test)]
mod tests {
    use changefeed_core::ItemId;

    use super::*;

    #[test]
    fn slots_are_in_the_order_of_their_keys() {
        let epks: [&[u8]; 8] = [&[], &[0], &[0, 0], &[1; 15], &[1; 16], &[1; 17], &[1; 32], &[2; 16]];
        let ids = ["a", "b", "item-1", "item-2"];
        let keys: Vec<Arc<Key>> = epks
            .iter()
            .flat_map(|epk| ids.iter().map(|id| Arc::new(Key::new(Epk::from_bytes(epk), ItemId::new(*id).unwrap()))))
            .collect();
        for a in &keys {
            for b in &keys {
                assert_eq!(Slot::new(a).cmp(&Slot::new(b)), a.cmp(b), "{a:?} {b:?}");
            }
            assert!(Slot::lowest(&a.epk) < Slot::new(a));
        }
    }
}
