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

    /// A page has come within `elapsed`; one that took less than `timeout` allows larger ones.
    pub(crate) fn received(&self, elapsed: Duration, timeout: Duration) {
        let limit = self.0.load(Ordering::Relaxed);
        if limit != NO_LIMIT && elapsed < timeout {
            self.0.store(if limit >= LARGEST { NO_LIMIT } else { 2 * limit }, Ordering::Relaxed);
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
        size.received(timeout, timeout);
        assert_eq!(size.limit(1000), 250, "the link takes no more");
        size.received(Duration::from_secs(1), timeout);
        assert_eq!(size.limit(1000), 500);
        size.timed_out(1);
        assert_eq!(size.limit(1000), 1);
        (0..100).for_each(|_| size.received(Duration::ZERO, timeout));
        assert_eq!(size.limit(usize::MAX), NO_LIMIT);
    }
}
