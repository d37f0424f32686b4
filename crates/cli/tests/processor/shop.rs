//! A shop on a server of its own: orders, leases, hosts that note what they deliver.

use std::ops::Range;

use changefeed::{
    Processor, ProcessorBuilder, Running,
    core::{Container, Database, RangeId, StartFrom},
    remote::{EMULATOR_KEY, Server as Client},
};
use serde_json::json;

pub(crate) use crate::seen::{Seen, TIMING, pass, start, until};
use crate::{process::Server, store::Store};

pub(crate) struct Shop {
    pub(crate) server: Server,
    /// For what only an operator does.
    admin: Client,
    store: Store,
    pub(crate) orders: Container,
    pub(crate) leases: Container,
}

impl Shop {
    pub(crate) async fn new(ranges: usize) -> Self {
        let server = Server::start(&["--store", "memory", "--allow-faults"]);
        let admin = Client::connect(&server.endpoint(), EMULATOR_KEY).unwrap();
        let shop = admin.database("shop");
        shop.container("orders").partition_key("/customer").ranges(ranges).create().await.unwrap();
        shop.container("leases").create().await.unwrap();
        let store = Store::connect(&server.endpoint()).await;
        let (orders, leases) = (store.container("orders").await, store.container("leases").await);
        Self { server, admin, store, orders, leases }
    }

    pub(crate) fn database(&self) -> Database {
        self.store.database()
    }

    /// A further container, keyed by `/id`.
    pub(crate) async fn create_container(&self, name: &str) -> Container {
        self.database().container(name).create().await.unwrap()
    }

    /// Writes version `n` of these orders. There are seven customers.
    pub(crate) async fn write(&self, numbers: Range<u32>, n: u32) {
        for number in numbers {
            let order = json!({"id": number.to_string(), "customer": format!("c{}", number % 7), "n": n});
            self.orders.upsert(&order).await.unwrap();
        }
    }

    pub(crate) fn builder(&self, instance: &str) -> ProcessorBuilder<changefeed::Latest> {
        Processor::builder("mailer", &self.orders, &self.leases)
            .instance_name(instance)
            .start_from(StartFrom::Beginning)
            .lease_timing(TIMING)
    }

    /// A host of the processor `mailer`, from the beginning.
    pub(crate) async fn host(&self, instance: &str, seen: &Seen) -> Running {
        start(self.builder(instance), seen).await
    }

    pub(crate) async fn split(&self, range: u64) {
        self.admin.catalog().split("shop", "orders", &RangeId::from(range), None).await.unwrap();
    }

    pub(crate) async fn merge(&self, a: u64, b: u64) {
        let ranges = [&RangeId::from(a), &RangeId::from(b)];
        self.admin.catalog().merge("shop", "orders", ranges).await.unwrap();
    }
}
