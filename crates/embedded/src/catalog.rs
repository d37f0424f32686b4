//! [`Catalog`] over the engine.

use std::sync::Arc;

use changefeed_core::{
    Catalog, Container, ContainerInfo, ContainerSpec, DatabaseInfo, DatabaseSpec, Epk, Error, ErrorKind, PhysicalRange,
    RangeId, ResourceId, Result, Timestamp, async_trait,
};

use crate::{
    backend::EmbeddedContainer,
    commit::{CatalogChange, Command},
    descriptor::{ContainerDescriptor, DatabaseDescriptor},
    threads::Threads,
};

/// The databases and containers of one engine.
#[derive(Debug)]
pub(crate) struct EmbeddedCatalog {
    threads: Arc<Threads>,
}

impl EmbeddedCatalog {
    pub(crate) fn new(threads: Arc<Threads>) -> Self {
        Self { threads }
    }

    async fn change(&self, change: CatalogChange) -> Result<Option<RangeId>> {
        self.threads.shared.ask(|reply| Command::Catalog(change, reply)).await?
    }

    fn descriptor(&self, database: &str, name: &str) -> Result<Arc<ContainerDescriptor>> {
        self.threads.inner().state.read().container_named(database, name).map(Arc::clone)
    }

    /// The ranges that a split or merge made: those with the ids from `first` on.
    fn made(&self, database: &str, name: &str, first: Option<RangeId>, count: u64) -> Result<Vec<PhysicalRange>> {
        let first: u64 = first.and_then(|id| id.as_str().parse().ok()).unwrap_or(u64::MAX);
        let ranges = self.descriptor(database, name)?.physical_ranges()?;
        let is_made = |id: &RangeId| id.as_str().parse().is_ok_and(|id: u64| (first..first + count).contains(&id));
        Ok(ranges.into_iter().filter(|range| is_made(&range.id)).collect())
    }
}

fn info(database: &DatabaseDescriptor) -> DatabaseInfo {
    DatabaseInfo {
        name: database.name.clone(),
        rid: ResourceId::database(database.number),
        timestamp: Timestamp::from_millis(database.created),
        extra: database.other.clone(),
    }
}

#[async_trait]
impl Catalog for EmbeddedCatalog {
    async fn create_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        let name = spec.name.clone();
        self.change(CatalogChange::CreateDatabase(spec)).await?;
        self.threads.inner().state.read().database(&name).map(info)
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        Ok(self.threads.inner().state.read().databases.values().map(info).collect())
    }

    async fn replace_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        let name = spec.name.clone();
        self.change(CatalogChange::ReplaceDatabase(spec)).await?;
        self.threads.inner().state.read().database(&name).map(info)
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        self.change(CatalogChange::DeleteDatabase(name.to_owned())).await.map(drop)
    }

    async fn create_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        let name = spec.name.clone();
        self.change(CatalogChange::CreateContainer(database.to_owned(), spec)).await?;
        self.descriptor(database, &name).map(|container| container.info())
    }

    async fn list_containers(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        let state = self.threads.inner().state.read();
        let number = state.database(database)?.number;
        let mut containers: Vec<_> = state.containers_of(number).map(|container| container.info()).collect();
        containers.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        Ok(containers)
    }

    async fn replace_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        let name = spec.name.clone();
        self.change(CatalogChange::ReplaceContainer(database.to_owned(), spec)).await?;
        self.descriptor(database, &name).map(|container| container.info())
    }

    async fn delete_container(&self, database: &str, name: &str) -> Result<()> {
        self.change(CatalogChange::DeleteContainer(database.to_owned(), name.to_owned())).await.map(drop)
    }

    async fn container(&self, database: &str, name: &str) -> Result<Container> {
        EmbeddedContainer::open(&self.threads, database, name)
    }

    async fn split(
        &self,
        database: &str,
        container: &str,
        range: &RangeId,
        at: Option<Epk>,
    ) -> Result<Vec<PhysicalRange>> {
        let change = CatalogChange::Split(database.to_owned(), container.to_owned(), range.clone(), at);
        let first = self.change(change).await?;
        self.made(database, container, first, 2)
    }

    async fn merge(&self, database: &str, container: &str, ranges: [&RangeId; 2]) -> Result<PhysicalRange> {
        let change = CatalogChange::Merge(database.to_owned(), container.to_owned(), ranges.map(RangeId::clone));
        let first = self.change(change).await?;
        self.made(database, container, first, 1)?.pop().ok_or_else(|| {
            Error::new(ErrorKind::RangeGone, "the merged range was split or merged again at once: list the ranges")
        })
    }
}
