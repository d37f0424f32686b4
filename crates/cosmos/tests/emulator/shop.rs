//! A shop in an account of the emulator: orders, leases, and hosts that note what they deliver.

use std::{ops::Range, time::Duration};

use changefeed::{
    Latest, Processor, ProcessorBuilder,
    core::{Container, StartFrom},
};
use changefeed_cosmos::Account;
use serde_json::json;

use crate::{
    account::Emulated,
    seen::TIMING,
    support::{OnSdk, on_sdk},
};

pub(crate) struct Shop {
    pub(crate) orders: Container,
    pub(crate) leases: Container,
}

impl Shop {
    /// Creates the containers `orders`, with one range, and `leases` of a database `shop`.
    pub(crate) fn create(emulated: &Emulated) {
        emulated.store().create_database("shop");
        emulated.create_container("orders", "/customer", 1);
        emulated.create_container("leases", "/id", 1);
    }

    /// Opens the containers: that of the leases with the settings of the account.
    pub(crate) async fn open(orders: &Account, leases: &Account) -> Self {
        let orders = container(orders, "orders").await;
        let leases = leases.clone();
        let leases = on_sdk(async move { leases.lease_container("shop", "leases").await }).await;
        Self { orders, leases: OnSdk::container(&leases.unwrap()) }
    }

    /// Writes these orders, of seven customers.
    pub(crate) async fn write(&self, numbers: Range<u32>) {
        for number in numbers {
            let order = json!({"id": number.to_string(), "customer": format!("c{}", number % 7)});
            self.orders.upsert(&order).await.unwrap();
        }
    }

    pub(crate) fn builder(&self) -> ProcessorBuilder<Latest> {
        Processor::builder("mailer", &self.orders, &self.leases)
            .instance_name("a")
            .start_from(StartFrom::Beginning)
            .lease_timing(TIMING)
            .poll_interval(Duration::from_millis(100))
    }
}

/// Opens a container of the database `shop`.
pub(crate) async fn container(account: &Account, name: &'static str) -> Container {
    let account = account.clone();
    OnSdk::container(&on_sdk(async move { account.container("shop", name).await }).await.unwrap())
}
