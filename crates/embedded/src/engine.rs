//! The engine: a folder of databases, or one in memory, opened and closed.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use changefeed_core::{Catalog, Clock, Database, Error, ErrorKind, Result, StoreId, SystemClock};

use crate::{
    catalog::EmbeddedCatalog,
    commit::{Command, Committer},
    durability::Durability,
    format::{VERSION, frame::FrameKind},
    health::{Health, HealthReport},
    index::Location,
    inner::{ExecutionMode, Inner, SMALLEST_SEGMENT_BYTES},
    log::{recent::Recent, recovery, room::Room, store_id, writer::LogWriter},
    state::Rebuild,
    threads::{Shared, Threads},
    vfs::{
        Vfs,
        disk::{Disk, LockError},
        memory::MemoryDisk,
    },
};

/// A segment is at most this long: long enough that beginning one is rare, short enough to be rewritten quickly.
const SEGMENT_BYTES: u64 = 16 * 1024 * 1024;

/// How much of what was written last a store on disk keeps in memory.
const RECENT_BYTES: usize = 8 * 1024 * 1024;

/// Settings of an engine, before it is opened.
#[derive(Debug)]
#[must_use = "nothing happens before `open` or `in_memory`"]
pub struct Builder {
    durability: Durability,
    clock: Arc<dyn Clock>,
    account_host: String,
    store_id: Option<StoreId>,
    segment_bytes: u64,
    recent_bytes: Option<usize>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            durability: Durability::Durable,
            clock: Arc::new(SystemClock),
            account_host: "localhost".to_owned(),
            store_id: None,
            segment_bytes: SEGMENT_BYTES,
            recent_bytes: None,
        }
    }
}

impl Builder {
    /// Sets when a write counts as done. Default: when it is on disk.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets where the time comes from. Default: the operating system.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the host name that leases of this store carry. Default: `localhost`.
    pub fn account_host(mut self, host: impl Into<String>) -> Self {
        self.account_host = host.into();
        self
    }

    /// Sets the identity of a store that has none yet: a new one, or one written before stores had identities. An
    /// existing identity stays. For simulations and tests that must repeat. Default: 128 random bits.
    pub fn store_id(mut self, id: StoreId) -> Self {
        self.store_id = Some(id);
        self
    }

    /// Sets the maximum size of a file of the log. At least 64 KiB. Default: 16 MiB.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes.clamp(64 * 1024, 1 << 30);
        self
    }

    /// Sets how much of what was written last is kept in memory, so that whoever follows the feed need not read the
    /// disk. 0 keeps nothing. Default: 8 MiB; a store in memory, which has no disk, keeps nothing twice.
    pub fn recent_bytes(mut self, bytes: usize) -> Self {
        self.recent_bytes = Some(bytes);
        self
    }

    /// Opens the store in `folder`, or makes a new one there.
    ///
    /// # Errors
    /// [`ErrorKind::Locked`] if another process has it open, [`ErrorKind::UnknownFormat`] if it was written by another
    /// version or holds something else, [`ErrorKind::Corrupt`] if it is damaged; nothing is changed then. Damage in records
    /// that newer ones have replaced is no error: [`Engine::health`] shows it until compaction has removed it.
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
        self.start(Arc::new(disk), ExecutionMode::Threads, Some(folder.to_owned()))
    }

    /// Creates a store in memory, gone with its last handle. Writes happen in the caller's own task: no threads.
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
        self.start(Arc::new(disk), ExecutionMode::Inline, None)
    }

    fn start(self, vfs: Arc<dyn Vfs>, mode: ExecutionMode, folder: Option<PathBuf>) -> Result<Engine> {
        let mut rebuild = Rebuild::default();
        let smallest = self.segment_bytes.min(SMALLEST_SEGMENT_BYTES);
        let recovered = recovery::open(&vfs, smallest, &mut |location, record| rebuild.visit(location, record))?;
        let recent =
            Recent::new(self.recent_bytes.unwrap_or(if mode == ExecutionMode::Threads { RECENT_BYTES } else { 0 }));
        let now = self.clock.wall().as_millis();
        let state = rebuild.finish(recovered.version, recovered.segments, recent, now)?;
        let room = Arc::<Room>::default();
        let writer = LogWriter::new(Arc::clone(&vfs), recovered.active, Arc::clone(&room));
        let health = Arc::<HealthReport>::default();
        for (segment, offset) in &state.damaged {
            let location = Location { segment: *segment, offset: *offset, bytes: 0 };
            health.harmless_damage(&state.segments.damaged_record(location));
        }
        let committer = Committer::new(writer, self.durability, Arc::clone(&health));
        let store = match recovered.store {
            Some(store) => store,
            None => {
                let store = self.store_id.map_or_else(store_id::random, Ok)?;
                store_id::write(&*vfs, &store)?;
                store
            }
        };
        let (clock, host) = (self.clock, self.account_host);
        let bytes = self.segment_bytes;
        let inner = Inner::new(vfs, clock, host, store, bytes, state, mode, health);
        let shared = Arc::new(Shared::new(inner, committer, room));
        let (inner, mut committer) = (&shared.inner, shared.committer.lock());
        if recovered.version < VERSION {
            committer.write_migrated(inner)?;
            recovery::end_migration(&*inner.vfs)?;
        }
        if recovered.may_have_lost {
            committer.skip_lost_lsns(inner)?;
        }
        if self.durability == Durability::Relaxed {
            committer.mark(FrameKind::Relaxed)?;
        }
        drop(committer);
        Ok(Engine { threads: Arc::new(Threads::start(shared)?), folder })
    }
}

/// A store of databases and containers on local disk or in memory. Cheap to clone; the store is closed in good order
/// when the last handle to it or to one of its containers is dropped.
///
/// ```
/// use changefeed_embedded::Engine;
///
/// # async fn example() -> changefeed_core::Result<()> {
/// let engine = Engine::open("./data")?; // or Engine::in_memory()
/// let shop = engine.database("shop");
/// let orders = shop.container("orders").partition_key("/customer").open_or_create().await?;
/// orders.upsert(&serde_json::json!({"id": "1", "customer": "ada", "total": 12})).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    pub(crate) threads: Arc<Threads>,
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

    /// Creates a store in memory, for tests and demonstrations.
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

    /// Returns the identity that the store got at its creation. It survives reopening; a copy of the folder has the
    /// same one.
    pub fn store_id(&self) -> &StoreId {
        &self.threads.inner().store
    }

    /// Returns the folder of the store; none if it is in memory.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Returns the database with this name; it is created with its first container.
    pub fn database(&self, name: &str) -> Database {
        Database::new(self.catalog(), name)
    }

    /// Returns the databases and containers of this store.
    pub fn catalog(&self) -> Arc<dyn Catalog> {
        Arc::new(EmbeddedCatalog::new(Arc::clone(&self.threads)))
    }

    /// Deletes items whose time to live is over, and lets go of versions out of retention, now instead of within half
    /// a second. Returns when all are gone; writes continue meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if the store was closed or stopped itself.
    pub async fn expire(&self) -> Result<()> {
        self.threads.shared.ask(Command::Expire).await?
    }

    /// Returns what is wrong with the store, if anything.
    pub fn health(&self) -> Health {
        self.threads.inner().health.health()
    }

    /// Returns when the store has stopped itself, because a write or sync failed and trying again could hide a loss. The
    /// error names the cause. A program should then end, or open the store again.
    pub async fn stopped(&self) -> Error {
        self.threads.inner().health.stopped().await
    }

    /// Waits until compaction has nothing left to do.
    ///
    /// # Errors
    /// Those that compaction met.
    pub async fn settle(&self) -> Result<()> {
        self.threads.shared.settle().await
    }

    /// Reads every byte that a start or a compaction reads, and checks it: also records that no reader needs any more.
    /// Returns how many bytes were read. Blocks; reads and writes go on meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] names the file and the place of the first damage, [`ErrorKind::Io`] if a file cannot be read.
    pub fn verify(&self) -> Result<u64> {
        self.verify_with(|_| {})
    }

    /// Does what [`Engine::verify`] does, and calls `on_progress` after each file with the number of bytes read so far, of
    /// about [`Engine::disk_bytes`].
    ///
    /// # Errors
    /// As for [`Engine::verify`].
    pub fn verify_with(&self, mut on_progress: impl FnMut(u64)) -> Result<u64> {
        let segments = || self.threads.inner().state.read().segments.0.values().cloned().collect();
        crate::log::recovery::verify(segments, &mut on_progress)
    }

    /// Returns how many bytes the store has on disk or in memory.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the folder cannot be read.
    pub fn disk_bytes(&self) -> Result<u64> {
        let vfs = &self.threads.inner().vfs;
        let measure = || {
            let own = vfs.list()?.into_iter().filter(|name| crate::log::looks_like_ours(name));
            let sizes = own.map(|name| match vfs.open(&name) {
                Ok(file) => file.size(),
                // Compaction has removed it meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
                Err(error) => Err(error),
            });
            sizes.sum::<std::io::Result<u64>>()
        };
        measure().map_err(|error| crate::log::io_error("measure the folder", error))
    }

    /// Finishes all writes, says so in the log and refuses everything further on all handles.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if it was closed before or stopped itself, [`ErrorKind::Io`] if the last sync failed.
    pub async fn close(self) -> Result<()> {
        let answer = self.threads.shared.ask(Command::Close).await?;
        self.threads.stop();
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
