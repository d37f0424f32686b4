//! What the store writes down about databases and containers: items of its own container 0.

use std::time::Duration;

use changefeed_core::{
    ContainerInfo, ContainerSpec, Epk, Error, ErrorKind, FeedRange, PartitionKeyDefinition, PhysicalRange, RangeId,
    ResourceId, Result, TimeToLive, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::index::{
    container::History,
    horizon::{Horizon, Part},
    range::RangeStart,
};

/// The number of the container that holds descriptors. Users' containers have higher ones.
pub(crate) const CATALOG: u32 = 0;

/// The LSN of the first write of a container, as in Azure Cosmos DB.
pub(crate) const FIRST_LSN: u64 = 2;

/// In version 1 the last bits of a document number were the place in the batch that created it.
const VERSION_1_OP_BITS: u32 = 7;

/// One item of container 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Descriptor {
    Database(DatabaseDescriptor),
    Container(ContainerDescriptor),
    Retired(RetiredDescriptor),
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
    /// Version 1 only: all-versions history begins after this LSN in all ranges.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) history_since: u64,
    pub(crate) next_range: u64,
    pub(crate) ranges: Vec<RangeDescriptor>,
    /// Document numbers come after this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) numbered: u64,
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
    /// Its own LSNs come after this one. Version 1 had none.
    #[serde(default)]
    pub(crate) lsn: u64,
    /// After which LSNs its all-versions history begins, if not after 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) history: Vec<PartDescriptor>,
}

/// Keys of a range whose history begins after the same LSN.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PartDescriptor {
    pub(crate) min: String,
    pub(crate) max: String,
    pub(crate) lsn: u64,
}

/// How far a container had come that is no more. The next one of its name goes on from there, so that whoever kept a
/// session with the old one does not wait for the new one to reach it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RetiredDescriptor {
    pub(crate) number: u32,
    pub(crate) database_name: String,
    pub(crate) name: String,
    pub(crate) lsn: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Descriptor {
    /// The id of the item that holds it.
    pub(crate) fn item_id(&self) -> String {
        match self {
            Self::Database(database) => format!("database-{}", database.number),
            Self::Container(container) => format!("container-{}", container.number),
            Self::Retired(retired) => format!("retired-{}", retired.number),
        }
    }
}

impl ContainerDescriptor {
    /// A container about to be created. The LSNs of all its ranges come after `lsn`.
    pub(crate) fn create(number: u32, database: u32, spec: ContainerSpec, lsn: u64, now: Timestamp) -> Result<Self> {
        check_name("container", &spec.name)?;
        let ranges = spec.partition_key.split_evenly(spec.ranges)?;
        let ranges: Vec<_> =
            (0..).zip(ranges).map(|(id, range)| RangeDescriptor::new(id, &range, Vec::new(), lsn)).collect();
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
            numbered: 0,
            other: serde_json::Map::new(),
        };
        descriptor.change(spec, now, |_| 0)?;
        Ok(descriptor)
    }

    /// Takes over the settings that can change. `newest` is the LSN after which the history of a range begins if it begins
    /// now.
    pub(crate) fn change(
        &mut self,
        spec: ContainerSpec,
        now: Timestamp,
        newest: impl Fn(&RangeId) -> u64,
    ) -> Result<()> {
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
            for range in &mut self.ranges {
                let lsn = newest(&RangeId::from(range.id));
                range.begin_history_after(lsn);
            }
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

    /// The ranges as they began.
    pub(crate) fn layout(&self) -> Result<Vec<RangeStart>> {
        self.ranges.iter().map(RangeDescriptor::start).collect()
    }

    /// Gives a container of version 1, whose ranges had one sequence of LSNs together, a sequence for each range: all of
    /// them go on above `newest`, the last one that was given out, and history up to `purged` is gone in all. Document
    /// numbers were made of LSNs: none of them may come back, either.
    pub(crate) fn separate(&mut self, newest: u64, purged: u64) {
        self.numbered = (newest + 1) << VERSION_1_OP_BITS;
        let purged = purged.max(std::mem::take(&mut self.history_since));
        for range in &mut self.ranges {
            range.lsn = newest.max(FIRST_LSN - 1);
            range.begin_history_after(purged);
        }
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

    /// Splits a range, which has come to `lsn`; returns the children, which go on from there.
    pub(crate) fn split(
        &mut self,
        id: &RangeId,
        at: Option<Epk>,
        (lsn, horizon): (u64, &Horizon),
    ) -> Result<Vec<PhysicalRange>> {
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
        let mut child = |range: FeedRange| self.next(&range, parents.clone(), lsn, &horizon.within(&range));
        let children = [child(left), child(right)];
        let physical = children.iter().map(RangeDescriptor::physical).collect();
        self.ranges.splice(position..=position, children);
        physical
    }

    /// Makes one range of two neighbours, which have come to these LSNs. It goes on above both.
    pub(crate) fn merge(&mut self, ids: [&RangeId; 2], mut ends: [(u64, &Horizon); 2]) -> Result<PhysicalRange> {
        let (mut a, mut b) = (self.position(ids[0])?, self.position(ids[1])?);
        if b < a {
            (a, b) = (b, a);
            ends.reverse();
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
        let [(left, lower), (right, upper)] = ends;
        let merged = self.next(&whole, parents, left.max(right), &lower.merge(upper));
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

    fn next(&mut self, range: &FeedRange, parents: Vec<u64>, lsn: u64, horizon: &Horizon) -> RangeDescriptor {
        let id = self.next_range;
        self.next_range += 1;
        let part = |part: &Part| {
            let (min, max) = (part.range.min_inclusive().to_string(), part.range.max_exclusive().to_string());
            PartDescriptor { min, max, lsn: part.lsn }
        };
        let is_cut = horizon.parts().iter().any(|part| part.lsn > 0);
        let history = if is_cut { horizon.parts().iter().map(part).collect() } else { Vec::new() };
        RangeDescriptor { history, ..RangeDescriptor::new(id, range, parents, lsn) }
    }
}

impl RangeDescriptor {
    fn new(id: u64, range: &FeedRange, parents: Vec<u64>, lsn: u64) -> Self {
        let (min, max) = (range.min_inclusive().to_string(), range.max_exclusive().to_string());
        Self { id, min, max, parents, lsn, history: Vec::new() }
    }

    fn begin_history_after(&mut self, lsn: u64) {
        let part = PartDescriptor { min: self.min.clone(), max: self.max.clone(), lsn };
        self.history = if lsn == 0 { Vec::new() } else { vec![part] };
    }

    fn start(&self) -> Result<RangeStart> {
        let physical = self.physical()?;
        let part = |part: &PartDescriptor| {
            Ok(Part { range: FeedRange::new(part.min.parse()?, part.max.parse()?)?, lsn: part.lsn })
        };
        let horizon = match self.history.is_empty() {
            true => Horizon::new(physical.range.clone(), 0),
            false => Horizon::of_parts(self.history.iter().map(part).collect::<Result<_>>()?),
        };
        Ok(RangeStart { physical, lsn: self.lsn, horizon })
    }

    fn physical(&self) -> Result<PhysicalRange> {
        Ok(PhysicalRange {
            id: RangeId::from(self.id),
            range: FeedRange::new(self.min.parse()?, self.max.parse()?)?,
            parents: self.parents.iter().copied().map(RangeId::from).collect(),
        })
    }
}

/// Checks the name of a database or container.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    changefeed_core::check_name(name)
        .map_err(|error| Error::new(ErrorKind::BadId, format!("name of the {what}: {error}")))
}
