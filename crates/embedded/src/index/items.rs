//! The items of one container by key. Most comparisons are of numbers that lie in the map itself: following pointers
//! to keys all over memory is what would make a large map slow.

use std::{cmp::Ordering, collections::BTreeMap, ops::Bound, sync::Arc};

use changefeed_core::Epk;

use super::{Entry, Key};
use crate::format::record::{ChangeId, RecordKind};

/// The newest record of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemState {
    pub(crate) change_id: ChangeId,
    /// The document number in `_rid`.
    pub(crate) document_number: u64,
    /// Whether it is an item, not a delete.
    pub(crate) live: bool,
    /// How many older versions of the item are on disk. While there are any, a delete must stay there too: without it
    /// they would come to life again when the folder is next opened. Older deletes do not count.
    pub(crate) stale: u32,
}

/// Where an item stands in a listing: by the first bytes of its EPK, then in the order of creation, as in Azure Cosmos DB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListPosition {
    pub(crate) head: u128,
    pub(crate) number: u64,
}

impl ListPosition {
    /// Before all items of an EPK.
    pub(crate) fn before(epk: &Epk) -> Self {
        Self { head: head(epk).0, number: 0 }
    }
}

/// The newest record of each key, and the live items in the order of listings and by number.
#[derive(Debug, Default)]
pub(crate) struct Items {
    newest: BTreeMap<Slot, ItemState>,
    listed: BTreeMap<ListPosition, Arc<Key>>,
    by_number: BTreeMap<u64, Arc<Key>>,
}

impl Items {
    /// From all records of a container, oldest first. `superseded` is called for each one that was followed by another of its
    /// key, and of that one.
    pub(crate) fn of_records(records: &[Entry], mut superseded: impl FnMut(usize, usize)) -> Self {
        let mut slots: Vec<(Slot, usize)> =
            records.iter().enumerate().map(|(at, record)| (Slot::new(&record.key), at)).collect();
        slots.sort_unstable();
        let mut newest = Vec::new();
        for versions in slots.chunk_by(|(a, _), (b, _)| a == b) {
            versions.windows(2).for_each(|pair| superseded(pair[0].1, pair[1].1));
            let Some(((slot, last), older)) = versions.split_last() else { continue };
            let is_put = |at: usize| records[at].kind == RecordKind::Put;
            let stale = older.iter().filter(|(_, at)| is_put(*at)).count() as u32;
            let Entry { change_id, document_number, .. } = records[*last];
            newest.push((slot.clone(), ItemState { change_id, document_number, live: is_put(*last), stale }));
        }
        let live = || newest.iter().filter(|(_, state)| state.live);
        let by_number = live().map(|(slot, state)| (state.document_number, Arc::clone(&slot.key))).collect();
        let listed = live().map(|(slot, state)| {
            (ListPosition { head: slot.head, number: state.document_number }, Arc::clone(&slot.key))
        });
        let listed = listed.collect();
        Self { newest: newest.into_iter().collect(), listed, by_number }
    }

    pub(crate) fn get(&self, key: &Arc<Key>) -> Option<&ItemState> {
        self.newest.get(&Slot::new(key))
    }

    pub(crate) fn get_mut(&mut self, key: &Arc<Key>) -> Option<&mut ItemState> {
        self.newest.get_mut(&Slot::new(key))
    }

    /// Sets the state of a key; returns the one before.
    pub(crate) fn insert(&mut self, key: &Arc<Key>, state: ItemState) -> Option<ItemState> {
        let old = self.newest.insert(Slot::new(key), state);
        let number = |state: &ItemState| state.live.then_some(state.document_number);
        let (before, after) = (old.as_ref().and_then(number), number(&state));
        if before != after {
            let head = head(&key.epk).0;
            if let Some(number) = before {
                self.listed.remove(&ListPosition { head, number });
                self.by_number.remove(&number);
            }
            if let Some(number) = after {
                self.listed.insert(ListPosition { head, number }, Arc::clone(key));
                self.by_number.insert(number, Arc::clone(key));
            }
        }
        old
    }

    /// Removes a key that is no item any more.
    pub(crate) fn remove(&mut self, key: &Arc<Key>) {
        debug_assert!(self.get(key).is_none_or(|state| !state.live));
        self.newest.remove(&Slot::new(key));
    }

    /// The item with this document number.
    pub(crate) fn numbered(&self, number: u64) -> Option<(&Arc<Key>, &ItemState)> {
        let key = self.by_number.get(&number)?;
        Some((key, self.get(key)?))
    }

    /// All items after a position, in order. EPKs ascend as far as their first 16 bytes.
    pub(crate) fn after(&self, position: ListPosition) -> impl Iterator<Item = (ListPosition, &Arc<Key>)> {
        self.listed.range((Bound::Excluded(position), Bound::Unbounded)).map(|(position, key)| (*position, key))
    }
}

/// A key, with the parts that decide most comparisons in front.
#[derive(Clone, Debug)]
struct Slot {
    /// The first 16 bytes of the EPK: all of it, for most containers.
    head: u128,
    hash: u64,
    epk_is_head: bool,
    key: Arc<Key>,
}

impl Slot {
    fn new(key: &Arc<Key>) -> Self {
        let (head, epk_is_head) = head(&key.epk);
        Self { head, hash: key.hash, epk_is_head, key: Arc::clone(key) }
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
        if whole && hashes != Ordering::Equal {
            return hashes;
        }
        self.key.cmp(&other.key)
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
        }
    }
}
