//! The engine: a folder of databases, opened and closed, with the threads that serve it.

use std::{
    collections::VecDeque,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use changefeed_core::{Catalog, Clock, Database, Error, ErrorKind, Result, SystemClock};
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::oneshot;

use crate::{
    catalog::EmbeddedCatalog,
    commit::{Command, Committer, TIDY_INTERVAL_MS},
    format::frame::FrameKind,
    log::{
        compaction::{self, Tolerance},
        recovery,
        writer::{LogWriter, Spare, SpareSlot},
    },
    state::{Rebuild, State},
    vfs::{
        Vfs,
        disk::{Disk, LockError},
        memory::MemoryDisk,
    },
};

/// A segment is at most this long: long enough that beginning one is rare, short enough to be rewritten quickly.
const SEGMENT_BYTES: u64 = 16 * 1024 * 1024;

/// A segment is at least this long, also in a small store.
const SMALLEST_SEGMENT_BYTES: u64 = 4 * 1024 * 1024;

/// How long a write in relaxed mode stays unsynced while nothing else happens.
const RELAXED_SYNC: Duration = Duration::from_millis(100);

/// How long compaction waits after a failure before it tries again.
const MAINTENANCE_PAUSE: Duration = Duration::from_secs(5);

/// When a write counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is on disk: an acknowledged write survives a power cut.
    #[default]
    Durable,
    /// When it is in the log: an acknowledged write survives the end of the process, but a power cut may take the
    /// writes of the last moments with it. Order is kept: what is lost is a tail.
    Relaxed,
}

/// Settings of an engine, before it is opened.
#[derive(Debug)]
#[must_use = "nothing happens before `open` or `in_memory`"]
pub struct Builder {
    durability: Durability,
    clock: Arc<dyn Clock>,
    account_host: String,
    segment_bytes: u64,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            durability: Durability::Durable,
            clock: Arc::new(SystemClock),
            account_host: "localhost".to_owned(),
            segment_bytes: SEGMENT_BYTES,
        }
    }
}

impl Builder {
    /// When a write counts as done. Default: when it is on disk.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Where the time comes from. Default: the operating system.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The host name that leases of this store carry. Default: `localhost`.
    pub fn account_host(mut self, host: impl Into<String>) -> Self {
        self.account_host = host.into();
        self
    }

    /// The most bytes that a file of the log has. At least 64 KiB. Default: 16 MiB.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes.clamp(64 * 1024, 1 << 30);
        self
    }

    /// Opens the store in `folder`, or makes a new one there.
    ///
    /// # Errors
    /// [`ErrorKind::Locked`] if another process has it open, [`ErrorKind::UnknownFormat`] if it was written by another
    /// version or holds something else, [`ErrorKind::Corrupt`] if it is damaged; nothing is changed then.
    pub fn open(self, folder: impl AsRef<Path>) -> Result<Engine> {
        let folder = folder.as_ref();
        let disk = Disk::lock(folder).map_err(|error| match error {
            LockError::Held => Error::new(
                ErrorKind::Locked,
                format!(
                    "the store in {} is open in another process: only one may write to a folder; start `changefeed \
                     serve` on it and let all processes connect to that server",
                    folder.display()
                ),
            ),
            LockError::Io(error) => {
                Error::new(ErrorKind::Io, format!("open the folder {}", folder.display())).with_source(error)
            }
        })?;
        self.start(Arc::new(disk), Drive::Threads, Some(folder.to_owned()))
    }

    /// A store in memory, gone with its last handle. Writes happen in the caller's own task: no threads.
    ///
    /// # Errors
    /// None that are known; the signature is that of [`Builder::open`].
    pub fn in_memory(self) -> Result<Engine> {
        self.open_on(MemoryDisk::new())
    }

    /// Opens the store on a simulated disk, without threads: for tests of crashes.
    ///
    /// # Errors
    /// Those of [`Builder::open`].
    pub fn open_on(self, disk: MemoryDisk) -> Result<Engine> {
        self.start(Arc::new(disk), Drive::Inline, None)
    }

    fn start(self, vfs: Arc<dyn Vfs>, drive: Drive, folder: Option<PathBuf>) -> Result<Engine> {
        let mut rebuild = Rebuild::default();
        let smallest = self.segment_bytes.min(SMALLEST_SEGMENT_BYTES);
        let recovered = recovery::open(&vfs, smallest, &mut |location, record| rebuild.visit(location, record))?;
        let state = rebuild.finish(recovered.segments, self.clock.wall().as_millis())?;
        let spare = SpareSlot::default();
        let writer = LogWriter::new(Arc::clone(&vfs), recovered.active, Arc::clone(&spare));
        let committer = Committer::new(writer, self.durability);
        let shared = Arc::new(Shared {
            vfs,
            clock: self.clock,
            account_host: self.account_host,
            segment_bytes: self.segment_bytes,
            state: RwLock::new(state),
            drive,
            committer: Mutex::new(committer),
            queue: Mutex::default(),
            queued: Condvar::new(),
            maintenance: Mutex::default(),
            maintenance_due: Condvar::new(),
            busy: AtomicBool::new(false),
            untidy: AtomicBool::new(true),
            spare,
            spares_made: AtomicU64::new(0),
        });
        let mut committer = shared.committer.lock();
        if recovered.may_have_lost {
            committer.skip_lost_lsns(&shared)?;
        }
        if self.durability == Durability::Relaxed {
            committer.mark(FrameKind::Relaxed)?;
        }
        drop(committer);
        let threads = if drive == Drive::Threads { start_threads(&shared)? } else { Vec::new() };
        Ok(Engine { owner: Arc::new(Owner { shared, threads: Mutex::new(threads) }), folder })
    }
}

/// A store of databases and containers on local disk or in memory. Cheap to clone; the store is closed in good order
/// when the last handle to it or to one of its containers is dropped.
#[derive(Clone)]
pub struct Engine {
    pub(crate) owner: Arc<Owner>,
    folder: Option<PathBuf>,
}

impl Engine {
    /// Opens the store in `folder`, or makes a new one there, with all settings at their defaults.
    ///
    /// # Errors
    /// See [`Builder::open`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::builder().open(folder)
    }

    /// A new store in memory, for tests and demonstrations.
    ///
    /// # Errors
    /// See [`Builder::in_memory`].
    pub fn in_memory() -> Result<Self> {
        Self::builder().in_memory()
    }

    /// Settings to choose before opening.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The database with this name; it is created with its first container.
    pub fn database(&self, name: &str) -> Database {
        Database::new(self.catalog(), name)
    }

    /// The databases and containers of this store.
    pub fn catalog(&self) -> Arc<dyn Catalog> {
        Arc::new(EmbeddedCatalog::new(Arc::clone(&self.owner)))
    }

    /// Deletes items whose time to live is over, and lets go of versions out of retention, now instead of within half
    /// a second.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if the store was closed or stopped itself.
    pub async fn tidy(&self) -> Result<()> {
        self.owner.shared.ask(Command::Tidy).await?
    }

    /// Waits until compaction has nothing left to do.
    ///
    /// # Errors
    /// Those that compaction met.
    pub async fn settle(&self) -> Result<()> {
        let shared = &self.owner.shared;
        if shared.drive == Drive::Inline {
            return shared.compact_all(Tolerance::IDLE);
        }
        let (reply, answer) = oneshot::channel();
        {
            let mut maintenance = shared.maintenance.lock();
            if maintenance.stopped {
                return Err(gone());
            }
            maintenance.waiting.push(reply);
        }
        shared.maintenance_due.notify_all();
        answer.await.map_err(|_| gone())?
    }

    /// How many bytes the store has on disk or in memory.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the folder cannot be read.
    pub fn disk_bytes(&self) -> Result<u64> {
        let vfs = &self.owner.shared.vfs;
        let measure = || {
            let sizes = vfs.list()?.into_iter().map(|name| vfs.open(&name)?.size());
            sizes.sum::<std::io::Result<u64>>()
        };
        measure().map_err(|error| crate::log::io_error("measure the folder", error))
    }

    /// Finishes all writes, says so in the log and refuses everything further on all handles.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if it was closed before or stopped itself, [`ErrorKind::Io`] if the last sync failed.
    pub async fn close(self) -> Result<()> {
        let answer = self.owner.shared.ask(Command::Close).await?;
        self.owner.stop_threads();
        answer
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.folder {
            Some(folder) => write!(f, "Engine({})", folder.display()),
            None => f.write_str("Engine(in memory)"),
        }
    }
}

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
    pub(crate) segment_bytes: u64,
    pub(crate) state: RwLock<State>,
    drive: Drive,
    pub(crate) committer: Mutex<Committer>,
    queue: Mutex<Queue>,
    queued: Condvar,
    maintenance: Mutex<Maintenance>,
    maintenance_due: Condvar,
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

    fn compact_all(&self, tolerance: Tolerance) -> Result<()> {
        while compaction::compact_once(self, tolerance)? {}
        Ok(())
    }

    /// The committer's thread: takes whatever is queued, and commits it together.
    fn commit_loop(&self) {
        let mut commands = VecDeque::new();
        loop {
            // Not under the lock of the queue: compaction may hold the committer for the time of a sync.
            let unsynced = self.committer.lock().has_unsynced();
            let mut queue = self.queue.lock();
            if queue.commands.is_empty() && !queue.stopped {
                let patience = if unsynced { RELAXED_SYNC } else { Duration::from_millis(TIDY_INTERVAL_MS) };
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
            self.prepare_spare()?;
            let idle = !self.busy.swap(false, Ordering::Relaxed);
            let tolerance = if thorough || idle { Tolerance::IDLE } else { Tolerance::BUSY };
            if self.maintenance.lock().stopped || !compaction::compact_once(self, tolerance)? {
                return Ok(());
            }
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

/// Keeps the threads: when it goes, they finish and go too.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Owner {
    fn stop_threads(&self) {
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
