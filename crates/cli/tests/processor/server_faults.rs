//! Servers that throttle, and answers that are injected faults.

use crate::{
    process::run,
    shop::{Seen, Shop, until},
    store::{FEED_FAULT, LEASE_WRITE_PATH},
};

#[tokio::test]
async fn a_throttled_server_delays_and_loses_nothing() {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    let running = shop.host("a", &seen).await;
    shop.write(0..50, 1).await;
    let throttled = run(&["throttle", "--store", &shop.server.endpoint(), "--seconds", "1", "--retry-after-ms", "50"]);
    assert!(throttled.status.success());
    until("delivery", || seen.distinct() >= 50).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn injected_faults_of_the_server_delay_and_lose_nothing() {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    let running = shop.host("a", &seen).await;
    for status in ["408", "429", "503", "500"] {
        let fault = ["fault", "--store", &shop.server.endpoint(), "--status", status, "--count", "3"];
        assert!(run(&[&fault[..], &FEED_FAULT].concat()).status.success());
        assert!(run(&[&fault[..], &["--path-contains", LEASE_WRITE_PATH, "--after"]].concat()).status.success());
    }
    shop.write(0..100, 1).await;
    until("delivery", || seen.distinct() >= 100).await;
    running.stop().await.unwrap();
}
