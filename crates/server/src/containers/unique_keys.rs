//! Unique keys: no two items of a partition key have the same values at the paths of one. Writes of a partition key are
//! serialized, and each reads the items of the key.

use std::{collections::BTreeMap, sync::Arc};

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, Error, ErrorKind, FeedRange,
    Item, ItemId, ItemKey, ItemPage, ListItems, PartitionKey, PhysicalRange, ReadChanges, Response, Result, TimeToLive,
    Write, WriteResult, async_trait,
};
use changefeed_query::json;
use serde_json::Value;

use crate::error::{ApiError, ApiResult};

/// The member of a container that names its unique keys.
pub(crate) const UNIQUE_KEY_POLICY: &str = "uniqueKeyPolicy";

/// The most unique keys of a container, and the most paths of all of them together, as in Cosmos DB.
const MAX_KEYS: usize = 10;
const MAX_PATHS: usize = 16;

/// The number of locks for writes. Partition keys that share one wait for each other.
const LOCKS: usize = 64;

/// The unique keys of a container, each a list of paths, each a list of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UniqueKeys(Vec<Vec<Vec<String>>>);

impl UniqueKeys {
    /// Reads a policy; none has no keys.
    pub(crate) fn parse(policy: Option<&Value>) -> ApiResult<Self> {
        let bad = || {
            ApiError::bad_request(
                "a uniqueKeyPolicy is {\"uniqueKeys\":[{\"paths\":[\"/a\",\"/b/c\"]}]}, with up to 10 keys of up to 16 paths \
                 in all",
            )
        };
        let keys = match policy.and_then(|policy| policy.get("uniqueKeys")) {
            None if policy.is_none_or(|policy| policy.is_object() || policy.is_null()) => return Ok(Self::default()),
            Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(keys)) => keys,
            _ => return Err(bad()),
        };
        let path = |path: &Value| -> Option<Vec<String>> {
            let names: Vec<String> = path.as_str()?.strip_prefix('/')?.split('/').map(str::to_owned).collect();
            names.iter().all(|name| !name.is_empty()).then_some(names)
        };
        let key = |key: &Value| -> Option<Vec<Vec<String>>> {
            let paths = key.get("paths")?.as_array().filter(|paths| !paths.is_empty())?;
            paths.iter().map(path).collect()
        };
        let keys: Vec<Vec<Vec<String>>> = keys.iter().map(key).collect::<Option<_>>().ok_or_else(bad)?;
        if keys.len() > MAX_KEYS || keys.iter().map(Vec::len).sum::<usize>() > MAX_PATHS {
            return Err(bad());
        }
        Ok(Self(keys))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Relocks the values of an item for each key. A missing member counts as null, as in Cosmos DB.
    fn values(&self, item: &str) -> Vec<String> {
        let at = |path: &Vec<String>| {
            let found = path.iter().try_fold(item, |value, name| match value.starts_with('{') {
                true => json::member(value, name),
                false => None,
            });
            found.and_then(|value| serde_json::from_str(value).ok()).unwrap_or(Value::Null)
        };
        let of = |key: &Vec<Vec<String>>| Value::Array(key.iter().map(at).map(normal).collect()).to_string();
        self.0.iter().map(of).collect()
    }
}

/// Equal numbers have one form: 1 and 1.0.
fn normal(value: Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or(Value::Number(number), Value::from),
        Value::Array(list) => list.into_iter().map(normal).collect(),
        Value::Object(members) => members.into_iter().map(|(name, value)| (name, normal(value))).collect(),
        other => other,
    }
}

/// A container that refuses writes against its unique keys.
#[derive(Debug)]
pub(crate) struct UniqueBackend {
    inner: Arc<dyn Backend>,
    keys: UniqueKeys,
    locks: [tokio::sync::Mutex<()>; LOCKS],
}

impl UniqueBackend {
    pub(crate) fn new(inner: &Arc<dyn Backend>, keys: UniqueKeys) -> Self {
        Self { inner: Arc::clone(inner), keys, locks: std::array::from_fn(|_| tokio::sync::Mutex::new(())) }
    }

    /// Relocks the partition key of a batch; none if it is missing, in which case the store refuses the batch.
    fn partition_key(&self, batch: &Batch) -> Option<PartitionKey> {
        batch.partition_key.clone().or_else(|| match batch.writes.first()? {
            Write::Create { body } | Write::Upsert { body, .. } | Write::Replace { body, .. } => {
                self.inner.identity().partition_key.extract(body).ok()
            }
            Write::Delete { .. } => None,
        })
    }

    /// Refuses a batch after which two items would have the same values.
    async fn check(&self, range: FeedRange, key: &PartitionKey, writes: &[Write]) -> Result<()> {
        let mut taken = self.taken(range, key).await?;
        for (index, write) in writes.iter().enumerate() {
            let body = match write {
                Write::Delete { id, .. } => {
                    taken.retain(|_, owner| owner != id);
                    continue;
                }
                Write::Create { body } | Write::Upsert { body, .. } | Write::Replace { body, .. } => body,
            };
            // The store refuses such a body with a reason.
            let Ok(item) = json::check(body) else { continue };
            let Some(id) = id_of(item) else { continue };
            let values = self.keys.values(item);
            taken.retain(|_, owner| *owner != id);
            for one in values.into_iter().enumerate() {
                if let Some(other) = taken.insert(one, id.clone()) {
                    let message =
                        format!("Unique index constraint violation: item {other} has the same values as {id}");
                    return Err(Error::new(ErrorKind::AlreadyExists, message).with_operation(index));
                }
            }
        }
        Ok(())
    }

    /// Returns the item of each value of each key.
    async fn taken(&self, range: FeedRange, key: &PartitionKey) -> Result<BTreeMap<(usize, String), ItemId>> {
        let mut taken = BTreeMap::new();
        let mut request = ListItems { range, ..ListItems::default() };
        loop {
            let page = self.inner.list_items(request.clone()).await?.into_value();
            for item in page.items {
                // Keys of version 1 may share a hash with others.
                if self.inner.identity().partition_key.extract(&item.body).is_ok_and(|own| own == *key) {
                    let body = json::check(&item.body).map_err(|why| {
                        Error::new(ErrorKind::Corrupt, format!("item {} is not valid JSON: {why}", item.id))
                    })?;
                    let values = self.keys.values(body);
                    taken.extend(values.into_iter().enumerate().map(|one| (one, item.id.clone())));
                }
            }
            match page.next {
                Some(next) => request.after = Some(next),
                None => return Ok(taken),
            }
        }
    }
}

fn id_of(item: &str) -> Option<ItemId> {
    let id = json::member(item, "id").filter(|id| id.starts_with('"'))?;
    ItemId::new(json::unescape(id)).ok()
}

#[async_trait]
impl Backend for UniqueBackend {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.inner.feed_ranges().await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.inner.read_changes(request).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.inner.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.inner.read_item(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        let definition = &self.inner.identity().partition_key;
        let key = self.partition_key(&batch);
        let Some((key, range)) = key.and_then(|key| definition.key_range(&key).ok().map(|range| (key, range))) else {
            return self.inner.write(batch).await;
        };
        let spread = range
            .min_inclusive()
            .as_bytes()
            .iter()
            .fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
        let _lock = self.locks[spread % LOCKS].lock().await;
        if batch.writes.iter().any(|write| !matches!(write, Write::Delete { .. })) {
            self.check(range, &key, &batch.writes).await?;
        }
        self.inner.write(batch).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.inner.list_items(request).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.inner.time_to_live().await
    }

    /// The new container has keys of its own, or none: they are not checked here.
    async fn reopen(&self) -> Result<Container> {
        self.inner.reopen().await
    }
}
