//! The change feed of the lease container: a host is woken by what others write into leases, not by its own checkpoints,
//! and reads only what has changed.

#[cfg(all(test, feature = "embedded"))]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use changefeed_core::{ChangePage, Continuation, ErrorKind, FeedRange, ReadChanges, Response, Result, StartFrom};

use super::record::Records;
use crate::{
    lease::{document::LeaseSummary, listing::Listing, parsed, prefix::LeaseToken, store::LeaseStore},
    runtime::{BoxFuture, Runtime},
};

/// What a host knows of the leases, and the position in the feed of their container.
#[derive(Debug)]
pub(crate) struct LeaseFeed {
    store: Arc<LeaseStore>,
    position: Position,
    known: BTreeMap<LeaseToken, Arc<LeaseSummary>>,
    /// Whether everything since the last listing was or can still be read.
    whole: bool,
    /// How many writes of this host there were at the last read.
    own_writes: u64,
}

#[derive(Debug)]
enum Position {
    /// To be asked for.
    Unknown,
    /// Everything up to here is known.
    At(Continuation),
    /// The container has several ranges: hosts look at all leases every now and then, and that must do.
    None,
}

/// Whether changes in the lease container concern a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relevance {
    /// The owner of a lease or the request for it has changed: the host should list all leases.
    Relevant,
    /// Own checkpoints, and renewals of others.
    Irrelevant {
        /// How many documents had to be read to know that.
        read: u32,
    },
}

impl LeaseFeed {
    /// Nothing is known yet.
    pub(crate) fn new(store: &Arc<LeaseStore>) -> Self {
        Self {
            store: Arc::clone(store),
            position: Position::Unknown,
            known: BTreeMap::new(),
            whole: false,
            own_writes: 0,
        }
    }

    /// Finds out where the feed ends, once. To be called before the leases are listed, so that nothing falls between.
    pub(crate) async fn begin(&mut self) {
        if !matches!(self.position, Position::Unknown) {
            return;
        }
        let now = ReadChanges::new(FeedRange::full(), StartFrom::Now).max_items(1);
        self.position = match self.store.container().read_changes(now).await {
            Ok(page) => Position::At(page.into_value().continuation),
            Err(error) if error.kind() == ErrorKind::RangeGone => Position::None,
            Err(_) => Position::Unknown,
        };
    }

    /// All leases as they are now.
    pub(crate) fn listed(&mut self, listing: &Listing) {
        let listed = || listing.summarised().map(|(lease, summary)| (&lease.document.token, summary));
        if self.known.keys().eq(listed().map(|(token, _)| token)) {
            // The same leases, as in most listings: the map is updated in place.
            self.known.values_mut().zip(listed()).for_each(|(known, (_, summary))| *known = Arc::clone(summary));
        } else {
            self.known = listed().map(|(token, summary)| (token.clone(), Arc::clone(summary))).collect();
        }
        self.whole = matches!(self.position, Position::At(_));
    }

    /// The next changes in the lease container, but not before a pause. Stores that wake nobody never end it, and are
    /// asked nothing. A host that has written itself knows that there are changes, and need not ask to be woken.
    pub(crate) fn next(&self, runtime: &Arc<dyn Runtime>, pause: Duration) -> BoxFuture<'static, Result<ChangePage>> {
        let Position::At(position) = &self.position else { return Box::pin(std::future::pending()) };
        let (store, position, read) = (Arc::clone(&self.store), position.clone(), self.own_writes);
        let quiet = runtime.sleep(pause);
        Box::pin(async move {
            quiet.await;
            let container = store.container();
            if !container.capabilities().wake_ups || store.own_writes() == read {
                container.backend().changed(&FeedRange::full(), &position).await;
            }
            let page = container.read_changes(ReadChanges::new(FeedRange::full(), position)).await;
            page.map(Response::into_value)
        })
    }

    /// The next changes in the lease container, without waiting for any; none if some may have been missed since the
    /// last listing.
    pub(crate) async fn page(&self) -> Option<Result<ChangePage>> {
        let Position::At(position) = &self.position else { return None };
        if !self.whole {
            return None;
        }
        let request = ReadChanges::new(FeedRange::full(), position.clone()).count_remaining();
        Some(self.store.container().read_changes(request).await.map(Response::into_value))
    }

    /// The leases of the processor in a page; none for a document that cannot be read.
    pub(crate) fn leases(&self, page: &ChangePage) -> impl Iterator<Item = Option<Arc<LeaseSummary>>> {
        let prefix = self.store.prefix().leases();
        let leases = page.changes.iter().filter(move |change| change.id.starts_with(&prefix));
        leases.map(|change| change.current.as_deref().and_then(parsed::summary))
    }

    /// Takes in changes that were read at `now`. `session` is that of this host.
    pub(crate) fn take(
        &mut self,
        page: Result<ChangePage>,
        session: &str,
        records: &mut Records,
        now: Duration,
    ) -> Relevance {
        self.own_writes = self.store.own_writes();
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                let gone = error.kind() == ErrorKind::RangeGone;
                self.position = if gone { Position::None } else { Position::Unknown };
                self.whole = false;
                records.read_failed();
                // What was missed meanwhile shows in the next listing.
                return Relevance::Irrelevant { read: 0 };
            }
        };
        records.read_succeeded(now);
        let mut concerned = false;
        let leases: Vec<_> = self.leases(&page).collect();
        let read = u32::try_from(page.changes.len()).unwrap_or(u32::MAX);
        self.position = Position::At(page.continuation);
        for seen in leases {
            let Some(seen) = seen else {
                concerned = true;
                continue;
            };
            let has_task = records.see(&seen, now);
            let known = self.known.get_mut(seen.token());
            let unchanged = known.as_ref().is_some_and(|known| seen.has_same_ownership(known));
            concerned |= !(unchanged || seen.is_undisturbed(session) && has_task);
            // Also if nothing has changed: versions that no host knows any more are dropped.
            match known {
                Some(known) => *known = seen,
                None => drop(self.known.insert(seen.token().clone(), seen)),
            }
        }
        if concerned { Relevance::Relevant } else { Relevance::Irrelevant { read } }
    }
}
