//! Changes of the catalog: databases and containers come, change, split, merge and go. Pure: says what a change does.

use changefeed_core::{ContainerSpec, DatabaseSpec, Epk, Error, ErrorKind, RangeId, Result};
use tokio::sync::oneshot;

use crate::{
    descriptor::{ContainerDescriptor, DatabaseDescriptor, Descriptor, FIRST_LSN, RetiredDescriptor, check_name},
    index::{container::ContainerIndex, horizon::Horizon, range::RangeIndex},
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

/// Where the answer to a change goes.
pub(super) type Reply = oneshot::Sender<Result<Option<RangeId>>>;

/// A split or merge that is being prepared. Nothing of it is on disk before everything is prepared.
#[derive(Debug)]
pub(super) struct PendingRelayout {
    /// The names of database and container.
    pub(super) database: String,
    pub(super) name: String,
    pub(super) container: u32,
    pub(super) change: CatalogChange,
    pub(super) reply: Reply,
    /// Later changes of the same container.
    pub(super) waiting: Vec<(CatalogChange, Reply)>,
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
pub(super) struct Effect {
    pub(super) put: Vec<Descriptor>,
    pub(super) delete: Vec<Descriptor>,
    /// The first range that a split or merge made.
    pub(super) made: Option<RangeId>,
}

/// Of so many names of deleted containers the store remembers how far they had come.
const REMEMBERED_NAMES: usize = 1000;

/// What a change does to a store in this state; `number` is for what it creates.
pub(super) fn decide(
    state: &State,
    change: CatalogChange,
    number: u32,
    now: changefeed_core::Timestamp,
) -> Result<Effect> {
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

    /// Forgets the names that were deleted first, if there are too many.
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
