//! Performing changes of the catalog: written down durably, then made true.

use std::sync::Arc;

use changefeed_core::{Epk, Error, ErrorKind, ItemId, RangeId, Result};

use super::{
    catalog::{CatalogChange, decide},
    committer::Committer,
    plan::Group,
};
use crate::{
    descriptor::{CATALOG, Descriptor, RetiredDescriptor},
    format::record::ChangeId,
    index::{Key, discarded::Discarded, range::RangeStart},
    inner::Inner,
    log::writer::FrameBuffer,
};

impl Committer {
    /// Decides on a change, writes it down durably, and makes it true.
    pub(super) fn change_catalog(&mut self, inner: &Inner, change: CatalogChange) -> Result<Option<RangeId>> {
        self.check_open()?;
        let now = inner.clock.wall();
        let lsn = next_catalog_lsn(inner);
        let number = u32::try_from(lsn).ok().filter(|number| *number < 1 << 31).ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "this folder has seen two thousand million catalog changes: use a new one",
            )
        })?;
        let effect = decide(&inner.state.read(), change, number, now)?;
        self.put_descriptors(inner, lsn, &effect.put, &effect.delete)?;
        // Whatever the mode, containers and ranges do not vanish with the power.
        self.sync()?;
        let mut state = inner.state.write();
        let mut discarded = Discarded::default();
        for descriptor in effect.delete {
            match descriptor {
                Descriptor::Database(database) => drop(state.databases.remove(&database.name)),
                Descriptor::Container(container) => {
                    discarded.indexes.extend(state.forget_container(container.number));
                }
                Descriptor::Retired(RetiredDescriptor { database_name, name, .. }) => {
                    state.retired.remove(&(database_name, name));
                }
            }
        }
        for descriptor in effect.put {
            state.describe(descriptor, &mut discarded)?;
        }
        drop(state);
        inner.discard(discarded);
        self.follow_settings(inner);
        Ok(effect.made)
    }

    /// The container that a split or merge changes, and the ranges that it would have if that happened now. Nothing for any
    /// other change.
    pub(super) fn wanted_ranges(
        &self,
        inner: &Inner,
        change: &CatalogChange,
    ) -> Result<Option<(u32, Vec<RangeStart>)>> {
        self.check_open()?;
        if !matches!(change, CatalogChange::Split(..) | CatalogChange::Merge(..)) {
            return Ok(None);
        }
        let effect = decide(&inner.state.read(), change.clone(), 0, inner.clock.wall())?;
        let container = effect.put.iter().find_map(|put| match put {
            Descriptor::Container(container) => Some(container),
            _ => None,
        });
        container.map(|container| Ok((container.number, container.layout()?))).transpose()
    }

    /// Writes descriptors down in one frame, and takes others away.
    fn put_descriptors(&mut self, inner: &Inner, lsn: u64, put: &[Descriptor], delete: &[Descriptor]) -> Result<()> {
        let mut group = Group::new(inner.clock.wall(), FrameBuffer::new());
        let all = put.iter().map(|put| (put, true)).chain(delete.iter().map(|delete| (delete, false)));
        for (op, (descriptor, put)) in (0..).zip(all) {
            let key = Arc::new(Key::new(Epk::MIN, ItemId::new(descriptor.item_id())?));
            let body = serde_json::to_vec(descriptor).map_err(|error| {
                Error::new(ErrorKind::InvalidArgument, "the settings cannot be written as JSON").with_source(error)
            })?;
            group.put_descriptor(ChangeId { lsn, op }, CATALOG, &key, put.then_some(&body));
        }
        self.commit(inner, &mut group)
    }

    /// Writes down the descriptors of a folder of version 1 as they were changed on reading it.
    pub(crate) fn write_migrated(&mut self, inner: &Inner) -> Result<()> {
        let all: Vec<Descriptor> = {
            let state = inner.state.read();
            state.containers.values().map(|container| Descriptor::Container((**container).clone())).collect()
        };
        for some in all.chunks(MIGRATED_AT_ONCE) {
            self.put_descriptors(inner, next_catalog_lsn(inner), some, &[])?;
        }
        self.sync()
    }
}

/// How many descriptors one frame holds when a folder is migrated.
const MIGRATED_AT_ONCE: usize = 64;

/// Number of the catalog's next change, which also names what it creates.
fn next_catalog_lsn(inner: &Inner) -> u64 {
    inner.state.read().indexes.get(&CATALOG).map_or(1, |index| index.newest() + 1)
}
