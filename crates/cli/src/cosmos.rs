//! An account of Azure Cosmos DB as a store: connected by the first call.

use std::{fmt, sync::Arc};

use changefeed_core::{
    Catalog, Container, ContainerInfo, ContainerSpec, DatabaseInfo, DatabaseSpec, Epk, PhysicalRange, RangeId, Result,
    async_trait,
};
use changefeed_cosmos::{Account, Credential};
use tokio::sync::OnceCell;

/// An account and its key.
pub(crate) struct CosmosStore {
    endpoint: String,
    key: String,
    account: OnceCell<Account>,
}

impl CosmosStore {
    pub(crate) fn new(endpoint: &str, key: String) -> Self {
        Self { endpoint: endpoint.to_owned(), key, account: OnceCell::new() }
    }

    async fn account(&self) -> Result<&Account> {
        let connect = || Account::connect(&self.endpoint, Credential::Key(self.key.clone()));
        self.account.get_or_try_init(connect).await
    }

    async fn catalog(&self) -> Result<Arc<dyn Catalog>> {
        Ok(self.account().await?.catalog())
    }

    /// Refuses a container that cannot hold leases.
    pub(crate) async fn check_leases(&self, database: &str, container: &str) -> Result<()> {
        self.account().await?.lease_container(database, container).await.map(drop)
    }
}

/// Without the key.
impl fmt::Debug for CosmosStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CosmosStore")
    }
}

#[async_trait]
impl Catalog for CosmosStore {
    async fn create_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        self.catalog().await?.create_database(spec).await
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        self.catalog().await?.list_databases().await
    }

    async fn replace_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        self.catalog().await?.replace_database(spec).await
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        self.catalog().await?.delete_database(name).await
    }

    async fn create_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        self.catalog().await?.create_container(database, spec).await
    }

    async fn list_containers(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        self.catalog().await?.list_containers(database).await
    }

    async fn replace_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        self.catalog().await?.replace_container(database, spec).await
    }

    async fn delete_container(&self, database: &str, name: &str) -> Result<()> {
        self.catalog().await?.delete_container(database, name).await
    }

    async fn container(&self, database: &str, name: &str) -> Result<Container> {
        self.catalog().await?.container(database, name).await
    }

    async fn split(
        &self,
        database: &str,
        container: &str,
        range: &RangeId,
        at: Option<Epk>,
    ) -> Result<Vec<PhysicalRange>> {
        self.catalog().await?.split(database, container, range, at).await
    }

    async fn merge(&self, database: &str, container: &str, ranges: [&RangeId; 2]) -> Result<PhysicalRange> {
        self.catalog().await?.merge(database, container, ranges).await
    }
}
