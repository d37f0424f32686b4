//! What the client does when requests are refused, lost, cut or delayed on their way, through a proxy on real sockets.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use changefeed_core::{Batch, Container, Effect, Error, ErrorKind, FeedRange, ReadChanges, StartFrom, Write};
use changefeed_embedded::Engine;
use changefeed_remote::{EMULATOR_KEY, Server as Client};
use serde_json::json;
use support::{
    Served, orders,
    proxy::{Fault, Proxy},
};

/// A server, a proxy in front of it, and a container behind both.
struct Stage {
    served: Served,
    proxy: Proxy,
    orders: Container,
}

impl Stage {
    async fn new() -> Self {
        Self::with_timeout(Duration::from_secs(10)).await
    }

    async fn with_timeout(timeout: Duration) -> Self {
        let served = Served::start().await;
        let proxy = Proxy::start(served.server.address());
        let client = Client::builder(&proxy.endpoint(), EMULATOR_KEY).timeout(timeout).connect().unwrap();
        let orders = orders(&client).await;
        Self { served, proxy, orders }
    }

    /// How many versions of items have been written, without the proxy.
    async fn commits(&self) -> u64 {
        let direct = self.served.orders().await;
        let page = direct.read_changes(ReadChanges::new(FeedRange::full(), StartFrom::Now)).await.unwrap();
        // The first write of a container has LSN 2.
        page.newest_lsn.get() - 1
    }
}

/// What may be repeated: reads, whatever happened to them.
#[tokio::test]
async fn a_read_is_repeated_whatever_happened_to_it() {
    let stage = Stage::new().await;
    stage.orders.create(&json!({"id": "1", "text": "a".repeat(100)})).await.unwrap();
    for fault in [Fault::Refused(429), Fault::Refused(503), Fault::DroppedBefore, Fault::DroppedAfter, Fault::Half] {
        let before = stage.proxy.count("read_item");
        stage.proxy.inject("read_item", fault, 2);
        assert_eq!(stage.orders.read_item("1", "1").await.unwrap().id.as_str(), "1", "{fault:?}");
        assert_eq!(stage.proxy.count("read_item") - before, 3, "{fault:?}");
    }
}

#[tokio::test]
async fn a_read_is_not_repeated_without_end() {
    let stage = Stage::new().await;
    stage.proxy.inject("feed_ranges", Fault::Refused(503), usize::MAX);
    let error = stage.orders.feed_ranges().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error:?}");
    assert_eq!(stage.proxy.count("feed_ranges"), 4, "once, and three repetitions");
}

#[tokio::test]
async fn a_throttled_write_waits_as_long_as_it_is_told_and_happens_once() {
    let stage = Stage::new().await;
    stage.proxy.inject("write", Fault::Refused(429), 2);
    stage.orders.upsert(&json!({"id": "1"})).await.unwrap();
    assert_eq!((stage.proxy.count("write"), stage.commits().await), (3, 1));
    stage.proxy.inject("write", Fault::Refused(429), usize::MAX);
    let error = stage.orders.upsert(&json!({"id": "1"})).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Throttled, Effect::None));
    assert_eq!(error.retry_after(), Some(Duration::from_millis(30)));
    assert_eq!(stage.commits().await, 1);
}

#[tokio::test]
async fn a_write_without_condition_is_never_repeated_when_its_outcome_is_unknown() {
    let stage = Stage::new().await;
    for fault in [Fault::DroppedBefore, Fault::DroppedAfter, Fault::Half, Fault::Refused(503), Fault::Refused(408)] {
        let (sent, commits) = (stage.proxy.count("write"), stage.commits().await);
        stage.proxy.inject("write", fault, 1);
        let error = stage.orders.upsert(&json!({"id": "1"})).await.unwrap_err();
        assert_eq!(error.effect(), Effect::Unknown, "{fault:?}: {error:?}");
        assert_eq!(stage.proxy.count("write") - sent, 1, "{fault:?}");
        let landed = u64::from(matches!(fault, Fault::DroppedAfter | Fault::Half));
        assert_eq!(stage.commits().await - commits, landed, "{fault:?}");
    }
}

#[tokio::test]
async fn a_write_of_one_version_that_was_lost_before_it_landed_is_sent_again_and_lands_once() {
    let stage = Stage::new().await;
    let created = stage.orders.create(&json!({"id": "1"})).await.unwrap();
    stage.proxy.inject("write", Fault::DroppedBefore, 2);
    let etag = created.etag.unwrap();
    let replaced = stage.orders.replace_if(&json!({"id": "1", "n": 2}), &etag).await.unwrap();
    assert_eq!(stage.commits().await, 2);
    stage.proxy.inject("write", Fault::DroppedBefore, 1);
    stage.orders.delete_if("1", "1", &replaced.etag.unwrap()).await.unwrap();
    assert_eq!(stage.commits().await, 3);
}

/// Another actor may have deleted it meanwhile: sent again, it would be created twice.
#[tokio::test]
async fn a_new_item_whose_outcome_is_unknown_is_not_sent_again() {
    let stage = Stage::new().await;
    for (number, fault) in [Fault::DroppedBefore, Fault::DroppedAfter, Fault::Refused(503)].into_iter().enumerate() {
        let (sent, commits) = (stage.proxy.count("write"), stage.commits().await);
        stage.proxy.inject("write", fault, 1);
        let error = stage.orders.create(&json!({"id": number.to_string()})).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{fault:?}: {error:?}");
        assert_eq!(stage.proxy.count("write") - sent, 1, "{fault:?}");
        assert_eq!(stage.commits().await - commits, u64::from(fault == Fault::DroppedAfter), "{fault:?}");
    }
}

/// The start of a program, while answers are lost.
#[tokio::test]
async fn a_container_is_opened_although_the_answer_to_its_creation_was_lost() {
    for fault in [Fault::DroppedBefore, Fault::DroppedAfter, Fault::Half, Fault::Html(502), Fault::Refused(503)] {
        let served = Served::start().await;
        let proxy = Proxy::start(served.server.address());
        let client = Client::connect(&proxy.endpoint(), EMULATOR_KEY).unwrap();
        // The first one is refused, since there is no database.
        proxy.inject("create_container", Fault::Stalled(Duration::ZERO), 1);
        proxy.inject("create_container", fault, 1);
        proxy.inject("create_database", fault, 1);
        let orders = orders(&client).await;
        orders.create(&json!({"id": "1"})).await.unwrap();
        assert_eq!(served.engine.catalog().list_containers("shop").await.unwrap().len(), 1, "{fault:?}");
        proxy.inject("create_container", fault, 1);
        let wrong = client.database("shop").container("orders").partition_key("/customer").open_or_create().await;
        assert!(wrong.unwrap_err().message().contains("exists with other settings"), "{fault:?}");
        proxy.inject("create_container", fault, usize::MAX);
        let other = client.database("shop").container("other").open_or_create().await;
        // Where nothing arrives, it ends.
        assert_eq!(other.is_ok(), matches!(fault, Fault::DroppedAfter | Fault::Half), "{fault:?}");
    }
}

/// A program that is started together with a server behind a gateway.
#[tokio::test]
async fn a_gateway_that_does_not_reach_the_server_yet_is_waited_for() {
    let served = Served::start().await;
    served.orders().await;
    let proxy = Proxy::start(served.server.address());
    let client = Client::builder(&proxy.endpoint(), EMULATOR_KEY).start_timeout(Duration::from_secs(60));
    let client = client.connect().unwrap();
    // More often than `retries` allows.
    for status in [502, 503, 504] {
        proxy.inject("open_container", Fault::Html(status), 2);
    }
    client.database("shop").container("orders").open().await.unwrap();
    proxy.inject("open_container", Fault::Html(503), 6);
    client.database("shop").container("orders").open().await.unwrap_err();
}

#[tokio::test]
async fn a_batch_that_the_server_would_not_take_is_refused_before_it_is_sent() {
    let stage = Stage::new().await;
    let direct = Engine::in_memory().unwrap().database("shop").container("orders").open_or_create().await.unwrap();
    let batch = |writes: usize, bytes: usize| {
        let body = Bytes::from(json!({"id": "1", "text": "a".repeat(bytes)}).to_string());
        Batch { partition_key: None, writes: vec![Write::Create { body }; writes], return_items: false }
    };
    for (writes, bytes) in [(5, 1 << 20), (3, 1 << 20), (101, 10), (1, 3 << 20), (2, 3 << 20)] {
        let [here, there] = [&stage.orders, &direct].map(|orders| orders.backend().write(batch(writes, bytes)));
        let (here, there) = (here.await.unwrap_err(), there.await.unwrap_err());
        assert_eq!((here.kind(), here.effect()), (there.kind(), Effect::None), "{here:?}");
        let said = |error: &Error| error.message().split_once(" bytes, but").map(|(_, most)| most.to_owned());
        assert_eq!(said(&here), said(&there), "{here} and {there}");
    }
}

#[tokio::test]
async fn a_conditional_write_whose_answer_was_lost_stays_unknown_and_landed_once() {
    let stage = Stage::new().await;
    stage.orders.create(&json!({"id": "1"})).await.unwrap();
    let etag = stage.orders.read_item("1", "1").await.unwrap().etag;
    stage.proxy.inject("write", Fault::Half, 1);
    let error = stage.orders.replace_if(&json!({"id": "1", "n": 2}), &etag).await.unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown, "{error:?}");
    assert_eq!(stage.commits().await, 2);
    // Reading tells what became of it.
    assert_ne!(stage.orders.read_item("1", "1").await.unwrap().etag, etag);
}

#[tokio::test]
async fn a_refusal_by_condition_is_certain_if_nothing_was_lost() {
    let stage = Stage::new().await;
    stage.orders.create(&json!({"id": "1"})).await.unwrap();
    let error = stage.orders.create(&json!({"id": "1"})).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::AlreadyExists, Effect::None));
}

#[tokio::test]
async fn a_stalled_server_is_given_up_after_the_timeout() {
    let stage = Stage::with_timeout(Duration::from_millis(200)).await;
    stage.proxy.inject("", Fault::Stalled(Duration::from_secs(5)), 2);
    let error = stage.orders.read_item("1", "1").await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::None), "{error:?}");
    let error = stage.orders.create(&json!({"id": "1"})).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown), "{error:?}");
    stage.orders.read_item("1", "1").await.unwrap();
}

/// A page over a slow link: the timeout is for silence, not for the whole of it.
#[tokio::test]
async fn an_answer_that_keeps_coming_is_waited_for_and_one_that_stops_is_not() {
    let stage = Stage::with_timeout(Duration::from_secs(1)).await;
    stage.orders.create(&json!({"id": "1", "text": "a".repeat(1 << 20)})).await.unwrap();
    let read = || stage.orders.read_changes(ReadChanges::new(FeedRange::full(), StartFrom::Beginning));
    stage.proxy.inject("read_changes", Fault::Slow(700_000), 1);
    assert_eq!(read().await.unwrap().changes.len(), 1);
    stage.proxy.inject("read_changes", Fault::Stuck(Duration::from_secs(30)), 1);
    let error = read().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::None), "{error:?}");
    assert!(error.message().contains("sent nothing of its answer within 1s"), "{error}");
    // An answer does not take without end either.
    stage.proxy.inject("read_changes", Fault::Slow(80_000), 1);
    let error = read().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    assert!(error.message().contains("did not complete its answer within 6s"), "{error}");
    assert_eq!(read().await.unwrap().changes.len(), 1);
}

/// A link that is too slow for whole pages: asking for the same page again and again would never succeed.
#[tokio::test]
async fn pages_become_smaller_until_a_slow_link_carries_them() {
    let stage = Stage::with_timeout(Duration::from_secs(1)).await;
    for number in 0..100 {
        stage.orders.create(&json!({"id": number.to_string(), "text": "a".repeat(20_000)})).await.unwrap();
    }
    stage.proxy.inject("read_changes", Fault::Slow(200_000), usize::MAX);
    let read = || stage.orders.read_changes(ReadChanges::new(FeedRange::full(), StartFrom::Beginning));
    let error = read().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "2 MB cannot come in six seconds: {error:?}");
    let mut smaller = read().await;
    while let Err(error) = smaller {
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
        smaller = read().await;
    }
    let page = smaller.unwrap();
    assert!((1..100).contains(&page.changes.len()), "{} changes", page.changes.len());
    stage.proxy.clear();
    while read().await.unwrap().changes.len() < 100 {}
}

#[tokio::test]
async fn a_client_that_was_cut_off_goes_on_by_itself() {
    let stage = Stage::new().await;
    stage.orders.create(&json!({"id": "1"})).await.unwrap();
    stage.proxy.cut();
    let error = stage.orders.read_item("1", "1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    stage.proxy.mend();
    stage.orders.read_item("1", "1").await.unwrap();
}
