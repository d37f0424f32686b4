//! Memory for pages: bounds how many bytes of changes a host holds.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use changefeed_core::Change;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// What a read reserves, since the size of a page is known only afterwards: a page of Azure Cosmos DB and of our own stores
/// has at most 4 MiB, one larger item or transaction apart.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Memory for the pages of all leases of a host. Readers get room in the order in which they ask.
///
/// A page whose batch has failed keeps its bytes while it is retried, and one whose call blocks its thread although the
/// lease was given up keeps them until the call ends. Such pages must not stop all other leases: where nothing else is in
/// memory, there is always room for one page.
pub(crate) struct PageMemory {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bytes: usize,
    /// Pages and reads that are not stalled.
    active: usize,
    waiting: VecDeque<oneshot::Sender<PageRoom>>,
}

impl PageMemory {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// Waits until there is room for one page.
    pub(crate) async fn reserve(self: Arc<Self>) -> PageRoom {
        let granted = {
            let (sender, granted) = oneshot::channel();
            self.state.lock().waiting.push_back(sender);
            granted
        };
        self.grant();
        granted.await.expect("invariant: a reader that waits is in the queue of the memory that it holds")
    }

    /// Gives room to those who wait, as long as there is any.
    fn grant(self: &Arc<Self>) {
        loop {
            let (reader, room) = {
                let mut state = self.state.lock();
                while state.waiting.front().is_some_and(oneshot::Sender::is_closed) {
                    state.waiting.pop_front();
                }
                let bytes = PAGE_BYTES.min(self.limit);
                let full = state.active > 0 && state.bytes.saturating_add(bytes) > self.limit;
                if crate::planted!(BytesUnlimited => false; full) {
                    return;
                }
                let Some(reader) = state.waiting.pop_front() else { return };
                state.bytes += bytes;
                state.active += 1;
                (reader, PageRoom { memory: Arc::clone(self), bytes, stalled: AtomicBool::new(false) })
            };
            // Room for a reader that has just left returns when it is dropped.
            drop(reader.send(room));
        }
    }
}

impl fmt::Debug for PageMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageMemory({} of {} bytes)", self.state.lock().bytes, self.limit)
    }
}

/// Room for one page. Dropping it frees the room.
#[derive(Debug)]
pub(crate) struct PageRoom {
    memory: Arc<PageMemory>,
    bytes: usize,
    /// Changes only while the state of the memory is locked.
    stalled: AtomicBool,
}

impl PageRoom {
    /// Keeps no more room than the page needs, or as much if it is larger.
    pub(crate) fn fit(&mut self, page: &[Change]) {
        let body = |body: &Option<changefeed_core::Bytes>| body.as_ref().map_or(0, |body| body.len());
        let bytes = page.iter().map(|change| body(&change.current) + body(&change.previous)).sum();
        self.resize(bytes);
    }

    fn resize(&mut self, bytes: usize) {
        {
            let mut state = self.memory.state.lock();
            state.bytes = state.bytes - self.bytes + bytes;
            self.bytes = bytes;
        }
        self.memory.grant();
    }

    /// Notes that a batch of this page, or of the one before it, has failed and is retried, or that its call blocks; or
    /// that this is over.
    pub(crate) fn set_stalled(&self, stalled: bool) {
        {
            let mut state = self.memory.state.lock();
            match (self.stalled.swap(stalled, Ordering::Relaxed), stalled) {
                (false, true) => state.active -= 1,
                (true, false) => state.active += 1,
                _ => return,
            }
        }
        self.memory.grant();
    }

    /// Returns `true` if a batch has failed and is retried.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }
}

impl Drop for PageRoom {
    fn drop(&mut self) {
        {
            let mut state = self.memory.state.lock();
            state.bytes -= self.bytes;
            if !self.is_stalled() {
                state.active -= 1;
            }
        }
        self.memory.grant();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn memory(pages: usize) -> Arc<PageMemory> {
        Arc::new(PageMemory::new(pages * PAGE_BYTES))
    }

    fn room(memory: &Arc<PageMemory>) -> Option<PageRoom> {
        Arc::clone(memory).reserve().now_or_never()
    }

    #[test]
    fn a_read_reserves_a_page_and_keeps_what_the_page_has() {
        let memory = memory(2);
        let mut first = room(&memory).expect("room");
        let second = room(&memory).expect("room");
        assert!(room(&memory).is_none(), "two pages are reserved");
        first.resize(PAGE_BYTES / 2);
        assert!(room(&memory).is_none(), "one and a half are in use");
        drop(second);
        assert!(room(&memory).is_some());
    }

    #[test]
    fn a_page_larger_than_the_limit_is_read_alone() {
        let memory = Arc::new(PageMemory::new(1000));
        let mut large = room(&memory).expect("alone");
        large.resize(5000);
        assert!(room(&memory).is_none());
        drop(large);
        assert!(room(&memory).is_some());
        assert_eq!(memory.state.lock().bytes, 0);
    }

    #[test]
    fn readers_get_room_in_order_and_those_who_left_are_skipped() {
        let memory = memory(1);
        let first = room(&memory).expect("room");
        let (mut gone, mut second, mut third) = (
            Box::pin(Arc::clone(&memory).reserve()),
            Box::pin(Arc::clone(&memory).reserve()),
            Box::pin(Arc::clone(&memory).reserve()),
        );
        assert!(gone.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        drop(gone);
        drop(first);
        assert!(third.as_mut().now_or_never().is_none(), "the second is before it");
        let second = second.as_mut().now_or_never().expect("its turn");
        drop(second);
        assert!(third.as_mut().now_or_never().is_some());
    }

    #[test]
    fn stalled_pages_leave_room_for_one_more() {
        let memory = memory(1);
        let stalled = room(&memory).expect("room");
        assert!(room(&memory).is_none());
        stalled.set_stalled(true);
        let one = room(&memory).expect("nothing else is active");
        assert!(room(&memory).is_none(), "one only");
        stalled.set_stalled(false);
        drop(one);
        assert!(room(&memory).is_none(), "it goes on");
        drop(stalled);
        let state = memory.state.lock();
        assert_eq!((state.bytes, state.active), (0, 0));
    }
}
