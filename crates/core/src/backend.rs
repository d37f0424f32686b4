//! The contract between stores and everything above them.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    Capabilities, ChangePage, Container, Continuation, ETag, FeedRange, Item, ItemId, ItemKey, Lsn, PartitionKey,
    PartitionKeyDefinition, PhysicalRange, ReadChanges, ResourceId, Response, Result, StoreId, TimeToLive, Timestamp,
};

/// One container of one store. Leases, dead letters and the user's items are all just items.
///
/// Every sentence below is a test of `changefeed_testkit::conformance`; a new store runs it with one line.
///
/// *Charge.* Every response carries its request charge, and so does every error that the store charged for. A
/// throttled call is refused with [`ErrorKind::Throttled`](crate::ErrorKind::Throttled), which carries
/// [`retry_after`](crate::Error::retry_after) where the store names one.
///
/// *Order.* LSNs ascend per partition key and per item. Whether a store counts LSNs per container or per physical range
/// is its own affair: LSNs of different keys are never compared, and the changes of different keys may come in any
/// order.
///
/// *Errors.* An error with [`Effect::None`](crate::Effect::None) changed nothing. Bad input is refused with the kind
/// that names it, before anything is written.
///
/// *Cancellation.* Dropping the future of a write leaves its outcome unknown; dropping any other changes nothing.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Which container this is. Never changes during the life of the value. All containers of a store have the same
    /// store id; it survives closing and reopening the store, and another store has another one.
    fn identity(&self) -> &ContainerIdentity;

    /// What the store can do. Never changes during the life of the value, and equal for all containers of a store.
    fn capabilities(&self) -> Capabilities;

    /// Reads the live physical ranges, fresh from the store, in key order, without gap or overlap. A range that came
    /// from a split or merge names all its ancestors as parents, if the store knows them; ids are never used again.
    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>>;

    /// Reads one page of changes of one range.
    ///
    /// Changes of a partition key come in LSN order, within a page and from page to page; a feed's pages need not
    /// ascend across keys. The page's continuation resumes exactly after it.
    ///
    /// A page cuts a transaction only if that transaction alone exceeds `max_items`. Its pages then share the LSN, and
    /// a continuation may lie inside the transaction. A store need not cut: its page may be longer than `max_items`
    /// for the sake of one transaction.
    ///
    /// An empty page means that there is nothing new; its continuation advances all the same. Only changes whose key
    /// lies in the asked feed range are counted and returned. `remaining`, where asked for and known, is the number of
    /// changes that later pages would give if nothing more were written.
    ///
    /// Latest-version mode gives each item once, at its newest version, and leaves deleted items out. All-versions
    /// mode gives every version and every delete, with the previous image, within the container's retention; it
    /// starts at now or at a continuation only, and refuses a continuation after which something has already left
    /// retention with `ContinuationExpired`.
    ///
    /// A feed range that spans several physical ranges, or a physical range that was split or merged, answers
    /// `RangeGone`. The children of a split serve their parent's history under their parent's continuations; a merged
    /// range serves both parents', each in its own part of the keys. The LSNs of the children come after their parent's,
    /// and those of a merged range after both parents'.
    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>>;

    /// Returns when there may be changes in `range` after `continuation`. It may return early, without news; a store
    /// without the capability `wake_ups` may never return, so callers poll as well. It returns at once if the range is
    /// gone.
    async fn changed(&self, range: &FeedRange, continuation: &Continuation);

    /// Reads the item as last written by an acknowledged write.
    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>>;

    /// Performs all writes of a batch or none of them, under one LSN, and returns one result for each.
    ///
    /// When it returns, the writes are durable (unless the store was opened otherwise) and visible to every reader.
    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>>;

    /// Reads a page of the items of the container. A full listing returns every item that existed from its beginning
    /// to its end exactly once.
    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>>;

    /// Reads how long items of the container live, as last set by an acknowledged call.
    async fn time_to_live(&self) -> Result<Response<TimeToLive>>;

    /// Opens the container that has the name of this one now: another one, if this was deleted and created again. Refused
    /// with `ContainerNotFound` if there is none, and with `Unsupported` by stores that open no containers by name.
    async fn reopen(&self) -> Result<Container>;
}

/// What a container is called and where it is. Two values are of the same container iff `store` and `container` are
/// equal.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerIdentity {
    /// The identity of the store, given at its creation. A restored or replaced store has another one, although its
    /// resource ids and LSNs may be equal.
    pub store: StoreId,
    /// Host name of the account: lower case, no port. `localhost` by default for the embedded store.
    pub account_host: String,
    /// Name of the database.
    pub database_name: String,
    /// Name of the container.
    pub container_name: String,
    /// Resource id of the database.
    pub database: ResourceId,
    /// Resource id of the container: never changes while it exists, never comes back after it was deleted.
    pub container: ResourceId,
    /// How items are spread over the key space.
    pub partition_key: PartitionKeyDefinition,
}

/// Writes that happen together or not at all, all under one partition key. A single write is a batch of one.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The partition key of all items. If not given it is taken from the bodies, which is not possible for deletes.
    pub partition_key: Option<PartitionKey>,
    /// At least one and at most [`Batch::MAX_WRITES`].
    pub writes: Vec<Write>,
    /// Whether [`WriteResult::item`] is wanted.
    pub return_items: bool,
}

impl Batch {
    /// How many writes a batch may hold, as in Azure Cosmos DB.
    pub const MAX_WRITES: usize = 100;

    /// Creates a batch of one write.
    pub fn single(partition_key: Option<PartitionKey>, write: Write) -> Self {
        Self { partition_key, writes: vec![write], return_items: false }
    }
}

/// One write.
#[derive(Clone)]
pub enum Write {
    /// A new item; refused with `AlreadyExists` if there is one with its id.
    Create {
        /// The JSON object, with its `id`.
        body: Bytes,
    },
    /// A new item or a new version of it.
    Upsert {
        /// The JSON object, with its `id`.
        body: Bytes,
        /// If set and the item exists, only this version is replaced.
        if_match: Option<ETag>,
    },
    /// A new version of an existing item; refused with `ItemNotFound` if there is none.
    Replace {
        /// The JSON object, with its `id`.
        body: Bytes,
        /// If set, only this version is replaced; otherwise refused with `PreconditionFailed`.
        if_match: Option<ETag>,
    },
    /// The end of an item; refused with `ItemNotFound` if there is none.
    Delete {
        /// The id of the item.
        id: ItemId,
        /// If set, only this version is deleted; otherwise refused with `PreconditionFailed`.
        if_match: Option<ETag>,
    },
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { body } => write!(f, "Create({} bytes)", body.len()),
            Self::Upsert { body, if_match } => write!(f, "Upsert({} bytes, if match {if_match:?})", body.len()),
            Self::Replace { body, if_match } => write!(f, "Replace({} bytes, if match {if_match:?})", body.len()),
            Self::Delete { id, if_match } => write!(f, "Delete({id}, if match {if_match:?})"),
        }
    }
}

/// The result of one write.
#[derive(Clone, Debug)]
pub struct WriteResult {
    /// The item.
    pub id: ItemId,
    /// The new version; none after a delete.
    pub etag: Option<ETag>,
    /// The position of the change. Writes of one batch share it.
    pub lsn: Lsn,
    /// The time that the store gave to the change.
    pub timestamp: Timestamp,
    /// Whether the item is new.
    pub created: bool,
    /// The item as stored, if the batch asked for it and this was not a delete.
    pub item: Option<Item>,
}

/// A request for a page of items.
#[derive(Clone, Debug)]
pub struct ListItems {
    /// Only ids that begin with this.
    pub id_prefix: String,
    /// Only the item with this resource id. A store that has no quicker way looks at all items.
    pub rid: Option<ResourceId>,
    /// Only keys in this feed range, which may span several physical ranges.
    pub range: FeedRange,
    /// Where to resume: `next` of the page before, or the cursor of any item.
    pub after: Option<String>,
    /// How many at most.
    pub max_items: usize,
    /// Whether [`ItemPage::cursors`] are wanted.
    pub cursors: bool,
}

impl Default for ListItems {
    fn default() -> Self {
        Self {
            id_prefix: String::new(),
            rid: None,
            range: FeedRange::full(),
            after: None,
            max_items: 1000,
            cursors: false,
        }
    }
}

/// One page of items.
#[derive(Clone, Debug, Default)]
pub struct ItemPage {
    /// The items, in an order that stays the same from page to page.
    pub items: Vec<Item>,
    /// For each item where to resume after it, if that was asked. It stays valid when the item is deleted.
    pub cursors: Vec<String>,
    /// Where to resume; `None` if this was the last page. A page may be short, or empty, although there is more.
    pub next: Option<String>,
}
