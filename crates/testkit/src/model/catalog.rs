//! Databases and containers of the model store.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use changefeed_core::{
    Catalog, Clock, Container, ContainerIdentity, ContainerInfo, ContainerSpec, DatabaseInfo, DatabaseSpec, Epk, Error,
    ErrorKind, PhysicalRange, RangeId, ResourceId, Result, StoreId, Timestamp, check_name,
};
use tokio::sync::watch;

use super::{Bug, Variant, container::ModelBackend, state::State};

/// A naive store in memory. Clones are the same store.
#[derive(Clone, Debug)]
pub struct ModelStore {
    shared: Arc<Shared>,
}

/// What the store and its containers share.
#[derive(Debug)]
pub(super) struct Shared {
    clock: Box<dyn Clock>,
    bug: Option<Bug>,
    variant: Variant,
    tables: Mutex<Tables>,
    /// Counts commits, to wake readers.
    pub(super) commits: watch::Sender<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Tables {
    /// The number in the store id.
    id: u64,
    databases: BTreeMap<String, DatabaseInfo>,
    pub(super) containers: BTreeMap<ResourceId, State>,
    next_database: u32,
    next_container: u32,
    /// For the bug that gives a container the resource id of its predecessor.
    used: BTreeMap<String, ResourceId>,
}

impl ModelStore {
    /// An empty store on this clock.
    pub fn new(clock: impl Clock) -> Self {
        Self::build(clock, None, Variant::Plain)
    }

    /// An empty store that uses its freedoms in this way.
    pub fn with_variant(clock: impl Clock, variant: Variant) -> Self {
        Self::build(clock, None, variant)
    }

    /// An empty store with a bug.
    pub fn with_bug(clock: impl Clock, bug: Bug) -> Self {
        Self::build(clock, Some(bug), Variant::Plain)
    }

    /// Closes the store and opens it again. Existing handles keep working.
    pub fn reopen(&self) {
        if self.shared.has(Bug::ChangesItsIdWhenReopened) {
            self.shared.lock().id = new_number();
        }
    }

    /// Lets everything expire that is due by now.
    pub fn expire(&self) {
        let now = self.shared.now();
        self.shared.lock().containers.values_mut().for_each(|state| state.expire(now));
        self.shared.wake();
    }

    fn build(clock: impl Clock, bug: Option<Bug>, variant: Variant) -> Self {
        let (commits, _) = watch::channel(0);
        let id = if bug == Some(Bug::SharesItsIdWithOtherStores) { 0 } else { new_number() };
        let tables = Mutex::new(Tables { id, ..Tables::default() });
        Self { shared: Arc::new(Shared { clock: Box::new(clock), bug, variant, tables, commits }) }
    }
}

/// A number that no other store of this process has: the model keeps nothing that outlives it.
fn new_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

impl Shared {
    /// Opens the container of this name.
    pub(super) fn open(self: &Arc<Self>, database: &str, name: &str) -> Result<Container> {
        let mut tables = self.lock();
        let database_rid = tables.database(database)?.rid;
        let state = tables.named(database, name)?;
        let rid = state.rid;
        let partition_key = state.spec.partition_key.clone();
        let store = match rid.container_number() {
            Some(number) if self.has(Bug::HasAnIdForEachContainer) => u64::from(number),
            _ => tables.id,
        };
        let identity = ContainerIdentity {
            store: StoreId::new(format!("model-{store}"))?,
            account_host: "localhost".to_owned(),
            database_name: database.to_owned(),
            container_name: name.to_owned(),
            database: database_rid,
            container: rid,
            partition_key,
        };
        Ok(Container::new(Arc::new(ModelBackend::new(identity, Arc::clone(self)))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    pub(super) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub(super) fn wake(&self) {
        if !self.has(Bug::NeverWakes) {
            self.commits.send_modify(|commits| *commits += 1);
        }
    }
}

impl Tables {
    pub(super) fn state(&mut self, rid: &ResourceId) -> Result<&mut State> {
        self.containers.get_mut(rid).ok_or_else(|| {
            Error::new(ErrorKind::ContainerNotFound, format!("container {rid} does not exist (any more)"))
        })
    }

    fn named(&mut self, database: &str, name: &str) -> Result<&mut State> {
        self.database(database)?;
        let found = self.containers.values_mut().find(|state| state.database == database && state.spec.name == name);
        found.ok_or_else(|| {
            Error::new(ErrorKind::ContainerNotFound, format!("there is no container {name} in database {database}"))
        })
    }

    fn database(&self, name: &str) -> Result<&DatabaseInfo> {
        self.databases
            .get(name)
            .ok_or_else(|| Error::new(ErrorKind::DatabaseNotFound, format!("there is no database {name}")))
    }

    fn new_container_rid(&mut self, database: ResourceId, path: String, reuse: bool) -> ResourceId {
        if let Some(rid) = self.used.get(&path).filter(|_| reuse) {
            return *rid;
        }
        self.next_container += 1;
        let rid = ResourceId::container(database.database_number(), self.next_container);
        self.used.insert(path, rid);
        rid
    }
}

#[async_trait]
impl Catalog for ModelStore {
    async fn create_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        check_name(&spec.name)?;
        let mut tables = self.shared.lock();
        if tables.databases.contains_key(&spec.name) {
            return Err(exists(&spec.name));
        }
        tables.next_database += 1;
        let rid = ResourceId::database(tables.next_database);
        let DatabaseSpec { name, mut extra } = spec;
        if self.shared.has(Bug::DropsUnknownSettings) {
            extra.clear();
        }
        let info = DatabaseInfo { name, rid, timestamp: self.shared.now(), extra };
        tables.databases.insert(info.name.clone(), info.clone());
        Ok(info)
    }

    async fn replace_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        let mut tables = self.shared.lock();
        let known = tables.database(&spec.name)?.clone();
        let info = DatabaseInfo { extra: spec.extra, ..known };
        tables.databases.insert(spec.name, info.clone());
        Ok(info)
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        let mut found: Vec<_> = self.shared.lock().databases.values().cloned().collect();
        if self.shared.has(Bug::ListsByAge) {
            found.sort_by_key(|info| info.rid);
        }
        Ok(found)
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        let mut tables = self.shared.lock();
        tables.database(name)?;
        tables.databases.remove(name);
        tables.containers.retain(|_, state| state.database != name);
        drop(tables);
        self.shared.wake();
        Ok(())
    }

    async fn create_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        check_name(&spec.name)?;
        let mut tables = self.shared.lock();
        let database_rid = tables.database(database)?.rid;
        if tables.named(database, &spec.name).is_ok() {
            return Err(exists(&spec.name));
        }
        spec.partition_key.split_evenly(spec.ranges)?;
        let reuse = self.shared.has(Bug::KeepsTheRidOfDeletedContainers);
        let rid = tables.new_container_rid(database_rid, format!("{database}/{}", spec.name), reuse);
        let mut state = State::new(rid, database, spec, self.shared.now(), (self.shared.bug, self.shared.variant))?;
        if self.shared.has(Bug::DropsUnknownSettings) {
            state.spec.extra.clear();
        }
        let info = info(&state);
        tables.containers.insert(rid, state);
        Ok(info)
    }

    async fn list_containers(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        let tables = self.shared.lock();
        tables.database(database)?;
        let mut found: Vec<_> =
            tables.containers.values().filter(|state| state.database == database).map(info).collect();
        if !self.shared.has(Bug::ListsByAge) {
            found.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        }
        Ok(found)
    }

    async fn replace_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        let mut tables = self.shared.lock();
        let state = tables.named(database, &spec.name)?;
        if state.spec.partition_key != spec.partition_key && !self.shared.has(Bug::PartitionKeysMayChange) {
            let message = format!("the partition key of container {} cannot change", spec.name);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if state.spec.all_versions_retention.is_none() {
            state.kept_since = state.lsn;
        }
        state.spec = ContainerSpec { ranges: state.spec.ranges, ..spec };
        state.timestamp = self.shared.now();
        Ok(info(state))
    }

    async fn delete_container(&self, database: &str, name: &str) -> Result<()> {
        let mut tables = self.shared.lock();
        let rid = tables.named(database, name)?.rid;
        tables.containers.remove(&rid);
        drop(tables);
        self.shared.wake();
        Ok(())
    }

    async fn container(&self, database: &str, name: &str) -> Result<Container> {
        self.shared.open(database, name)
    }

    async fn split(
        &self,
        database: &str,
        container: &str,
        range: &RangeId,
        at: Option<Epk>,
    ) -> Result<Vec<PhysicalRange>> {
        let children = self.shared.lock().named(database, container)?.split(range, at)?;
        if !self.shared.has(Bug::DoesNotWakeOnSplits) {
            self.shared.wake();
        }
        Ok(children)
    }

    async fn merge(&self, database: &str, container: &str, ranges: [&RangeId; 2]) -> Result<PhysicalRange> {
        let merged = self.shared.lock().named(database, container)?.merge(ranges)?;
        self.shared.wake();
        Ok(merged)
    }
}

fn info(state: &State) -> ContainerInfo {
    ContainerInfo { rid: state.rid, timestamp: state.timestamp, spec: state.spec.clone() }
}

fn exists(name: &str) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("{name} exists already"))
}
