//! The lease container: the only place that reads and writes lease documents.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use changefeed_core::{
    Batch, Container, ETag, Error, ErrorKind, Item, ItemId, ItemKey, ListItems, PartitionKey, Result, Timestamp, Write,
    WriteResult,
};

use super::{
    document::LeaseDocument,
    listing::{BrokenDocument, Listing, StoredLease},
    parsed,
    prefix::{LeasePrefix, LeaseToken},
    session::Session,
};
use crate::runtime::Runtime;

/// The unit in which stores may count the time.
const TIME_UNIT: Duration = Duration::from_secs(1);

/// How often the document that tells the store's time may be created and deleted by others while it is written.
const TIME_RACES: u32 = 3;

/// How far the store's time of a write may lie outside of the time that the write took before clocks are taken to differ.
/// .NET hosts give an owner 60 s.
const TOLERATED_MILLIS: u64 = 5_000;

/// How lease documents are keyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// By `/id`.
    Id,
    /// By `/partitionKey`, as Gremlin accounts need it.
    PartitionKey,
}

/// The leases of one processor in their container.
#[derive(Clone, Debug)]
pub(crate) struct LeaseStore {
    container: Container,
    prefix: LeasePrefix,
    layout: Layout,
    /// A moment in the past, by the store's clock.
    store_time: Option<Timestamp>,
    /// The process of this host, if the store is in it and has no other users.
    process: Option<u64>,
    /// How many writes of this host have succeeded.
    writes: Arc<AtomicU64>,
    /// How far the store's clock is ahead of this host's, in milliseconds; 0 if they agree or nobody knows yet.
    ahead: Arc<AtomicI64>,
}

impl LeaseStore {
    /// The leases with `prefix` in `container`.
    ///
    /// # Errors
    /// `InvalidArgument` if the container's partition key is neither `/id` nor `/partitionKey`.
    pub(crate) fn new(container: Container, prefix: LeasePrefix) -> Result<Self> {
        let identity = container.identity();
        let paths: Vec<&str> = identity.partition_key.paths().collect();
        let layout = match paths.as_slice() {
            ["/id"] => Layout::Id,
            ["/partitionKey"] => Layout::PartitionKey,
            _ => {
                let (name, found) = (&identity.container_name, &identity.partition_key);
                let message = format!(
                    "the lease container {name} has the partition key {found}: leases need one with /id or /partitionKey"
                );
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        };
        Ok(Self {
            container,
            prefix,
            layout,
            store_time: None,
            process: None,
            writes: Arc::default(),
            ahead: Arc::default(),
        })
    }

    /// Says that the container is in this process. Listings then tell which owners died: with another process, or because
    /// their sessions in this one have ended.
    #[must_use]
    pub(crate) fn of_process(self, process: Option<u64>) -> Self {
        Self { process, ..self }
    }

    /// Asks the store for its time, so that listings tell how old leases are. Both times come from the store: no clock of
    /// a host is compared with it.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn with_store_time(self) -> Result<Self> {
        // Only a write tells the time of a store.
        let id = self.prefix.time_id();
        let mut document = serde_json::Map::from_iter([("id".to_owned(), id.as_str().into())]);
        if let Some(key) = self.partition_key_field(&id) {
            document.insert("partitionKey".to_owned(), key.into());
        }
        let body = Bytes::from(serde_json::Value::from(document).to_string());
        let key = self.key(&id, None)?.partition_key;
        let mut raced = 0;
        // Not an upsert: hosts need no right to that.
        let written = loop {
            let replace = Write::Replace { body: body.clone(), if_match: None };
            match self.container.backend().write(Batch::single(Some(key.clone()), replace)).await {
                Err(error) if error.kind() == ErrorKind::ItemNotFound => {}
                written => break written?,
            }
            let create = Write::Create { body: body.clone() };
            match self.container.backend().write(Batch::single(Some(key.clone()), create)).await {
                // Another process has created it, and a third one may delete it.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && raced < TIME_RACES => raced += 1,
                written => break written?,
            }
        };
        Ok(Self { store_time: written.into_value().first().map(|written| written.timestamp), ..self })
    }

    /// The version of the document in which a reset has left the start positions for hosts that run; `None` if there is none,
    /// or if it cannot be read.
    pub(crate) async fn positions_before_reset_version(&self) -> Option<ETag> {
        let id = self.prefix.reset_id();
        self.read_raw(&id, self.partition_key_field(&id).as_deref()).await.ok()?.map(|item| item.etag)
    }

    /// Deletes this version of that document: `.info` has been written since, and says where ranges begin. Another reset may
    /// have written the document again meanwhile. If the delete fails, the next reset overwrites it.
    pub(crate) async fn forget_positions_before_reset(&self, version: Option<ETag>) {
        let Some(version) = version else { return };
        let id = self.prefix.reset_id();
        drop(self.delete_raw(&id, self.partition_key_field(&id).as_deref(), &version).await);
    }

    /// The container that holds the leases.
    pub(crate) fn container(&self) -> &Container {
        &self.container
    }

    /// How their ids begin.
    pub(crate) fn prefix(&self) -> &LeasePrefix {
        &self.prefix
    }

    /// What `partitionKey` of a new document must be.
    pub(crate) fn partition_key_field(&self, id: &str) -> Option<String> {
        (self.layout == Layout::PartitionKey).then(|| id.to_owned())
    }

    fn key(&self, id: &str, field: Option<&str>) -> Result<ItemKey> {
        let value = match self.layout {
            Layout::Id => id,
            Layout::PartitionKey => field.unwrap_or(id),
        };
        Ok(ItemKey::new(PartitionKey::from(value), ItemId::new(id)?))
    }

    /// All leases of the processor.
    ///
    /// # Errors
    /// Those of the store; unreadable documents are part of the result.
    pub(crate) async fn list(&self) -> Result<Listing> {
        let mut listing = Listing::default();
        let mut leases = Vec::new();
        let mut request = ListItems { id_prefix: self.prefix.leases(), ..ListItems::default() };
        loop {
            // Page by page: the bodies of a large fleet's leases need not be in memory all at once.
            let page = self.container.backend().list_items(request.clone()).await?.into_value();
            for item in page.items {
                match parsed::document(&item.body) {
                    Ok((document, summary)) => {
                        if let Some(now) = self.store_time {
                            listing.ages.insert(document.token.clone(), age(item.timestamp, now));
                        }
                        leases.push((StoredLease { document, etag: item.etag }, summary));
                    }
                    Err(error) => listing.broken.push(BrokenDocument {
                        id: item.id.to_string(),
                        key: self.container.identity().partition_key.extract(&item.body).ok(),
                        etag: item.etag,
                        error,
                    }),
                }
            }
            match page.next {
                Some(next) => request.after = Some(next),
                None => break,
            }
        }
        listing.add_all(leases);
        let dead = listing.leases.iter().map(|lease| &*lease.document).filter(|document| self.owner_is_dead(document));
        listing.dead = dead.map(|document| document.token.clone()).collect();
        Ok(listing)
    }

    fn owner_is_dead(&self, document: &LeaseDocument) -> bool {
        let Some(own) = self.process else { return false };
        let session = document.session().and_then(|session| session.parse::<Session>().ok());
        session.is_some_and(|session| match session.process() {
            Some(process) => process != own || !session.is_alive(),
            None => false,
        })
    }

    /// One lease, or none if it is not there.
    ///
    /// # Errors
    /// Those of the store, and `Corrupt` if the document cannot be read.
    pub(crate) async fn read(&self, lease: &LeaseDocument) -> Result<Option<StoredLease>> {
        let Some(item) = self.read_raw(&lease.id, lease.partition_key.as_deref()).await? else { return Ok(None) };
        let document = LeaseDocument::parse(&item.body).map_err(|error| {
            let message = format!("lease {} cannot be read: {error}", lease.token);
            Error::new(Error::from(error).kind(), message)
        })?;
        Ok(Some(StoredLease { document: Arc::new(document), etag: item.etag }))
    }

    /// One document of the container, or none if it is not there.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn read_raw(&self, id: &str, partition_key: Option<&str>) -> Result<Option<Item>> {
        match self.container.backend().read_item(&self.key(id, partition_key)?).await {
            Ok(item) => Ok(Some(item.into_value())),
            Err(error) if error.kind() == ErrorKind::ItemNotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a lease; `None` if there is one with its token already.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn create(&self, document: LeaseDocument) -> Result<Option<StoredLease>> {
        let etag = self.create_raw(&document.id, document.partition_key.as_deref(), document.to_json()).await?;
        Ok(etag.map(|etag| StoredLease { document: Arc::new(document), etag }))
    }

    /// Creates a document; `None` if it exists already.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn create_raw(
        &self,
        id: &str,
        partition_key: Option<&str>,
        body: Vec<u8>,
    ) -> Result<Option<ETag>> {
        let write = Write::Create { body: Bytes::from(body) };
        match self.write(id, partition_key, write).await {
            Ok(etag) => Ok(etag),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces one version of a lease; returns the new version.
    ///
    /// # Errors
    /// `PreconditionFailed` if the lease has changed, `ItemNotFound` if it is gone, and those of the store.
    pub(crate) async fn replace(&self, document: &LeaseDocument, version: &ETag) -> Result<ETag> {
        let body = Bytes::from(document.to_json());
        let write = Write::Replace { body, if_match: Some(version.clone()) };
        versioned(self.write(&document.id, document.partition_key.as_deref(), write).await?)
    }

    /// Replaces one version of a lease and notes in it when, by the store's clock: that of this host may be wrong, and .NET
    /// hosts would take the owner for dead, or a dead one for alive. Returns the new version, and when its write was begun.
    ///
    /// # Errors
    /// As for [`LeaseStore::replace`].
    pub(crate) async fn replace_at(
        &self,
        document: &mut LeaseDocument,
        version: &ETag,
        runtime: &dyn Runtime,
    ) -> Result<(ETag, Duration)> {
        let (wall, begun) = (runtime.wall(), runtime.monotonic());
        document.touch(self.time(wall));
        let write = Write::Replace { body: Bytes::from(document.to_json()), if_match: Some(version.clone()) };
        let written = self.write_one(&document.id, document.partition_key.as_deref(), write).await?;
        let wrong = written.as_ref().is_some_and(|written| self.compare((wall, runtime.wall()), written.timestamp));
        let etag = versioned(written.and_then(|written| written.etag))?;
        if !wrong {
            return Ok((etag, begun));
        }
        // The clock of this host was found to be wrong, or to have changed: what was noted is wrong as well. Should this
        // write fail, the next one corrects it; it finds the conflict if this one was performed nevertheless.
        let (mut corrected, again) = (document.clone(), runtime.monotonic());
        corrected.touch(self.time(runtime.wall()));
        match self.replace(&corrected, &etag).await {
            Ok(newer) => {
                *document = corrected;
                Ok((newer, again))
            }
            Err(_) => Ok((etag, begun)),
        }
    }

    /// The time by the store's clock, as far as it is known; `wall` is that of this host.
    pub(crate) fn time(&self, wall: Timestamp) -> Timestamp {
        Timestamp::from_millis(wall.as_millis().saturating_add_signed(self.ahead.load(Ordering::Relaxed)))
    }

    /// Compares the time that the store gave to a write with those of this host before and after it, of which the first was
    /// noted. Returns whether the store's lies outside; then the clocks of this host and of the store are compared again.
    /// A write that is slow is no sign of a wrong clock.
    fn compare(&self, (begun, ended): (Timestamp, Timestamp), store: Timestamp) -> bool {
        let (earliest, latest) = (self.time(begun).as_millis(), self.time(ended).as_millis());
        let store = store.as_millis();
        let differs = store + TOLERATED_MILLIS < earliest || store > latest + TOLERATED_MILLIS;
        if differs {
            // Not added to what is known: several writes may find the same difference at once.
            let signed = |millis: u64| i64::try_from(millis).unwrap_or(i64::MAX);
            self.ahead.store(signed(store).saturating_sub(signed(ended.as_millis())), Ordering::Relaxed);
        }
        differs
    }

    /// Replaces one version of a document; returns the new version.
    ///
    /// # Errors
    /// As for [`LeaseStore::replace`].
    pub(crate) async fn replace_raw(
        &self,
        id: &str,
        partition_key: Option<&str>,
        body: Vec<u8>,
        version: &ETag,
    ) -> Result<ETag> {
        let write = Write::Replace { body: Bytes::from(body), if_match: Some(version.clone()) };
        versioned(self.write(id, partition_key, write).await?)
    }

    /// Deletes one version of a lease.
    ///
    /// # Errors
    /// `PreconditionFailed` if the lease has changed, `ItemNotFound` if it is gone, and those of the store.
    pub(crate) async fn delete(&self, lease: &StoredLease) -> Result<()> {
        let document = &lease.document;
        self.delete_raw(&document.id, document.partition_key.as_deref(), &lease.etag).await
    }

    /// Whether a lease has the id and the partition key of a document that cannot be read.
    pub(crate) fn replaces(&self, document: &LeaseDocument, broken: &BrokenDocument) -> bool {
        let key = self.key(&document.id, document.partition_key.as_deref());
        document.id == broken.id && key.is_ok_and(|key| Some(key.partition_key) == broken.key)
    }

    /// Deletes one version of a document that cannot be read.
    ///
    /// # Errors
    /// As for [`LeaseStore::delete`].
    pub(crate) async fn delete_broken(&self, broken: &BrokenDocument) -> Result<()> {
        let BrokenDocument { id, etag, key, .. } = broken;
        let Some(key) = key else {
            let message = format!("document {id} has no partition key: delete it with the tools of its store");
            return Err(Error::new(ErrorKind::Corrupt, message));
        };
        self.container.delete_if(key.clone(), id, etag).await
    }

    /// Deletes one version of a document.
    ///
    /// # Errors
    /// As for [`LeaseStore::delete`].
    pub(crate) async fn delete_raw(&self, id: &str, partition_key: Option<&str>, version: &ETag) -> Result<()> {
        let write = Write::Delete { id: ItemId::new(id)?, if_match: Some(version.clone()) };
        self.write(id, partition_key, write).await.map(drop)
    }

    /// How many writes of this host have succeeded. What the feed of the container holds beyond them, others wrote.
    pub(crate) fn own_writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    async fn write(&self, id: &str, partition_key: Option<&str>, write: Write) -> Result<Option<ETag>> {
        Ok(self.write_one(id, partition_key, write).await?.and_then(|written| written.etag))
    }

    async fn write_one(&self, id: &str, partition_key: Option<&str>, write: Write) -> Result<Option<WriteResult>> {
        let key = self.key(id, partition_key)?.partition_key;
        let mut written = self.container.backend().write(Batch::single(Some(key), write)).await?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        Ok(written.pop())
    }

    /// The id of the lease with this token.
    pub(crate) fn lease_id(&self, token: &LeaseToken) -> String {
        self.prefix.lease_id(token)
    }
}

/// The time from `written` to `now`, at least: a store may count whole seconds.
fn age(written: Timestamp, now: Timestamp) -> Duration {
    Duration::from_millis(now.as_millis().saturating_sub(written.as_millis())).saturating_sub(TIME_UNIT)
}

fn versioned(etag: Option<ETag>) -> Result<ETag> {
    etag.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the store returned no etag for a write").with_unknown_effect())
}
