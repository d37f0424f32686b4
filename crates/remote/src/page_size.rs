//! How many changes a page holds over a slow link: fewer after one that took too long, so that the next one arrives.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// As many as the reader wants.
const NO_LIMIT: usize = usize::MAX;

/// After a page that took too long the next ones have this part of its size.
const PART: usize = 4;

/// Beyond this size pages are as large as the reader wants again.
const LARGEST: usize = 1 << 16;

/// The limit for the pages of one container, shared by all its readers: they share the link as well.
#[derive(Debug)]
pub(crate) struct PageSize(AtomicUsize);

impl Default for PageSize {
    fn default() -> Self {
        Self(AtomicUsize::new(NO_LIMIT))
    }
}

impl PageSize {
    /// How many changes to ask for.
    pub(crate) fn limit(&self, wanted: usize) -> usize {
        wanted.min(self.0.load(Ordering::Relaxed))
    }

    /// A page of `asked` changes took too long. Other readers may have found that out already.
    pub(crate) fn timed_out(&self, asked: usize) {
        self.0.fetch_min((asked / PART).max(1), Ordering::Relaxed);
    }

    /// A page of `count` changes, of `asked`, has come within `elapsed`. If it is as large as the limit allows and took less
    /// than `timeout`, the next ones may be larger; smaller ones, as of ranges with few changes, prove nothing.
    pub(crate) fn received(&self, asked: usize, count: usize, elapsed: Duration, timeout: Duration) {
        if asked != NO_LIMIT && count >= asked && elapsed < timeout {
            let next = if asked >= LARGEST { NO_LIMIT } else { 2 * asked };
            // Only if the limit is still the one that this page had: it may have been too large for another reader.
            self.0.compare_exchange(asked, next, Ordering::Relaxed, Ordering::Relaxed).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_shrink_until_they_arrive_and_grow_while_they_are_quick() {
        let (size, timeout) = (PageSize::default(), Duration::from_secs(10));
        assert_eq!(size.limit(1000), 1000);
        size.timed_out(1000);
        assert_eq!((size.limit(1000), size.limit(3)), (250, 3));
        size.timed_out(1000);
        assert_eq!(size.limit(1000), 250, "a reader that asked before proves nothing new");
        size.received(250, 250, timeout, timeout);
        assert_eq!(size.limit(1000), 250, "the link takes no more");
        for (asked, count) in [(250, 0), (250, 249), (100, 100)] {
            size.received(asked, count, Duration::ZERO, timeout);
            assert_eq!(size.limit(1000), 250, "{count} of {asked} prove nothing");
        }
        size.received(250, 250, Duration::from_secs(1), timeout);
        assert_eq!(size.limit(1000), 500);
        size.timed_out(1);
        assert_eq!(size.limit(1000), 1);
        for _ in 0..100 {
            let asked = size.limit(usize::MAX);
            size.received(asked, asked, Duration::ZERO, timeout);
        }
        assert_eq!(size.limit(usize::MAX), NO_LIMIT);
    }
}
