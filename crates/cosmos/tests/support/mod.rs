//! A server of this project on a real socket, and a client of the SDK for it.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::sync::{Arc, LazyLock};

use changefeed_core::{
    Backend, Batch, Capabilities, Catalog, ChangePage, Container, ContainerIdentity, ContainerInfo, ContainerSpec,
    Continuation, DatabaseInfo, DatabaseSpec, Epk, FeedRange, Item, ItemKey, ItemPage, ListItems, PhysicalRange,
    RangeId, ReadChanges, Response, Result, TimeToLive, WriteResult, async_trait,
};
use changefeed_cosmos::{Account, Credential};
use tokio::runtime::{Builder, Runtime};

/// The emulator's public key, which the server takes unless it is given another.
pub(crate) const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// Runs a future where all calls of the SDK run: it keeps its connections for the whole process, and a connection ends
/// with the runtime that opened it, while every test has a runtime of its own.
pub(crate) async fn on_sdk<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime"));
    RUNTIME.spawn(future).await.expect("a call of the SDK panicked")
}

/// Connects to the server at `endpoint`.
pub(crate) async fn connect(endpoint: String) -> Account {
    on_sdk(async move { Account::connect(&endpoint, Credential::Key(KEY.to_owned())).await })
        .await
        .expect("connect to the server")
}

/// A container whose calls run with the SDK. It says that its store splits on demand: in these tests somebody can.
#[derive(Debug)]
pub(crate) struct OnSdk(pub(crate) Arc<dyn Backend>);

impl OnSdk {
    pub(crate) fn container(container: &Container) -> Container {
        Container::new(Arc::new(Self(Arc::clone(container.backend()))))
    }
}

#[async_trait]
impl Backend for OnSdk {
    fn identity(&self) -> &ContainerIdentity {
        self.0.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().split_on_demand(true)
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        let inner = Arc::clone(&self.0);
        on_sdk(async move { inner.feed_ranges().await }).await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        let inner = Arc::clone(&self.0);
        on_sdk(async move { inner.read_changes(request).await }).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.0.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        let (inner, key) = (Arc::clone(&self.0), key.clone());
        on_sdk(async move { inner.read_item(&key).await }).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        let inner = Arc::clone(&self.0);
        on_sdk(async move { inner.write(batch).await }).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        let inner = Arc::clone(&self.0);
        on_sdk(async move { inner.list_items(request).await }).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        let inner = Arc::clone(&self.0);
        on_sdk(async move { inner.time_to_live().await }).await
    }

    async fn reopen(&self) -> Result<Container> {
        let inner = Arc::clone(&self.0);
        on_sdk(async move { inner.reopen().await }).await.map(|container| Self::container(&container))
    }
}

/// A catalog that opens containers through the SDK; `admin` does everything else, where the calls of the SDK run.
#[derive(Debug)]
pub(crate) struct TestCatalog {
    pub(crate) account: Account,
    pub(crate) admin: Arc<dyn Catalog>,
}

#[async_trait]
impl Catalog for TestCatalog {
    async fn create_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        let admin = Arc::clone(&self.admin);
        on_sdk(async move { admin.create_database(spec).await }).await
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        let admin = Arc::clone(&self.admin);
        on_sdk(async move { admin.list_databases().await }).await
    }

    async fn replace_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        let admin = Arc::clone(&self.admin);
        on_sdk(async move { admin.replace_database(spec).await }).await
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        let (admin, name) = (Arc::clone(&self.admin), name.to_owned());
        on_sdk(async move { admin.delete_database(&name).await }).await
    }

    async fn create_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        let (admin, database) = (Arc::clone(&self.admin), database.to_owned());
        on_sdk(async move { admin.create_container(&database, spec).await }).await
    }

    async fn list_containers(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        let (admin, database) = (Arc::clone(&self.admin), database.to_owned());
        on_sdk(async move { admin.list_containers(&database).await }).await
    }

    async fn replace_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        let (admin, database) = (Arc::clone(&self.admin), database.to_owned());
        on_sdk(async move { admin.replace_container(&database, spec).await }).await
    }

    async fn delete_container(&self, database: &str, name: &str) -> Result<()> {
        let (admin, database, name) = (Arc::clone(&self.admin), database.to_owned(), name.to_owned());
        on_sdk(async move { admin.delete_container(&database, &name).await }).await
    }

    async fn container(&self, database: &str, name: &str) -> Result<Container> {
        let (account, database, name) = (self.account.clone(), database.to_owned(), name.to_owned());
        let opened = on_sdk(async move { account.container(&database, &name).await }).await?;
        Ok(OnSdk::container(&opened))
    }

    async fn split(
        &self,
        database: &str,
        container: &str,
        range: &RangeId,
        at: Option<Epk>,
    ) -> Result<Vec<PhysicalRange>> {
        let children = self.admin.split(database, container, range, at).await?;
        Ok(children.into_iter().map(without_parents).collect())
    }

    async fn merge(&self, database: &str, container: &str, ranges: [&RangeId; 2]) -> Result<PhysicalRange> {
        self.admin.merge(database, container, ranges).await.map(without_parents)
    }
}

/// As the SDK shows it.
fn without_parents(range: PhysicalRange) -> PhysicalRange {
    PhysicalRange { parents: Vec::new(), ..range }
}
