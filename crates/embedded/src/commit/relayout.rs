//! Splits and merges of long ranges: the new feeds are prepared between commits, a slice at a time.

use parking_lot::RwLockWriteGuard;

use super::{
    catalog::{CatalogChange, PendingRelayout, Reply},
    committer::Committer,
};
use crate::{
    index::{discarded::Discarded, range::RangeStart},
    inner::Inner,
};

/// So many entries are copied under the lock at once: about a millisecond.
const SLICE: usize = 4096;

impl Committer {
    /// Performs a change of the catalog, or begins to prepare it if it splits or merges long ranges.
    pub(super) fn begin_catalog_change(&mut self, inner: &Inner, change: CatalogChange, reply: Reply) {
        let mut pending = self.relayouts.iter_mut();
        if let Some(pending) = pending.find(|pending| change.concerns(&pending.database, &pending.name)) {
            pending.waiting.push((change, reply));
            return;
        }
        match self.wanted_ranges(inner, &change) {
            Err(error) => drop(reply.send(Err(error))),
            Ok(Some((container, wanted))) if !begin(inner, container, &wanted) => {
                let (CatalogChange::Split(database, name, ..) | CatalogChange::Merge(database, name, _)) = &change
                else {
                    return;
                };
                let (database, name) = (database.clone(), name.clone());
                self.relayouts.push(PendingRelayout { database, name, container, change, reply, waiting: Vec::new() });
            }
            Ok(_) => drop(reply.send(self.change_catalog(inner, change))),
        }
    }

    /// Copies a slice of each range that is being split or merged, and ends what is prepared. In a store without threads all
    /// of it: nobody would go on later.
    pub(super) fn advance_relayouts(&mut self, inner: &Inner) {
        while !self.relayouts.is_empty() {
            let is_open = self.check_open().is_ok();
            let (ready, pending) = std::mem::take(&mut self.relayouts)
                .into_iter()
                .partition(|pending| !is_open || advance(inner, pending.container));
            self.relayouts = pending;
            for PendingRelayout { container, change, reply, waiting, .. } in ready {
                let changed = self.change_catalog(inner, change);
                if changed.is_err() {
                    let feeds = inner.state.write().indexes.get_mut(&container).map(|index| index.abandon_relayout());
                    inner.discard(Discarded { feeds: feeds.unwrap_or_default(), ..Discarded::default() });
                }
                drop(reply.send(changed));
                for (change, reply) in waiting {
                    self.begin_catalog_change(inner, change, reply);
                }
            }
            if !inner.is_inline() {
                return;
            }
        }
    }

    /// Whether a split or merge goes on at once.
    pub(crate) fn has_relayouts(&self) -> bool {
        !self.relayouts.is_empty()
    }

    /// Gives up all splits and merges, and expiry: their callers see that there will be no answer.
    pub(crate) fn abandon(&mut self) {
        self.relayouts.clear();
        self.waiting_for_expiry.clear();
    }
}

/// Begins to prepare other ranges. Says whether that was all, as it is for short ones.
fn begin(inner: &Inner, container: u32, wanted: &[RangeStart]) -> bool {
    let mut state = inner.state.write();
    let Some(index) = state.indexes.get_mut(&container) else { return true };
    index.begin_relayout(wanted);
    index.advance_relayout(SLICE)
}

fn advance(inner: &Inner, container: u32) -> bool {
    let mut state = inner.state.write();
    let is_complete = state.indexes.get_mut(&container).is_none_or(|index| index.advance_relayout(SLICE));
    // The next slice follows soon: readers that wait come first.
    RwLockWriteGuard::unlock_fair(state);
    is_complete
}
