//! The pages of a lease in memory: the one that is being delivered, and the one that was read ahead.

use std::collections::VecDeque;

use changefeed_core::Change;

use crate::{delegate::RawChanges, limits::page_memory::PageRoom};

/// The pages of a lease in memory.
#[derive(Default)]
pub(super) struct Pages(VecDeque<PageInMemory>);

/// A page in memory.
struct PageInMemory {
    /// Empty while a call has them.
    changes: RawChanges,
    request_charge: f64,
    /// Its bytes, if the host limits them.
    room: Option<PageRoom>,
}

impl Pages {
    /// Appends a page that was read into this room.
    pub(super) fn push(&mut self, changes: RawChanges, request_charge: f64, mut room: Option<PageRoom>) {
        let stalled = self.0.front().and_then(|page| page.room.as_ref()).is_some_and(PageRoom::is_stalled);
        if let Some(room) = &mut room {
            room.fit(&changes);
            room.set_stalled(stalled);
        }
        self.0.push_back(PageInMemory { changes, request_charge, room });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A change of the first page.
    pub(super) fn get(&self, item: usize) -> Option<&Change> {
        self.0.front()?.changes.get(item)
    }

    /// Lends the first page to a call, with its request charge.
    pub(super) fn lend(&mut self) -> Option<(RawChanges, f64)> {
        self.0.front_mut().map(|page| (std::mem::take(&mut page.changes), page.request_charge))
    }

    /// A call returns the first page: something of it is not handled yet. What was read ahead waits for it.
    pub(super) fn give_back(&mut self, changes: RawChanges) {
        if let Some(page) = self.0.front_mut() {
            page.changes = changes;
            self.set_stalled(true);
        }
    }

    /// The first page was handled.
    pub(super) fn pop(&mut self) {
        self.0.pop_front();
        self.set_stalled(false);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn set_stalled(&mut self, stalled: bool) {
        self.0.iter_mut().filter_map(|page| page.room.as_mut()).for_each(|room| room.set_stalled(stalled));
    }
}
