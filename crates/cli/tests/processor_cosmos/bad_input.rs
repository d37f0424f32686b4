//! What is wrong with an account from the start, a clock that is off, and a lease container that is throttled while the feed
//! is not. `recovery.rs` has what goes wrong later: keys, endpoints, containers that are created again.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, UNIX_EPOCH},
};

use changefeed::{
    core::{ErrorKind, Item, Timestamp},
    remote::EMULATOR_KEY,
    runtime::{BoxFuture, Runtime, TokioRuntime},
};
use changefeed_cosmos::{Account, Credential};
use serde_json::Value;

use crate::{
    process::run,
    shop::{Seen, Shop, pass, start, until},
    stage::WRONG,
    support::on_sdk,
};

const OTHER_KEY: &str = "ZmVkY2JhOTg3NjU0MzIxMA==";

async fn connect(endpoint: String, key: &'static str) -> changefeed::core::Result<Account> {
    on_sdk(async move { Account::connect(&endpoint, Credential::Key(key.to_owned())).await }).await
}

#[tokio::test]
async fn a_wrong_key_at_the_start_is_named() {
    let shop = Shop::new(1).await;
    let error = connect(shop.server.endpoint(), OTHER_KEY).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden, "{error:?}");
    let message = error.to_string();
    assert!(message.contains(&shop.server.endpoint()) && message.contains("(401): check key"), "{message}");
}

#[tokio::test]
async fn a_database_or_container_that_is_missing_is_named_and_found_once_it_is_there() {
    let shop = Shop::new(1).await;
    let account = connect(shop.server.endpoint(), EMULATOR_KEY).await.unwrap();
    for (database, container, kind, hint) in [
        ("shop", "archive", ErrorKind::ContainerNotFound, "it does not exist, or was deleted; check database and name"),
        (
            "archive",
            "orders",
            ErrorKind::DatabaseNotFound,
            "its database does not exist, or was deleted; check the name",
        ),
    ] {
        let own = account.clone();
        let error = on_sdk(async move { own.container(database, container).await }).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        let message = error.to_string();
        assert!(message.contains(&format!("open container {database}/{container}")), "{message}");
        assert!(message.contains(hint), "{message}");
    }
    shop.database().container("archive").create().await.unwrap();
    on_sdk(async move { account.container("shop", "archive").await }).await.unwrap();
}

/// A machine whose time of day is off.
#[derive(Debug)]
struct Skewed {
    inner: Arc<dyn Runtime>,
    millis: i64,
}

impl Runtime for Skewed {
    fn monotonic(&self) -> Duration {
        self.inner.monotonic()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(self.inner.wall().as_millis().saturating_add_signed(self.millis))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.inner.sleep(duration)
    }

    fn spawn(&self, name: &str, task: BoxFuture<'static, ()>) -> tokio::task::JoinHandle<()> {
        self.inner.spawn(name, task)
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }
}

/// How far the `timestamp` of each owned lease, by which .NET judges, is from the time at which the store has written it.
async fn differences(shop: &Shop) -> Vec<Duration> {
    let documents = shop.leases.list("mailer").await.unwrap();
    let difference = |item: &Item| {
        let lease: Value = item.parse().unwrap();
        lease["Owner"].as_str()?;
        let written = humantime::parse_rfc3339_weak(lease["timestamp"].as_str()?).unwrap();
        let stored = UNIX_EPOCH + Duration::from_millis(item.timestamp.as_millis());
        Some(written.duration_since(stored).unwrap_or_else(|earlier| earlier.duration()))
    };
    documents.iter().filter_map(difference).collect()
}

#[tokio::test]
async fn a_host_whose_clock_is_off_by_ten_minutes_writes_the_time_of_the_store() {
    for millis in [-600_000, 600_000] {
        let (shop, seen) = (Shop::new(2).await, Seen::default());
        shop.write(0..20, 1).await;
        let runtime = Arc::new(Skewed { inner: TokioRuntime::new(), millis });
        let running = start(shop.builder("a").runtime(runtime), &seen).await;
        until("delivery", || seen.distinct() >= 20).await;
        until("two leases", || seen.leases() == 2).await;
        // Through several renewals.
        for _ in 0..5 {
            let differences = differences(&shop).await;
            assert_eq!(differences.len(), 2);
            for difference in differences {
                assert!(difference < Duration::from_secs(10), "clock off by {millis} ms: {difference:?}");
            }
            pass(Duration::from_millis(500)).await;
        }
        shop.write(20..40, 1).await;
        until("delivery", || seen.distinct() >= 40).await;
        running.stop().await.unwrap();
        assert_eq!(seen.len(), 40);
    }
}

/// Changes `count` answers of the lease container, and of nothing else, into 429.
fn throttle_leases(shop: &Shop, count: &str) {
    let endpoint = shop.server.endpoint();
    let fault = ["fault", "--store", &endpoint, "--status", "429", "--substatus", "3200", "--count", count];
    assert!(run(&[&fault[..], &["--path-contains", "colls/leases/docs"]].concat()).status.success());
}

#[tokio::test]
async fn a_lease_container_that_is_throttled_alone_delays_and_loses_nothing() {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    let errors = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&errors);
    let builder = shop.builder("a").on_error(move |report| own.lock().unwrap().push(report.failure.to_string()));
    let running = start(builder, &seen).await;
    shop.write(0..20, 1).await;
    until("delivery", || seen.distinct() >= 20).await;
    throttle_leases(&shop, "100000");
    shop.write(20..40, 1).await;
    let said = |part: &str| errors.lock().unwrap().iter().any(|error| error.contains(part));
    until("the sentence", || said("429/3200")).await;
    let before = errors.lock().unwrap().len();
    pass(WRONG).await;
    let more = errors.lock().unwrap().len() - before;
    assert!(more < 40, "{more} errors in {WRONG:?} are no back-off");
    assert!(!said("read changes of shop/orders"), "{:?}", errors.lock().unwrap());
    assert!(run(&["fault", "--store", &shop.server.endpoint(), "--clear"]).status.success());
    shop.write(40..60, 1).await;
    until("delivery", || seen.distinct() >= 60).await;
    running.stop().await.unwrap();
    // What was checkpointed while the container was throttled has been stored since.
    let second = Seen::default();
    let running = shop.host("b", &second).await;
    shop.write(60..70, 1).await;
    until("delivery", || second.distinct() >= 10).await;
    running.stop().await.unwrap();
    assert_eq!(second.len(), 10, "{:?}", second.ids());
}
