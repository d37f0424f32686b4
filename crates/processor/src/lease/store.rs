//! The lease container: the only place that reads and writes lease documents.

use bytes::Bytes;
use changefeed_core::{Batch, Container, ETag, Error, ErrorKind, Item, ItemId, ItemKey, PartitionKey, Result, Write};

use super::{
    document::{DocumentError, LeaseDocument},
    prefix::{LeasePrefix, LeaseToken},
};
use crate::mutant::{self, Mutant};

/// How lease documents are keyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// By `/id`.
    Id,
    /// By `/partitionKey`, as Gremlin accounts need it.
    PartitionKey,
}

/// A lease document and the version of it that was read or written.
#[derive(Clone, Debug)]
pub struct StoredLease {
    /// The document.
    pub document: LeaseDocument,
    /// Its version.
    pub etag: ETag,
}

/// All leases of a processor.
#[derive(Debug, Default)]
pub struct Listing {
    /// Those that can be read, by token.
    pub leases: Vec<StoredLease>,
    /// Those that cannot, with the reason: reported, never touched.
    pub broken: Vec<(String, DocumentError)>,
}

impl Listing {
    /// The lease with this token.
    pub fn find(&self, token: &LeaseToken) -> Option<&StoredLease> {
        let at = self.leases.binary_search_by(|lease| lease.document.token.cmp(token)).ok()?;
        self.leases.get(at)
    }
}

/// The leases of one processor in their container.
#[derive(Clone, Debug)]
pub struct LeaseStore {
    container: Container,
    prefix: LeasePrefix,
    layout: Layout,
}

impl LeaseStore {
    /// The leases with `prefix` in `container`.
    ///
    /// # Errors
    /// `InvalidArgument` if the container's partition key is neither `/id` nor `/partitionKey`.
    pub fn new(container: Container, prefix: LeasePrefix) -> Result<Self> {
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
        Ok(Self { container, prefix, layout })
    }

    /// The container that holds the leases.
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// How their ids begin.
    pub fn prefix(&self) -> &LeasePrefix {
        &self.prefix
    }

    /// What `partitionKey` of a new document must be.
    pub fn partition_key_field(&self, id: &str) -> Option<String> {
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
    pub async fn list(&self) -> Result<Listing> {
        let mut listing = Listing::default();
        for item in self.container.list(&self.prefix.leases()).await? {
            match LeaseDocument::parse(&item.body) {
                Ok(document) => listing.leases.push(StoredLease { document, etag: item.etag }),
                Err(error) => listing.broken.push((item.id.to_string(), error)),
            }
        }
        listing.leases.sort_by(|a, b| a.document.token.cmp(&b.document.token));
        Ok(listing)
    }

    /// One lease, or none if it is not there.
    ///
    /// # Errors
    /// Those of the store, and `Corrupt` if the document cannot be read.
    pub async fn read(&self, lease: &LeaseDocument) -> Result<Option<StoredLease>> {
        let Some(item) = self.read_raw(&lease.id, lease.partition_key.as_deref()).await? else { return Ok(None) };
        let document = LeaseDocument::parse(&item.body).map_err(|error| {
            Error::new(ErrorKind::Corrupt, format!("lease {} cannot be read: {error}", lease.token))
        })?;
        Ok(Some(StoredLease { document, etag: item.etag }))
    }

    /// One document of the container, or none if it is not there.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn read_raw(&self, id: &str, partition_key: Option<&str>) -> Result<Option<Item>> {
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
    pub async fn create(&self, document: LeaseDocument) -> Result<Option<StoredLease>> {
        let etag = self.create_raw(&document.id, document.partition_key.as_deref(), document.to_json()).await?;
        Ok(etag.map(|etag| StoredLease { document, etag }))
    }

    /// Creates a document; `None` if it exists already.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn create_raw(&self, id: &str, partition_key: Option<&str>, body: Vec<u8>) -> Result<Option<ETag>> {
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
    pub async fn replace(&self, document: &LeaseDocument, version: &ETag) -> Result<ETag> {
        let body = Bytes::from(document.to_json());
        let if_match = (!mutant::is(Mutant::CheckpointWithoutIfMatch)).then(|| version.clone());
        let write = Write::Replace { body, if_match };
        versioned(self.write(&document.id, document.partition_key.as_deref(), write).await?)
    }

    /// Replaces one version of a document; returns the new version.
    ///
    /// # Errors
    /// As for [`LeaseStore::replace`].
    pub async fn replace_raw(
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
    pub async fn delete(&self, lease: &StoredLease) -> Result<()> {
        let document = &lease.document;
        self.delete_raw(&document.id, document.partition_key.as_deref(), &lease.etag).await
    }

    /// Deletes one version of a document.
    ///
    /// # Errors
    /// As for [`LeaseStore::delete`].
    pub async fn delete_raw(&self, id: &str, partition_key: Option<&str>, version: &ETag) -> Result<()> {
        let write = Write::Delete { id: ItemId::new(id)?, if_match: Some(version.clone()) };
        self.write(id, partition_key, write).await.map(drop)
    }

    async fn write(&self, id: &str, partition_key: Option<&str>, write: Write) -> Result<Option<ETag>> {
        let key = self.key(id, partition_key)?.partition_key;
        let mut written = self.container.backend().write(Batch::single(Some(key), write)).await?;
        Ok(written.pop().and_then(|written| written.etag))
    }

    /// The id of the lease with this token.
    pub fn lease_id(&self, token: &LeaseToken) -> String {
        self.prefix.lease_id(token)
    }
}

fn versioned(etag: Option<ETag>) -> Result<ETag> {
    etag.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the store returned no etag for a write").with_unknown_effect())
}
