//! Answers that do not come from a server of this version, and servers that are not the one they were.

use std::time::Duration;

use changefeed_core::{Effect, ErrorKind};
use changefeed_embedded::Engine;
use changefeed_remote::{EMULATOR_KEY, Server as Client};
use serde_json::json;

use crate::{
    says,
    support::{Echo, Served, orders},
};

async fn error_of(echo: &Echo) -> changefeed_core::Error {
    let client = Client::builder(&echo.endpoint, EMULATOR_KEY).retries(0).connect().unwrap();
    client.database("shop").container("orders").create().await.unwrap_err()
}

#[tokio::test]
async fn html_from_a_proxy_is_told_apart_from_an_answer() {
    for status in ["200 OK", "404 Not Found", "502 Bad Gateway"] {
        let echo = Echo::start(status, "content-type: text/html\r\n", "<html>Welcome to the proxy</html>").await;
        let error = error_of(&echo).await;
        says(&error, ErrorKind::Unavailable, &["does not come from a changefeed server", "Welcome", status]);
        assert_eq!(error.effect(), Effect::Unknown, "the proxy may have passed it on");
    }
}

#[tokio::test]
async fn a_server_without_these_calls_is_named_with_the_version_that_is_needed() {
    let headers = "x-ms-activity-id: 1\r\ncontent-type: application/json\r\n";
    let echo = Echo::start("404 Not Found", headers, r#"{"code":"NotFound","message":"nothing"}"#).await;
    let error = error_of(&echo).await;
    let version = env!("CARGO_PKG_VERSION");
    says(&error, ErrorKind::Unsupported, &["does not offer the calls of this client", version, "says: nothing"]);
    assert_eq!(error.effect(), Effect::None);
}

/// Both sides name their calls: versions that were not published have the same number.
#[tokio::test]
async fn a_server_of_another_protocol_names_its_own_calls() {
    let served = Served::start().await;
    let client = served.client();
    let refused = client.admin_call("POST", "v0/watch", Vec::new(), Duration::from_secs(10)).await;
    let error = refused.unwrap_err();
    assert!(error.message().contains("calls of v"), "{error}");
}

/// A client whose messages are others although its calls have the same number.
#[tokio::test]
async fn a_server_that_cannot_read_a_request_names_the_versions_and_the_fix() {
    let served = Served::start().await;
    served.orders().await;
    let client = served.client();
    for call in ["watch", "catalog/create_database", "shop/orders/write", "shop/orders/read_item"] {
        let call = format!("{}/{call}", changefeed_protocol::VERSION);
        let refused = client.admin_call("POST", &call, b"rubbish".to_vec(), Duration::from_secs(10)).await;
        let error = refused.unwrap_err();
        let parts = ["cannot read the request: build client and server", env!("CARGO_PKG_VERSION"), "calls of v3"];
        says(&error, ErrorKind::Unsupported, &parts);
        assert_eq!(error.effect(), Effect::None, "{call}");
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_an_error_not_a_panic() {
    for (status, body) in [("200 OK", ""), ("200 OK", "\u{1}\u{2}rubbish"), ("400 Bad Request", "rubbish")] {
        let echo = Echo::start(status, "content-type: application/vnd.changefeed.v1\r\n", body).await;
        says(&error_of(&echo).await, ErrorKind::Unavailable, &["cannot be read", "calls of v3", "the same version"]);
    }
}

#[tokio::test]
async fn a_container_that_was_created_again_is_not_taken_for_the_old_one() {
    let served = Served::start().await;
    let client = served.client();
    let old = orders(&client).await;
    old.create(&json!({"id": "1"})).await.unwrap();
    client.catalog().delete_container("shop", "orders").await.unwrap();
    let error = old.read_item("1", "1").await.unwrap_err();
    says(&error, ErrorKind::ContainerNotFound, &["orders"]);
    let new = orders(&client).await;
    let error = old.create(&json!({"id": "2"})).await.unwrap_err();
    says(&error, ErrorKind::ContainerNotFound, &["shop/orders was deleted and created again: open it again"]);
    assert_eq!(error.effect(), Effect::None);
    new.create(&json!({"id": "2"})).await.unwrap();
}

#[tokio::test]
async fn another_store_at_the_same_address_is_not_taken_for_the_old_one() {
    let served = Served::start().await;
    let old = orders(&served.client()).await;
    old.create(&json!({"id": "1"})).await.unwrap();
    let (engine, address) = (served.engine.clone(), served.server.address());
    served.server.stop().await;
    let other = Served::with_engine(Engine::in_memory().unwrap(), address).await;
    let new = other.orders().await;
    assert_eq!(new.identity().container, old.identity().container, "resource ids are equal");
    let error = old.read_item("1", "1").await.unwrap_err();
    says(&error, ErrorKind::Unavailable, &["this server serves store", "start the server with the folder that it had"]);
    other.server.stop().await;
    // The right store is back: nothing has to be restarted.
    let _served = Served::with_engine(engine, address).await;
    assert_eq!(old.read_item("1", "1").await.unwrap().id.as_str(), "1");
}
