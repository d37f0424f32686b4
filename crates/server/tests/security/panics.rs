//! A mistake of the server costs the request that met it, and nothing else.

use std::sync::Arc;

use async_trait::async_trait;
use changefeed_core::{
    Backend, Batch, Capabilities, Catalog, ChangePage, Container, ContainerIdentity, ContainerInfo, ContainerSpec,
    Continuation, DatabaseInfo, DatabaseSpec, Epk, FeedRange, Item, ItemKey, ItemPage, ListItems, PhysicalRange,
    RangeId, ReadChanges, Response, Result, TimeToLive, WriteResult,
};
use changefeed_embedded::Engine;
use changefeed_server::auth::Keys;
use serde_json::json;

use crate::support::{Ask, Wire, World, item, world::DOCS};

/// A store that panics when it is asked for the item or the database `panic`.
#[derive(Debug)]
struct Fragile<T: ?Sized>(Arc<T>);

#[async_trait]
impl Backend for Fragile<dyn Backend> {
    fn identity(&self) -> &ContainerIdentity {
        self.0.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.0.feed_ranges().await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.0.read_changes(request).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.0.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        assert_ne!(key.id.as_str(), "panic", "a store that makes a mistake");
        self.0.read_item(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        self.0.write(batch).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.0.list_items(request).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.0.time_to_live().await
    }

    async fn reopen(&self) -> Result<Container> {
        self.0.reopen().await
    }
}

#[async_trait]
impl Catalog for Fragile<dyn Catalog> {
    async fn create_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        assert_ne!(spec.name, "panic", "a store that makes a mistake");
        self.0.create_database(spec).await
    }

    async fn replace_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo> {
        self.0.replace_database(spec).await
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        self.0.list_databases().await
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        self.0.delete_database(name).await
    }

    async fn create_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        self.0.create_container(database, spec).await
    }

    async fn list_containers(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        self.0.list_containers(database).await
    }

    async fn replace_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        self.0.replace_container(database, spec).await
    }

    async fn delete_container(&self, database: &str, name: &str) -> Result<()> {
        self.0.delete_container(database, name).await
    }

    async fn container(&self, database: &str, name: &str) -> Result<Container> {
        let sound = self.0.container(database, name).await?;
        Ok(Container::new(Arc::new(Fragile(Arc::clone(sound.backend())))))
    }

    async fn split(&self, database: &str, name: &str, range: &RangeId, at: Option<Epk>) -> Result<Vec<PhysicalRange>> {
        self.0.split(database, name, range, at).await
    }

    async fn merge(&self, database: &str, name: &str, ranges: [&RangeId; 2]) -> Result<PhysicalRange> {
        self.0.merge(database, name, ranges).await
    }
}

#[tokio::test]
async fn a_panic_is_a_500_on_its_request_and_the_same_connection_goes_on() {
    let engine = Engine::in_memory().unwrap();
    let fragile = Arc::new(Fragile(engine.catalog()));
    let world = World::over(engine, fragile, Keys::emulator(), |builder| builder).await;
    let mut client = world.client().await;
    client.send(Ask::post("/dbs", json!({ "id": "db" }))).await.expect(201);
    let container = json!({ "id": "c", "partitionKey": { "paths": ["/pk"], "version": 2 } });
    client.send(Ask::post("/dbs/db/colls", container)).await.expect(201);
    client.send(Ask::post(DOCS, item("sound", "a", 1)).key("a")).await.expect(201);
    for wire in [Wire::One, Wire::Two] {
        let mut client = world.client_by(&wire).await;
        for _ in 0..3 {
            let ask = Ask::get(format!("{DOCS}/panic")).key("a").with("x-ms-activity-id", "who-asked");
            let reply = client.send(ask).await.expect(500);
            assert_eq!(reply.json()["code"], "InternalServerError");
            assert_eq!(reply.header("x-ms-activity-id"), Some("who-asked"));
            assert!(!reply.text().contains("a store that makes a mistake"), "what went wrong is not for clients");
            client.send(Ask::post("/dbs", json!({ "id": "panic" }))).await.expect(500);
            client.send(Ask::get(format!("{DOCS}/sound")).key("a")).await.expect(200);
        }
    }
}
