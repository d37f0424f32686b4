//! When the items of a container expire. What is listed here does not depend on the number of seconds in the container's
//! setting, so that a change of it moves no entry.

use std::{collections::BTreeSet, sync::Arc};

use changefeed_core::{Epk, TimeToLive};

use super::{Entry, Key, range::RangeIndex};

/// Items in the order of a time in milliseconds.
pub(crate) type ByTime = BTreeSet<(u64, Arc<Key>)>;

/// The time to live of a container and the items that it concerns.
#[derive(Debug)]
pub(crate) struct Expiry {
    time_to_live: TimeToLive,
    /// Items with a `ttl` of their own, by their expiry, also while the container's setting ignores it.
    own: ByTime,
    /// Items without one, by their last write. Empty unless the container has a default.
    defaulted: ByTime,
    /// The container got a default, and not all items without a `ttl` are in `defaulted` yet.
    listing: Option<Listing>,
}

/// How far the listing of older items has come. Items that are written meanwhile are listed by their write.
#[derive(Debug, Default)]
struct Listing {
    /// Where the range stands among the ranges of the container.
    range: usize,
    /// The order of the last entry of it that was looked at.
    after: Option<(u64, Epk, u16)>,
    /// Its newest LSN when it was begun: later writes are listed.
    end: Option<u64>,
}

impl Expiry {
    /// Nothing listed, for a container without items.
    pub(crate) fn new(time_to_live: TimeToLive) -> Self {
        Self { time_to_live, own: ByTime::new(), defaulted: ByTime::new(), listing: None }
    }

    pub(crate) fn time_to_live(&self) -> TimeToLive {
        self.time_to_live
    }

    /// When an item's time is over, in milliseconds since the epoch.
    pub(crate) fn expires_at(&self, entry: &Entry) -> Option<u64> {
        match (self.time_to_live, entry.ttl) {
            (TimeToLive::Off, _) | (_, ..=-1) | (TimeToLive::ItemsOnly, 0) => None,
            (TimeToLive::Seconds(seconds), 0) => Some(after_seconds(entry.timestamp, seconds)),
            (_, own) => Some(after_seconds(entry.timestamp, own.unsigned_abs())),
        }
    }

    /// Lists an item that was written.
    pub(super) fn insert(&mut self, entry: &Entry) {
        if let Some((list, at)) = self.list_of(entry) {
            list.insert((at, Arc::clone(&entry.key)));
        }
    }

    /// Takes an item out that was superseded.
    pub(super) fn remove(&mut self, entry: &Entry) {
        if let Some((list, at)) = self.list_of(entry) {
            list.remove(&(at, Arc::clone(&entry.key)));
        }
    }

    /// Where an item belongs, and its time there.
    fn list_of(&mut self, entry: &Entry) -> Option<(&mut ByTime, u64)> {
        match (entry.ttl, self.time_to_live) {
            (0, TimeToLive::Seconds(_)) => Some((&mut self.defaulted, entry.timestamp)),
            (0, _) | (..=-1, _) => None,
            (own, _) => Some((&mut self.own, after_seconds(entry.timestamp, own.unsigned_abs()))),
        }
    }

    /// Items whose time is over, those first whose time ended first. Items that are not listed yet are missing.
    pub(crate) fn expired(&self, now: u64) -> impl Iterator<Item = &Arc<Key>> {
        let own = (self.time_to_live != TimeToLive::Off).then_some(&self.own);
        let mut own = own.into_iter().flatten().map(|(at, key)| (*at, key)).peekable();
        let default = match self.time_to_live {
            TimeToLive::Seconds(seconds) => seconds,
            _ => 0,
        };
        let mut defaulted =
            self.defaulted.iter().map(move |(written, key)| (after_seconds(*written, default), key)).peekable();
        let next = move || match (own.peek(), defaulted.peek()) {
            (Some(a), Some(b)) if a <= b => own.next(),
            (Some(_), None) => own.next(),
            _ => defaulted.next(),
        };
        std::iter::from_fn(next).take_while(move |(at, _)| *at <= now).map(|(_, key)| key)
    }

    /// Whether [`expired`](Self::expired) gives all that has expired.
    pub(crate) fn is_complete(&self) -> bool {
        self.listing.is_none()
    }

    /// Changes the setting. If the container gets a default, [`advance`](Self::advance) lists its items; if it loses it,
    /// returns the list, which may be so long that it is to be dropped without a lock.
    #[must_use]
    pub(super) fn change(&mut self, time_to_live: TimeToLive) -> ByTime {
        let has_default = |setting| matches!(setting, TimeToLive::Seconds(_));
        let (before, after) = (has_default(self.time_to_live), has_default(time_to_live));
        self.time_to_live = time_to_live;
        if before == after {
            return ByTime::new();
        }
        self.listing = after.then(Listing::default);
        std::mem::take(&mut self.defaulted)
    }

    /// Begins again with what is being listed, since the container has other ranges.
    pub(super) fn restart(&mut self) {
        if let Some(listing) = &mut self.listing {
            *listing = Listing::default();
        }
    }

    /// Looks at no more than `limit` entries and lists those that are items without a `ttl`. Returns what is left of
    /// `limit`: 0 if there may be more to do.
    pub(super) fn advance(&mut self, ranges: &[RangeIndex], limit: usize) -> usize {
        let mut left = limit;
        while left > 0
            && let Some(listing) = &mut self.listing
        {
            let Some(range) = ranges.get(listing.range) else {
                self.listing = None;
                break;
            };
            let end = *listing.end.get_or_insert(range.lsn);
            let after = listing.after.take();
            let rest: Box<dyn Iterator<Item = &Entry>> = match &after {
                Some((lsn, epk, op)) => Box::new(range.feed.after_order((*lsn, epk, *op))),
                None => Box::new(range.feed.all()),
            };
            let mut rest = rest.take_while(|entry| entry.change_id.lsn <= end).peekable();
            let mut last = None;
            while left > 0
                && let Some(entry) = rest.next()
            {
                left -= 1;
                last = Some(entry);
                if entry.is_item() && entry.ttl == 0 {
                    self.defaulted.insert((entry.timestamp, Arc::clone(&entry.key)));
                }
            }
            if rest.peek().is_none() {
                *listing = Listing { range: listing.range + 1, ..Listing::default() };
            } else if let Some(last) = last {
                listing.after = Some((last.change_id.lsn, last.key.epk.clone(), last.change_id.op));
            }
        }
        left
    }
}

fn after_seconds(time: u64, seconds: u32) -> u64 {
    time.saturating_add(u64::from(seconds) * 1000)
}

#[cfg(test)]
mod tests {
    use changefeed_core::{FeedRange, ItemId, PhysicalRange, RangeId};

    use super::*;
    use crate::{
        format::record::{ChangeId, RecordHeader, RecordKind},
        index::{
            Location,
            container::{ContainerIndex, History},
            horizon::Horizon,
            range::RangeStart,
        },
    };

    const DAY: TimeToLive = TimeToLive::Seconds(86_400);

    fn start(id: u64, min: u8, max: u8, lsn: u64) -> RangeStart {
        let range = FeedRange::new(Epk::from_bytes(&[min]), Epk::from_bytes(&[max])).unwrap();
        let horizon = Horizon::new(range.clone(), 0);
        RangeStart { physical: PhysicalRange { id: RangeId::from(id), range, parents: Vec::new() }, lsn, horizon }
    }

    /// Writes or deletes an item of a random key.
    fn write(index: &mut ContainerIndex, random: &mut fastrand::Rng) {
        let id = ItemId::new(random.u8(0..20).to_string()).unwrap();
        let key = Arc::new(Key::new(Epk::from_bytes(&[random.u8(1..100)]), id));
        let kind = if index.item(&key).is_some() && random.bool() { RecordKind::Delete } else { RecordKind::Put };
        let lsn = index.range_of(&key.epk).unwrap().lsn + 1;
        let header = RecordHeader {
            kind,
            container: 1,
            change_id: ChangeId { lsn, op: 0 },
            previous: ChangeId::default(),
            document_number: index.number + 1,
            timestamp: random.u64(0..1000),
            ttl: if kind == RecordKind::Put { random.i32(-1..3) } else { 0 },
        };
        index.apply(Entry::new(&header, key, Location { segment: 1, offset: 0, bytes: 1 }), &mut |_| {});
    }

    /// Asserts that exactly the items of the container are listed.
    fn check(index: &ContainerIndex) {
        let mut wanted = Expiry::new(index.expiry.time_to_live());
        index.entries().filter(|entry| entry.is_item()).for_each(|entry| wanted.insert(entry));
        assert!(index.expiry.is_complete());
        assert_eq!((&index.expiry.own, &index.expiry.defaulted), (&wanted.own, &wanted.defaulted));
    }

    fn filled(seed: u64, history: History) -> (ContainerIndex, fastrand::Rng) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut index = ContainerIndex::new(vec![start(0, 0, 50, 0), start(1, 50, 200, 0)], history, TimeToLive::Off);
        (0..3000).for_each(|_| write(&mut index, &mut random));
        (index, random)
    }

    #[test]
    fn one_slice_looks_at_a_bounded_number_of_entries() {
        let (mut index, _) = filled(0, History::Milliseconds(1_000_000));
        let entries = index.ranges().iter().map(|range| range.feed.all().count()).sum::<usize>();
        assert!(index.change_settings(index.history, DAY).is_empty());
        let mut slices = 0;
        while index.list_expiring(100) == 0 {
            slices += 1;
            assert!(index.expiry.defaulted.len() <= 100 * slices);
        }
        assert_eq!(slices, entries / 100);
        check(&index);
        // Another number of seconds moves nothing, and no default at all gives the list away.
        assert!(index.change_settings(index.history, TimeToLive::Seconds(5)).is_empty());
        check(&index);
        assert!(!index.change_settings(index.history, TimeToLive::ItemsOnly).is_empty());
        check(&index);
    }

    #[test]
    fn writes_splits_and_further_changes_while_items_are_listed_give_the_same_as_at_rest() {
        for seed in 0..30 {
            let history = if seed % 2 == 0 { History::Off } else { History::Milliseconds(700) };
            let (mut index, mut random) = filled(seed, history);
            drop(index.change_settings(history, DAY));
            for step in 0..60 {
                (0..random.u32(0..40)).for_each(|_| write(&mut index, &mut random));
                let newest = index.newest();
                match step {
                    10 => drop(index.change_settings(history, TimeToLive::Off)),
                    15 => drop(index.change_settings(history, TimeToLive::Seconds(9))),
                    20 => drop(index.relayout(vec![start(2, 0, 200, newest)])),
                    30 => drop(index.change_settings(history, DAY)),
                    35 => drop(index.relayout(vec![start(3, 0, 20, newest), start(4, 20, 200, newest)])),
                    _ => drop(index.list_expiring(100)),
                }
            }
            // However much is written, the listing ends.
            let ended = (0..100).any(|_| {
                (0..200).for_each(|_| write(&mut index, &mut random));
                index.list_expiring(100) > 0
            });
            assert!(ended);
            check(&index);
            (0..500).for_each(|_| write(&mut index, &mut random));
            check(&index);
        }
    }

    #[test]
    fn items_expire_in_the_order_of_their_times() {
        let (mut index, _) = filled(1, History::Off);
        for time_to_live in [TimeToLive::Off, TimeToLive::ItemsOnly, TimeToLive::Seconds(1)] {
            drop(index.change_settings(History::Off, time_to_live));
            index.list_expiring(usize::MAX);
            for now in [0, 900, 1000, 1500, 2500, 10_000] {
                let time = |key: &Arc<Key>| index.item(key).and_then(|entry| index.expiry.expires_at(entry));
                let times: Vec<_> = index.expiry.expired(now).map(|key| time(key).expect("it expires")).collect();
                assert!(times.is_sorted());
                let items = index.entries().filter(|entry| entry.is_item());
                assert_eq!(times.len(), items.filter(|entry| index.is_expired(entry, now)).count());
            }
        }
    }
}
