//! The threads of an engine: one commits, one compacts. Or none of them, in a store whose callers do both themselves.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use changefeed_core::{Error, ErrorKind, Result};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::{
    commit::{Command, Committer, EXPIRE_INTERVAL_MS},
    inner::Inner,
    log::{
        compaction::{self, Alone, Tolerance},
        is_full,
        room::Room,
    },
    metrics::Task,
};

/// How long a write in relaxed mode stays unsynced while nothing else happens.
const RELAXED_SYNC: Duration = Duration::from_millis(100);

/// How long the committer rests between two parts of many expired items.
const BACKLOG_PAUSE: Duration = Duration::from_millis(1);

/// While writes go on, compaction looks at the log at least this often, in milliseconds.
const BUSY_MAINTENANCE_MS: u64 = 2000;

/// How long compaction waits after a failure before it tries again.
const MAINTENANCE_PAUSE: Duration = Duration::from_secs(5);

/// What handles share with the threads.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) inner: Inner,
    pub(crate) committer: Mutex<Committer>,
    queue: Mutex<Queue>,
    queued: Condvar,
    /// Held by the thread that compacts, in a store without a thread for it.
    compacting: Mutex<()>,
    /// There were commits since compaction last looked.
    busy: AtomicBool,
    /// There were commits since the last idle moment.
    unmaintained: AtomicBool,
    room: Arc<Room>,
}

#[derive(Debug, Default)]
struct Queue {
    commands: VecDeque<Command>,
    stopped: bool,
}

fn gone() -> Error {
    Error::new(ErrorKind::Closed, "the store was closed: open it again")
}

impl Shared {
    pub(crate) fn new(inner: Inner, committer: Committer, room: Arc<Room>) -> Self {
        Self {
            inner,
            committer: Mutex::new(committer),
            queue: Mutex::default(),
            queued: Condvar::new(),
            compacting: Mutex::default(),
            busy: AtomicBool::new(false),
            unmaintained: AtomicBool::new(true),
            room,
        }
    }

    /// Waits until compaction has nothing left to do.
    pub(crate) async fn settle(&self) -> Result<()> {
        if self.inner.is_inline() {
            return self.compact_all(Tolerance::IDLE);
        }
        let (reply, answer) = oneshot::channel();
        {
            let mut maintenance = self.inner.maintenance.lock();
            if maintenance.stopped {
                return Err(gone());
            }
            maintenance.waiting.push(reply);
        }
        self.inner.maintenance_due.notify_all();
        answer.await.map_err(|_| gone())?
    }

    /// Has a command performed, and waits for its answer.
    pub(crate) async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.submit(command(reply))?;
        answer.await.map_err(|_| gone().with_unknown_effect())
    }

    fn submit(&self, command: Command) -> Result<()> {
        if self.inner.is_inline() {
            self.committer.lock().perform(&self.inner, [command]);
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

    /// In a store without threads, does now what the committer's thread would do from time to time.
    pub(crate) fn expire_inline(&self) {
        if self.inner.is_inline() {
            self.committer.lock().perform(&self.inner, []);
        }
    }

    fn compact_all(&self, tolerance: Tolerance) -> Result<()> {
        // Callers on several threads would write to the same temporary file.
        let _one_at_a_time = self.compacting.lock();
        while compaction::compact_once(&self.inner, &self.committer, tolerance)? {}
        Ok(())
    }

    /// The committer's thread: takes whatever is queued, and commits it together.
    fn commit_loop(&self) {
        // However this ends, nobody must wait for an answer that will not come.
        let _end = EndOfCommits(self);
        let mut commands = VecDeque::new();
        let mut looked = self.inner.clock.wall().as_millis();
        loop {
            // A trickle of writes must not postpone compaction until it stops.
            let now = self.inner.clock.wall().as_millis();
            if now.abs_diff(looked) >= BUSY_MAINTENANCE_MS && self.unmaintained.swap(false, Ordering::Relaxed) {
                looked = now;
                self.inner.maintenance_wanted();
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
                    _ => Duration::from_millis(EXPIRE_INTERVAL_MS),
                };
                if self.queued.wait_for(&mut queue, patience).timed_out() && queue.commands.is_empty() {
                    drop(queue);
                    let mut committer = self.committer.lock();
                    // A failure refuses all later writes, which is where it is reported.
                    drop(committer.sync());
                    committer.perform(&self.inner, []);
                    drop(committer);
                    if self.unmaintained.swap(false, Ordering::Relaxed) {
                        self.inner.maintenance_wanted();
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
            self.unmaintained.store(true, Ordering::Relaxed);
            self.committer.lock().perform(&self.inner, commands.drain(..));
        }
    }

    /// The maintenance thread: keeps a file ready for the next segment, and compacts.
    fn maintenance_loop(&self) {
        let mut pause = false;
        loop {
            let waiting = {
                let mut maintenance = self.inner.maintenance.lock();
                if pause {
                    self.inner.maintenance_due.wait_for(&mut maintenance, MAINTENANCE_PAUSE);
                }
                while !maintenance.wanted && !maintenance.stopped && maintenance.waiting.is_empty() {
                    self.inner.maintenance_due.wait(&mut maintenance);
                }
                if maintenance.stopped {
                    maintenance.waiting.clear();
                    return;
                }
                maintenance.wanted = false;
                std::mem::take(&mut maintenance.waiting)
            };
            self.inner.drop_discarded();
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
            if self.inner.maintenance.lock().stopped {
                return Ok(());
            }
            let compacted = self.compact_even_if_full(tolerance);
            self.inner.health.note(Task::Compaction, &compacted);
            if !compacted? {
                break;
            }
        }
        // After compaction, which may have made room for it.
        let (vfs, bytes) = (&*self.inner.vfs, self.inner.next_segment_bytes());
        let prepared = self.prepare_reserves().and_then(|()| {
            self.room.prepare_next(vfs, bytes).map_err(|error| crate::log::io_error("prepare a segment", error))
        });
        self.inner.health.note(Task::Prepare, &prepared);
        // A store without a spare makes one when it needs it, so this alone is no failure.
        Ok(())
    }

    /// Compacts. On a full disk one segment is rewritten at a time. If there is no room for what is left of it, it gets the
    /// room that is kept for this case, but only if that suffices and can be kept again afterwards.
    fn compact_even_if_full(&self, tolerance: Tolerance) -> Result<bool> {
        let compact = |tolerance| compaction::compact_once(&self.inner, &self.committer, tolerance);
        let mut compacted = compact(tolerance);
        if !compacted.as_ref().is_err_and(is_full) {
            return compacted;
        }
        let kept = self.room.for_compaction();
        let into_kept_room = Tolerance::alone(Alone { least_dead: kept, most_live: kept });
        compacted = compact(Tolerance::alone(Alone { least_dead: 1, most_live: u64::MAX }));
        if compacted.as_ref().is_err_and(is_full) && kept > 0 && compaction::is_due(&self.inner, into_kept_room) {
            self.room.give_up_for_compaction(&*self.inner.vfs);
            compacted = compact(into_kept_room);
        }
        // Before a commit takes what was freed. If that fails, only deletes are written until something is.
        drop(self.prepare_reserves());
        compacted
    }

    fn prepare_reserves(&self) -> Result<()> {
        let prepared = self.room.prepare_reserves(&*self.inner.vfs, self.inner.used_bytes());
        prepared.map_err(|error| crate::log::io_error("keep room for a full disk", error))
    }
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
        self.0.committer.lock().abandon();
    }
}

/// Keeps the threads: when it goes, they finish and go too.
#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) shared: Arc<Shared>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Starts the threads, if the store has any.
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Self> {
        let handles = if shared.inner.is_inline() { Vec::new() } else { start_threads(&shared)? };
        Ok(Self { shared, handles: Mutex::new(handles) })
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.shared.inner
    }

    pub(crate) fn stop(&self) {
        self.shared.inner.maintenance.lock().stopped = true;
        self.shared.inner.maintenance_due.notify_all();
        self.shared.queue.lock().stopped = true;
        self.shared.queued.notify_all();
        for thread in self.handles.lock().drain(..) {
            // A thread that panicked has nothing left to finish; its callers got an error.
            drop(thread.join());
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
        // If the store was closed already this is refused, which is fine.
        let (reply, _) = oneshot::channel();
        self.shared.committer.lock().perform(&self.shared.inner, [Command::Close(reply)]);
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
