//! News of the lease container: a host is woken by what others write into leases, not by its own checkpoints, and reads
//! only what has changed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use changefeed_core::{ChangePage, Continuation, ErrorKind, FeedRange, ReadChanges, Response, Result, StartFrom};

use super::{
    document::{Glimpse, Sighting},
    observation::Observations,
    prefix::LeaseToken,
    store::{LeaseStore, Listing, StoredLease},
};
use crate::runtime::{BoxFuture, Runtime};

/// What a host knows of the leases, and where in the feed of their container it knows it from.
#[derive(Debug)]
pub struct News {
    store: Arc<LeaseStore>,
    position: Position,
    known: BTreeMap<LeaseToken, Glimpse>,
    /// Whether everything since the last listing was or can still be read.
    whole: bool,
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

/// What changes in the lease container mean to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Who has a lease, or who wants it, has changed: the host should look at its leases.
    Something,
    /// Own checkpoints, and renewals of others.
    Nothing {
        /// How many documents had to be read to know that.
        read: u32,
    },
}

impl News {
    /// Nothing is known yet.
    pub fn new(store: &Arc<LeaseStore>) -> Self {
        Self { store: Arc::clone(store), position: Position::Unknown, known: BTreeMap::new(), whole: false }
    }

    /// Finds out where the feed ends, once. To be called before the leases are listed, so that nothing falls between.
    pub async fn begin(&mut self) {
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
    pub fn know(&mut self, listing: &Listing) {
        let glimpse = |lease: &StoredLease| (lease.document.token.clone(), Glimpse::from(&lease.document));
        self.known = listing.leases.iter().map(glimpse).collect();
        self.whole = matches!(self.position, Position::At(_));
    }

    /// The next changes in the lease container, but not before a pause. Stores that wake nobody never end it, and are
    /// asked nothing.
    pub fn next(&self, runtime: &Arc<dyn Runtime>, pause: Duration) -> BoxFuture<'static, Result<ChangePage>> {
        let Position::At(position) = &self.position else { return Box::pin(std::future::pending()) };
        let (container, position) = (self.store.container().clone(), position.clone());
        let quiet = runtime.sleep(pause);
        Box::pin(async move {
            quiet.await;
            container.backend().changed(&FeedRange::full(), &position).await;
            let page = container.read_changes(ReadChanges::new(FeedRange::full(), position)).await;
            page.map(Response::into_value)
        })
    }

    /// The next changes in the lease container, without waiting for any; none if some may have been missed since the
    /// last listing.
    pub async fn page(&self) -> Option<Result<ChangePage>> {
        let Position::At(position) = &self.position else { return None };
        if !self.whole {
            return None;
        }
        let request = ReadChanges::new(FeedRange::full(), position.clone());
        Some(self.store.container().read_changes(request).await.map(Response::into_value))
    }

    /// Whether nothing had been written behind this page when it was read.
    pub fn is_last(&self, page: &ChangePage) -> bool {
        let reached = page.continuation.to_lsn(&self.store.container().identity().container);
        page.changes.is_empty() || reached.is_ok_and(|reached| reached >= page.newest_lsn)
    }

    /// Takes in changes that were read at `now`. `mine` are the leases that the host works on, under `session`.
    pub fn take(
        &mut self,
        page: Result<ChangePage>,
        mine: impl Fn(&LeaseToken) -> bool,
        session: &str,
        observations: &mut Observations,
        now: Duration,
    ) -> Heard {
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                let gone = error.kind() == ErrorKind::RangeGone;
                self.position = if gone { Position::None } else { Position::Unknown };
                self.whole = false;
                // What was missed meanwhile shows in the next listing.
                return Heard::Nothing { read: 0 };
            }
        };
        self.position = Position::At(page.continuation);
        let prefix = self.store.prefix().leases();
        let mut concerned = false;
        for change in page.changes.iter().filter(|change| change.id.starts_with(&prefix)) {
            let Some(Sighting { token, etag, glimpse }) = change.current.as_deref().and_then(Glimpse::parse) else {
                concerned = true;
                continue;
            };
            observations.hear(&token, etag, now);
            let calm = glimpse.is_undisturbed(session) && mine(&token);
            if self.known.get(&token) != Some(&glimpse) {
                concerned |= !calm;
                self.known.insert(token, glimpse);
            }
        }
        let read = u32::try_from(page.changes.len()).unwrap_or(u32::MAX);
        if concerned { Heard::Something } else { Heard::Nothing { read } }
    }
}
