//! Leases of a later version: refused with a sentence at start, reported and left alone by a running host.

mod shop;

use std::time::Duration;

use changefeed::{Changes, Context};
use serde_json::{Value, json};
use shop::{Notifications, Order, Seen, Shop, pass, until};

/// What a host of a later version has written.
fn of_version_99(lease: &mut Value) {
    lease["Owner"] = "future-host".into();
    lease["timestamp"] = "2026-11-16T20:00:00.0000000Z".into();
    lease["properties"] = json!({
        "cf.epoch": "7", "cf.owner": "future-host", "cf.expiration": "8000", "cf.version": "99",
        "cf.session": "0123456789abcdef", "cf.hologram": "on",
    });
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_a_later_version_is_refused_with_a_sentence_at_start() {
    let shop = Shop::new(2).await;
    shop.host("worker-1", &Seen::default()).await.stop().await.expect("stop");
    shop.edit_lease("1", of_version_99).await;
    let before = shop.lease_documents().await;
    let processor = shop.processor("worker-1").build(|_: Changes<Order>, _: Context| async { Ok(()) });
    let error = processor.expect("build").start().await.expect_err("refused");
    let message = error.message();
    assert!(message.contains("lease 1") && message.contains("version 99"), "what: {message}");
    assert!(message.contains("update this host"), "and what to do: {message}");
    assert_eq!(shop.lease_documents().await, before, "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn so_is_a_free_one() {
    let shop = Shop::new(2).await;
    shop.host("worker-1", &Seen::default()).await.stop().await.expect("stop");
    shop.edit_lease("1", |lease| lease["properties"] = json!({"cf.epoch": "7", "cf.version": "99"})).await;
    let processor = shop.processor("worker-1").build(|_: Changes<Order>, _: Context| async { Ok(()) });
    let error = processor.expect("build").start().await.expect_err("refused");
    assert!(error.message().contains("version 99"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_running_host_reports_it_and_leaves_it_alone() {
    let shop = Shop::new(2).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    let running = shop::start(shop.processor("worker-1").on_notification(notifications.listen()), &seen).await;
    shop.write(0..50, 1).await;
    until("delivery", || seen.len() == 50).await;
    shop.edit_lease("1", of_version_99).await;
    until("it is reported", || notifications.errors("version 99") > 0).await;
    pass(Duration::from_secs(10)).await;
    let document = shop.lease_documents().await["1"].clone();
    seen.take();
    shop.write(0..50, 2).await;
    // Its owner has been silent for much longer than it promised.
    pass(Duration::from_secs(200)).await;
    assert_eq!(shop.lease_documents().await["1"], document, "nothing was written");
    let range = shop.ranges().await[0].range.clone();
    let expected = (0..50).filter(|item| shop::is_in(&shop.orders, &shop::order(*item, 2), &range)).count();
    assert_eq!(seen.len(), expected, "the other lease goes on, and that one does not");
    assert!(notifications.errors("version 99") <= 2, "not in every cycle: {}", notifications.text());
    running.stop().await.expect("stop");
    assert_eq!(shop.lease_documents().await["1"], document, "nor at the stop");
}
