//! What a write to a lease changes. Pure.

use std::time::Duration;

use changefeed_core::FeedRange;

use super::{
    document::{Attempts, LeaseDocument, Search, Status},
    signals::Progress,
};

/// A change of a lease document by its owner. Sets values, so that it can be applied again after a conflict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseUpdate {
    /// Moves the checkpoint.
    pub(crate) progress: Option<Progress>,
    /// Sets how often the batch after the checkpoint has failed.
    pub(crate) attempts: Option<u32>,
    /// Sets or clears the position of the search for poison items.
    pub(crate) search: Option<Option<Search>>,
    /// What the owner is doing.
    pub(crate) status: Option<Status>,
    /// Ends the ownership.
    pub(crate) transfer: Option<Transfer>,
    /// The range, for a document that does not have it.
    pub(crate) range: Option<FeedRange>,
    /// Whether the document is known to be outdated: it is read before it is written, since the write would be refused.
    pub(crate) read_first: bool,
}

/// How an ownership ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// Nobody owns the lease.
    Release,
    /// The instance that asks for it when this is written owns it; if none does any more it stays.
    Grant,
    /// Nobody owns the lease, and it is a tombstone.
    Tombstone,
}

/// Who writes, and what it promises.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise<'a> {
    pub(crate) instance: &'a str,
    /// How long the owner may be silent before others may take the lease.
    pub(crate) expiration: Duration,
}

impl LeaseUpdate {
    /// Applies the change to a copy of the document.
    pub(crate) fn apply(&self, document: &mut LeaseDocument, promise: Promise<'_>) {
        document.set_promise(promise.instance, promise.expiration);
        if let Some(progress) = &self.progress {
            document.continuation = Some(progress.continuation.clone());
            // What was known about failures after the old checkpoint is over.
            document.set_attempts(&Attempts::default());
            document.set_search(None);
        }
        if let Some(count) = self.attempts {
            let continuation = document.continuation.clone();
            document.set_attempts(&Attempts { continuation, count });
        }
        if let Some(search) = &self.search {
            document.set_search(search.as_ref());
        }
        document.set_status(self.status.as_ref());
        if document.has_no_range() {
            document.feed_range.clone_from(&self.range);
        }
        match self.transfer {
            None => {}
            Some(Transfer::Release) => end_ownership(document, None),
            Some(Transfer::Tombstone) => {
                document.set_gone(true);
                end_ownership(document, None);
            }
            Some(Transfer::Grant) => {
                if let Some(request) = document.hand_over() {
                    end_ownership(document, Some(&request.to));
                }
            }
        }
    }
}

/// Ends the ownership in good order: to nobody, or to the instance that asked, under a new epoch. A batch that was being
/// searched through did not crash this process, so its name is dropped.
pub(crate) fn end_ownership(document: &mut LeaseDocument, to: Option<&str>) {
    document.owner = to.map(str::to_owned);
    document.set_epoch(document.epoch() + 1);
    document.set_session(None);
    // The promise of the old owner, or what the new one asked for, holds until the new one makes its own.
    document.set_promised_by(to);
    document.set_hand_over(None);
    document.set_status(None);
}
