//! A server over a store in memory, with a database `db` and a container `c`.

use std::{net::SocketAddr, sync::Arc};

use changefeed_core::{Catalog, ListItems, ReadChanges, StartFrom};
use changefeed_embedded::Engine;
use changefeed_server::{Builder, Server, auth::Keys};
use serde_json::{Value, json};

use super::client::{Ask, Client, Wire};

/// The items of the container that every world has.
pub(crate) const DOCS: &str = "/dbs/db/colls/c/docs";

/// An item with a number.
pub(crate) fn item(id: &str, pk: &str, number: u64) -> Value {
    json!({ "id": id, "pk": pk, "n": number })
}

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) server: Server,
    pub(crate) keys: Keys,
}

impl World {
    /// A server with the usual settings.
    pub(crate) async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    /// A server with other settings, over a container `db/c` with the partition key `/pk`.
    pub(crate) async fn with(settings: impl FnOnce(Builder) -> Builder) -> Self {
        let engine = Engine::in_memory().unwrap();
        let catalog = engine.catalog();
        let world = Self::over(engine, catalog, Keys::emulator(), settings).await;
        let mut client = world.client().await;
        client.send(Ask::post("/dbs", json!({ "id": "db" }))).await.expect(201);
        let container = json!({"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
        client.send(Ask::post("/dbs/db/colls", container)).await.expect(201);
        world
    }

    /// A server with a key that nobody knows, so that it answers to any name; with nothing made yet.
    pub(crate) async fn with_own_key() -> Self {
        let engine = Engine::in_memory().unwrap();
        let catalog = engine.catalog();
        let keys = Keys::parse("c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IQ==").unwrap();
        Self::over(engine, catalog, keys, |builder| builder).await
    }

    /// A server over any catalog, with nothing made yet.
    pub(crate) async fn over(
        engine: Engine,
        catalog: Arc<dyn Catalog>,
        keys: Keys,
        settings: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let builder = Server::builder(catalog).listen(([127, 0, 0, 1], 0).into()).keys(keys.clone());
        let server = settings(builder).start().await.unwrap();
        Self { engine, server, keys }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// A client that speaks HTTP/1.1 without TLS.
    pub(crate) async fn client(&self) -> Client {
        self.client_by(&Wire::One).await
    }

    pub(crate) async fn client_by(&self, wire: &Wire) -> Client {
        Client::connect(self.address(), wire, self.keys.clone()).await
    }

    /// Everything that a request could have changed: databases, containers, ranges, their newest LSNs, number of items.
    pub(crate) async fn state(&self) -> Value {
        let catalog = self.engine.catalog();
        let mut all = Vec::new();
        for database in catalog.list_databases().await.unwrap() {
            for info in catalog.list_containers(&database.name).await.unwrap() {
                let container = catalog.container(&database.name, &info.spec.name).await.unwrap();
                let ranges = container.feed_ranges().await.unwrap();
                let mut newest = Vec::new();
                for physical in &ranges {
                    let now = ReadChanges::new(physical.range.clone(), StartFrom::Now);
                    newest.push(container.read_changes(now).await.unwrap().newest_lsn.get());
                }
                let items = container.list("").await.unwrap().len();
                let ids: Vec<_> = ranges.iter().map(|range| range.id.as_str().to_owned()).collect();
                all.push(json!({
                    "container": info.rid.to_string(), "changed": info.timestamp.as_millis(),
                    "ranges": ids, "newest": newest, "items": items,
                }));
            }
            all.push(json!({ "database": database.name, "rid": database.rid.to_string() }));
        }
        Value::from(all)
    }

    /// How many items `db/c` holds.
    pub(crate) async fn count(&self) -> usize {
        let container = self.engine.catalog().container("db", "c").await.unwrap();
        let listing = ListItems { max_items: 10_000, ..ListItems::default() };
        container.backend().list_items(listing).await.unwrap().items.len()
    }

    /// Splits a range of `db/c` through the server; the ids of its children.
    pub(crate) async fn split(&self, range: &str) -> Vec<String> {
        let ask = Ask::post("/_changefeed/split", json!({ "container": "db/c", "range": range }));
        let reply = self.client().await.send(ask).await.expect(200).json();
        reply["ranges"].as_array().unwrap().iter().map(|range| range["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Merges two ranges of `db/c` through the server; the id of the new one.
    pub(crate) async fn merge(&self, a: &str, b: &str) -> String {
        let ask = Ask::post("/_changefeed/merge", json!({ "container": "db/c", "ranges": [a, b] }));
        let reply = self.client().await.send(ask).await.expect(200).json();
        reply["ranges"][0]["id"].as_str().unwrap().to_owned()
    }
}
