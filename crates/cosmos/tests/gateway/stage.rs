//! A store behind a server behind a gateway.

use std::sync::Arc;

use changefeed_core::{
    Catalog, ChangePage, Container, ContainerSpec, DatabaseSpec, PartitionKeyDefinition, ReadChanges,
};
use changefeed_cosmos::Options;
use changefeed_embedded::Engine;
use changefeed_server::Server;
use serde_json::json;

use crate::{
    proxy::{Gateway, Rules},
    support::{OnSdk, connect, on_sdk},
};

pub(crate) struct Stage {
    engine: Engine,
    _server: Server,
    pub(crate) gateway: Gateway,
}

impl Stage {
    /// A shop with orders by customer, in one range, and leases.
    pub(crate) async fn new(rules: Rules) -> Self {
        let engine = Engine::in_memory().unwrap();
        let server = Server::builder(engine.catalog()).listen(([127, 0, 0, 1], 0).into()).start().await.unwrap();
        engine.catalog().create_database(DatabaseSpec::new("shop")).await.unwrap();
        let stage = Self { gateway: Gateway::start(server.address(), rules).await, engine, _server: server };
        stage.create("orders", PartitionKeyDefinition::hash("/customer").unwrap()).await;
        stage.create("leases", PartitionKeyDefinition::id()).await;
        stage
    }

    pub(crate) async fn create(&self, name: &str, partition_key: PartitionKeyDefinition) {
        let mut spec = ContainerSpec::new(name, partition_key);
        spec.all_versions_retention = Some(std::time::Duration::from_secs(3600));
        self.create_as(spec).await;
    }

    pub(crate) async fn create_as(&self, spec: ContainerSpec) {
        self.engine.catalog().create_container("shop", spec).await.unwrap();
    }

    /// The container, without server and gateway.
    pub(crate) async fn direct(&self, name: &str) -> Container {
        self.engine.catalog().container("shop", name).await.unwrap()
    }

    /// The container through the SDK and the gateway.
    pub(crate) async fn open(&self, name: &'static str) -> Container {
        self.open_with(name, Options::new()).await
    }

    pub(crate) async fn open_with(&self, name: &'static str, options: Options) -> Container {
        let account = connect(self.gateway.endpoint()).await.options(options);
        OnSdk::container(&on_sdk(async move { account.container("shop", name).await }).await.unwrap())
    }

    /// To split and merge ranges.
    pub(crate) fn catalog(&self) -> Arc<dyn Catalog> {
        self.engine.catalog()
    }

    /// Writes orders with these numbers, of many customers.
    pub(crate) async fn write(&self, numbers: std::ops::Range<u32>) {
        let orders = self.direct("orders").await;
        for number in numbers {
            let order = json!({"id": number.to_string(), "customer": format!("c{}", number % 50)});
            orders.upsert(&order).await.unwrap();
        }
    }
}

/// Reads pages until one is empty; its continuation comes last.
pub(crate) async fn drain(container: &Container, mut request: ReadChanges) -> Vec<ChangePage> {
    let mut pages = Vec::new();
    loop {
        let page = container.read_changes(request.clone()).await.unwrap().into_value();
        let is_end = page.changes.is_empty();
        request.start = page.continuation.clone().into();
        pages.push(page);
        if is_end {
            return pages;
        }
    }
}

/// What the pages show: id, LSN and operation of each change.
pub(crate) fn shown(pages: &[ChangePage]) -> Vec<String> {
    let changes = pages.iter().flat_map(|page| &page.changes);
    changes.map(|change| format!("{} {} {:?}", change.id, change.lsn, change.operation)).collect()
}
