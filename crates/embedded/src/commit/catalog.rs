//! Changes of the catalog: databases and containers come, change, split, merge and go.

use std::sync::Arc;

use changefeed_core::{ContainerSpec, DatabaseSpec, Epk, Error, ErrorKind, ItemId, RangeId, Result};

use super::{Committer, next_catalog_lsn, plan::Group};
use crate::{
    descriptor::{CATALOG, ContainerDescriptor, DatabaseDescriptor, Descriptor, check_name},
    format::record::Place,
    index::{Key, tally::Tally},
    log::writer::FrameBuffer,
    service::Shared,
    state::State,
};

/// A change of the catalog. Databases and containers are named.
#[derive(Debug)]
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

/// What a change does to the store's own container.
#[derive(Default)]
struct Effect {
    put: Option<Descriptor>,
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
        let mut group = Group::new(now, FrameBuffer::new());
        let deletes = effect.delete.iter().map(|descriptor| (descriptor, false));
        for (op, (descriptor, put)) in (0..).zip(effect.put.iter().map(|put| (put, true)).chain(deletes)) {
            let key = Arc::new(Key::new(Epk::MIN, ItemId::new(descriptor.item_id())?));
            let body = serde_json::to_vec(descriptor).map_err(|error| {
                Error::new(ErrorKind::InvalidArgument, "the settings cannot be written as JSON").with_source(error)
            })?;
            group.put_descriptor(Place { lsn, op }, CATALOG, &key, put.then_some(&body));
        }
        self.commit(shared, &mut group)?;
        // Whatever the mode, containers and ranges do not vanish with the power.
        self.sync()?;
        let mut state = shared.state.write();
        for descriptor in effect.delete {
            match descriptor {
                Descriptor::Database(database) => drop(state.databases.remove(&database.name)),
                Descriptor::Container(container) => state.forget_container(container.number),
            }
        }
        if let Some(descriptor) = effect.put {
            state.describe(descriptor, now.as_millis())?;
        }
        Ok(effect.made)
    }
}

fn decide(state: &State, change: CatalogChange, number: u32, now: changefeed_core::Timestamp) -> Result<Effect> {
    let mut effect = Effect::default();
    match change {
        CatalogChange::CreateDatabase(DatabaseSpec { name, extra: other }) => {
            check_name("database", &name)?;
            if state.databases.contains_key(&name) {
                return Err(Error::new(ErrorKind::AlreadyExists, format!("database {name} exists already")));
            }
            let created = now.as_millis();
            effect.put = Some(Descriptor::Database(DatabaseDescriptor { number, name, created, other }));
        }
        CatalogChange::ReplaceDatabase(DatabaseSpec { name, extra: other }) => {
            let database = state.database(&name)?.clone();
            effect.put = Some(Descriptor::Database(DatabaseDescriptor { other, ..database }));
        }
        CatalogChange::DeleteDatabase(name) => {
            let database = state.database(&name)?;
            let containers = state.containers_of(database.number);
            effect.delete = containers.map(|container| Descriptor::Container((**container).clone())).collect();
            effect.delete.push(Descriptor::Database(database.clone()));
        }
        CatalogChange::CreateContainer(database, spec) => {
            let database = state.database(&database)?;
            if state.containers_of(database.number).any(|container| container.name == spec.name) {
                let message = format!("container {}/{} exists already", database.name, spec.name);
                return Err(Error::new(ErrorKind::AlreadyExists, message));
            }
            effect.put = Some(Descriptor::Container(ContainerDescriptor::create(number, database.number, spec, now)?));
        }
        CatalogChange::ReplaceContainer(database, spec) => {
            let mut container = (**state.container_named(&database, &spec.name)?).clone();
            let newest = state.indexes.get(&container.number).map_or(0, |index| index.newest);
            container.change(spec, now, newest)?;
            effect.put = Some(Descriptor::Container(container));
        }
        CatalogChange::DeleteContainer(database, name) => {
            let container = state.container_named(&database, &name)?;
            effect.delete.push(Descriptor::Container((**container).clone()));
        }
        CatalogChange::Split(database, name, range, at) => {
            let mut container = (**state.container_named(&database, &name)?).clone();
            let tally = tally(state, &container, &range)?;
            effect.made = container.split(&range, at, tally)?.first().map(|child| child.id.clone());
            effect.put = Some(Descriptor::Container(container));
        }
        CatalogChange::Merge(database, name, [a, b]) => {
            let mut container = (**state.container_named(&database, &name)?).clone();
            let tallies = [tally(state, &container, &a)?, tally(state, &container, &b)?];
            effect.made = Some(container.merge([&a, &b], tallies)?.id);
            effect.put = Some(Descriptor::Container(container));
        }
    }
    Ok(effect)
}

fn tally<'a>(state: &'a State, container: &ContainerDescriptor, id: &RangeId) -> Result<&'a Tally> {
    let ranges = state.indexes.get(&container.number).map_or_else(Default::default, |index| index.ranges());
    let range = ranges.iter().find(|range| range.physical.id == *id);
    range.map(|range| &range.tally).ok_or_else(|| container.missing_range(id))
}
