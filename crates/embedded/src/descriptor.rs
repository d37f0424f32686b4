//! What the store writes down about databases and containers: items of its own container 0.

use std::time::Duration;

use changefeed_core::{
    ContainerInfo, ContainerSpec, Epk, Error, ErrorKind, FeedRange, PartitionKeyDefinition, PhysicalRange, RangeId,
    ResourceId, Result, TimeToLive, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::index::{
    container::History,
    tally::{Part, Tally},
};

/// The number of the container that holds descriptors. Users' containers have higher ones.
pub(crate) const CATALOG: u32 = 0;

/// One item of container 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Descriptor {
    Database(DatabaseDescriptor),
    Container(ContainerDescriptor),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DatabaseDescriptor {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) created: u64,
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub(crate) other: serde_json::Map<String, serde_json::Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerDescriptor {
    pub(crate) number: u32,
    pub(crate) database: u32,
    pub(crate) name: String,
    pub(crate) changed: u64,
    pub(crate) partition_key: PartitionKeyDefinition,
    /// As in Cosmos: absent off, -1 only items with their own, else seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_ttl: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retention_ms: Option<u64>,
    /// All-versions history begins after this LSN.
    pub(crate) history_since: u64,
    pub(crate) next_range: u64,
    pub(crate) ranges: Vec<RangeDescriptor>,
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub(crate) other: serde_json::Map<String, serde_json::Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RangeDescriptor {
    pub(crate) id: u64,
    pub(crate) min: String,
    pub(crate) max: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parents: Vec<u64>,
    /// What its keys had been counted to when it was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) counted: Vec<PartDescriptor>,
}

/// Keys of a range that are counted together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PartDescriptor {
    pub(crate) min: String,
    pub(crate) max: String,
    /// What was counted before a split made it.
    pub(crate) base: u64,
    pub(crate) count: u64,
}

impl Descriptor {
    /// The id of the item that holds it.
    pub(crate) fn item_id(&self) -> String {
        match self {
            Self::Database(database) => format!("database-{}", database.number),
            Self::Container(container) => format!("container-{}", container.number),
        }
    }
}

impl ContainerDescriptor {
    /// A container about to be created.
    pub(crate) fn create(number: u32, database: u32, spec: ContainerSpec, now: Timestamp) -> Result<Self> {
        check_name("container", &spec.name)?;
        let ranges = spec.partition_key.split_evenly(spec.ranges)?;
        let ranges: Vec<_> =
            (0..).zip(ranges).map(|(id, range)| RangeDescriptor::new(id, &range, Vec::new(), None)).collect();
        let mut descriptor = Self {
            number,
            database,
            name: spec.name.clone(),
            changed: 0,
            partition_key: spec.partition_key.clone(),
            default_ttl: None,
            retention_ms: None,
            history_since: 0,
            next_range: ranges.len() as u64,
            ranges,
            other: serde_json::Map::new(),
        };
        descriptor.change(spec, now, 0)?;
        Ok(descriptor)
    }

    /// Takes over the settings that can change. `newest` is the container's newest LSN.
    pub(crate) fn change(&mut self, spec: ContainerSpec, now: Timestamp, newest: u64) -> Result<()> {
        if spec.partition_key != self.partition_key {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the partition key of container {} cannot change: create another container", self.name),
            ));
        }
        self.default_ttl = match spec.time_to_live {
            TimeToLive::Off => None,
            TimeToLive::ItemsOnly => Some(-1),
            TimeToLive::Seconds(0) => {
                let message =
                    format!("a time to live of 0 s would delete every item of {} at once: use 1 or more", self.name);
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            TimeToLive::Seconds(seconds) => Some(seconds.into()),
        };
        let retention = spec.all_versions_retention.map(|retention| retention.as_millis());
        let retention = retention.map(|millis| u64::try_from(millis).unwrap_or(u64::MAX));
        if retention == Some(0) {
            let message = format!("a retention of 0 s keeps no versions of {}: leave it out or use more", self.name);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if retention.is_some() && self.retention_ms.is_none() {
            self.history_since = newest;
        }
        self.retention_ms = retention;
        self.other = spec.extra;
        self.changed = now.as_millis();
        Ok(())
    }

    pub(crate) fn rid(&self) -> ResourceId {
        ResourceId::container(self.database, self.number)
    }

    pub(crate) fn time_to_live(&self) -> TimeToLive {
        match self.default_ttl {
            None => TimeToLive::Off,
            Some(seconds) => u32::try_from(seconds).map_or(TimeToLive::ItemsOnly, TimeToLive::Seconds),
        }
    }

    pub(crate) fn history(&self) -> History {
        self.retention_ms.map_or(History::Off, History::Milliseconds)
    }

    pub(crate) fn physical_ranges(&self) -> Result<Vec<PhysicalRange>> {
        self.ranges.iter().map(RangeDescriptor::physical).collect()
    }

    /// The ranges, and what their keys had been counted to when they were made.
    pub(crate) fn layout(&self) -> Result<Vec<(PhysicalRange, Tally)>> {
        self.ranges.iter().map(|range| Ok((range.physical()?, range.tally()?))).collect()
    }

    pub(crate) fn info(&self) -> ContainerInfo {
        ContainerInfo {
            rid: self.rid(),
            timestamp: Timestamp::from_millis(self.changed),
            spec: ContainerSpec {
                name: self.name.clone(),
                partition_key: self.partition_key.clone(),
                ranges: self.ranges.len(),
                time_to_live: self.time_to_live(),
                all_versions_retention: self.retention_ms.map(Duration::from_millis),
                extra: self.other.clone(),
            },
        }
    }

    /// Splits a range; returns the children. `tally` is the range's.
    pub(crate) fn split(&mut self, id: &RangeId, at: Option<Epk>, tally: &Tally) -> Result<Vec<PhysicalRange>> {
        let position = self.position(id)?;
        let parent = self.ranges[position].physical()?;
        let at = match at {
            Some(at) => at,
            None => self.partition_key.middle(&parent.range).ok_or_else(|| {
                Error::new(ErrorKind::BadRange, format!("range {id} ({}) is too narrow to split", parent.range))
            })?,
        };
        let (left, right) = parent.range.split_at(&at)?;
        let parents = self.heirs(&[position]);
        let mut child = |range: FeedRange| self.next(&range, parents.clone(), tally.child(range.clone()));
        let children = [child(left), child(right)];
        let physical = children.iter().map(RangeDescriptor::physical).collect();
        self.ranges.splice(position..=position, children);
        physical
    }

    /// Makes one range of two neighbours, which have these tallies.
    pub(crate) fn merge(&mut self, ids: [&RangeId; 2], mut tallies: [&Tally; 2]) -> Result<PhysicalRange> {
        let (mut a, mut b) = (self.position(ids[0])?, self.position(ids[1])?);
        if b < a {
            (a, b) = (b, a);
            tallies.reverse();
        }
        if a + 1 != b {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("ranges {} and {} are not neighbours: merge two that touch", ids[0], ids[1]),
            ));
        }
        let (left, right) = (self.ranges[a].physical()?, self.ranges[b].physical()?);
        let whole = FeedRange::new(left.range.min_inclusive().clone(), right.range.max_exclusive().clone())?;
        let parents = self.heirs(&[a, b]);
        let merged = self.next(&whole, parents, tallies[0].merge(tallies[1]));
        let physical = merged.physical();
        self.ranges.splice(a..=b, [merged]);
        physical
    }

    fn position(&self, id: &RangeId) -> Result<usize> {
        let number = id.as_str().parse::<u64>().ok();
        if let Some(position) = self.ranges.iter().position(|range| Some(range.id) == number) {
            return Ok(position);
        }
        Err(self.missing_range(id))
    }

    /// Why there is no range with this id: gone, or never there.
    pub(crate) fn missing_range(&self, id: &RangeId) -> Error {
        match id.as_str().parse::<u64>() {
            Ok(number) if number < self.next_range && number.to_string() == id.as_str() => Error::new(
                ErrorKind::RangeGone,
                format!("range {id} of {} was split or merged: read the feed ranges again", self.name),
            ),
            _ => Error::new(
                ErrorKind::RangeNotFound,
                format!("{} never had a range {id}: list its feed ranges", self.name),
            ),
        }
    }

    /// All ancestors of a child of the ranges at `positions`, themselves included.
    fn heirs(&self, positions: &[usize]) -> Vec<u64> {
        let mut parents: Vec<u64> = positions
            .iter()
            .flat_map(|at| self.ranges[*at].parents.iter().copied().chain([self.ranges[*at].id]))
            .collect();
        parents.sort_unstable();
        parents.dedup();
        parents
    }

    fn next(&mut self, range: &FeedRange, parents: Vec<u64>, tally: Tally) -> RangeDescriptor {
        let id = self.next_range;
        self.next_range += 1;
        RangeDescriptor::new(id, range, parents, Some(tally))
    }
}

impl RangeDescriptor {
    fn new(id: u64, range: &FeedRange, parents: Vec<u64>, tally: Option<Tally>) -> Self {
        let counted = tally.iter().flat_map(Tally::parts).map(|part| PartDescriptor {
            min: part.range.min_inclusive().to_string(),
            max: part.range.max_exclusive().to_string(),
            base: part.base,
            count: part.count,
        });
        let (min, max) = (range.min_inclusive().to_string(), range.max_exclusive().to_string());
        Self { id, min, max, parents, counted: counted.collect() }
    }

    fn tally(&self) -> Result<Tally> {
        if self.counted.is_empty() {
            return Ok(Tally::new(self.physical()?.range, 0));
        }
        let part = |part: &PartDescriptor| {
            let range = FeedRange::new(part.min.parse()?, part.max.parse()?)?;
            Ok(Part { range, base: part.base, count: part.count.max(part.base) })
        };
        Ok(Tally::of_parts(self.counted.iter().map(part).collect::<Result<_>>()?))
    }

    fn physical(&self) -> Result<PhysicalRange> {
        Ok(PhysicalRange {
            id: RangeId::from(self.id),
            range: FeedRange::new(self.min.parse()?, self.max.parse()?)?,
            parents: self.parents.iter().copied().map(RangeId::from).collect(),
        })
    }
}

/// Names of databases and containers follow the rules of ids.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let checked = changefeed_core::ItemId::new(name);
    checked.map(drop).map_err(|error| Error::new(ErrorKind::BadId, format!("name of the {what}: {error}")))
}
