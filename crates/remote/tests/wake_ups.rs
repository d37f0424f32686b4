//! Wake-ups beyond the contract: what they cost, and what happens when they are interrupted.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{sync::Arc, time::Duration};

use changefeed_core::{Container, Continuation, FeedRange, PhysicalRange, ReadChanges, StartFrom};
use changefeed_remote::{EMULATOR_KEY, Server as Client};
use serde_json::json;
use support::{
    Served,
    proxy::{Fault, Proxy},
};
use tokio::task::JoinSet;

/// Longer than a wake-up takes, on any machine.
const LONG: Duration = Duration::from_secs(20);

/// Long enough for a wake-up that must not come.
const SHORT: Duration = Duration::from_millis(300);

async fn through(proxy: &Proxy, ranges: usize) -> Container {
    let client = Client::connect(&proxy.endpoint(), EMULATOR_KEY).unwrap();
    client.database("shop").container("orders").ranges(ranges).open_or_create().await.unwrap()
}

async fn now(orders: &Container, range: &FeedRange) -> Continuation {
    let page = orders.read_changes(ReadChanges::new(range.clone(), StartFrom::Now)).await.unwrap();
    page.into_value().continuation
}

/// Waits in each range, from now on.
async fn readers(orders: &Container, ranges: &[PhysicalRange]) -> JoinSet<FeedRange> {
    let mut positions = Vec::new();
    for PhysicalRange { range, .. } in ranges {
        positions.push((range.clone(), now(orders, range).await));
    }
    let mut readers = JoinSet::new();
    for (range, after) in positions {
        let backend = Arc::clone(orders.backend());
        readers.spawn(async move {
            backend.changed(&range, &after).await;
            range
        });
    }
    readers
}

#[expect(clippy::disallowed_methods, reason = "what is tested happens, or does not, in real time")]
async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}

/// Waits until the server has all readers.
async fn settled(proxy: &Proxy) {
    let mut before = 0;
    while proxy.total() != before || proxy.count("watch") < 2 {
        before = proxy.total();
        within(Duration::from_millis(200), std::future::pending::<()>()).await;
    }
}

#[tokio::test]
async fn many_readers_wait_in_one_request_and_idle_ones_cost_nothing() {
    let served = Served::start().await;
    let proxy = Proxy::start(served.server.address());
    let orders = through(&proxy, 100).await;
    let ranges = orders.feed_ranges().await.unwrap();
    let mut readers = readers(&orders, &ranges).await;
    settled(&proxy).await;
    assert!(proxy.count("watch") < 10, "{} requests for a hundred readers", proxy.count("watch"));
    let before = proxy.total();
    assert!(within(Duration::from_secs(1), readers.join_next()).await.is_none(), "nothing has changed");
    assert_eq!(proxy.total(), before, "a second without any request");
    // One write wakes the one reader that it is for.
    let written = orders.create(&json!({"id": "1"})).await.unwrap();
    let woken = within(LONG, readers.join_next()).await.expect("a wake-up").unwrap().unwrap();
    let page = orders.read_changes(ReadChanges::new(woken, StartFrom::Beginning)).await.unwrap();
    assert_eq!(page.changes.first().map(|change| change.lsn), Some(written.lsn));
    assert!(within(SHORT, readers.join_next()).await.is_none(), "the others wait on");
}

#[tokio::test]
async fn readers_are_woken_by_what_happened_while_the_connection_was_lost() {
    let served = Served::start().await;
    let proxy = Proxy::start(served.server.address());
    let orders = through(&proxy, 1).await;
    let mut readers = readers(&orders, &orders.feed_ranges().await.unwrap()).await;
    settled(&proxy).await;
    proxy.cut();
    served.orders().await.create(&json!({"id": "1"})).await.unwrap();
    assert!(within(SHORT, readers.join_next()).await.is_none(), "nobody can tell it");
    proxy.mend();
    within(LONG, readers.join_next()).await.expect("a wake-up");
}

#[tokio::test]
async fn readers_are_woken_by_a_server_that_was_restarted() {
    let served = Served::start().await;
    let orders = served.orders().await;
    let mut readers = readers(&orders, &orders.feed_ranges().await.unwrap()).await;
    assert!(within(SHORT, readers.join_next()).await.is_none());
    let (engine, address) = (served.engine.clone(), served.server.address());
    within(Duration::from_secs(5), served.server.stop()).await.expect("a server does not wait for readers that wait");
    let _served = Served::with_engine(engine, address).await;
    assert!(within(SHORT, readers.join_next()).await.is_none(), "nothing has changed");
    orders.create(&json!({"id": "1"})).await.unwrap();
    within(LONG, readers.join_next()).await.expect("a wake-up");
}

#[tokio::test]
async fn lost_and_cut_answers_of_the_wake_up_call_lose_no_wake_up() {
    let served = Served::start().await;
    let proxy = Proxy::start(served.server.address());
    let orders = through(&proxy, 1).await;
    let faults = [Fault::DroppedBefore, Fault::DroppedAfter, Fault::Half, Fault::Refused(503), Fault::Refused(429)];
    for (number, fault) in faults.into_iter().enumerate() {
        for skipped in 0..3 {
            let mut readers = readers(&orders, &orders.feed_ranges().await.unwrap()).await;
            if skipped > 0 {
                within(Duration::from_millis(50 * skipped), std::future::pending::<()>()).await;
            }
            proxy.inject("watch", fault, 1);
            orders.create(&json!({"id": format!("{number}-{skipped}")})).await.unwrap();
            within(LONG, readers.join_next()).await.unwrap_or_else(|| panic!("a wake-up after {fault:?}"));
            proxy.clear();
        }
    }
}

#[tokio::test]
async fn a_server_without_wake_ups_lets_readers_poll() {
    let served = Served::start().await;
    let proxy = Proxy::start(served.server.address());
    proxy.inject("watch", Fault::Refused(404), usize::MAX);
    let orders = through(&proxy, 1).await;
    let mut readers = readers(&orders, &orders.feed_ranges().await.unwrap()).await;
    orders.create(&json!({"id": "1"})).await.unwrap();
    assert!(within(SHORT, readers.join_next()).await.is_none(), "no wake-up");
    within(LONG, readers.join_next()).await.expect("the reader goes to look for itself");
    assert_eq!(proxy.count("watch"), 1, "the server is not asked again");
    let page = orders.read_changes(ReadChanges::new(FeedRange::full(), StartFrom::Beginning)).await.unwrap();
    assert_eq!(page.changes.len(), 1, "and finds it");
}

#[tokio::test]
async fn readers_look_for_themselves_while_wake_ups_are_interrupted() {
    let served = Served::start().await;
    let proxy = Proxy::start(served.server.address());
    let orders = through(&proxy, 1).await;
    let ranges = orders.feed_ranges().await.unwrap();
    // The watch begins, and from then on nothing of it comes through.
    proxy.inject("watch", Fault::Stalled(Duration::ZERO), 1);
    proxy.inject("watch", Fault::DroppedBefore, usize::MAX);
    for _ in 0..2 {
        let mut readers = readers(&orders, &ranges).await;
        assert!(within(SHORT, readers.join_next()).await.is_none(), "no wake-up");
        within(LONG, readers.join_next()).await.expect("the reader goes to look for itself");
    }
    // Once it is possible again, a change wakes them.
    proxy.clear();
    let mut readers = readers(&orders, &ranges).await;
    orders.create(&json!({"id": "1"})).await.unwrap();
    within(LONG, readers.join_next()).await.expect("a wake-up");
}

/// Each wake-up ends a wait, and the next wait must not cost the server another watch: it has room for 4,096.
#[tokio::test]
async fn wake_ups_without_number_leave_room_for_others() {
    // Less than readers wait without news when the server refuses to wake them.
    const PROMPT: Duration = Duration::from_secs(4);
    let served = Served::start().await;
    let orders = served.orders().await;
    let before = now(&orders, &FeedRange::full()).await;
    orders.create(&json!({"id": "1"})).await.unwrap();
    for number in 0..4200 {
        let woken = within(PROMPT, orders.backend().changed(&FeedRange::full(), &before)).await;
        assert!(woken.is_some(), "wake-up {number}");
    }
    let others = served.orders().await;
    let mut readers = readers(&others, &others.feed_ranges().await.unwrap()).await;
    assert!(within(SHORT, readers.join_next()).await.is_none());
    orders.create(&json!({"id": "2"})).await.unwrap();
    within(PROMPT, readers.join_next()).await.expect("a wake-up of another client");
}

#[tokio::test]
async fn polls_become_shorter_behind_a_proxy_that_ends_long_requests() {
    let served = Served::start().await;
    let proxy = Proxy::start(served.server.address());
    let orders = through(&proxy, 1).await;
    let ranges = orders.feed_ranges().await.unwrap();
    proxy.inject("watch", Fault::Limited(Duration::from_millis(4600)), usize::MAX);
    let mut readers = readers(&orders, &ranges).await;
    // With one failure after the other the reader would be sent to look for itself after ten seconds.
    assert!(within(Duration::from_secs(11), readers.join_next()).await.is_none(), "wake-ups are not interrupted");
    served.orders().await.create(&json!({"id": "1"})).await.unwrap();
    within(Duration::from_secs(2), readers.join_next()).await.expect("a wake-up");
}

#[tokio::test]
async fn more_readers_than_one_request_holds_are_all_woken() {
    let served = Served::start().await;
    let orders = served.orders().await;
    let after = now(&orders, &FeedRange::full()).await;
    let mut readers = JoinSet::new();
    for _ in 0..2500 {
        let (backend, after) = (Arc::clone(orders.backend()), after.clone());
        readers.spawn(async move { backend.changed(&FeedRange::full(), &after).await });
    }
    assert!(within(SHORT, readers.join_next()).await.is_none());
    orders.create(&json!({"id": "1"})).await.unwrap();
    within(Duration::from_secs(4), readers.join_all()).await.expect("all are woken");
}
