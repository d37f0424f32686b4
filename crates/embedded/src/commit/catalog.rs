//! Changes of the catalog: databases and containers come, change, split, merge and go.

use std::sync::Arc;

use changefeed_core::{ContainerSpec, DatabaseSpec, Epk, Error, ErrorKind, ItemId, RangeId, Result};

use super::{Committer, next_catalog_lsn, plan::Group};
use crate::{
    descriptor::{
        CATALOG, ContainerDescriptor, DatabaseDescriptor, Descriptor, FIRST_LSN, RetiredDescriptor, check_name,
    },
    format::record::Place,
    index::{
        Key,
        container::ContainerIndex,
        horizon::Horizon,
        range::{RangeIndex, RangeStart},
    },
    log::writer::FrameBuffer,
    service::Shared,
    state::State,
};

/// A change of the catalog. Databases and containers are named.
#[derive(Clone, Debug)]
pub(crate) enum CatalogChange {
    CreateDatabase(DatabaseSpec),
    ReplaceDatabase(DatabaseSpec),
    DeleteDatabase(String),
    CreateContainer(String, ContainerSpec),
    ReplaceContainer(String, ContainerSpec),
    DeleteContainer(String, String),
    Split(String, String, RangeId, Option<Epk>),
    Merge(String, String, [RangeId; 2]),
}

impl CatalogChange {
    /// Whether it changes or deletes a container.
    pub(super) fn concerns(&self, database: &str, container: &str) -> bool {
        match self {
            Self::CreateDatabase(_) | Self::ReplaceDatabase(_) | Self::CreateContainer(..) => false,
            Self::DeleteDatabase(name) => name == database,
            Self::ReplaceContainer(name, spec) => name == database && spec.name == container,
            Self::DeleteContainer(name, other) | Self::Split(name, other, ..) | Self::Merge(name, other, _) => {
                name == database && other == container
            }
        }
    }
}

/// What a change does to the store's own container.
#[derive(Default)]
struct Effect {
    put: Vec<Descriptor>,
    delete: Vec<Descriptor>,
    /// The first range that a split or merge made.
    made: Option<RangeId>,
}

impl Committer {
    /// Decides on a change, writes it down durably, and makes it true.
    pub(super) fn change_catalog(&mut self, shared: &Shared, change: CatalogChange) -> Result<Option<RangeId>> {
        self.check_open()?;
        let now = shared.clock.wall();
        let lsn = next_catalog_lsn(shared);
        let number = u32::try_from(lsn).ok().filter(|number| *number < 1 << 31).ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "this folder has seen two thousand million catalog changes: use a new one",
            )
        })?;
        let effect = decide(&shared.state.read(), change, number, now)?;
        self.put_descriptors(shared, lsn, &effect.put, &effect.delete)?;
        // Whatever the mode, containers and ranges do not vanish with the power.
        self.sync()?;
        let mut state = shared.state.write();
        let (mut feeds, mut indexes) = (Vec::new(), Vec::new());
        for descriptor in effect.delete {
            match descriptor {
                Descriptor::Database(database) => drop(state.databases.remove(&database.name)),
                Descriptor::Container(container) => indexes.extend(state.forget_container(container.number)),
                Descriptor::Retired(RetiredDescriptor { database_name, name, .. }) => {
                    state.retired.remove(&(database_name, name));
                }
            }
        }
        for descriptor in effect.put {
            feeds.extend(state.describe(descriptor, now.as_millis())?);
        }
        drop(state);
        shared.discard(feeds, indexes);
        Ok(effect.made)
    }

    /// The container that a split or merge changes, and the ranges that it would have if that happened now. Nothing for any
    /// other change.
    pub(super) fn wanted_ranges(
        &self,
        shared: &Shared,
        change: &CatalogChange,
    ) -> Result<Option<(u32, Vec<RangeStart>)>> {
        self.check_open()?;
        if !matches!(change, CatalogChange::Split(..) | CatalogChange::Merge(..)) {
            return Ok(None);
        }
        let effect = decide(&shared.state.read(), change.clone(), 0, shared.clock.wall())?;
        let container = effect.put.iter().find_map(|put| match put {
            Descriptor::Container(container) => Some(container),
            _ => None,
        });
        container.map(|container| Ok((container.number, container.layout()?))).transpose()
    }

    /// Writes descriptors down in one frame, and takes others away.
    fn put_descriptors(&mut self, shared: &Shared, lsn: u64, put: &[Descriptor], delete: &[Descriptor]) -> Result<()> {
        let mut group = Group::new(shared.clock.wall(), FrameBuffer::new());
        let all = put.iter().map(|put| (put, true)).chain(delete.iter().map(|delete| (delete, false)));
        for (op, (descriptor, put)) in (0..).zip(all) {
            let key = Arc::new(Key::new(Epk::MIN, ItemId::new(descriptor.item_id())?));
            let body = serde_json::to_vec(descriptor).map_err(|error| {
                Error::new(ErrorKind::InvalidArgument, "the settings cannot be written as JSON").with_source(error)
            })?;
            group.put_descriptor(Place { lsn, op }, CATALOG, &key, put.then_some(&body));
        }
        self.commit(shared, &mut group)
    }

    /// Writes down the descriptors of a folder of version 1 as they were changed on reading it.
    pub(crate) fn write_migrated(&mut self, shared: &Shared) -> Result<()> {
        let all: Vec<Descriptor> = {
            let state = shared.state.read();
            state.containers.values().map(|container| Descriptor::Container((**container).clone())).collect()
        };
        for some in all.chunks(MIGRATED_AT_ONCE) {
            self.put_descriptors(shared, next_catalog_lsn(shared), some, &[])?;
        }
        self.sync()
    }
}

/// How many descriptors one frame holds when a folder is migrated.
const MIGRATED_AT_ONCE: usize = 64;

/// Of so many names of deleted containers the store remembers how far they had come.
const REMEMBERED_NAMES: usize = 1000;

fn decide(state: &State, change: CatalogChange, number: u32, now: changefeed_core::Timestamp) -> Result<Effect> {
    let mut effect = Effect::default();
    match change {
        CatalogChange::CreateDatabase(DatabaseSpec { name, extra: other }) => {
            check_name("database", &name)?;
            if state.databases.contains_key(&name) {
                return Err(Error::new(ErrorKind::AlreadyExists, format!("database {name} exists already")));
            }
            let created = now.as_millis();
            effect.put.push(Descriptor::Database(DatabaseDescriptor { number, name, created, other }));
        }
        CatalogChange::ReplaceDatabase(DatabaseSpec { name, extra: other }) => {
            let database = state.database(&name)?.clone();
            effect.put.push(Descriptor::Database(DatabaseDescriptor { other, ..database }));
        }
        CatalogChange::DeleteDatabase(name) => {
            let database = state.database(&name)?;
            for container in state.containers_of(database.number) {
                effect.retire(state, &name, container);
            }
            effect.forget_old_names(state);
            effect.delete.push(Descriptor::Database(database.clone()));
        }
        CatalogChange::CreateContainer(database, spec) => {
            let database = state.database(&database)?;
            if state.containers_of(database.number).any(|container| container.name == spec.name) {
                let message = format!("container {}/{} exists already", database.name, spec.name);
                return Err(Error::new(ErrorKind::AlreadyExists, message));
            }
            let before = state.retired.get(&(database.name.clone(), spec.name.clone()));
            let lsn = before.map_or(FIRST_LSN - 1, |retired| retired.lsn);
            effect.delete.extend(before.cloned().map(Descriptor::Retired));
            let container = ContainerDescriptor::create(number, database.number, spec, lsn, now)?;
            effect.put.push(Descriptor::Container(container));
        }
        CatalogChange::ReplaceContainer(database, spec) => {
            let mut container = (**state.container_named(&database, &spec.name)?).clone();
            let number = container.number;
            container.change(spec, now, |id| live_range(state, number, id).map_or(0, |range| range.lsn))?;
            effect.put.push(Descriptor::Container(container));
        }
        CatalogChange::DeleteContainer(database, name) => {
            effect.retire(state, &database, state.container_named(&database, &name)?);
            effect.forget_old_names(state);
        }
        CatalogChange::Split(database, name, range, at) => {
            let mut container = (**state.container_named(&database, &name)?).clone();
            let end = end(state, &container, &range)?;
            effect.made = container.split(&range, at, end)?.first().map(|child| child.id.clone());
            effect.put.push(Descriptor::Container(container));
        }
        CatalogChange::Merge(database, name, [a, b]) => {
            let mut container = (**state.container_named(&database, &name)?).clone();
            let ends = [end(state, &container, &a)?, end(state, &container, &b)?];
            effect.made = Some(container.merge([&a, &b], ends)?.id);
            effect.put.push(Descriptor::Container(container));
        }
    }
    Ok(effect)
}

impl Effect {
    /// Deletes a container, and remembers how far it had come.
    fn retire(&mut self, state: &State, database: &str, container: &ContainerDescriptor) {
        let lsn = state.indexes.get(&container.number).map_or(0, ContainerIndex::newest);
        if lsn >= FIRST_LSN {
            let (number, database_name, name) = (container.number, database.to_owned(), container.name.clone());
            self.put.push(Descriptor::Retired(RetiredDescriptor { number, database_name, name, lsn }));
        }
        self.delete.push(Descriptor::Container(container.clone()));
    }

    /// Lets go of the names that were deleted first, if there are too many.
    fn forget_old_names(&mut self, state: &State) {
        let mut numbers: Vec<_> = state.retired.values().map(|retired| retired.number).collect();
        numbers.sort_unstable();
        numbers.truncate((state.retired.len() + self.put.len()).saturating_sub(REMEMBERED_NAMES));
        let old = state.retired.values().filter(|retired| numbers.binary_search(&retired.number).is_ok());
        self.delete.extend(old.cloned().map(Descriptor::Retired));
    }
}

/// How far a range has come, and how far back its history reaches.
fn end<'a>(state: &'a State, container: &ContainerDescriptor, id: &RangeId) -> Result<(u64, &'a Horizon)> {
    let range = live_range(state, container.number, id);
    range.map(|range| (range.lsn, &range.horizon)).ok_or_else(|| container.missing_range(id))
}

fn live_range<'a>(state: &'a State, container: u32, id: &RangeId) -> Option<&'a RangeIndex> {
    state.indexes.get(&container)?.ranges().iter().find(|range| range.physical.id == *id)
}
