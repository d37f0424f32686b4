//! The index in memory: which record holds which version of which item. Pure: no I/O, no clock, no locks.

pub(crate) mod container;
pub(crate) mod discarded;
pub(crate) mod expiry;
pub(crate) mod feed;
pub(crate) mod horizon;
pub(crate) mod items;
pub(crate) mod position;
pub(crate) mod range;
pub(crate) mod rebuild;
mod relayout;
pub(crate) mod select;

use changefeed_core::{Epk, ItemId, stable_hash};

use crate::format::record::{ChangeId, RecordHeader, RecordKind};

/// What names an item inside its container. Two partition keys with one EPK are one key, as in Azure Cosmos DB.
///
/// Keys are in the order of their EPKs; those of one partition key are in the order of a hash of their ids, which
/// spares comparing texts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) epk: Epk,
    pub(crate) id: ItemId,
    hash: u64,
}

impl Key {
    pub(crate) fn new(epk: Epk, id: ItemId) -> Self {
        // The order of listings, and so their cursors, depend on it: the same everywhere.
        let hash = stable_hash::fnv1a_64([id.as_bytes()]);
        Self { epk, id, hash }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.epk.cmp(&other.epk).then(self.hash.cmp(&other.hash)).then_with(|| self.id.cmp(&other.id))
    }
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// First number of the segment's span.
    pub(crate) segment: u32,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// What a record still means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordState {
    /// The newest of its key: a live item, or a delete that all-versions readers may still see.
    Newest,
    /// A newer one came at this time (milliseconds); kept for all-versions readers until retention is over.
    Superseded { at: u64 },
    /// A delete that nobody reads, kept because older records of its key are still on disk.
    Tombstone,
    /// Means nothing: compaction may drop it.
    Dead,
}

impl RecordState {
    /// Whether no reader of either mode sees it.
    pub(crate) fn is_hidden(self) -> bool {
        matches!(self, Self::Tombstone | Self::Dead)
    }
}

/// One record, as the index knows it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: std::sync::Arc<Key>,
    pub(crate) kind: RecordKind,
    pub(crate) state: RecordState,
    pub(crate) change_id: ChangeId,
    pub(crate) previous: ChangeId,
    pub(crate) document_number: u64,
    pub(crate) timestamp: u64,
    pub(crate) ttl: i32,
    pub(crate) location: Location,
}

impl Entry {
    pub(crate) fn new(header: &RecordHeader, key: std::sync::Arc<Key>, location: Location) -> Self {
        Self {
            key,
            kind: header.kind,
            state: RecordState::Newest,
            change_id: header.change_id,
            previous: header.previous,
            document_number: header.document_number,
            timestamp: header.timestamp,
            ttl: header.ttl,
            location,
        }
    }

    /// What the entries of a range are in the order of.
    pub(crate) fn order(&self) -> (u64, &Epk, u16) {
        (self.change_id.lsn, &self.key.epk, self.change_id.op)
    }

    /// Whether it is a live item's newest version.
    pub(crate) fn is_item(&self) -> bool {
        self.state == RecordState::Newest && self.kind == RecordKind::Put
    }
}
