//! One physical range: its sequence of LSNs, its feed and its waiting readers.

use changefeed_core::{Epk, PhysicalRange};
use tokio::sync::watch;

use super::{Entry, feed::FeedLog, horizon::Horizon};

/// A physical range as it began: by creation, split or merge.
#[derive(Clone, Debug)]
pub(crate) struct RangeStart {
    pub(crate) physical: PhysicalRange,
    /// Its own LSNs come after this one.
    pub(crate) lsn: u64,
    pub(crate) horizon: Horizon,
}

impl RangeStart {
    /// Whether the range is this one, which may have come further meanwhile.
    pub(super) fn is_start_of(&self, range: &RangeIndex) -> bool {
        self.physical.id == range.physical.id && self.physical.range == range.physical.range
    }
}

/// One physical range: its name, its feed and its waiting readers.
#[derive(Debug)]
pub(crate) struct RangeIndex {
    pub(crate) physical: PhysicalRange,
    pub(crate) feed: FeedLog,
    /// The newest LSN given out and synced.
    pub(crate) lsn: u64,
    /// How far back all-versions history reaches.
    pub(crate) horizon: Horizon,
    /// The newest LSN. Dropped with the range, which wakes all waiting readers.
    pub(crate) newest: watch::Sender<u64>,
}

impl RangeIndex {
    pub(super) fn new(start: RangeStart, feed: FeedLog) -> Self {
        let RangeStart { physical, lsn, horizon } = start;
        Self { physical, feed, lsn, horizon, newest: watch::Sender::new(lsn) }
    }

    /// Takes note that LSNs up to this one are used up.
    pub(super) fn reach(&mut self, lsn: u64) {
        if lsn > self.lsn {
            self.lsn = lsn;
            self.newest.send_replace(lsn);
        }
    }
}

/// Where the ranges of a container end: the first bytes of each end, in order. A search goes through these numbers, which
/// lie next to each other, and not through the ranges, which lie all over memory: a container has up to thousands.
#[derive(Debug)]
pub(super) struct RangeEnds(Vec<u64>);

impl RangeEnds {
    pub(super) fn of(ranges: &[RangeIndex]) -> Self {
        Self(ranges.iter().map(|range| head(range.physical.range.max_exclusive())).collect())
    }

    /// Where the range of a key stands among `ranges`, which are those that this was made of.
    pub(super) fn position(&self, ranges: &[RangeIndex], epk: &Epk) -> usize {
        let head = head(epk);
        let lower = self.0.partition_point(|end| *end < head);
        let same = self.0[lower..].partition_point(|end| *end == head);
        // Only these may end before or after the key: they are compared in full.
        lower + ranges[lower..lower + same].partition_point(|range| range.physical.range.max_exclusive() <= epk)
    }
}

/// The first bytes of an EPK as a number, in the order of EPKs.
fn head(epk: &Epk) -> u64 {
    let mut head = [0; 8];
    for (to, from) in head.iter_mut().zip(epk.as_bytes()) {
        *to = *from;
    }
    u64::from_be_bytes(head)
}

/// What the log says about records that are gone.
#[derive(Clone, Debug)]
pub(crate) struct Watermark {
    /// A key of the range, or of the part of it, that is meant.
    pub(crate) epk: Epk,
    /// LSNs up to this one are used up.
    pub(crate) lsn: u64,
    /// All-versions history up to here is gone.
    pub(crate) purged: u64,
    /// Document numbers up to this one are used up, in the whole container.
    pub(crate) number: u64,
}

/// Gives each range its entries. The ranges are in key order; the entries in any.
pub(super) fn fill(ranges: Vec<RangeStart>, entries: Vec<Entry>) -> Vec<RangeIndex> {
    let mut feeds: Vec<Vec<Entry>> = ranges.iter().map(|_| Vec::new()).collect();
    for entry in entries {
        let at = ranges.partition_point(|range| range.physical.range.max_exclusive() <= &entry.key.epk);
        if let Some(feed) = feeds.get_mut(at) {
            feed.push(entry);
        }
    }
    let filled = ranges.into_iter().zip(feeds).map(|(range, mut feed)| {
        // The entries of each range that was not merged are in order: the sort finds that out.
        feed.sort_by(|a, b| a.order().cmp(&b.order()));
        // Also what is dead has used up its LSN.
        let lsn = feed.last().map_or(0, |entry| entry.change_id.lsn).max(range.lsn);
        RangeIndex::new(RangeStart { lsn, ..range }, FeedLog::from_sorted(feed))
    });
    filled.collect()
}

#[cfg(test)]
mod tests {
    use changefeed_core::{FeedRange, RangeId};

    use super::*;

    #[test]
    fn a_range_is_found_by_any_of_its_keys() {
        let long = |last: u8| [&[7; 11][..], &[last]].concat();
        let bounds: [&[u8]; 8] = [&[], &[0, 1], &[3], &[7; 8], &long(1), &long(2), &[7; 12], &[0xFF]];
        let ranges = bounds.windows(2).enumerate().map(|(at, bounds)| {
            let range = FeedRange::new(Epk::from_bytes(bounds[0]), Epk::from_bytes(bounds[1])).unwrap();
            let physical = PhysicalRange { id: RangeId::from(at as u64), range: range.clone(), parents: Vec::new() };
            RangeStart { physical, lsn: 0, horizon: Horizon::new(range, 0) }
        });
        let ranges = fill(ranges.collect(), Vec::new());
        let ends = RangeEnds::of(&ranges);
        let after = |key: &[u8]| [key, &[0]].concat();
        let keys = bounds.iter().map(|bound| bound.to_vec()).chain(bounds.iter().map(|bound| after(bound)));
        for key in keys.map(|key| Epk::from_bytes(&key)) {
            let expected = ranges.partition_point(|range| range.physical.range.max_exclusive() <= &key);
            assert_eq!(ends.position(&ranges, &key), expected, "{key}");
        }
    }
}
