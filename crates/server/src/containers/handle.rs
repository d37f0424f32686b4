//! A container as handlers use it: its store with request charges, its live ranges and its session headers.

use std::{collections::BTreeMap, sync::Arc};

use changefeed_core::{
    Backend, Batch, ChangePage, Clock, Container, ContainerIdentity, Epk, Error, ErrorKind, FeedRange, Item, ItemId,
    ItemKey, ItemPage, ListItems, PhysicalRange, RangeId, ReadChanges, ResourceId, Response, Result, StartFrom,
    Timestamp, WriteResult,
};
use hyper::header::HeaderValue;
use parking_lot::Mutex;
use percent_encoding::{CONTROLS, utf8_percent_encode};

use super::{charges, previous_images::PreviousImages};
use crate::wire::session_token;

/// The age at which cached ranges are read again, in milliseconds. A split through this server refreshes them at once.
const RANGES_AGE_MILLIS: u64 = 1000;

/// The most resource ids that are remembered with the ids of their items.
const REMEMBERED_RIDS: usize = 10_000;

/// The number of locks for patches. Partition keys that share one wait for each other.
const PATCH_LOCKS: usize = 64;

/// A container, with the state that its responses need.
#[derive(Debug)]
pub(crate) struct ContainerHandle {
    /// The container; every response has a request charge.
    container: Container,
    /// The container as the store has it.
    store: Container,
    /// Its resource id, as text.
    pub(crate) rid: String,
    /// `dbs/{rid}/colls/{rid}/`.
    pub(crate) link: String,
    /// `dbs/{name}/colls/{name}`.
    pub(crate) name_link: String,
    /// Both as headers.
    pub(crate) rid_header: Option<HeaderValue>,
    pub(crate) name_header: Option<HeaderValue>,
    /// The highest LSN of each range that was observed.
    known_lsns: Mutex<BTreeMap<RangeId, u64>>,
    session_headers: Mutex<Option<Arc<SessionHeaders>>>,
    ranges: Mutex<Option<(Timestamp, Arc<[PhysicalRange]>)>>,
    rids: Mutex<BTreeMap<ResourceId, ItemId>>,
    /// Serializes the patches of a partition key: each reads an item and writes it back.
    patch_locks: [tokio::sync::Mutex<()>; PATCH_LOCKS],
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) previous_images: PreviousImages,
}

impl ContainerHandle {
    pub(crate) fn new(container: Container, clock: Arc<dyn Clock>, previous_images: PreviousImages) -> Self {
        let ContainerIdentity { database_name, container_name, database, container: rid, .. } = container.identity();
        let (text, name_link) = (rid.to_string(), format!("dbs/{database_name}/colls/{container_name}"));
        Self {
            rid_header: HeaderValue::from_str(&text).ok(),
            // As in paths, where a name has characters that cannot stand in a header.
            name_header: HeaderValue::from_str(&utf8_percent_encode(&name_link, CONTROLS).to_string()).ok(),
            rid: text,
            link: format!("dbs/{database}/colls/{rid}/"),
            name_link,
            container: charges::charged(&container),
            store: container,
            known_lsns: Mutex::new(BTreeMap::new()),
            session_headers: Mutex::new(None),
            ranges: Mutex::new(None),
            rids: Mutex::new(BTreeMap::new()),
            patch_locks: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
            clock,
            previous_images,
        }
    }

    pub(crate) fn identity(&self) -> &ContainerIdentity {
        self.container.identity()
    }

    /// The container as the store has it, without request charges, for the calls of `changefeed-remote`.
    pub(crate) fn store(&self) -> &dyn Backend {
        &**self.store.backend()
    }

    pub(crate) async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.container.backend().read_item(key).await
    }

    pub(crate) async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        self.container.backend().write(batch).await
    }

    pub(crate) async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.container.backend().list_items(request).await
    }

    pub(crate) async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.container.read_changes(request).await
    }

    /// Records an LSN of a range.
    pub(crate) fn observe_lsn(&self, range: &RangeId, lsn: u64) {
        let mut known = self.known_lsns.lock();
        match known.get_mut(range) {
            Some(highest) => *highest = lsn.max(*highest),
            None => drop(known.insert(range.clone(), lsn)),
        }
    }

    /// Returns the highest LSN of a range that was observed; the range may be further.
    pub(crate) fn known_lsn(&self, range: &RangeId) -> u64 {
        self.known_lsns.lock().get(range).copied().unwrap_or(0)
    }

    /// Returns a range and an LSN as headers. The last result is cached: between two writes all responses have the same.
    pub(crate) fn session_headers(&self, range: &RangeId, lsn: u64) -> Arc<SessionHeaders> {
        if let Some(cached) = &*self.session_headers.lock()
            && cached.lsn == lsn
            && cached.range == *range
        {
            return Arc::clone(cached);
        }
        let headers = Arc::new(SessionHeaders::new(range, lsn));
        *self.session_headers.lock() = Some(Arc::clone(&headers));
        headers
    }

    /// Reads the newest LSN of a range from the store.
    pub(crate) async fn newest_lsn(&self, range: &PhysicalRange) -> Result<u64> {
        let page = self.read_changes(ReadChanges::new(range.range.clone(), StartFrom::Now)).await?;
        self.observe_lsn(&page.physical, page.newest_lsn.get());
        Ok(page.newest_lsn.get())
    }

    /// Returns whether a range has reached an LSN. A range that was split or merged continues in others, all of which
    /// began where it ended; an unknown one belongs to a container that had this name before.
    pub(crate) async fn has_reached(&self, range: &RangeId, lsn: u64) -> Result<bool> {
        if lsn <= self.known_lsn(range) {
            return Ok(true);
        }
        let ranges = self.fresh_ranges().await?;
        let heirs: Vec<_> = ranges.iter().filter(|live| live.id == *range || live.parents.contains(range)).collect();
        for live in if heirs.is_empty() { ranges.iter().collect() } else { heirs } {
            if lsn <= self.newest_lsn(live).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the live ranges from the store.
    pub(crate) async fn fresh_ranges(&self) -> Result<Arc<[PhysicalRange]>> {
        let ranges: Arc<[PhysicalRange]> = self.container.feed_ranges().await?.into();
        *self.ranges.lock() = Some((self.clock.wall(), Arc::clone(&ranges)));
        Ok(ranges)
    }

    /// Returns the live ranges, at most [`RANGES_AGE_MILLIS`] old.
    async fn ranges(&self) -> Result<Arc<[PhysicalRange]>> {
        if let Some((at, ranges)) = &*self.ranges.lock() {
            let now = self.clock.wall().as_millis();
            if now.abs_diff(at.as_millis()) < RANGES_AGE_MILLIS {
                return Ok(Arc::clone(ranges));
            }
        }
        self.fresh_ranges().await
    }

    /// Returns the id of the range that contains a key.
    pub(crate) async fn range_of(&self, key: &Epk) -> Result<RangeId> {
        let ranges = self.ranges().await?;
        let at = ranges.partition_point(|range| range.range.max_exclusive() <= key);
        ranges.get(at).map(|range| range.id.clone()).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("no range of {} holds the key {key}", self.name_link))
        })
    }

    /// Returns the live range with this id.
    pub(crate) async fn range(&self, id: &RangeId) -> Result<PhysicalRange> {
        let ranges = self.fresh_ranges().await?;
        ranges.iter().find(|range| range.id == *id).cloned().ok_or_else(|| {
            let message = format!("partition key range {id} of {} is gone: read pkranges again", self.name_link);
            Error::new(ErrorKind::RangeGone, message)
        })
    }

    /// Waits until no other patch under this key runs.
    pub(crate) async fn lock_for_patch(&self, key: &Epk) -> tokio::sync::MutexGuard<'_, ()> {
        let spread = key.as_bytes().iter().fold(0usize, |sum, byte| sum.wrapping_mul(31) + usize::from(*byte));
        self.patch_locks[spread % PATCH_LOCKS].lock().await
    }

    /// Remembers the resource ids of items: SDKs send links with such ids back.
    pub(crate) fn remember<'a>(&self, items: impl Iterator<Item = &'a Item>) {
        let mut rids = self.rids.lock();
        for item in items {
            if rids.len() >= REMEMBERED_RIDS {
                rids.pop_first();
            }
            rids.insert(item.rid, item.id.clone());
        }
    }

    /// Finds the id of the item with this resource id in `range`.
    pub(crate) async fn id_of(&self, rid: ResourceId, range: FeedRange) -> Result<Option<ItemId>> {
        if let Some(id) = self.rids.lock().get(&rid) {
            return Ok(Some(id.clone()));
        }
        let mut request = ListItems { range, rid: Some(rid), ..Default::default() };
        loop {
            let page = self.list_items(request.clone()).await?.into_value();
            self.remember(page.items.iter());
            if let Some(item) = page.items.into_iter().find(|item| item.rid == rid) {
                return Ok(Some(item.id));
            }
            match page.next {
                Some(next) => request.after = Some(next),
                None => return Ok(None),
            }
        }
    }
}

/// A range and an LSN as headers of a response.
#[derive(Debug)]
pub(crate) struct SessionHeaders {
    range: RangeId,
    lsn: u64,
    pub(crate) lsn_header: Option<HeaderValue>,
    pub(crate) range_header: Option<HeaderValue>,
    pub(crate) token_header: Option<HeaderValue>,
}

impl SessionHeaders {
    fn new(range: &RangeId, lsn: u64) -> Self {
        Self {
            range: range.clone(),
            lsn,
            lsn_header: Some(HeaderValue::from(lsn)),
            range_header: HeaderValue::from_str(range.as_str()).ok(),
            token_header: HeaderValue::from_str(&session_token::token(range.as_str(), lsn)).ok(),
        }
    }
}
