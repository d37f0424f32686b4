//! What all handles of an engine share, and the threads that serve it: one commits, one compacts.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use changefeed_core::{Clock, Error, ErrorKind, Result, StoreId};
use parking_lot::{Condvar, Mutex, RwLock, RwLockWriteGuard};
use tokio::sync::oneshot;

use crate::{
    commit::{Command, Committer, TIDY_INTERVAL_MS},
    health::HealthReport,
    index::{container::ContainerIndex, feed::FeedLog},
    log::{
        buffers::Buffers,
        compaction::{self, Tolerance},
        writer::{Spare, SpareSlot},
    },
    metrics::Task,
    state::State,
    vfs::Vfs,
};

/// A segment is at least this long, also in a small store.
pub(crate) const SMALLEST_SEGMENT_BYTES: u64 = 1024 * 1024;

/// How long a write in relaxed mode stays unsynced while nothing else happens.
const RELAXED_SYNC: Duration = Duration::from_millis(100);

/// How long the committer rests between two parts of many expired items.
const BACKLOG_PAUSE: Duration = Duration::from_millis(1);

/// While writes go on, compaction looks at the log at least this often, in milliseconds.
const BUSY_MAINTENANCE_MS: u64 = 2000;

/// How long compaction waits after a failure before it tries again.
const MAINTENANCE_PAUSE: Duration = Duration::from_secs(5);

/// So many records of deleted containers are counted as dead under the lock at once.
const DISCARDED_AT_ONCE: usize = 4096;

/// Who performs commits and compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drive {
    /// Threads of their own.
    Threads,
    /// The caller, at once: deterministic.
    Inline,
}

/// What handles share with the threads.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) account_host: String,
    pub(crate) store: StoreId,
    pub(crate) segment_bytes: u64,
    pub(crate) state: RwLock<State>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) health: Arc<HealthReport>,
    drive: Drive,
    pub(crate) committer: Mutex<Committer>,
    queue: Mutex<Queue>,
    queued: Condvar,
    maintenance: Mutex<Maintenance>,
    /// Held by whoever compacts, in a store without a thread for it.
    compacting: Mutex<()>,
    maintenance_due: Condvar,
    /// See [`Shared::discard`].
    discarded: Mutex<(Vec<FeedLog>, Vec<ContainerIndex>)>,
    /// There were commits since compaction last looked.
    busy: AtomicBool,
    /// There were commits since the last idle moment.
    untidy: AtomicBool,
    spare: SpareSlot,
    /// So that no two spares have one name: the one before may still be in use.
    spares_made: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    commands: VecDeque<Command>,
    stopped: bool,
}

#[derive(Debug, Default)]
struct Maintenance {
    wanted: bool,
    stopped: bool,
    waiting: Vec<oneshot::Sender<Result<()>>>,
}

fn gone() -> Error {
    Error::new(ErrorKind::Closed, "the store was closed: open it again")
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "the parts of an engine, each of another type, put together once")]
    pub(crate) fn new(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        account_host: String,
        store: StoreId,
        segment_bytes: u64,
        state: State,
        drive: Drive,
        committer: Committer,
        spare: SpareSlot,
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
            drive,
            committer: Mutex::new(committer),
            queue: Mutex::default(),
            queued: Condvar::new(),
            maintenance: Mutex::default(),
            compacting: Mutex::default(),
            maintenance_due: Condvar::new(),
            discarded: Mutex::default(),
            busy: AtomicBool::new(false),
            untidy: AtomicBool::new(true),
            spare,
            spares_made: AtomicU64::new(0),
        }
    }

    /// Waits until compaction has nothing left to do.
    pub(crate) async fn settle(&self) -> Result<()> {
        if self.drive == Drive::Inline {
            return self.compact_all(Tolerance::IDLE);
        }
        let (reply, answer) = oneshot::channel();
        {
            let mut maintenance = self.maintenance.lock();
            if maintenance.stopped {
                return Err(gone());
            }
            maintenance.waiting.push(reply);
        }
        self.maintenance_due.notify_all();
        answer.await.map_err(|_| gone())?
    }

    /// Has a command performed, and waits for its answer.
    pub(crate) async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.submit(command(reply))?;
        answer.await.map_err(|_| gone().with_unknown_effect())
    }

    fn submit(&self, command: Command) -> Result<()> {
        if self.drive == Drive::Inline {
            self.committer.lock().perform(self, [command]);
            // A failure says nothing about the command; the next one, or `settle`, meets it again.
            drop(self.compact_all(Tolerance::BUSY));
            return Ok(());
        }
        let mut queue = self.queue.lock();
        if queue.stopped {
            return Err(gone());
        }
        queue.commands.push_back(command);
        drop(queue);
        self.queued.notify_one();
        Ok(())
    }

    /// Whether commits happen in the caller's task.
    pub(crate) fn is_inline(&self) -> bool {
        self.drive == Drive::Inline
    }

    /// In a store without threads, does now what the committer's thread would do from time to time.
    pub(crate) fn tidy_inline(&self) {
        if self.drive == Drive::Inline {
            self.committer.lock().perform(self, []);
        }
    }

    /// How long the next segment should be: short while the store is small.
    pub(crate) fn next_segment_bytes(&self) -> u64 {
        let used: u64 = self.state.read().segments.0.values().map(|segment| segment.used).sum();
        (used / 4).clamp(SMALLEST_SEGMENT_BYTES.min(self.segment_bytes), self.segment_bytes)
    }

    /// Has a look at what could be compacted: by the committer, after a new segment was begun.
    pub(crate) fn maintenance_wanted(&self) {
        if self.drive == Drive::Threads {
            self.maintenance.lock().wanted = true;
            self.maintenance_due.notify_one();
        }
    }

    /// Drops feeds of ranges that are gone and indexes of deleted containers, whose records are dead now. They may be so
    /// large that neither commits nor readers should wait for it: the maintenance thread does it.
    pub(crate) fn discard(&self, feeds: Vec<FeedLog>, indexes: Vec<ContainerIndex>) {
        if feeds.is_empty() && indexes.is_empty() {
            return;
        }
        let mut discarded = self.discarded.lock();
        discarded.0.extend(feeds);
        discarded.1.extend(indexes);
        drop(discarded);
        match self.drive {
            Drive::Threads => self.maintenance_wanted(),
            Drive::Inline => self.drop_discarded(),
        }
    }

    /// Before compaction, which gives records other places.
    fn drop_discarded(&self) {
        let (_, indexes) = std::mem::take(&mut *self.discarded.lock());
        for index in indexes {
            let mut entries = index.entries().peekable();
            while entries.peek().is_some() {
                let mut state = self.state.write();
                entries.by_ref().take(DISCARDED_AT_ONCE).for_each(|entry| state.segments.mark_dead(entry.location));
                RwLockWriteGuard::unlock_fair(state);
            }
        }
    }

    fn compact_all(&self, tolerance: Tolerance) -> Result<()> {
        // Callers on several threads would write to the same temporary file.
        let _one_at_a_time = self.compacting.lock();
        while compaction::compact_once(self, tolerance)? {}
        Ok(())
    }

    /// The committer's thread: takes whatever is queued, and commits it together.
    fn commit_loop(&self) {
        // However this ends, nobody must wait for an answer that will not come.
        let _end = EndOfCommits(self);
        let mut commands = VecDeque::new();
        let mut looked = self.clock.wall().as_millis();
        loop {
            // A trickle of writes must not postpone compaction until it stops.
            let now = self.clock.wall().as_millis();
            if now.abs_diff(looked) >= BUSY_MAINTENANCE_MS && self.untidy.swap(false, Ordering::Relaxed) {
                looked = now;
                self.maintenance_wanted();
            }
            // Not under the lock of the queue: compaction may hold the committer for the time of a sync.
            let (unsynced, backlog, has_relayouts) = {
                let committer = self.committer.lock();
                (committer.has_unsynced(), committer.has_backlog(), committer.has_relayouts())
            };
            let mut queue = self.queue.lock();
            if queue.commands.is_empty() && !queue.stopped && !has_relayouts {
                let patience = match (unsynced, backlog) {
                    (_, true) => BACKLOG_PAUSE,
                    (true, _) => RELAXED_SYNC,
                    _ => Duration::from_millis(TIDY_INTERVAL_MS),
                };
                if self.queued.wait_for(&mut queue, patience).timed_out() && queue.commands.is_empty() {
                    drop(queue);
                    let mut committer = self.committer.lock();
                    // A failure refuses all later writes, which is where it is reported.
                    drop(committer.sync());
                    committer.perform(self, []);
                    drop(committer);
                    if self.untidy.swap(false, Ordering::Relaxed) {
                        self.maintenance_wanted();
                    }
                    continue;
                }
            }
            if queue.commands.is_empty() && queue.stopped {
                return;
            }
            std::mem::swap(&mut commands, &mut queue.commands);
            drop(queue);
            self.busy.store(true, Ordering::Relaxed);
            self.untidy.store(true, Ordering::Relaxed);
            self.committer.lock().perform(self, commands.drain(..));
        }
    }

    /// The maintenance thread: keeps a file ready for the next segment, and compacts.
    fn maintenance_loop(&self) {
        let mut pause = false;
        loop {
            let waiting = {
                let mut maintenance = self.maintenance.lock();
                if pause {
                    self.maintenance_due.wait_for(&mut maintenance, MAINTENANCE_PAUSE);
                }
                while !maintenance.wanted && !maintenance.stopped && maintenance.waiting.is_empty() {
                    self.maintenance_due.wait(&mut maintenance);
                }
                if maintenance.stopped {
                    maintenance.waiting.clear();
                    return;
                }
                maintenance.wanted = false;
                std::mem::take(&mut maintenance.waiting)
            };
            self.drop_discarded();
            let outcome = self.maintain(!waiting.is_empty());
            pause = outcome.is_err();
            let mut outcome = Some(outcome);
            for waiting in waiting {
                drop(waiting.send(outcome.take().unwrap_or(Ok(()))));
            }
        }
    }

    /// Compacts until all is well. Careful while commits go on; thorough when there are none, or someone waits.
    fn maintain(&self, thorough: bool) -> Result<()> {
        loop {
            let idle = !self.busy.swap(false, Ordering::Relaxed);
            let tolerance = if thorough || idle { Tolerance::IDLE } else { Tolerance::BUSY };
            if self.maintenance.lock().stopped {
                return Ok(());
            }
            let compacted = self.compact_even_if_full(tolerance);
            self.health.note(Task::Compaction, &compacted);
            if !compacted? {
                break;
            }
        }
        // After compaction, which may have made room for it.
        let prepared = self.prepare_spare();
        self.health.note(Task::Prepare, &prepared);
        // A store without a spare makes one when it needs it, so this alone is no failure.
        Ok(())
    }

    /// Compacts. On a full disk the file that waits for the next segment goes, and the segment with least in it is
    /// rewritten: that needs little room and frees much.
    fn compact_even_if_full(&self, tolerance: Tolerance) -> Result<bool> {
        match compaction::compact_once(self, tolerance) {
            Err(error) if is_full(&error) => {
                if let Some(spare) = self.spare.lock().take() {
                    tracing::warn!("the disk is full: compaction takes the room of the next segment");
                    spare.discard(&*self.vfs);
                }
                compaction::compact_once(self, Tolerance { alone: true, ..tolerance })
            }
            other => other,
        }
    }

    fn prepare_spare(&self) -> Result<()> {
        if self.spare.lock().is_some() {
            return Ok(());
        }
        let name = format!("spare-{}.tmp", self.spares_made.fetch_add(1, Ordering::Relaxed));
        let made = Spare::prepare(&*self.vfs, &name, self.next_segment_bytes());
        let spare = made.map_err(|error| crate::log::io_error("prepare a segment", error))?;
        *self.spare.lock() = Some(spare);
        Ok(())
    }
}

/// Whether the disk has no room.
fn is_full(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|error| {
        matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
    })
}

/// Refuses what is queued, and everything after it, when the committer's thread ends, by a panic too.
struct EndOfCommits<'a>(&'a Shared);

impl Drop for EndOfCommits<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.stopped = true;
        // Their callers see the answer's sender go.
        queue.commands.clear();
        drop(queue);
        self.0.committer.lock().abandon_relayouts();
    }
}

/// Keeps the threads: when it goes, they finish and go too.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Owner {
    /// Starts the threads, if the store has any.
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Self> {
        let threads = if shared.drive == Drive::Threads { start_threads(&shared)? } else { Vec::new() };
        Ok(Self { shared, threads: Mutex::new(threads) })
    }

    pub(crate) fn stop_threads(&self) {
        self.shared.maintenance.lock().stopped = true;
        self.shared.maintenance_due.notify_all();
        self.shared.queue.lock().stopped = true;
        self.shared.queued.notify_all();
        for thread in self.threads.lock().drain(..) {
            // A thread that panicked has nothing left to finish; its callers got an error.
            drop(thread.join());
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop_threads();
        // If the store was closed already this is refused, which is fine.
        let (reply, _) = oneshot::channel();
        self.shared.committer.lock().perform(&self.shared, [Command::Close(reply)]);
    }
}

fn start_threads(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>> {
    let start = |name: &str, body: fn(&Shared)| {
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || body(&shared));
        thread.map_err(|error| crate::log::io_error(format!("start the thread {name}"), error))
    };
    Ok(vec![start("cf-commit", Shared::commit_loop)?, start("cf-maintain", Shared::maintenance_loop)?])
}
