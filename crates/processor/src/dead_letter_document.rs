//! One dead letter, as it is stored.

use changefeed_core::{
    Batch, Bytes, Change, Container, Error, ErrorKind, ItemId, Lsn, Operation, PartitionKey, PartitionKeyDefinition,
    ResourceId, Result, Timestamp, Write, stable_hash::fnv1a_64,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::lease::prefix::LeaseToken;

/// How much of an error is kept: its beginning and its end. Delegates make errors of any length, such as all that a command
/// has printed.
const ERROR_CHARS: usize = 4 << 10;

/// One dead letter, as stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DeadLetterDocument {
    /// Made of processor, position and item, so that the same failure is stored once.
    pub id: String,
    /// The processor's name.
    pub processor: String,
    /// The resource id of the container that the change is from.
    #[serde(default)]
    pub container: String,
    /// The lease that delivered it.
    pub lease: String,
    /// The item's id.
    pub item_id: String,
    /// The item's partition key. None if the change has no body that says it, and in letters of older versions. Stored
    /// as text in the form that requests to Azure Cosmos DB have, such as `["ada"]`.
    #[serde(default, with = "key_text", skip_serializing_if = "Option::is_none")]
    pub item_key: Option<PartitionKey>,
    /// The item's position in the feed.
    pub lsn: u64,
    /// What happened to the item: `write`, `create`, `replace`, `delete` or `expire`.
    pub operation: String,
    /// When the change was written, in milliseconds since the epoch.
    pub changed_at: u64,
    /// When it became a dead letter, in milliseconds since the epoch. Stored as `diedAt`, as version 1 did.
    #[serde(rename = "diedAt", alias = "failedAt")]
    pub failed_at: u64,
    /// The host that gave up.
    pub instance: String,
    /// How often it was tried, redrives included.
    pub attempts: u32,
    /// The error and its causes.
    pub errors: Vec<String>,
    /// The item after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Box<RawValue>>,
    /// The item before the change, in all-versions mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Box<RawValue>>,
    /// A body that is not JSON, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// Whether bodies were left out because the letter would have been larger than an item may be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// For how many seconds the store keeps it, if not for as long as its container keeps items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u32>,
}

/// Why and where the delivery of an item failed.
#[derive(Debug)]
pub(crate) struct FailedDelivery<'a> {
    pub(crate) processor: &'a str,
    pub(crate) container: &'a ResourceId,
    pub(crate) partition_key: &'a PartitionKeyDefinition,
    pub(crate) lease: &'a LeaseToken,
    pub(crate) instance: &'a str,
    pub(crate) attempts: u32,
    pub(crate) errors: Vec<String>,
    pub(crate) at: Timestamp,
    pub(crate) time_to_live: Option<u32>,
}

impl DeadLetterDocument {
    pub(crate) fn new(change: &Change, failed: FailedDelivery<'_>) -> Self {
        let image = |body: &Option<Bytes>| {
            let text = std::str::from_utf8(body.as_deref()?).ok()?;
            RawValue::from_string(text.to_owned()).ok()
        };
        let current = image(&change.current);
        let broken = change.current.is_some() && current.is_none();
        let raw = broken.then(|| String::from_utf8_lossy(change.current.as_deref().unwrap_or_default()).into_owned());
        let body = change.current.as_deref().or(change.previous.as_deref());
        Self {
            id: stable_id(failed.processor, failed.container, change),
            processor: failed.processor.to_owned(),
            container: failed.container.to_string(),
            lease: failed.lease.to_string(),
            item_id: change.id.as_str().to_owned(),
            // A body that is not JSON has none.
            item_key: body.and_then(|body| failed.partition_key.extract(body).ok()),
            lsn: change.lsn.get(),
            operation: format!("{:?}", change.operation).to_lowercase(),
            changed_at: change.timestamp.as_millis(),
            failed_at: failed.at.as_millis(),
            instance: failed.instance.to_owned(),
            attempts: failed.attempts,
            errors: failed.errors.into_iter().map(shortened).collect(),
            current,
            previous: image(&change.previous),
            raw,
            cut: false,
            ttl: failed.time_to_live,
        }
    }

    /// Returns the change, as the delegate got it.
    ///
    /// # Errors
    /// `Unsupported` if the bodies were left out, `Corrupt` if the letter makes no sense.
    pub fn change(&self) -> Result<Change> {
        if self.cut {
            let message =
                format!("dead letter {} was too large to keep the item: read {} itself", self.id, self.item_id);
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let operation = match self.operation.as_str() {
            "write" => Operation::Write,
            "create" => Operation::Create,
            "replace" => Operation::Replace,
            "delete" => Operation::Delete,
            "expire" => Operation::Expire,
            other => {
                let message = format!("dead letter {} has the operation {other:?}", self.id);
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
        };
        let image = |raw: &RawValue| Bytes::copy_from_slice(raw.get().as_bytes());
        let broken = self.raw.as_ref().map(|text| Bytes::copy_from_slice(text.as_bytes()));
        Ok(Change {
            id: ItemId::stored(self.item_id.as_str()),
            rid: None,
            lsn: Lsn::new(self.lsn),
            timestamp: Timestamp::from_millis(self.changed_at),
            operation,
            current: self.current.as_deref().map(image).or(broken),
            previous: self.previous.as_deref().map(image),
            previous_lsn: None,
        })
    }

    /// Stores the dead letter; storing it twice is storing it once. One that is larger than an item may be is stored
    /// without bodies: its lease must not stand still for it.
    pub(crate) async fn store(&self, container: &Container) -> Result<()> {
        let stored = upsert(container, self).await;
        match stored {
            Err(error) if error.kind() == ErrorKind::TooLarge && !self.cut => {
                let lean = Self { cut: true, current: None, previous: None, raw: None, ..self.clone() };
                upsert(container, &lean).await
            }
            other => other,
        }
    }

    /// The letter as JSON.
    pub(crate) fn to_body(&self) -> Result<Bytes> {
        serde_json::to_vec(self).map(Bytes::from).map_err(|error| {
            let message = format!("dead letter {} cannot be written as JSON", self.id);
            Error::new(ErrorKind::BadJson, message).with_source(error)
        })
    }
}

async fn upsert(container: &Container, letter: &DeadLetterDocument) -> Result<()> {
    let write = Write::Upsert { body: letter.to_body()?, if_match: None };
    container.backend().write(Batch::single(None, write)).await.map(drop)
}

/// An error text that leaves room for the item.
fn shortened(text: String) -> String {
    // No character takes more than four bytes.
    if text.len() <= 4 * ERROR_CHARS {
        return text;
    }
    let begin: String = text.chars().take(ERROR_CHARS / 2).collect();
    let rest = text.chars().rev().take(ERROR_CHARS / 2).collect::<Vec<_>>().into_iter().rev();
    format!("{begin} ... {}", rest.collect::<String>())
}

/// The same for the same change, whoever delivers it; different for changes of different containers and keys, whose
/// positions and ids may be equal.
fn stable_id(processor: &str, container: &ResourceId, change: &Change) -> String {
    let body = change.current.as_deref().or(change.previous.as_deref()).unwrap_or_default();
    // Without a body only the resource id tells items of different keys apart, which may share id and LSN after a merge.
    let rid = change.rid.filter(|_| body.is_empty()).map(|rid| rid.to_string()).unwrap_or_default();
    let hash = fnv1a_64([container.to_bytes().as_slice(), change.id.as_bytes(), body, rid.as_bytes()]);
    format!("{processor}.{:020}.{hash:016x}", change.lsn)
}

/// A partition key as text.
mod key_text {
    use changefeed_core::PartitionKey;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(key: &Option<PartitionKey>, serializer: S) -> Result<S::Ok, S::Error> {
        match key {
            Some(key) => serializer.collect_str(key),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PartitionKey>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}
