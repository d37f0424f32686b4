//! What is left of indexes after deletes, splits, merges and changes of settings.

use super::{container::ContainerIndex, expiry::ByTime, feed::FeedLog};

/// Parts of indexes that are gone. They may be so large that neither commits nor readers should wait until they are dropped.
#[derive(Debug, Default)]
pub(crate) struct Discarded {
    /// Of ranges that are gone.
    pub(crate) feeds: Vec<FeedLog>,
    /// Of deleted containers.
    pub(crate) indexes: Vec<ContainerIndex>,
    /// Of containers without a default time to live.
    pub(crate) expiring: Vec<ByTime>,
}

impl Discarded {
    /// Adds what is gone besides.
    pub(crate) fn extend(&mut self, gone: Self) {
        self.feeds.extend(gone.feeds);
        self.indexes.extend(gone.indexes);
        self.expiring.extend(gone.expiring);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.feeds.is_empty() && self.indexes.is_empty() && self.expiring.iter().all(ByTime::is_empty)
    }
}
