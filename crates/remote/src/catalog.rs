//! [`Catalog`] over the server.

use std::sync::Arc;

use changefeed_core::{
    Catalog, Container, ContainerInfo, ContainerSpec, DatabaseInfo, DatabaseSpec, Epk, PhysicalRange, RangeId, Result,
    async_trait,
};
use changefeed_protocol::{CatalogCall, Target, Wire};

use crate::{backend::RemoteContainer, server::Client};

/// The databases and containers of one server.
#[derive(Debug)]
pub(crate) struct RemoteCatalog {
    client: Arc<Client>,
}

impl RemoteCatalog {
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self { client }
    }

    async fn call<T: Wire>(&self, call: CatalogCall, message: impl Wire + Sync) -> Result<T> {
        self.client.transport.call(&Target::Catalog(call), &message).await
    }
}

#[async_trait]
impl Catalog for RemoteCatalog {
    async fn create_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        self.call(CatalogCall::CreateDatabase, spec).await
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        self.call(CatalogCall::ListDatabases, ()).await
    }

    async fn replace_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        self.call(CatalogCall::ReplaceDatabase, spec).await
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        self.call(CatalogCall::DeleteDatabase, name.to_owned()).await
    }

    async fn create_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        self.call(CatalogCall::CreateContainer, (database.to_owned(), spec)).await
    }

    async fn list_containers(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        self.call(CatalogCall::ListContainers, database.to_owned()).await
    }

    async fn replace_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        self.call(CatalogCall::ReplaceContainer, (database.to_owned(), spec)).await
    }

    async fn delete_container(&self, database: &str, name: &str) -> Result<()> {
        self.call(CatalogCall::DeleteContainer, (database.to_owned(), name.to_owned())).await
    }

    async fn container(&self, database: &str, name: &str) -> Result<Container> {
        RemoteContainer::open(&self.client, database, name).await
    }

    async fn split(
        &self,
        database: &str,
        container: &str,
        range: &RangeId,
        at: Option<Epk>,
    ) -> Result<Vec<PhysicalRange>> {
        let message = (database.to_owned(), container.to_owned(), range.clone(), at);
        self.call(CatalogCall::Split, message).await
    }

    async fn merge(&self, database: &str, container: &str, [a, b]: [&RangeId; 2]) -> Result<PhysicalRange> {
        let message = (database.to_owned(), container.to_owned(), a.clone(), b.clone());
        self.call(CatalogCall::Merge, message).await
    }
}
