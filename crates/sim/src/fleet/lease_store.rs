//! The lease container as one host of a fleet sees it: over a network with latency, every request counted.

use std::{
    collections::BTreeMap,
    ops::{AddAssign, Sub},
    sync::Arc,
    time::Duration,
};

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, ErrorKind, FeedRange, Item,
    ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, StartFrom, TimeToLive, Write,
    WriteResult, async_trait,
};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

use super::leases::FleetLeases;
use crate::{exec::Exec, rng::Rng};

/// How long one way over the network takes.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// At least and at most, in microseconds.
    micros: (u64, u64),
}

impl Way {
    /// Within a region: 0.5 to 5 ms.
    pub const REGION: Self = Self { micros: (500, 5000) };

    /// On the same machine: 20 to 100 µs.
    pub const MACHINE: Self = Self { micros: (20, 100) };
}

/// Requests to the lease store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// Writes that were tried, renewals and checkpoints included.
    pub writes: u64,
    /// Those of them that acquire, request, grant or release a lease.
    pub ownership_writes: u64,
    /// Writes that failed because another host was faster.
    pub conflicts: u64,
    /// Listings of all leases; each takes several pages.
    pub listings: u64,
    /// Pages of listings.
    pub list_pages: u64,
    /// Pages of the feed.
    pub feed_pages: u64,
    /// Reads of the feed up to its end.
    pub feed_reads: u64,
    /// Reads of single documents.
    pub point_reads: u64,
    /// Documents that all reads returned.
    pub documents: u64,
}

impl Requests {
    /// All requests that read.
    pub fn reads(&self) -> u64 {
        self.list_pages + self.feed_pages + self.point_reads
    }
}

impl AddAssign for Requests {
    fn add_assign(&mut self, other: Self) {
        self.writes += other.writes;
        self.ownership_writes += other.ownership_writes;
        self.conflicts += other.conflicts;
        self.listings += other.listings;
        self.list_pages += other.list_pages;
        self.feed_pages += other.feed_pages;
        self.feed_reads += other.feed_reads;
        self.point_reads += other.point_reads;
        self.documents += other.documents;
    }
}

impl Sub for Requests {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            writes: self.writes - earlier.writes,
            ownership_writes: self.ownership_writes - earlier.ownership_writes,
            conflicts: self.conflicts - earlier.conflicts,
            listings: self.listings - earlier.listings,
            list_pages: self.list_pages - earlier.list_pages,
            feed_pages: self.feed_pages - earlier.feed_pages,
            feed_reads: self.feed_reads - earlier.feed_reads,
            point_reads: self.point_reads - earlier.point_reads,
            documents: self.documents - earlier.documents,
        }
    }
}

/// Who owns each lease, under which epoch, and who asks for it, by the id of the document.
pub(super) type Owners = Arc<Mutex<BTreeMap<String, Ownership>>>;

/// What a renewal or a checkpoint leaves as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ownership([Option<String>; 3]);

impl Ownership {
    /// The id of a lease document and its ownership; `None` if the write is not of a lease.
    fn of(write: &Write) -> Option<(String, Self)> {
        let (Write::Create { body } | Write::Replace { body, .. }) = write else { return None };
        let document: Value = serde_json::from_slice(body).ok()?;
        document.get("LeaseToken")?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let properties = &document["properties"];
        let ownership = [&document["Owner"], &properties["cf.epoch"], &properties["cf.hand-over"]].map(text);
        Some((text(&document["id"])?, Self(ownership)))
    }
}

/// One host's connection to the lease container. It wakes nobody, as stores behind a network.
#[derive(Debug)]
pub(super) struct LeaseConnection {
    inner: Arc<FleetLeases>,
    exec: Exec,
    way: Way,
    rng: Mutex<Rng>,
    requests: Mutex<Requests>,
    owners: Owners,
}

impl LeaseConnection {
    pub(super) fn new(leases: &Arc<FleetLeases>, exec: &Exec, way: Way, rng: Rng, owners: &Owners) -> Arc<Self> {
        let (inner, exec, rng) = (Arc::clone(leases), exec.clone(), Mutex::new(rng));
        Arc::new(Self { inner, exec, way, rng, requests: Mutex::default(), owners: Arc::clone(owners) })
    }

    /// The requests so far.
    pub(super) fn requests(&self) -> Requests {
        *self.requests.lock()
    }

    /// One way over the network.
    async fn pass(&self) {
        let micros = self.rng.lock().between(self.way.micros.0, self.way.micros.1);
        self.exec.sleep(Duration::from_micros(micros)).await;
    }
}

#[async_trait]
impl Backend for LeaseConnection {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.pass().await;
        let ranges = self.inner.feed_ranges().await;
        self.pass().await;
        ranges
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        let asks_for_the_end = matches!(request.start, StartFrom::Now);
        self.pass().await;
        let page = self.inner.read_changes(request).await;
        if let Ok(page) = &page {
            let last = page.changes.is_empty() || page.remaining == Some(0);
            let mut requests = self.requests.lock();
            requests.feed_pages += 1;
            requests.feed_reads += u64::from(last && !asks_for_the_end);
            requests.documents += page.changes.len() as u64;
        }
        self.pass().await;
        page
    }

    async fn changed(&self, _: &FeedRange, _: &Continuation) {
        std::future::pending().await
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.pass().await;
        {
            let mut requests = self.requests.lock();
            requests.point_reads += 1;
            requests.documents += 1;
        }
        let item = self.inner.read_item(key).await;
        self.pass().await;
        item
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        self.pass().await;
        let ownership = batch.writes.first().and_then(Ownership::of);
        let changed = ownership.as_ref().is_some_and(|(id, ownership)| self.owners.lock().get(id) != Some(ownership));
        {
            let mut requests = self.requests.lock();
            requests.writes += 1;
            requests.ownership_writes += u64::from(changed);
        }
        let written = self.inner.write(batch).await;
        if let (Ok(_), Some((id, ownership))) = (&written, ownership) {
            self.owners.lock().insert(id, ownership);
        }
        if written.as_ref().is_err_and(|error| error.kind() == ErrorKind::PreconditionFailed) {
            self.requests.lock().conflicts += 1;
        }
        self.pass().await;
        written
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        let first = request.after.is_none();
        self.pass().await;
        let page = self.inner.list_items(request).await;
        if let Ok(page) = &page {
            let mut requests = self.requests.lock();
            requests.list_pages += 1;
            requests.listings += u64::from(first);
            requests.documents += page.items.len() as u64;
        }
        self.pass().await;
        page
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.pass().await;
        let found = self.inner.time_to_live().await;
        self.pass().await;
        found
    }

    async fn reopen(&self) -> Result<Container> {
        self.inner.reopen().await
    }
}
