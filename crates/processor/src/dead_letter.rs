//! Dead letters: items that a delegate could not handle, kept with everything needed to understand and redrive them.

use changefeed_core::{Bytes, Change, Container, Error, ErrorKind, ItemId, Result, Timestamp, Write};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::lease::prefix::LeaseToken;

/// Where dead letters go, and when.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub(crate) container: Container,
    pub(crate) attempts: u32,
}

impl DeadLetter {
    /// Into this container, after five attempts.
    pub fn to(container: &Container) -> Self {
        Self { container: container.clone(), attempts: 5 }
    }

    /// How often a batch is tried before the items to blame are looked for. At least 1. Default: 5.
    #[must_use]
    pub fn after_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }
}

/// One dead letter, as stored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterDocument {
    /// Made of processor, lease range and position, so that the same failure is stored once.
    pub id: String,
    /// The processor's name.
    pub processor: String,
    /// The lease that delivered it.
    pub lease: String,
    /// The item's id.
    pub item_id: String,
    /// The item's position in the feed.
    pub lsn: u64,
    /// What happened to the item.
    pub operation: String,
    /// When the change was written, in milliseconds since the epoch.
    pub changed_at: u64,
    /// When it became a dead letter, in milliseconds since the epoch.
    pub died_at: u64,
    /// The host that gave up.
    pub instance: String,
    /// How often it was tried.
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
}

/// Why and where an item died.
#[derive(Debug)]
pub(crate) struct Death<'a> {
    pub(crate) processor: &'a str,
    pub(crate) lease: &'a LeaseToken,
    pub(crate) instance: &'a str,
    pub(crate) attempts: u32,
    pub(crate) errors: Vec<String>,
    pub(crate) at: Timestamp,
}

impl DeadLetterDocument {
    pub(crate) fn new(change: &Change, death: Death<'_>) -> Self {
        let image = |body: &Option<Bytes>| {
            let text = std::str::from_utf8(body.as_deref()?).ok()?;
            RawValue::from_string(text.to_owned()).ok()
        };
        let current = image(&change.current);
        let broken = change.current.is_some() && current.is_none();
        let raw = broken.then(|| String::from_utf8_lossy(change.current.as_deref().unwrap_or_default()).into_owned());
        Self {
            id: stable_id(death.processor, change),
            processor: death.processor.to_owned(),
            lease: death.lease.to_string(),
            item_id: change.id.to_string(),
            lsn: change.lsn.get(),
            operation: format!("{:?}", change.operation).to_lowercase(),
            changed_at: change.timestamp.as_millis(),
            died_at: death.at.as_millis(),
            instance: death.instance.to_owned(),
            attempts: death.attempts,
            errors: death.errors,
            current,
            previous: image(&change.previous),
            raw,
        }
    }

    /// Stores the dead letter; storing it twice is storing it once.
    pub(crate) async fn store(&self, container: &Container) -> Result<()> {
        let body = serde_json::to_vec(self).map_err(|error| {
            Error::new(ErrorKind::BadJson, format!("dead letter {} cannot be written as JSON", self.id))
                .with_source(error)
        })?;
        let write = Write::Upsert { body: Bytes::from(body), if_match: None };
        container.backend().write(changefeed_core::Batch::single(None, write)).await.map(drop)
    }
}

/// The same for the same change, whoever delivers it.
fn stable_id(processor: &str, change: &Change) -> String {
    let id: &ItemId = &change.id;
    let hash = id
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{processor}.{:020}.{hash:016x}", change.lsn)
}
