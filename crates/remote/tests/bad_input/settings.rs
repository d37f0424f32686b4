//! Keys, endpoints and clocks.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use changefeed_core::{Clock as _, Effect, ErrorKind, SystemClock};
use changefeed_embedded::Engine;
use changefeed_remote::{EMULATOR_KEY, Server as Client};
use changefeed_server::{Server, auth::Keys};
use changefeed_testkit::clock::TestClock;
use serde_json::json;

use crate::{
    says,
    support::{ANY_PORT, Echo, Served, orders},
};

#[tokio::test]
async fn a_wrong_key_is_refused_with_where_to_find_the_right_one() {
    let served = Served::start().await;
    let wrong = Client::connect(&served.server.endpoint(), "d3Jvbmcga2V5IGZvciB0aGlz").unwrap();
    let error = wrong.database("shop").container("orders").open().await.unwrap_err();
    says(&error, ErrorKind::Forbidden, &["does not accept the key", "EMULATOR_KEY", "--key-file"]);
    assert_eq!(error.effect(), Effect::None);
}

#[tokio::test]
async fn a_key_that_is_not_base64_is_refused_before_anything_is_sent() {
    let error = Client::connect("http://localhost:1", "not base64!").unwrap_err();
    says(&error, ErrorKind::InvalidArgument, &["the key is not base64"]);
}

#[tokio::test]
async fn a_key_that_may_only_read_reads_and_is_refused_to_write() {
    let served = Served::start().await;
    let full = served.orders().await;
    full.create(&json!({"id": "1"})).await.unwrap();
    let both = format!("{EMULATOR_KEY}\nread-only ZmVkY2JhOTg3NjU0MzIxMA==\n");
    served.server.set_keys(Keys::parse(&both).unwrap()).unwrap();
    let reader = Client::connect(&served.server.endpoint(), "ZmVkY2JhOTg3NjU0MzIxMA==").unwrap();
    let orders = reader.database("shop").container("orders").open().await.unwrap();
    assert_eq!(orders.read_item("1", "1").await.unwrap().id.as_str(), "1");
    assert_eq!(orders.feed_ranges().await.unwrap().len(), 1);
    let error = orders.create(&json!({"id": "2"})).await.unwrap_err();
    says(&error, ErrorKind::Forbidden, &["permits reads only"]);
}

#[tokio::test]
async fn an_endpoint_where_nothing_listens_is_named_with_what_to_start() {
    let echo = Echo::start("200 OK", "", "").await;
    let endpoint = echo.endpoint.clone();
    drop(echo);
    let client = Client::builder(&endpoint, EMULATOR_KEY).start_timeout(Duration::ZERO).connect().unwrap();
    let error = client.database("shop").container("orders").open().await.unwrap_err();
    says(&error, ErrorKind::Unavailable, &["nothing listens at", &endpoint, "start `changefeed serve`"]);
}

/// A program that is started together with its server.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a server that is started later is so in real time")]
async fn a_server_that_is_started_later_is_waited_for() {
    let echo = Echo::start("200 OK", "", "").await;
    let address: SocketAddr = echo.endpoint.trim_start_matches("http://").parse().unwrap();
    drop(echo);
    // Without end, as far as this test is concerned.
    let client = Client::builder(&format!("http://{address}"), EMULATOR_KEY).start_timeout(Duration::from_secs(3600));
    let client = client.connect().unwrap();
    let starting = async {
        // Longer than the retries of a call take.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let engine = Engine::in_memory().unwrap();
        Server::builder(engine.catalog()).listen(address).start().await.unwrap()
    };
    let (orders, server) = tokio::join!(client.database("shop").container("orders").open_or_create(), starting);
    let orders = orders.unwrap();
    orders.create(&json!({"id": "1"})).await.unwrap();
    // It is known now: calls fail as soon as their retries are used up.
    server.stop().await;
    let error = orders.read_item("1", "1").await.unwrap_err();
    says(&error, ErrorKind::Unavailable, &["nothing listens at"]);
}

#[tokio::test]
async fn a_host_that_does_not_exist_is_named() {
    let client = Client::builder("http://no-such-host.invalid:8081", EMULATOR_KEY)
        .start_timeout(Duration::ZERO)
        .connect()
        .unwrap();
    let error = client.database("shop").container("orders").open().await.unwrap_err();
    says(&error, ErrorKind::Unavailable, &["there is no host no-such-host.invalid"]);
}

#[tokio::test]
async fn a_server_that_goes_away_is_named_and_used_again_when_it_is_back() {
    let served = Served::start().await;
    let client = served.client();
    let orders = orders(&client).await;
    orders.create(&json!({"id": "1"})).await.unwrap();
    let (engine, address) = (served.engine.clone(), served.server.address());
    served.server.stop().await;
    let error = orders.create(&json!({"id": "2"})).await.unwrap_err();
    says(&error, ErrorKind::Unavailable, &["nothing listens at"]);
    assert_eq!(error.effect(), Effect::None, "it never left this machine");
    let _served = Served::with_engine(engine, address).await;
    orders.create(&json!({"id": "2"})).await.unwrap();
}

#[tokio::test]
async fn a_clock_that_is_off_by_an_hour_is_named_with_its_distance() {
    let engine = changefeed_embedded::Engine::in_memory().unwrap();
    let clock = TestClock::new();
    let now = SystemClock.wall();
    clock.advance(Duration::from_millis(now.as_millis().saturating_sub(clock.wall().as_millis())));
    clock.advance(Duration::from_secs(3600));
    let server = Server::builder(engine.catalog()).listen(ANY_PORT).start().await.unwrap();
    let client = Client::builder(&server.endpoint(), EMULATOR_KEY).clock(Arc::new(clock)).connect().unwrap();
    let error = client.database("shop").container("orders").open().await.unwrap_err();
    says(&error, ErrorKind::Forbidden, &["the clock of this machine is", "minutes ahead of", "NTP"]);
}

#[tokio::test]
async fn a_timeout_of_nothing_is_refused() {
    let error = Client::builder("http://localhost:1", EMULATOR_KEY).timeout(Duration::ZERO).connect().unwrap_err();
    says(&error, ErrorKind::InvalidArgument, &["a timeout is zero"]);
}
