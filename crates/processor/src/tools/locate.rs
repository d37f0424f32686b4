//! Where one item stands: which lease has it, and whether its newest version is behind that lease's checkpoint. Reads
//! leases and feed, writes nothing.

use changefeed_core::{
    Container, Epk, Error, ErrorKind, ItemId, Lsn, PartitionKey, ReadChanges, Result, StartFrom, Timestamp,
};
use serde::Serialize;

use super::snapshot::{ProcessorRef, Snapshot};
use crate::lease::{document::LeaseDocument, prefix::LeaseToken};

/// Finds out what became of single items. Works with and without running hosts. Cheap to clone.
///
/// ```
/// use changefeed::{Locate, Progress, core::{Container, Result}};
///
/// # async fn example(orders: &Container, leases: &Container) -> Result<()> {
/// let found = Locate::new("mailer", orders, leases).item("ada", "o17").await?;
/// if found.progress == Progress::Passed {
///     println!("lease {} is past it", found.lease);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Locate {
    processor: ProcessorRef,
}

/// Where an item stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ItemLocation {
    /// The lease that has its key.
    pub lease: LeaseToken,
    /// The host that works on the lease.
    pub owner: Option<String>,
    /// The position of the item's newest version in the feed.
    pub lsn: Lsn,
    /// When that version was written.
    pub timestamp: Timestamp,
    /// What became of that version.
    pub progress: Progress,
}

/// What became of the newest version of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Progress {
    /// It is behind the checkpoint: the delegate has handled it, or it is a dead letter, or it was never delivered, since
    /// the processor began, or an operator moved it, after this version.
    Passed,
    /// It is after the checkpoint: it was not delivered yet, or its batch is being handled now.
    Waiting {
        /// So many changes of its partition key come before it.
        after: u64,
    },
    /// Nobody knows where the lease begins: it has no checkpoint, and its start was not stored.
    Unknown,
}

impl Locate {
    /// Looks into the processor `name`.
    pub fn new(name: &str, monitored: &Container, leases: &Container) -> Self {
        Self { processor: ProcessorRef::new(name, monitored, leases) }
    }

    /// Looks for the newest version of an item.
    ///
    /// # Errors
    /// `ItemNotFound` if there is no such item, if no lease covers its key, or if the processor was never started;
    /// `WrongPartitionKey` if the key does not fit the container. And those of the stores.
    pub async fn item(&self, key: impl Into<PartitionKey>, id: &str) -> Result<ItemLocation> {
        let key = key.into();
        let snapshot = self.processor.snapshot_of_positions().await?;
        let monitored = &snapshot.monitored;
        let definition = &monitored.identity().partition_key;
        let (epk, keys) = (definition.epk(&key)?, definition.key_range(&key)?);
        let item = monitored.read_item(key.clone(), id).await?;
        let (lease, start) = find(&snapshot, &epk).ok_or_else(|| {
            let message = format!("no lease covers item {id}: a host creates the missing one when it runs");
            Error::new(ErrorKind::ItemNotFound, message)
        })?;
        let progress = match start {
            Some(start) => {
                let first = ReadChanges::new(keys, start).mode(snapshot.mode()).partition_key(key);
                look_ahead(monitored, first, &item.id, item.lsn).await?
            }
            None => Progress::Unknown,
        };
        let (owner, token) = (lease.owner.clone(), lease.token.clone());
        Ok(ItemLocation { lease: token, owner, lsn: item.lsn, timestamp: item.timestamp, progress })
    }
}

/// The lease that has a key, and where it reads that key from.
fn find<'a>(snapshot: &'a Snapshot, epk: &Epk) -> Option<(&'a LeaseDocument, Option<StartFrom>)> {
    snapshot.leases().find_map(|lease| {
        let mut parts = snapshot.ranges_from(&lease.document).into_iter();
        let part = parts.find(|part| part.range.contains(epk))?;
        Some((&*lease.document, part.start))
    })
}

/// Reads the changes of one partition key after a position, until the version at `lsn` shows up or nothing is left.
async fn look_ahead(monitored: &Container, mut request: ReadChanges, id: &ItemId, lsn: Lsn) -> Result<Progress> {
    let mut after = 0;
    loop {
        let page = monitored.read_changes(request.clone()).await?;
        for change in &page.changes {
            if change.id == *id && change.lsn >= lsn {
                return Ok(Progress::Waiting { after });
            }
            after += 1;
        }
        if page.changes.is_empty() {
            return Ok(Progress::Passed);
        }
        request.start = StartFrom::Continuation(page.continuation.clone());
    }
}
