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
