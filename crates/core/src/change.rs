//! Changes and how to ask for them.

use std::{fmt, time::SystemTime};

use bytes::Bytes;
use serde::{Serialize, Serializer, de::DeserializeOwned, ser::Error as _};
use serde_json::value::RawValue;

use crate::{
    Continuation, FeedRange, ItemId, Lsn, PartitionKey, RangeId, ResourceId, Result, Timestamp, item::parse_body,
};

/// What the feed shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Each item once, at its newest version; deleted items do not appear.
    #[default]
    LatestVersion,
    /// Every version and every delete within the container's retention.
    AllVersions,
}

/// Where a reader begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartFrom {
    /// At the oldest change. Latest-version mode only.
    Beginning,
    /// After the newest change at the moment of the read.
    Now,
    /// At the first change written at or after this moment. Latest-version mode only.
    Time(Timestamp),
    /// Right after the page that returned this continuation.
    Continuation(Continuation),
}

impl From<Continuation> for StartFrom {
    fn from(continuation: Continuation) -> Self {
        Self::Continuation(continuation)
    }
}

impl From<Timestamp> for StartFrom {
    fn from(time: Timestamp) -> Self {
        Self::Time(time)
    }
}

impl From<SystemTime> for StartFrom {
    fn from(time: SystemTime) -> Self {
        Self::Time(time.into())
    }
}

/// A request for one page of changes.
#[derive(Clone, Debug)]
pub struct ReadChanges {
    /// Which keys: any part of one physical range.
    pub range: FeedRange,
    /// If set, the read is refused with `RangeGone` as soon as this physical range was split or merged, and `range`
    /// only narrows it. If not set, `range` must lie within one physical range, whichever it is.
    pub physical: Option<RangeId>,
    /// The one partition key that `range` holds, if it holds no other: with all its parts. A store that can ask for a key
    /// by its name does so; nothing else depends on it.
    pub partition_key: Option<PartitionKey>,
    /// Where to begin.
    pub start: StartFrom,
    /// What to show.
    pub mode: Mode,
    /// Skips changes written before this moment, wherever the read begins.
    pub not_before: Option<Timestamp>,
    /// The page bound: how many changes at most. A store may exceed it for a transaction that it does not cut. A page
    /// ends inside an LSN only if the changes of that LSN alone exceed the bound.
    pub max_items: usize,
    /// Whether [`ChangePage::remaining`] is wanted: counting may cost as much as reading.
    pub count_remaining: bool,
}

impl ReadChanges {
    /// The default page bound.
    pub const DEFAULT_MAX_ITEMS: usize = 1000;

    /// Reads latest versions in `range` from `start` on, at most 1,000 a page.
    pub fn new(range: FeedRange, start: impl Into<StartFrom>) -> Self {
        Self {
            range,
            physical: None,
            partition_key: None,
            start: start.into(),
            mode: Mode::LatestVersion,
            not_before: None,
            max_items: Self::DEFAULT_MAX_ITEMS,
            count_remaining: false,
        }
    }

    /// Sets the mode. Default: latest versions.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the page bound. Default: 1,000.
    #[must_use]
    pub fn max_items(mut self, max_items: usize) -> Self {
        self.max_items = max_items;
        self
    }

    /// Binds the read to one physical range. Default: not bound.
    #[must_use]
    pub fn physical(mut self, id: RangeId) -> Self {
        self.physical = Some(id);
        self
    }

    /// Names the one partition key that the range holds. Default: not named.
    #[must_use]
    pub fn partition_key(mut self, key: PartitionKey) -> Self {
        self.partition_key = Some(key);
        self
    }

    /// Asks for the number of changes after the page. Default: not asked.
    #[must_use]
    pub fn count_remaining(mut self) -> Self {
        self.count_remaining = true;
        self
    }

    /// Skips what was written before `moment`. Default: skips nothing.
    #[must_use]
    pub fn not_before(mut self, moment: Timestamp) -> Self {
        self.not_before = Some(moment);
        self
    }
}

/// What happened to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Created or replaced; latest-version mode does not tell which.
    Write,
    /// Created. All-versions mode only.
    Create,
    /// Replaced. All-versions mode only.
    Replace,
    /// Deleted by a caller. All-versions mode only.
    Delete,
    /// Deleted because its time to live was over. All-versions mode only.
    Expire,
}

/// One change of one item. As JSON its bodies are what they are, not texts.
#[derive(Clone, Serialize)]
pub struct Change {
    /// The item.
    pub id: ItemId,
    /// Its resource id; none where the change did not come from a feed.
    pub rid: Option<ResourceId>,
    /// The position of the change. Changes of one batch share it.
    pub lsn: Lsn,
    /// When it was written.
    pub timestamp: Timestamp,
    /// What happened.
    pub operation: Operation,
    /// The item after the change, with system members including `_lsn`; none after a delete.
    #[serde(serialize_with = "as_json")]
    pub current: Option<Bytes>,
    /// The item before the change: in all-versions mode for replaces and deletes.
    #[serde(serialize_with = "as_json")]
    pub previous: Option<Bytes>,
    /// The position of the previous version, where there is one and the mode shows it.
    pub previous_lsn: Option<Lsn>,
}

impl Change {
    /// Returns the item after the change as a value of the caller's type, without system members; `None` after a
    /// delete. See [`parse_item`](crate::parse_item).
    ///
    /// # Errors
    /// [`ErrorKind::BadJson`](crate::ErrorKind::BadJson) if the body does not fit the type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        self.current.as_deref().map(|body| parse_body(&self.id, body)).transpose()
    }
}

fn as_json<S: Serializer>(body: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    let json: Option<&RawValue> = body.as_deref().map(serde_json::from_slice).transpose().map_err(S::Error::custom)?;
    json.serialize(serializer)
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Change({:?} {} lsn {})", self.operation, self.id, self.lsn)
    }
}

/// One page of changes.
#[derive(Clone, Debug)]
pub struct ChangePage {
    /// In LSN order per partition key and per item; empty if there is nothing new.
    pub changes: Vec<Change>,
    /// Resumes exactly after this page. Advances on empty pages too.
    pub continuation: Continuation,
    /// The newest LSN of the physical range that answered, or of the container where the store counts LSNs per
    /// container, at the moment of the read. No change of the page has a higher LSN. Where LSNs are counted per range,
    /// its distance from that of a continuation is the number of transactions that a reader is behind.
    pub newest_lsn: Lsn,
    /// How many changes of the asked feed range come after this page, if that was asked and the store can tell.
    pub remaining: Option<u64>,
    /// The physical range that answered.
    pub physical: RangeId,
}
