//! `.info`: the document that says "leases were created once", and where the feed of each range began.

use std::collections::BTreeMap;

use changefeed_core::{FeedRange, Timestamp};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};

use super::{
    DocumentError,
    members::{Members, Unknown},
};
use crate::lease::coverage::uncovered;

const ANCHORS: &str = "cf.anchors";

/// Where the feed of a range began, in a form that does not depend on when it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// At its oldest change.
    Beginning,
    /// At the first change at or after this moment.
    Time(Timestamp),
    /// After this position.
    Continuation(String),
}

/// Where each range of a container began. A lease that was lost is made anew from it, so no change is skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Anchors(Vec<(FeedRange, Anchor)>);

impl Anchors {
    /// In key order; neighbours with one anchor become one entry. Of entries that overlap all count.
    pub fn new(mut anchors: Vec<(FeedRange, Anchor)>) -> Self {
        anchors.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut merged: Vec<(FeedRange, Anchor)> = Vec::with_capacity(anchors.len());
        for (range, anchor) in anchors {
            if let Some((last, same)) = merged.last_mut()
                && *same == anchor
                && last.max_exclusive() == range.min_inclusive()
                && let Ok(both) = FeedRange::new(last.min_inclusive().clone(), range.max_exclusive().clone())
            {
                *last = both;
            } else {
                merged.push((range, anchor));
            }
        }
        Self(merged)
    }

    /// The anchors of the keys of a range, in key order. Several, if the range spans ranges that began differently.
    pub fn of(&self, range: &FeedRange) -> Vec<Anchor> {
        self.pieces(range).into_iter().map(|(_, anchor)| anchor).collect()
    }

    /// The range cut where its anchor changes, in key order. Keys without an anchor are left out.
    pub fn pieces(&self, range: &FeedRange) -> Vec<(FeedRange, Anchor)> {
        let clip = |(own, anchor): &(FeedRange, Anchor)| Some((own.intersection(range)?, anchor.clone()));
        self.0.iter().filter_map(clip).collect()
    }

    /// The same, but that the keys of `range` begin at `anchor`.
    #[must_use]
    pub fn moved(&self, range: &FeedRange, anchor: &Anchor) -> Self {
        let outside = |(own, old): &(FeedRange, Anchor)| {
            let left = uncovered(own, [range]);
            left.into_iter().map(|left| (left, old.clone())).collect::<Vec<_>>()
        };
        let kept = self.0.iter().flat_map(outside);
        Self::new(kept.chain([(range.clone(), anchor.clone())]).collect())
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn parse(text: &str) -> Option<Self> {
        let entries: Vec<Entry> = serde_json::from_str(text).ok()?;
        let read = |entry: Entry| {
            let anchor = match entry.start {
                Start::Beginning => Anchor::Beginning,
                Start::Time(millis) => Anchor::Time(Timestamp::from_millis(millis)),
                Start::Continuation(token) => Anchor::Continuation(token),
            };
            Some((entry.range.parse().ok()?, anchor))
        };
        entries.into_iter().map(read).collect::<Option<_>>().map(Self::new)
    }

    fn to_text(&self) -> String {
        let entry = |(range, anchor): &(FeedRange, Anchor)| Entry {
            range: range.to_string(),
            start: match anchor {
                Anchor::Beginning => Start::Beginning,
                Anchor::Time(moment) => Start::Time(moment.as_millis()),
                Anchor::Continuation(token) => Start::Continuation(token.clone()),
            },
        };
        let entries: Vec<_> = self.0.iter().map(entry).collect();
        serde_json::to_string(&entries).expect("invariant: texts and numbers always serialise")
    }
}

/// One anchor as JSON: `{"range":"-FF","start":"beginning"}`, `"start":{"time":<ms>}` or `{"continuation":"…"}`.
#[derive(Serialize, Deserialize)]
struct Entry {
    range: String,
    start: Start,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Start {
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
    anchors: Anchors,
    unknown: Unknown,
}

impl InfoDocument {
    /// A new one. Without anchors it is what a .NET host writes.
    pub fn new(id: &str, partition_key: Option<String>, anchors: &Anchors) -> Self {
        let entry = (!anchors.is_empty()).then(|| (ANCHORS.to_owned(), anchors.to_text()));
        let properties = entry.into_iter().collect();
        let (id, anchors, unknown) = (id.to_owned(), anchors.clone(), Unknown::default());
        Self { id, partition_key, properties, anchors, unknown }
    }

    /// Reads one, of ours or of a .NET host.
    ///
    /// # Errors
    /// If it is not an object with an id, or its anchors cannot be read: guessing them could skip changes.
    pub fn parse(body: &[u8]) -> Result<Self, DocumentError> {
        let mut members = Members::parse(body)?;
        let id = members.take_id()?;
        let partition_key = members.take_text("partitionKey")?;
        let properties = members.take_properties()?;
        let anchors = match properties.get(ANCHORS) {
            None => Anchors::default(),
            Some(text) => Anchors::parse(text)
                .ok_or_else(|| DocumentError::bad_field(format!("properties.{ANCHORS}"), "is not a list of anchors"))?,
        };
        Ok(Self { id, partition_key, properties, anchors, unknown: members.into_unknown() })
    }

    /// Where each range began; empty if a .NET host created the document.
    pub fn anchors(&self) -> Anchors {
        self.anchors.clone()
    }

    /// Sets where each range begins.
    pub fn set_anchors(&mut self, anchors: &Anchors) {
        self.properties.insert(ANCHORS.to_owned(), anchors.to_text());
        self.anchors = anchors.clone();
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
        self.unknown.serialize_into(&mut map)?;
        map.end()
    }
}
