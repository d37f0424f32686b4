//! One account, one name: leases of the same container under another account host are refused.

use changefeed::{
    Changes, Context, Processor, Running,
    core::{Container, Error, ErrorKind},
    embedded::{Engine, vfs::memory::MemoryDisk},
};
use serde_json::Value;

/// A store and its containers.
struct Shop {
    engine: Engine,
    orders: Container,
    leases: Container,
}

impl Shop {
    /// The store on `disk`, known by this name.
    async fn known_as(host: &str, disk: &MemoryDisk) -> Self {
        let engine = Engine::builder().account_host(host).open_on(disk.clone()).expect("open");
        let database = engine.database("shop");
        let orders = database.container("orders").partition_key("/customer").open_or_create().await.expect("orders");
        let leases = database.container("leases").open_or_create().await.expect("leases");
        Self { engine, orders, leases }
    }

    /// A host of the processor `name`.
    async fn host(&self, name: &str) -> Result<Running, Error> {
        let processor = Processor::builder(name, &self.orders, &self.leases).instance_name("worker-1");
        processor.build(|_: Changes<Value>, _: Context| async { Ok(()) })?.start().await
    }
}

#[tokio::test(start_paused = true)]
async fn leases_of_the_same_container_under_another_account_host_are_refused() {
    let disk = MemoryDisk::new();
    let shop = Shop::known_as("localhost", &disk).await;
    shop.host("mailer").await.expect("start").stop().await.expect("stop");
    shop.host("mailer").await.expect("start again").stop().await.expect("stop");
    shop.engine.close().await.expect("close");

    let shop = Shop::known_as("shop.example.com", &disk).await;
    let error = shop.host("mailer").await.expect_err("two names for one account");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for part in ["under the account host localhost", "is called shop.example.com here", "--account-host localhost"] {
        assert!(error.message().contains(part), "{error}");
    }
    // Names that begin alike are other processors.
    for name in ["mail", "mailer2"] {
        shop.host(name).await.expect("start").stop().await.expect("stop");
    }
    shop.engine.close().await.expect("close");

    let shop = Shop::known_as("localhost", &disk).await;
    shop.host("mailer").await.expect("the old name").stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn leases_of_another_store_under_another_account_host_are_no_concern() {
    let shop = Shop::known_as("one.example.com", &MemoryDisk::new()).await;
    let other = Shop::known_as("two.example.com", &MemoryDisk::new()).await;
    assert_eq!(shop.orders.identity().container, other.orders.identity().container, "resource ids are equal");
    shop.host("mailer").await.expect("start").stop().await.expect("stop");
    let other = Shop { leases: shop.leases.clone(), ..other };
    other.host("mailer").await.expect("start").stop().await.expect("stop");
}
