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
