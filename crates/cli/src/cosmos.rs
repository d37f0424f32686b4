//! An account of Azure Cosmos DB as a store: connected by the first call.

use std::{fmt, sync::Arc};

use changefeed_core::{
    Catalog, Container, ContainerInfo, ContainerSpec, DatabaseInfo, DatabaseSpec, Epk, Error, ErrorKind, PhysicalRange,
    RangeId, Result, async_trait,
};
use changefeed_cosmos::{Account, AccountProperties, Credential, Options};
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

    /// Opens a container for leases, in the one region that is pinned if there is one. Refuses one that cannot hold leases.
    pub(crate) async fn lease_container(
        &self,
        database: &str,
        container: &str,
        write_region: Option<&str>,
    ) -> Result<Container> {
        let account = self.account().await?;
        let options = match write_region {
            Some(region) => Options::new().write_region(region),
            None => one_write_region(account.properties())?,
        };
        account.clone().options(options).lease_container(database, container).await
    }
}

/// Refuses an account for which a region must be pinned.
fn one_write_region(account: &AccountProperties) -> Result<Options> {
    if !account.has_multiple_write_regions || account.write_regions.len() < 2 {
        return Ok(Options::new());
    }
    let message = format!(
        "the account takes writes in several regions ({}), so two hosts could own one lease: pin one of them with \
         --write-region, the same on every host, or keep leases in an account with one write region (--lease-store)",
        account.write_regions.join(", ")
    );
    Err(Error::new(ErrorKind::InvalidArgument, message))
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
