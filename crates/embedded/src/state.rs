//! All that the engine knows: catalog, indexes, segments and their newest records. Changed by the committer and by compaction only.

use std::{collections::BTreeMap, sync::Arc};

use changefeed_core::{Epk, Error, ErrorKind, ItemId, Result};

use crate::{
    descriptor::{CATALOG, ContainerDescriptor, DatabaseDescriptor, Descriptor},
    format::record::{Record, RecordKind},
    index::{Entry, Key, Location, container::ContainerIndex},
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

    /// Takes in a descriptor that was written.
    pub(crate) fn describe(&mut self, descriptor: Descriptor, now: u64) -> Result<()> {
        match descriptor {
            Descriptor::Database(database) => drop(self.databases.insert(database.name.clone(), database)),
            Descriptor::Container(container) => {
                let ranges = container.layout()?;
                let (history, time_to_live) = (container.history(), container.time_to_live());
                let Self { segments, indexes, .. } = self;
                let index = indexes
                    .entry(container.number)
                    .or_insert_with(|| ContainerIndex::new(ranges.clone(), history, time_to_live));
                index.purged = index.purged.max(container.history_since);
                if (index.history, index.time_to_live) != (history, time_to_live) {
                    index.settle(history, time_to_live, now, &mut |location| segments.mark_dead(location));
                }
                index.relayout(ranges);
                self.containers.insert(container.number, Arc::new(container));
            }
        }
        Ok(())
    }

    /// Forgets a container with all its items.
    pub(crate) fn forget_container(&mut self, number: u32) {
        self.containers.remove(&number);
        if let Some(index) = self.indexes.remove(&number) {
            for entry in index.entries() {
                self.segments.mark_dead(entry.location);
            }
        }
    }
}

/// Builds the state from the records of a folder, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Rebuild {
    indexes: BTreeMap<u32, ContainerIndex>,
    descriptors: BTreeMap<String, Vec<u8>>,
    /// Numbers of changes that no record shows any more: container, a key that was counted with them, the number.
    numbers: Vec<(u32, Epk, u64)>,
    broken: Option<Error>,
}

impl Rebuild {
    pub(crate) fn visit(&mut self, location: Location, record: &Record<'_>) {
        let header = &record.header;
        let index = self.indexes.entry(header.container).or_insert_with(ContainerIndex::unsettled);
        if header.kind == RecordKind::Floor {
            index.newest = index.newest.max(header.place.lsn);
            index.purged = index.purged.max(header.previous.lsn);
            if header.ordinal > 0 {
                let epk = Epk::from_bytes(record.epk);
                self.numbers.push((header.container, epk, header.ordinal));
            }
            return;
        }
        if header.container == CATALOG {
            match header.kind {
                RecordKind::Put => drop(self.descriptors.insert(record.id.to_owned(), record.body.to_vec())),
                _ => drop(self.descriptors.remove(record.id)),
            }
        }
        let id = match ItemId::new(record.id) {
            Ok(id) => id,
            Err(error) => {
                self.broken.get_or_insert(Error::new(ErrorKind::Corrupt, "a record has a bad id").with_source(error));
                return;
            }
        };
        let key = Arc::new(Key::new(Epk::from_bytes(record.epk), id));
        // Nothing dies while the containers' settings are unknown, so there is nothing to mark.
        index.apply(Entry::new(header, key, location), &mut |_| {});
    }

    /// Settles everything once all records were seen.
    pub(crate) fn finish(self, segments: Segments, recent: Recent, now: u64) -> Result<State> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let indexes = self.indexes;
        let mut state = State { segments, recent, indexes, containers: BTreeMap::new(), databases: BTreeMap::new() };
        let catalog = state.indexes.entry(CATALOG).or_insert_with(ContainerIndex::unsettled);
        let segments = &mut state.segments;
        let history = crate::index::container::History::Off;
        catalog.settle(history, changefeed_core::TimeToLive::Off, now, &mut |location| segments.mark_dead(location));
        for (id, body) in self.descriptors {
            let descriptor = serde_json::from_slice(&body).map_err(|error| {
                Error::new(ErrorKind::Corrupt, format!("the descriptor {id} cannot be read")).with_source(error)
            })?;
            state.describe(descriptor, now)?;
        }
        for (container, epk, number) in self.numbers {
            if let Some(index) = state.indexes.get_mut(&container) {
                index.note(&epk, number);
            }
        }
        let unknown: Vec<u32> =
            state.indexes.keys().copied().filter(|n| *n != CATALOG && !state.containers.contains_key(n)).collect();
        for number in unknown {
            state.forget_container(number);
        }
        Ok(state)
    }
}
