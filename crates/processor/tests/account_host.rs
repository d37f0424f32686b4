//! One account, one name: leases of the same container under another account host are refused.

use std::{fmt, sync::Arc};

use changefeed::{
    Changes, Context, Explain, Processor, Running,
    core::{
        Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, Error, ErrorKind,
        FeedRange, Item, ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, StoreId, TimeToLive,
        WriteResult, async_trait,
    },
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
        Self::of_engine(Engine::builder().account_host(host).open_on(disk.clone()).expect("open")).await
    }

    /// As [`Shop::known_as`], and with this id.
    async fn of_store(host: &str, id: StoreId, disk: &MemoryDisk) -> Self {
        Self::of_engine(Engine::builder().account_host(host).store_id(id).open_on(disk.clone()).expect("open")).await
    }

    async fn of_engine(engine: Engine) -> Self {
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
    // Tools say the same, not that the processor was never started.
    let error = Explain::new("mailer", &shop.orders, &shop.leases).leases().await.expect_err("another name");
    assert!(error.message().contains("under the account host localhost"), "{error}");
    // Names that begin alike are other processors.
    for name in ["mail", "mailer2"] {
        shop.host(name).await.expect("start").stop().await.expect("stop");
    }
    shop.engine.close().await.expect("close");

    let shop = Shop::known_as("localhost", &disk).await;
    shop.host("mailer").await.expect("the old name").stop().await.expect("stop");
}

/// Leases that hosts of .NET created: they name the account host in the id only.
#[tokio::test(start_paused = true)]
async fn leases_of_dotnet_under_another_account_host_are_refused() {
    for (other, refused) in [("127.0.0.1", true), ("[::1]", true), ("longer-name.example.com", false)] {
        let shop = Shop::known_as("localhost", &MemoryDisk::new()).await;
        let ContainerIdentity { database, container, .. } = shop.orders.identity();
        let id = format!("mailer{other}_{database}_{container}.info");
        shop.leases.create(&serde_json::json!({"id": id})).await.expect("create");
        match shop.host("mailer").await {
            Ok(running) => {
                running.stop().await.expect("stop");
                assert!(!refused, "{other}");
            }
            Err(error) => {
                assert!(refused, "{other}: {error}");
                assert!(error.message().contains(&format!("--account-host {other}")), "{error}");
            }
        }
        // Another processor is not concerned.
        shop.host("biller").await.expect("start").stop().await.expect("stop");
    }
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

/// Names are no proof of another store: an account has a name for each region, and a store that is known by its endpoint may
/// be one that others know by its id.
#[tokio::test(start_paused = true)]
async fn stores_that_are_known_by_name_only_are_told_apart_by_their_containers() {
    let named = |host: &'static str| StoreId::new(host).expect("an id");
    let random = StoreId::from_bits(7);
    for (first, second) in [
        ("shop.example.com", ("shop-westeurope.example.com", named("shop-westeurope.example.com"))),
        ("localhost", ("127.0.0.1", random)),
    ] {
        let (other, id) = second;
        let shop = Shop::of_store(first, named(first), &MemoryDisk::new()).await;
        shop.host("mailer").await.expect("start").stop().await.expect("stop");
        let renamed = Shop { leases: shop.leases.clone(), ..Shop::of_store(other, id, &MemoryDisk::new()).await };
        let error = renamed.host("mailer").await.expect_err("another name of the account");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(&format!("under the account host {first}")), "{error}");
    }
}

/// A container under another account host, whose requests take turns with those of others.
struct Renamed {
    inner: Arc<dyn Backend>,
    identity: ContainerIdentity,
}

impl Renamed {
    fn container(container: &Container, host: &str) -> Container {
        let identity = ContainerIdentity { account_host: host.into(), ..container.identity().clone() };
        Container::new(Arc::new(Self { inner: Arc::clone(container.backend()), identity }))
    }

    async fn turn(&self) -> &dyn Backend {
        tokio::task::yield_now().await;
        &*self.inner
    }
}

impl fmt::Debug for Renamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renamed")
    }
}

#[async_trait]
impl Backend for Renamed {
    fn identity(&self) -> &ContainerIdentity {
        &self.identity
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>, Error> {
        self.turn().await.feed_ranges().await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>, Error> {
        self.turn().await.read_changes(request).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.inner.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>, Error> {
        self.turn().await.read_item(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>, Error> {
        self.turn().await.write(batch).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>, Error> {
        self.turn().await.list_items(request).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>, Error> {
        self.turn().await.time_to_live().await
    }

    async fn reopen(&self) -> Result<Container, Error> {
        self.turn().await.reopen().await
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_first_starts_at_the_same_time_under_different_account_hosts_one_is_refused() {
    for round in 0..20 {
        let shop = Shop::known_as("localhost", &MemoryDisk::new()).await;
        let named = |host: &str| Shop {
            engine: shop.engine.clone(),
            orders: Renamed::container(&shop.orders, host),
            leases: Renamed::container(&shop.leases, host),
        };
        let (one, other) = (named("localhost"), named("shop.example.com"));
        // One of them may be some requests ahead.
        let ahead = async {
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            other.host("mailer").await
        };
        let (one, other) = tokio::join!(one.host("mailer"), ahead);
        let (started, refused) = match (one, other) {
            (Ok(started), Err(refused)) | (Err(refused), Ok(started)) => (started, refused),
            both => panic!("round {round}: {both:?}"),
        };
        assert!(refused.message().contains("hosts of both names would each process everything"), "{refused}");
        started.stop().await.expect("stop");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_another_account_host_whose_holder_died_delays_a_first_start_and_no_more() {
    let shop = Shop::known_as("localhost", &MemoryDisk::new()).await;
    let identity = shop.orders.identity();
    let id = format!("mailershop.example.com_{}_{}.lock", identity.database, identity.container);
    let properties = serde_json::json!({
        "cf.nonce": "0", "cf.store": identity.store.as_str(), "cf.accountHost": "shop.example.com"
    });
    shop.leases.create(&serde_json::json!({ "id": id, "properties": properties })).await.expect("the lock");
    shop.host("mailer").await.expect("start").stop().await.expect("stop");
}
