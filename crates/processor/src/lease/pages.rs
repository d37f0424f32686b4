//! The pages of a lease in memory: the one that is being delivered, and the one that was read ahead.

use std::{collections::VecDeque, sync::Arc};

use changefeed_core::{Change, Timestamp};

use crate::{delegate::RawChanges, limits::page_memory::PageRoom};

/// The pages of a lease in memory.
#[derive(Default)]
pub(super) struct Pages(VecDeque<PageInMemory>);

/// A page in memory.
struct PageInMemory {
    /// Empty while a call has them.
    changes: RawChanges,
    summary: PageSummary,
    request_charge: f64,
    /// Its bytes, if the host limits them. A call shares them.
    room: Option<Arc<PageRoom>>,
}

/// The first page, for a call.
pub(super) struct LentPage {
    pub(super) changes: RawChanges,
    pub(super) request_charge: f64,
    /// To be kept as long as the call runs, whether anybody still waits for it or not.
    pub(super) room: Option<Arc<PageRoom>>,
}

/// What metrics say about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageSummary {
    pub(super) changes: usize,
    /// When its oldest change was committed.
    pub(super) oldest: Timestamp,
}

impl Pages {
    /// Appends a page that was read into this room.
    pub(super) fn push(&mut self, changes: RawChanges, request_charge: f64, mut room: Option<PageRoom>) {
        let stalled = self.0.front().and_then(|page| page.room.as_ref()).is_some_and(|room| room.is_stalled());
        if let Some(room) = &mut room {
            room.fit(&changes);
            room.set_stalled(stalled);
        }
        let oldest = changes.first().map(|change| change.timestamp).unwrap_or_default();
        let summary = PageSummary { changes: changes.len(), oldest };
        self.0.push_back(PageInMemory { changes, summary, request_charge, room: room.map(Arc::new) });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A change of the first page.
    pub(super) fn get(&self, item: usize) -> Option<&Change> {
        self.0.front()?.changes.get(item)
    }

    /// Lends the first page to a call.
    pub(super) fn lend(&mut self) -> Option<LentPage> {
        let page = self.0.front_mut()?;
        let changes = std::mem::take(&mut page.changes);
        Some(LentPage { changes, request_charge: page.request_charge, room: page.room.clone() })
    }

    /// A call returns the first page: something of it is not handled yet. What was read ahead waits for it.
    pub(super) fn give_back(&mut self, changes: RawChanges) {
        if let Some(page) = self.0.front_mut() {
            page.changes = changes;
            self.set_stalled(true);
        }
    }

    /// The first page was handled: what it was.
    pub(super) fn pop(&mut self) -> Option<PageSummary> {
        let page = self.0.pop_front();
        self.set_stalled(false);
        page.map(|page| page.summary)
    }

    /// Forgets all pages. A call that blocks its thread keeps its own in memory: others must not wait for it.
    pub(super) fn clear(&mut self) {
        for page in self.0.drain(..).filter(|page| page.changes.is_empty()) {
            page.room.iter().for_each(|room| room.set_stalled(true));
        }
    }

    fn set_stalled(&mut self, stalled: bool) {
        self.0.iter().filter_map(|page| page.room.as_ref()).for_each(|room| room.set_stalled(stalled));
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::limits::page_memory::PageMemory;

    const READ: usize = 4 * 1024 * 1024;

    fn page() -> RawChanges {
        let current = Some(changefeed_core::Bytes::from_static(b"{}"));
        vec![Change { current, ..crate::delegate::change(7) }].into()
    }

    fn room(memory: &Arc<PageMemory>) -> Option<PageRoom> {
        Arc::clone(memory).reserve().now_or_never()
    }

    #[test]
    fn a_page_counts_until_the_call_that_has_it_ends() {
        let memory = Arc::new(PageMemory::new(2 * READ));
        let mut pages = Pages::default();
        pages.push(page(), 0.0, room(&memory));
        let lent = pages.lend().unwrap();
        drop(pages);
        let first = room(&memory).expect("others go on, one page at a time");
        assert!(room(&memory).is_none(), "the page of the call is still in memory");
        drop(lent);
        assert!(room(&memory).is_some(), "two reads fit");
        drop(first);
    }

    #[test]
    fn pages_that_nobody_calls_with_are_free_when_they_are_dropped() {
        let memory = Arc::new(PageMemory::new(READ));
        let mut pages = Pages::default();
        pages.push(page(), 0.0, room(&memory));
        assert!(room(&memory).is_none());
        pages.clear();
        let whole = room(&memory).expect("nothing is in memory");
        assert!(room(&memory).is_none());
        drop(whole);
    }
}
