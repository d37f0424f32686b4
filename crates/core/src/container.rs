//! The handle that users hold: item operations with their own types, over any [`Backend`].

use std::sync::Arc;

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Backend, Batch, Capabilities, ChangePage, ContainerIdentity, ETag, Error, ErrorKind, Item, ItemId, ItemKey,
    ListItems, PartitionKey, PhysicalRange, ReadChanges, Response, Result, TimeToLive, Write, WriteResult,
};

/// A container of items. Cheap to clone.
///
/// ```
/// use changefeed_core::{Container, Result};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Order {
///     id: String,
///     customer: String,
/// }
///
/// async fn example(orders: &Container) -> Result<()> {
///     orders.upsert(&Order { id: "1".to_owned(), customer: "ada".to_owned() }).await?;
///     for item in orders.list("").await? {
///         let order: Order = item.parse()?;
///         println!("{} of {}", order.id, order.customer);
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Container {
    backend: Arc<dyn Backend>,
}

impl Container {
    /// Creates a handle to the container that `backend` serves.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend }
    }

    /// Returns the store that serves it.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Returns which container this is.
    pub fn identity(&self) -> &ContainerIdentity {
        self.backend.identity()
    }

    /// Returns what its store can do.
    pub fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    /// Reads how long its items live, as it is set now.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn time_to_live(&self) -> Result<TimeToLive> {
        self.backend.time_to_live().await.map(Response::into_value)
    }

    /// Adds an item.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if there is one with its id under its partition key.
    pub async fn create<T: Serialize + ?Sized + Sync>(&self, item: &T) -> Result<WriteResult> {
        self.write(Write::Create { body: to_body(item)? }, None).await
    }

    /// Adds an item or replaces it.
    ///
    /// # Errors
    /// The kinds that name bad input ([`ErrorKind::MissingId`], [`ErrorKind::TooLarge`], ...), and those of the store.
    pub async fn upsert<T: Serialize + ?Sized + Sync>(&self, item: &T) -> Result<WriteResult> {
        self.write(Write::Upsert { body: to_body(item)?, if_match: None }, None).await
    }

    /// Replaces an item, whatever its version.
    ///
    /// # Errors
    /// [`ErrorKind::ItemNotFound`] if there is none.
    pub async fn replace<T: Serialize + ?Sized + Sync>(&self, item: &T) -> Result<WriteResult> {
        self.write(Write::Replace { body: to_body(item)?, if_match: None }, None).await
    }

    /// Replaces one version of an item.
    ///
    /// # Errors
    /// [`ErrorKind::PreconditionFailed`] if `etag` is not the current version.
    pub async fn replace_if<T: Serialize + ?Sized + Sync>(&self, item: &T, etag: &ETag) -> Result<WriteResult> {
        self.write(Write::Replace { body: to_body(item)?, if_match: Some(etag.clone()) }, None).await
    }

    /// Reads an item as a value of the caller's type, without system members; see [`parse_item`](crate::parse_item).
    ///
    /// # Errors
    /// [`ErrorKind::ItemNotFound`] if there is none, [`ErrorKind::BadJson`] if it does not fit the type.
    pub async fn read<T: DeserializeOwned>(&self, key: impl Into<PartitionKey>, id: &str) -> Result<T> {
        self.read_item(key, id).await?.parse()
    }

    /// Reads an item as it is stored, with its etag.
    ///
    /// # Errors
    /// [`ErrorKind::ItemNotFound`] if there is none.
    pub async fn read_item(&self, key: impl Into<PartitionKey>, id: &str) -> Result<Item> {
        self.backend.read_item(&ItemKey::new(key, ItemId::stored(id))).await.map(Response::into_value)
    }

    /// Deletes an item, whatever its version.
    ///
    /// # Errors
    /// [`ErrorKind::ItemNotFound`] if there is none.
    pub async fn delete(&self, key: impl Into<PartitionKey>, id: &str) -> Result<()> {
        let write = Write::Delete { id: ItemId::stored(id), if_match: None };
        self.write(write, Some(key.into())).await.map(drop)
    }

    /// Deletes one version of an item.
    ///
    /// # Errors
    /// [`ErrorKind::PreconditionFailed`] if `etag` is not the current version.
    pub async fn delete_if(&self, key: impl Into<PartitionKey>, id: &str, etag: &ETag) -> Result<()> {
        let write = Write::Delete { id: ItemId::stored(id), if_match: Some(etag.clone()) };
        self.write(write, Some(key.into())).await.map(drop)
    }

    /// Begins writes under one partition key that happen together or not at all.
    pub fn batch(&self, key: impl Into<PartitionKey>) -> BatchBuilder {
        BatchBuilder { container: self.clone(), key: key.into(), writes: Ok(Vec::new()) }
    }

    /// Lists all items whose id begins with `prefix`, read page by page into memory.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Item>> {
        let mut request = ListItems { id_prefix: prefix.to_owned(), ..ListItems::default() };
        let mut items = Vec::new();
        loop {
            let page = self.backend.list_items(request.clone()).await?.into_value();
            items.extend(page.items);
            match page.next {
                Some(next) => request.after = Some(next),
                None => return Ok(items),
            }
        }
    }

    /// Reads the live physical ranges, in key order.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn feed_ranges(&self) -> Result<Vec<PhysicalRange>> {
        self.backend.feed_ranges().await.map(Response::into_value)
    }

    /// Reads one page of changes, with its charge.
    ///
    /// # Errors
    /// See [`Backend::read_changes`].
    pub async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.backend.read_changes(request).await
    }

    /// Opens the container that has the name of this one now: another one, if this was deleted and created again.
    ///
    /// # Errors
    /// [`ErrorKind::ContainerNotFound`] if there is none, and those of the store.
    pub async fn reopen(&self) -> Result<Self> {
        self.backend.reopen().await
    }

    async fn write(&self, write: Write, partition_key: Option<PartitionKey>) -> Result<WriteResult> {
        let mut written = self.backend.write(Batch::single(partition_key, write)).await?;
        written.pop().ok_or_else(|| Error::new(ErrorKind::Corrupt, "the store returned no result for the write"))
    }
}

/// Writes under one partition key, about to be committed together.
#[derive(Debug)]
#[must_use = "nothing is written before `commit`"]
pub struct BatchBuilder {
    container: Container,
    key: PartitionKey,
    writes: Result<Vec<Write>>,
}

impl BatchBuilder {
    /// Adds a new item.
    pub fn create<T: Serialize + ?Sized>(self, item: &T) -> Self {
        self.add(to_body(item).map(|body| Write::Create { body }))
    }

    /// Adds or replaces an item.
    pub fn upsert<T: Serialize + ?Sized>(self, item: &T) -> Self {
        self.add(to_body(item).map(|body| Write::Upsert { body, if_match: None }))
    }

    /// Replaces an item.
    pub fn replace<T: Serialize + ?Sized>(self, item: &T) -> Self {
        self.add(to_body(item).map(|body| Write::Replace { body, if_match: None }))
    }

    /// Replaces one version of an item.
    pub fn replace_if<T: Serialize + ?Sized>(self, item: &T, etag: &ETag) -> Self {
        self.add(to_body(item).map(|body| Write::Replace { body, if_match: Some(etag.clone()) }))
    }

    /// Deletes an item.
    pub fn delete(self, id: &str) -> Self {
        self.add(Ok(Write::Delete { id: ItemId::stored(id), if_match: None }))
    }

    /// Performs all writes or none.
    ///
    /// # Errors
    /// That of the first write that fails; [`Error::operation`] is its index.
    pub async fn commit(self) -> Result<Vec<WriteResult>> {
        let batch = Batch { partition_key: Some(self.key), writes: self.writes?, return_items: false };
        self.container.backend.write(batch).await.map(Response::into_value)
    }

    fn add(mut self, write: Result<Write>) -> Self {
        if let Ok(writes) = &mut self.writes {
            match write {
                Ok(write) => writes.push(write),
                Err(error) => {
                    let index = writes.len();
                    self.writes = Err(error.with_operation(index));
                }
            }
        }
        self
    }
}

fn to_body<T: Serialize + ?Sized>(item: &T) -> Result<Bytes> {
    serde_json::to_vec(item).map(Bytes::from).map_err(|error| {
        Error::new(ErrorKind::BadJson, format!("{} cannot be written as JSON", std::any::type_name::<T>()))
            .with_source(error)
    })
}
