//! What the committer, compaction and all handles of an engine share.

use std::sync::Arc;

use changefeed_core::{Clock, Result, StoreId};
use parking_lot::{Condvar, Mutex, RwLock, RwLockWriteGuard};
use tokio::sync::oneshot;

use crate::{health::HealthReport, index::discarded::Discarded, log::buffers::Buffers, state::State, vfs::Vfs};

/// A segment is at least this long, also in a small store.
pub(crate) const SMALLEST_SEGMENT_BYTES: u64 = 1024 * 1024;

/// So many records of deleted containers are counted as dead under the lock at once.
const DISCARDED_AT_ONCE: usize = 4096;

/// Which thread performs commits and compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecutionMode {
    /// Threads of their own.
    Threads,
    /// The caller's, at once: deterministic.
    Inline,
}

/// Files, settings and state of one open store.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) account_host: String,
    pub(crate) store: StoreId,
    pub(crate) segment_bytes: u64,
    pub(crate) state: RwLock<State>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) health: Arc<HealthReport>,
    pub(crate) mode: ExecutionMode,
    pub(crate) maintenance: Mutex<Maintenance>,
    pub(crate) maintenance_due: Condvar,
    /// See [`Inner::discard`].
    discarded: Mutex<Discarded>,
}

/// What the maintenance thread is asked for.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    pub(crate) wanted: bool,
    pub(crate) stopped: bool,
    pub(crate) waiting: Vec<oneshot::Sender<Result<()>>>,
}

impl Inner {
    #[expect(clippy::too_many_arguments, reason = "the parts of an engine, each of another type, put together once")]
    pub(crate) fn new(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        account_host: String,
        store: StoreId,
        segment_bytes: u64,
        state: State,
        mode: ExecutionMode,
        health: Arc<HealthReport>,
    ) -> Self {
        Self {
            vfs,
            clock,
            account_host,
            store,
            segment_bytes,
            state: RwLock::new(state),
            buffers: Arc::default(),
            health,
            mode,
            maintenance: Mutex::default(),
            maintenance_due: Condvar::new(),
            discarded: Mutex::default(),
        }
    }

    /// Whether commits happen in the caller's task.
    pub(crate) fn is_inline(&self) -> bool {
        self.mode == ExecutionMode::Inline
    }

    /// Bytes of all records in the log.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.state.read().segments.used_bytes()
    }

    /// How long the next segment should be: short while the store is small.
    pub(crate) fn next_segment_bytes(&self) -> u64 {
        self.segment_bytes_for(self.used_bytes())
    }

    /// How long a segment should be in a log with so many bytes of records.
    pub(crate) fn segment_bytes_for(&self, used: u64) -> u64 {
        (used / 4).clamp(SMALLEST_SEGMENT_BYTES.min(self.segment_bytes), self.segment_bytes)
    }

    /// Wakes the maintenance thread, which looks for segments to compact.
    pub(crate) fn maintenance_wanted(&self) {
        if self.mode == ExecutionMode::Threads {
            self.maintenance.lock().wanted = true;
            self.maintenance_due.notify_one();
        }
    }

    /// Drops parts of indexes; the records of deleted containers are dead now. The maintenance thread does it.
    pub(crate) fn discard(&self, gone: Discarded) {
        if gone.is_empty() {
            return;
        }
        self.discarded.lock().extend(gone);
        match self.mode {
            ExecutionMode::Threads => self.maintenance_wanted(),
            ExecutionMode::Inline => self.drop_discarded(),
        }
    }

    /// Before compaction, which gives records other places.
    pub(crate) fn drop_discarded(&self) {
        let Discarded { indexes, .. } = std::mem::take(&mut *self.discarded.lock());
        for index in indexes {
            let mut entries = index.entries().peekable();
            while entries.peek().is_some() {
                let mut state = self.state.write();
                entries.by_ref().take(DISCARDED_AT_ONCE).for_each(|entry| state.segments.mark_dead(entry.location));
                RwLockWriteGuard::unlock_fair(state);
            }
        }
    }
}
