//! All that the engine knows: catalog, indexes, segments and their newest records. Changed by the committer and by compaction only.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use changefeed_core::{Epk, Error, ErrorKind, FeedRange, ItemId, PhysicalRange, RangeId, Result, TimeToLive};

use crate::{
    descriptor::{CATALOG, ContainerDescriptor, DatabaseDescriptor, Descriptor, RetiredDescriptor},
    format::{
        VERSION,
        record::{Record, RecordKind},
    },
    index::{
        Entry, Key, Location,
        container::{ContainerIndex, History},
        discarded::Discarded,
        horizon::Horizon,
        range::{RangeStart, Watermark},
        rebuild::Records,
    },
    log::{Segments, recent::Recent},
};

/// Catalog, indexes and segments of one folder.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) segments: Segments,
    pub(crate) recent: Recent,
    /// By container number; 0 is the catalog's own.
    pub(crate) indexes: BTreeMap<u32, ContainerIndex>,
    pub(crate) containers: BTreeMap<u32, Arc<ContainerDescriptor>>,
    pub(crate) databases: BTreeMap<String, DatabaseDescriptor>,
    /// How far deleted containers had come, by the names of database and container.
    pub(crate) retired: BTreeMap<(String, String), RetiredDescriptor>,
    /// Records that are damaged and that newer ones have replaced, by segment and offset.
    pub(crate) damaged: BTreeSet<(u32, u32)>,
}

impl State {
    pub(crate) fn database(&self, name: &str) -> Result<&DatabaseDescriptor> {
        self.databases.get(name).ok_or_else(|| {
            Error::new(ErrorKind::DatabaseNotFound, format!("there is no database {name}: create it first"))
        })
    }

    pub(crate) fn containers_of(&self, database: u32) -> impl Iterator<Item = &Arc<ContainerDescriptor>> {
        self.containers.values().filter(move |container| container.database == database)
    }

    pub(crate) fn container_named(&self, database: &str, name: &str) -> Result<&Arc<ContainerDescriptor>> {
        let number = self.database(database)?.number;
        self.containers_of(number).find(|container| container.name == name).ok_or_else(|| {
            let message = format!("database {database} has no container {name}: create it first");
            Error::new(ErrorKind::ContainerNotFound, message)
        })
    }

    /// Descriptor and index of a container that someone has a handle to.
    pub(crate) fn container(&self, number: u32, name: &str) -> Result<(&Arc<ContainerDescriptor>, &ContainerIndex)> {
        let found = self.containers.get(&number).zip(self.indexes.get(&number));
        found.ok_or_else(|| {
            let message = format!("container {name} was deleted: open the one that has its name now, if there is one");
            Error::new(ErrorKind::ContainerNotFound, message)
        })
    }

    /// Takes in the records of a commit.
    pub(crate) fn apply(&mut self, container: u32, entries: impl IntoIterator<Item = Entry>) {
        let Self { segments, indexes, .. } = self;
        let Some(index) = indexes.get_mut(&container) else { return };
        for entry in entries {
            if let Some(segment) = segments.0.get_mut(&entry.location.segment) {
                segment.used += u64::from(entry.location.bytes);
            }
            index.apply(entry, &mut |location| segments.mark_dead(location));
        }
    }

    /// Takes in a descriptor that was written. What is gone is added to `discarded`.
    pub(crate) fn describe(&mut self, descriptor: Descriptor, discarded: &mut Discarded) -> Result<()> {
        match descriptor {
            Descriptor::Database(database) => drop(self.databases.insert(database.name.clone(), database)),
            Descriptor::Container(container) => {
                let ranges = container.layout()?;
                let (history, time_to_live) = (container.history(), container.time_to_live());
                let index = self.indexes.entry(container.number);
                let index = index.or_insert_with(|| ContainerIndex::new(ranges.clone(), history, time_to_live));
                discarded.expiring.push(index.change_settings(history, time_to_live));
                index.number = index.number.max(container.numbered);
                discarded.feeds.extend(index.relayout(ranges));
                self.containers.insert(container.number, Arc::new(container));
            }
            Descriptor::Retired(retired) => {
                self.retired.insert((retired.database_name.clone(), retired.name.clone()), retired);
            }
        }
        Ok(())
    }

    /// Makes the index of a container from its records.
    fn index(
        &mut self,
        container: u32,
        ranges: Vec<RangeStart>,
        (history, time_to_live): (History, TimeToLive),
        records: Records,
        now: u64,
    ) {
        let segments = &mut self.segments;
        let on_dead = &mut |location| segments.mark_dead(location);
        let index = ContainerIndex::rebuild(ranges, history, time_to_live, records, now, on_dead);
        self.indexes.insert(container, index);
    }

    /// Forgets a container with all its items. Its records are yet to be counted as dead.
    #[must_use]
    pub(crate) fn forget_container(&mut self, number: u32) -> Option<ContainerIndex> {
        self.containers.remove(&number);
        self.indexes.remove(&number)
    }
}

/// More damaged records than this in one container are not looked into.
const DAMAGED_RECORDS: usize = 1000;

/// Builds the state from the records of a folder, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Rebuild {
    records: BTreeMap<u32, Records>,
    descriptors: BTreeMap<String, Vec<u8>>,
    /// The first damaged record that may be needed.
    damaged: Option<Location>,
    broken: Option<Error>,
}

impl Rebuild {
    pub(crate) fn visit(&mut self, location: Location, record: &Record<'_>) {
        let header = &record.header;
        let records = self.records.entry(header.container).or_default();
        if !record.is_whole {
            let hopeless = header.kind == RecordKind::Watermark || header.container == CATALOG;
            if hopeless || records.damaged.len() >= DAMAGED_RECORDS {
                self.damaged.get_or_insert(location);
                return;
            }
            records.damaged.push(records.entries.len());
        }
        if header.kind == RecordKind::Watermark {
            let (epk, lsn, purged) = (Epk::from_bytes(record.epk), header.change_id.lsn, header.previous.lsn);
            records.watermarks.push(Watermark { epk, lsn, purged, number: header.document_number });
            return;
        }
        if header.container == CATALOG {
            match header.kind {
                RecordKind::Put => drop(self.descriptors.insert(record.id.to_owned(), record.body.to_vec())),
                _ => drop(self.descriptors.remove(record.id)),
            }
        }
        match ItemId::new(record.id) {
            Ok(id) => {
                let key = Arc::new(Key::new(Epk::from_bytes(record.epk), id));
                records.entries.push(Entry::new(header, key, location));
            }
            Err(_) if !record.is_whole => drop(self.damaged.get_or_insert(location)),
            Err(error) => {
                self.broken.get_or_insert(Error::new(ErrorKind::Corrupt, "a record has a bad id").with_source(error));
            }
        }
    }

    /// Settles everything once all records were seen. In a folder of version 1 the ranges of a container had one
    /// sequence of LSNs together: each gets its own, and the descriptors are to be written down.
    pub(crate) fn finish(mut self, version: u32, segments: Segments, recent: Recent, now: u64) -> Result<State> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let unproven = self.records.values().find_map(|records| records.unproven().map(|entry| entry.location));
        if let Some(location) = self.damaged.or(unproven) {
            return Err(segments.damaged_record(location));
        }
        let (indexes, containers, databases, retired) = Default::default();
        let claims: Vec<_> = self.records.iter().flat_map(|(container, records)| records.claims(*container)).collect();
        let damaged = claims.iter().map(|(_, entry)| (entry.location.segment, entry.location.offset)).collect();
        let mut state = State { segments, recent, indexes, containers, databases, retired, damaged };
        let catalog = self.records.remove(&CATALOG).unwrap_or_default();
        state.index(CATALOG, vec![whole()], (History::Off, TimeToLive::Off), catalog, now);
        for (id, body) in self.descriptors {
            let mut descriptor = serde_json::from_slice(&body).map_err(|error| {
                Error::new(ErrorKind::Corrupt, format!("the descriptor {id} cannot be read")).with_source(error)
            })?;
            if let Descriptor::Container(container) = &mut descriptor {
                let records = self.records.remove(&container.number).unwrap_or_default();
                if version < VERSION {
                    container.separate(records.newest(), records.purged());
                }
                let settings = (container.history(), container.time_to_live());
                state.index(container.number, container.layout()?, settings, records, now);
            }
            state.describe(descriptor, &mut Discarded::default())?;
        }
        // What retention still holds is needed.
        for (container, entry) in &claims {
            let index = state.indexes.get(container);
            if index.is_some_and(|index| index.needs(&entry.key.epk, entry.change_id)) {
                return Err(state.segments.damaged_record(entry.location));
            }
        }
        // What is left belongs to containers that were deleted.
        for entry in self.records.into_values().flat_map(|records| records.entries) {
            state.segments.mark_dead(entry.location);
        }
        Ok(state)
    }
}

/// The one range of the catalog.
fn whole() -> RangeStart {
    let physical = PhysicalRange { id: RangeId::from(0), range: FeedRange::full(), parents: Vec::new() };
    RangeStart { physical, lsn: 0, horizon: Horizon::new(FeedRange::full(), 0) }
}
