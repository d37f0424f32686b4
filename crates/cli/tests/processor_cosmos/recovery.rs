//! What goes wrong with an account while a host runs: a key that is rotated, an endpoint that cannot be reached. The error
//! says so, requests are few meanwhile, the host carries on by itself, and nothing is lost.

use std::time::Duration;

use changefeed::{
    core::ErrorKind,
    remote::{EMULATOR_KEY, Server as Client},
};

use crate::{
    shop::pass,
    stage::{Stage, WRONG},
    support::on_sdk,
};

const SECONDARY: &str = "ZmVkY2JhOTg3NjU0MzIxMA==";

/// The account has these keys from now on.
async fn keys(stage: &Stage, keys: &[&str]) {
    stage.folder.write("keys", &keys.join("\n"));
    stage.server().signal("HUP");
    // Its answers show that it has read them.
    stage.write(keys[keys.len() - 1], 0..0).await;
}

/// As the documentation says: the other key first, then the old one is replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_rotated_under_a_running_host_without_an_error() {
    let stage = Stage::new().await;
    keys(&stage, &[EMULATOR_KEY, SECONDARY]).await;
    let account = stage.connect().await;
    let running = stage.host(&account).await;
    stage.write(EMULATOR_KEY, 0..3).await;
    stage.delivers(2).await;
    let own = account.clone();
    on_sdk(async move { own.replace_key(SECONDARY).await }).await.unwrap();
    keys(&stage, &[SECONDARY]).await;
    stage.write(SECONDARY, 3..6).await;
    stage.delivers(5).await;
    pass(WRONG).await;
    running.stop().await.unwrap();
    assert_eq!(stage.seen.ids(), ["0", "1", "2", "3", "4", "5"]);
    let errors = stage.errors.lock().unwrap();
    assert!(errors.is_empty(), "the old key was used: {errors:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_revoked_is_named_and_the_host_carries_on_with_another() {
    let stage = Stage::new().await;
    let account = stage.connect().await;
    let running = stage.host(&account).await;
    stage.write(EMULATOR_KEY, 0..1).await;
    stage.delivers(0).await;
    keys(&stage, &[SECONDARY]).await;
    stage.write(SECONDARY, 1..3).await;
    stage.complains(&["read changes of shop/orders", "401", "check the key"]).await;
    let before = stage.errors.lock().unwrap().len();
    pass(WRONG).await;
    let errors = stage.errors.lock().unwrap().len() - before;
    assert!(errors < 12, "{errors} failed reads in {WRONG:?} are no back-off");
    assert_eq!(stage.seen.ids(), ["0"]);
    // A key that is wrong, too, is refused, and changes nothing.
    let own = account.clone();
    let refused = on_sdk(async move { own.replace_key("YWJj").await }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Forbidden, "{refused:?}");
    on_sdk(async move { account.replace_key(SECONDARY).await }).await.unwrap();
    stage.delivers(2).await;
    running.stop().await.unwrap();
    assert_eq!(stage.seen.ids(), ["0", "1", "2"]);
}

/// Without another key: the old one is accepted again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_put_back_is_enough_for_a_host_to_carry_on() {
    let stage = Stage::new().await;
    let running = stage.host(&stage.connect().await).await;
    keys(&stage, &[SECONDARY]).await;
    stage.write(SECONDARY, 0..2).await;
    stage.complains(&["read changes of shop/orders", "401", "check the key"]).await;
    keys(&stage, &[SECONDARY, EMULATOR_KEY]).await;
    stage.delivers(1).await;
    running.stop().await.unwrap();
    assert_eq!(stage.seen.ids(), ["0", "1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_cannot_be_reached_for_a_while_is_named_and_the_host_carries_on() {
    let mut stage = Stage::new().await;
    let running = stage.host(&stage.connect().await).await;
    stage.write(EMULATOR_KEY, 0..1).await;
    stage.delivers(0).await;
    stage.kill();
    stage.complains(&["read changes of shop/orders", "the account cannot be reached", "check its endpoint"]).await;
    let before = stage.errors.lock().unwrap().len();
    pass(WRONG).await;
    let errors = stage.errors.lock().unwrap().len() - before;
    assert!(errors < 12, "{errors} failed reads in {WRONG:?} are no back-off");
    stage.restart();
    stage.write(EMULATOR_KEY, 1..3).await;
    stage.delivers(2).await;
    running.stop().await.unwrap();
    assert_eq!(stage.seen.ids(), ["0", "1", "2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_is_created_again_is_named_and_the_host_carries_on() {
    let stage = Stage::new().await;
    let running = stage.host(&stage.connect().await).await;
    stage.write(EMULATOR_KEY, 0..1).await;
    stage.delivers(0).await;
    let client = Client::connect(&stage.endpoint(), EMULATOR_KEY).unwrap();
    client.catalog().delete_container("shop", "orders").await.unwrap();
    stage.complains(&["read changes of shop/orders", "404"]).await;
    client.database("shop").container("orders").create().await.unwrap();
    stage.write(EMULATOR_KEY, 1..3).await;
    stage.delivers(2).await;
    // So soon that hosts may not have seen that there was none.
    client.catalog().delete_container("shop", "orders").await.unwrap();
    client.database("shop").container("orders").create().await.unwrap();
    stage.write(EMULATOR_KEY, 3..5).await;
    stage.delivers(4).await;
    running.stop().await.unwrap();
    assert_eq!(stage.seen.ids(), ["0", "1", "2", "3", "4"]);
}

/// The SDK's client keeps its key for good, and no container could be opened with the other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_rotated_while_the_container_is_missing_counts_once_it_is_there_again() {
    let stage = Stage::new().await;
    keys(&stage, &[EMULATOR_KEY, SECONDARY]).await;
    let account = stage.connect().await;
    let running = stage.host(&account).await;
    stage.write(EMULATOR_KEY, 0..1).await;
    stage.delivers(0).await;
    let client = Client::connect(&stage.endpoint(), SECONDARY).unwrap();
    client.catalog().delete_container("shop", "orders").await.unwrap();
    let own = account.clone();
    on_sdk(async move { own.replace_key(SECONDARY).await }).await.unwrap();
    stage.folder.write("keys", SECONDARY);
    stage.server().signal("HUP");
    let old = Client::connect(&stage.endpoint(), EMULATOR_KEY).unwrap().database("shop");
    while old.container("orders").open().await.unwrap_err().kind() == ErrorKind::ContainerNotFound {
        pass(Duration::from_millis(20)).await;
    }
    client.database("shop").container("orders").create().await.unwrap();
    stage.write(SECONDARY, 1..3).await;
    stage.delivers(2).await;
    running.stop().await.unwrap();
    assert_eq!(stage.seen.ids(), ["0", "1", "2"]);
}

/// The first start fails with a sentence; once the account is there, the same program works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_cannot_be_reached_at_the_start_says_so() {
    let mut stage = Stage::new().await;
    stage.write(EMULATOR_KEY, 0..1).await;
    stage.kill();
    let endpoint = stage.endpoint();
    let credential = changefeed_cosmos::Credential::Key(EMULATOR_KEY.to_owned());
    let refused = on_sdk(async move { changefeed_cosmos::Account::connect(&endpoint, credential).await }).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.message().contains(&format!("read the account at {}", stage.endpoint())), "{error}");
    stage.restart();
    let running = stage.host(&stage.connect().await).await;
    stage.delivers(0).await;
    running.stop().await.unwrap();
}
