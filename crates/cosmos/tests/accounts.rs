//! Accounts as they are: several write regions, weak consistency, lifetimes, wrong keys, nobody there. Where the server
//! cannot show an account, a small one beside it answers for the account.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "those of the SDK are, and a test has room for them")]

#[path = "support/front.rs"]
mod front;
#[path = "support/http.rs"]
mod http;
mod support;

use std::{sync::Arc, time::Duration};

use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use changefeed_core::{
    Catalog, ContainerSpec, DatabaseSpec, Epk, ErrorKind, PartitionKeyDefinition, RangeId, Result, TimeToLive,
    async_trait,
};
use changefeed_cosmos::{Account, AccountProperties, Consistency, CosmosContainer, Credential, Options};
use changefeed_embedded::Engine;
use changefeed_server::Server;
use front::{Front, account};
use serde_json::json;
use support::{KEY, OnSdk, connect, on_sdk};
use tokio::net::TcpListener;

struct Stage {
    engine: Engine,
    server: Server,
}

impl Stage {
    async fn new() -> Self {
        let engine = Engine::in_memory().unwrap();
        let server = Server::builder(engine.catalog()).listen(([127, 0, 0, 1], 0).into()).start().await.unwrap();
        engine.catalog().create_database(DatabaseSpec::new("shop")).await.unwrap();
        let stage = Self { engine, server };
        stage.create("leases", TimeToLive::Off).await;
        stage
    }

    async fn create(&self, name: &str, time_to_live: TimeToLive) {
        let spec = ContainerSpec { time_to_live, ..ContainerSpec::new(name, PartitionKeyDefinition::id()) };
        self.engine.catalog().create_container("shop", spec).await.unwrap();
    }

    /// Something that says that the account is this one, and that its regions are at the server.
    async fn front(&self, regions: &[&str], multiple: bool, consistency: &str) -> Front {
        let regions: Vec<_> = regions.iter().map(|region| (*region, self.server.endpoint())).collect();
        Front::start(account(&regions, multiple, consistency)).await
    }
}

impl Stage {
    /// Opens a container for leases. The client talks to the server, which `account` has as the endpoint of its regions; what
    /// the account is, `account` says.
    async fn open(&self, account: &str, options: Options, name: &'static str) -> Result<changefeed_core::Container> {
        let (client, account) = (connect(self.server.endpoint()).await.client(), account.to_owned());
        let opened = on_sdk(async move {
            let properties = AccountProperties::read(&account, &Credential::Key(KEY.to_owned())).await?;
            CosmosContainer::open_leases(&client, "shop", name, &properties, options).await
        });
        Ok(OnSdk::container(&opened.await?))
    }
}

#[tokio::test]
async fn the_server_is_an_account_with_one_region_and_session_consistency() {
    let stage = Stage::new().await;
    let account = connect(stage.server.endpoint()).await;
    let properties = account.properties();
    assert_eq!((properties.has_multiple_write_regions, properties.consistency), (false, Consistency::Session));
    assert_eq!((properties.write_regions.len(), properties.regions.len()), (1, 1));
    let leases = stage.open(&stage.server.endpoint(), Options::new(), "leases").await.unwrap();
    leases.create(&json!({"id": "1"})).await.unwrap();
}

#[tokio::test]
async fn leases_are_refused_in_an_account_with_several_write_regions_unless_one_is_pinned() {
    let stage = Stage::new().await;
    let front = stage.front(&["West Europe", "North Europe"], true, "Session").await;
    let error = stage.open(&front.endpoint, Options::new(), "leases").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("several regions (West Europe, North Europe)"), "{error}");
    let account = connect(front.endpoint.clone()).await.options(Options::new().write_region("North Europe"));
    let leases = on_sdk(async move { account.lease_container("shop", "leases").await }).await.unwrap();
    let leases = OnSdk::container(&leases);
    let written = leases.create(&json!({"id": "1"})).await.unwrap();
    leases.replace_if(&json!({"id": "1", "n": 2}), &written.etag.unwrap()).await.unwrap();
    // Several regions that are only read are fine.
    let front = stage.front(&["West Europe", "North Europe"], false, "Session").await;
    stage.open(&front.endpoint, Options::new(), "leases").await.unwrap();
}

#[tokio::test]
async fn leases_are_refused_in_an_account_with_weak_consistency() {
    let stage = Stage::new().await;
    for weak in ["Eventual", "ConsistentPrefix"] {
        let front = stage.front(&["West Europe"], false, weak).await;
        let error = stage.open(&front.endpoint, Options::new(), "leases").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("set it to Session or stronger"), "{error}");
    }
    for good in ["Strong", "BoundedStaleness"] {
        let front = stage.front(&["West Europe"], false, good).await;
        stage.open(&front.endpoint, Options::new(), "leases").await.unwrap();
    }
}

/// Orders and leases may be in two accounts: those of the leases count.
#[tokio::test]
async fn the_properties_of_another_account_are_refused() {
    let stage = Stage::new().await;
    let orders = stage.front(&["West Europe"], false, "Session").await;
    let leases = stage.front(&["West Europe", "North Europe"], true, "Session").await;
    let client = connect(leases.endpoint.clone()).await.client();
    let open = |account: &str| {
        let (client, account) = (client.clone(), account.to_owned());
        on_sdk(async move {
            let properties = AccountProperties::read(&account, &Credential::Key(KEY.to_owned())).await?;
            let options = Options::new().write_region("West Europe");
            CosmosContainer::open_leases(&client, "shop", "leases", &properties, options).await
        })
    };
    let refused = open(&orders.endpoint).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    let sentence = format!(
        "those of {}/, and the lease container is in {leases}/: read them with AccountProperties::read(\"{leases}/\", …)",
        orders.endpoint,
        leases = leases.endpoint
    );
    assert!(refused.message().contains(&sentence), "{refused}");
    open(&leases.endpoint).await.unwrap();
    // Written in another way, it is the same endpoint.
    open(&leases.endpoint.replace("http://", "HTTP://")).await.unwrap();
}

#[tokio::test]
async fn leases_are_refused_in_a_container_that_deletes_them() {
    let stage = Stage::new().await;
    stage.create("short", TimeToLive::Seconds(60)).await;
    stage.create("some", TimeToLive::ItemsOnly).await;
    let error = stage.open(&stage.server.endpoint(), Options::new(), "short").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("deletes items after 60 s (defaultTtl)"), "{error}");
    stage.open(&stage.server.endpoint(), Options::new(), "some").await.unwrap();
}

#[tokio::test]
async fn a_missing_container_and_a_missing_database_say_so() {
    let stage = Stage::new().await;
    let error = stage.open(&stage.server.endpoint(), Options::new(), "nowhere").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContainerNotFound, "{error:?}");
    assert!(error.message().contains("open container shop/nowhere"), "{error}");
}

#[tokio::test]
async fn a_wrong_key_says_so() {
    let stage = Stage::new().await;
    let endpoint = stage.server.endpoint();
    let wrong = Credential::Key("ZmVkY2JhOTg3NjU0MzIxMA==".to_owned());
    let error = on_sdk(async move { Account::connect(&endpoint, wrong).await }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    assert!(error.message().contains("the credential is not accepted (401)"), "{error}");
    let endpoint = stage.server.endpoint();
    let odd = Credential::Key("no base64!".to_owned());
    let error = on_sdk(async move { Account::connect(&endpoint, odd).await }).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidArgument, "the key of the account is not base64"));
}

#[tokio::test]
async fn an_account_that_cannot_be_reached_says_so() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let credential = || Credential::Key(KEY.to_owned());
    let error = on_sdk(async move { AccountProperties::read(&endpoint, &credential()).await }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let error = AccountProperties::read("not a url", &credential()).await.unwrap_err();
    assert!(error.message().contains("is not a URL"), "{error}");
    let front = Front::start(json!({"hello": "world"})).await;
    let error = on_sdk(async move { AccountProperties::read(&front.endpoint, &credential()).await }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
}

/// A credential that never answers, such as one that waits for a metadata endpoint that drops packets.
#[derive(Debug)]
struct Unanswered;

#[async_trait]
impl TokenCredential for Unanswered {
    async fn get_token(&self, _: &[&str], _: Option<TokenRequestOptions<'_>>) -> azure_core::Result<AccessToken> {
        std::future::pending().await
    }
}

/// Two minutes of the paused clock, so that a call without a limit fails the test.
#[expect(clippy::disallowed_methods, reason = "the clock of the limit is the one that is paused")]
async fn in_two_minutes<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), call).await.expect("an answer in two minutes")
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_never_answers_is_a_timeout() {
    let credential = || Credential::Token(Arc::new(Unanswered));
    let endpoint = "https://shop.documents.azure.com";
    let error = in_two_minutes(AccountProperties::read(endpoint, &credential())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    assert!(error.message().contains("no token in 60s"), "{error}");
    let error = in_two_minutes(Account::connect(endpoint, credential())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
}

/// Databases and containers through the SDK alone.
#[tokio::test]
async fn databases_and_containers_are_created_listed_changed_and_deleted() {
    let stage = Stage::new().await;
    let account = connect(stage.server.endpoint()).await;
    on_sdk(async move {
        let catalog = account.catalog();
        catalog.create_database(DatabaseSpec::new("more")).await.unwrap();
        let again = catalog.create_database(DatabaseSpec::new("more")).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        let names: Vec<_> = catalog.list_databases().await.unwrap().into_iter().map(|info| info.name).collect();
        assert_eq!(names, ["more", "shop"]);
        let mut spec = ContainerSpec::new("items", PartitionKeyDefinition::hierarchical(["/a", "/b"]).unwrap());
        spec.time_to_live = TimeToLive::Seconds(90);
        catalog.create_container("more", spec.clone()).await.unwrap();
        let listed = catalog.list_containers("more").await.unwrap();
        assert_eq!((listed.len(), &listed[0].spec.partition_key), (1, &spec.partition_key));
        assert_eq!(listed[0].spec.time_to_live, TimeToLive::Seconds(90));
        spec.time_to_live = TimeToLive::Off;
        spec.all_versions_retention = Some(std::time::Duration::from_secs(600));
        let replaced = catalog.replace_container("more", spec.clone()).await.unwrap();
        assert_eq!(
            (replaced.spec.time_to_live, replaced.spec.all_versions_retention),
            (TimeToLive::Off, spec.all_versions_retention)
        );
        catalog.container("more", "items").await.unwrap();
        unsupported(&*catalog).await;
        catalog.delete_container("more", "items").await.unwrap();
        let gone = catalog.container("more", "items").await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::ContainerNotFound);
        catalog.delete_database("more").await.unwrap();
        let gone = catalog.delete_database("more").await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::DatabaseNotFound);
    })
    .await;
}

/// What the service does by its own decision.
async fn unsupported(catalog: &dyn Catalog) {
    let zero = RangeId::from(0);
    let split = catalog.split("more", "items", &zero, None::<Epk>).await.unwrap_err();
    let merge = catalog.merge("more", "items", [&zero, &zero]).await.unwrap_err();
    let mut several = ContainerSpec::new("several", PartitionKeyDefinition::id());
    several.ranges = 3;
    let several = catalog.create_container("more", several).await.unwrap_err();
    for error in [split, merge, several] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    }
}
