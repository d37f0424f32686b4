//! `.info`: the document that says that leases were created, and where the feed of each range began.

use std::collections::BTreeMap;

use changefeed_core::{Continuation, FeedRange, StartFrom, Timestamp};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};

use super::{
    error::DocumentError,
    keys::parse_number,
    members::{Extra, Members},
};
use crate::lease::ranges::uncovered;

const START_POSITIONS: &str = "cf.anchors";
/// The identity of the store of the monitored container.
const STORE: &str = "cf.store";

/// The account host that is part of the id.
const ACCOUNT_HOST: &str = "cf.accountHost";

/// When hosts of the .NET SDK created the document, in milliseconds.
const CREATED: &str = "cf.created";

/// Where the feed of a range began, in a form that does not depend on when it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartPosition {
    /// At its oldest change.
    Beginning,
    /// At the first change at or after this moment.
    Time(Timestamp),
    /// After this position.
    Continuation(String),
}

impl StartPosition {
    /// The position as the start of a read.
    pub(crate) fn to_start(&self) -> StartFrom {
        match self {
            Self::Beginning => StartFrom::Beginning,
            Self::Time(time) => StartFrom::Time(*time),
            Self::Continuation(token) => StartFrom::Continuation(Continuation::from_token(token.as_str())),
        }
    }

    /// Orders positions that can be compared: the beginning first, then times, then continuations.
    pub(crate) fn rank(&self) -> (u8, Timestamp) {
        match self {
            Self::Beginning => (0, Timestamp::default()),
            Self::Time(time) => (1, *time),
            Self::Continuation(_) => (2, Timestamp::default()),
        }
    }
}

/// Where each range of a container began. A lease that was lost is created again from it, so no change is skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartPositions {
    /// In key order.
    entries: Vec<(FeedRange, StartPosition)>,
    /// Whether some of them overlap.
    overlapping: bool,
}

impl StartPositions {
    /// In key order; neighbours with one position become one entry. Of entries that overlap all count.
    pub fn new(mut positions: Vec<(FeedRange, StartPosition)>) -> Self {
        positions.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut merged: Vec<(FeedRange, StartPosition)> = Vec::with_capacity(positions.len());
        for (range, position) in positions {
            if let Some((last, same)) = merged.last_mut()
                && *same == position
                && last.max_exclusive() == range.min_inclusive()
                && let Ok(both) = FeedRange::new(last.min_inclusive().clone(), range.max_exclusive().clone())
            {
                *last = both;
            } else {
                merged.push((range, position));
            }
        }
        let overlapping = merged.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a.overlaps(b)));
        Self { entries: merged, overlapping }
    }

    /// The positions of the keys of a range, in key order. Several, if the range spans ranges that began differently.
    pub fn of(&self, range: &FeedRange) -> Vec<StartPosition> {
        self.pieces(range).into_iter().map(|(_, position)| position).collect()
    }

    /// The range cut where its position changes, in key order. Keys without a position are left out.
    pub fn pieces(&self, range: &FeedRange) -> Vec<(FeedRange, StartPosition)> {
        let clip = |(own, position): &(FeedRange, StartPosition)| Some((own.intersection(range)?, position.clone()));
        let end = self.entries.partition_point(|(own, _)| own.min_inclusive() < range.max_exclusive());
        let before = |(own, _): &(FeedRange, StartPosition)| own.max_exclusive() <= range.min_inclusive();
        let start = if self.overlapping { 0 } else { self.entries.partition_point(before) };
        self.entries.get(start..end).unwrap_or_default().iter().filter_map(clip).collect()
    }

    /// The same, but that the keys of `range` begin at `position`.
    #[must_use]
    pub fn moved(&self, range: &FeedRange, position: &StartPosition) -> Self {
        let outside = |(own, old): &(FeedRange, StartPosition)| {
            let left = uncovered(own, [range]);
            left.into_iter().map(|left| (left, old.clone())).collect::<Vec<_>>()
        };
        let kept = self.entries.iter().flat_map(outside);
        Self::new(kept.chain([(range.clone(), position.clone())]).collect())
    }

    /// The parts of a range whose keys have no position, in key order.
    pub fn missing(&self, range: &FeedRange) -> Vec<FeedRange> {
        uncovered(range, self.entries.iter().map(|(own, _)| own))
    }

    /// The same, and for keys that have none yet the positions of `other`.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let missing = self.missing(&FeedRange::full());
        let more = missing.iter().flat_map(|range| other.pieces(range));
        Self::new(self.entries.iter().cloned().chain(more).collect())
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn parse(text: &str) -> Option<Self> {
        let entries: Vec<Entry> = serde_json::from_str(text).ok()?;
        let read = |entry: Entry| {
            let position = match entry.start {
                StoredStart::Beginning => StartPosition::Beginning,
                StoredStart::Time(millis) => StartPosition::Time(Timestamp::from_millis(millis)),
                StoredStart::Continuation(token) => StartPosition::Continuation(token),
            };
            Some((entry.range.parse().ok()?, position))
        };
        entries.into_iter().map(read).collect::<Option<_>>().map(Self::new)
    }

    fn to_text(&self) -> String {
        let entry = |(range, position): &(FeedRange, StartPosition)| Entry {
            range: range.to_string(),
            start: match position {
                StartPosition::Beginning => StoredStart::Beginning,
                StartPosition::Time(moment) => StoredStart::Time(moment.as_millis()),
                StartPosition::Continuation(token) => StoredStart::Continuation(token.clone()),
            },
        };
        let entries: Vec<_> = self.entries.iter().map(entry).collect();
        serde_json::to_string(&entries).expect("invariant: texts and numbers always serialise")
    }
}

/// One position as JSON: `{"range":"-FF","start":"beginning"}`, `"start":{"time":<ms>}` or `{"continuation":"…"}`.
#[derive(Serialize, Deserialize)]
struct Entry {
    range: String,
    start: StoredStart,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredStart {
    Beginning,
    Time(u64),
    Continuation(String),
}

/// The document whose existence means that leases were created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoDocument {
    id: String,
    partition_key: Option<String>,
    properties: BTreeMap<String, String>,
    positions: StartPositions,
    extra: Extra,
}

impl InfoDocument {
    /// A new one. Without positions it is what a .NET host writes.
    pub fn new(id: &str, partition_key: Option<String>, positions: &StartPositions) -> Self {
        let entry = (!positions.is_empty()).then(|| (START_POSITIONS.to_owned(), positions.to_text()));
        let properties = entry.into_iter().collect();
        let (id, positions, extra) = (id.to_owned(), positions.clone(), Extra::default());
        Self { id, partition_key, properties, positions, extra }
    }

    /// Reads one, of ours or of a .NET host.
    ///
    /// # Errors
    /// If it is not an object with an id, or its positions cannot be read: guessing them could skip changes.
    pub fn parse(body: &[u8]) -> Result<Self, DocumentError> {
        let mut members = Members::parse(body)?;
        let id = members.take_id()?;
        let partition_key = members.take_text("partitionKey")?;
        let properties = members.take_properties()?;
        let positions = match properties.get(START_POSITIONS) {
            None => StartPositions::default(),
            Some(text) => StartPositions::parse(text).ok_or_else(|| {
                DocumentError::bad_field(format!("properties.{START_POSITIONS}"), "is not a list of positions")
            })?,
        };
        Ok(Self { id, partition_key, properties, positions, extra: members.into_extra() })
    }

    /// When hosts of the .NET SDK created the document, of which a version was read that was written at `written`. None if
    /// a host of ours created it, or changed it without noting that.
    pub fn dot_net_creation(&self, written: Timestamp) -> Option<Timestamp> {
        let noted = self.properties.get(CREATED).and_then(|text| parse_number(text)).map(Timestamp::from_millis);
        // They write it once, without properties.
        noted.or_else(|| self.properties.is_empty().then_some(written))
    }

    /// Notes when hosts of the .NET SDK created the document, before it is changed: the store then counts from the change.
    pub fn note_dot_net_creation(&mut self, written: Timestamp) {
        if let Some(created) = self.dot_net_creation(written) {
            self.properties.insert(CREATED.to_owned(), created.as_millis().to_string());
        }
    }

    /// Where each range began; empty if a .NET host created the document.
    pub fn start_positions(&self) -> StartPositions {
        self.positions.clone()
    }

    /// Sets where each range begins.
    pub fn set_start_positions(&mut self, positions: &StartPositions) {
        self.properties.insert(START_POSITIONS.to_owned(), positions.to_text());
        self.positions = positions.clone();
    }

    /// The identity of the store that the positions belong to; `None` if a host of version 1 or of .NET created it.
    pub fn store(&self) -> Option<&str> {
        self.properties.get(STORE).map(String::as_str)
    }

    /// Sets the identity of the store that the positions belong to.
    pub fn set_store(&mut self, store: &str) {
        self.properties.insert(STORE.to_owned(), store.to_owned());
    }

    /// The account host in the id, which alone does not tell where the processor's name ends; `None` if a host of .NET or
    /// of an older version created the document.
    pub fn account_host(&self) -> Option<&str> {
        self.properties.get(ACCOUNT_HOST).map(String::as_str)
    }

    /// Sets the account host in the id.
    pub fn set_account_host(&mut self, host: &str) {
        self.properties.insert(ACCOUNT_HOST.to_owned(), host.to_owned());
    }

    /// The document as it is stored.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("invariant: texts and JSON that was read always serialise")
    }
}

impl Serialize for InfoDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        if let Some(key) = &self.partition_key {
            map.serialize_entry("partitionKey", key)?;
        }
        if !self.properties.is_empty() {
            map.serialize_entry("properties", &self.properties)?;
        }
        self.extra.serialize_into(&mut map)?;
        map.end()
    }
}
