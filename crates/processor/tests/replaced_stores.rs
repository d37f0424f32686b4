//! Leases of a store that was restored or replaced: their positions mean other changes there, so they are refused.

mod shop;

use changefeed::{Changes, Context, Estimator, Explain, Locate, Scope, SeekTo, core::ErrorKind};
use shop::{Order, Seen, Shop, until};

/// Two stores that are equal in all but their identity; the leases stay in the first.
async fn shop_whose_orders_were_replaced() -> (Shop, Shop) {
    let (shop, other) = (Shop::new(1).await, Shop::new(1).await);
    assert_eq!(shop.orders.identity().container, other.orders.identity().container, "all else is equal");
    shop.write(0..10, 1).await;
    let seen = Seen::default();
    let running = shop.host("a", &seen).await;
    until("delivery", || seen.len() == 10).await;
    running.stop().await.expect("stop");
    other.write(0..30, 1).await;
    let replaced = Shop { orders: other.orders, ..shop.clone() };
    (shop, replaced)
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_store_that_was_replaced_are_refused_with_a_sentence() {
    let (shop, replaced) = shop_whose_orders_were_replaced().await;
    let processor = replaced.processor("a").build(|_: Changes<Order>, _: Context| async { Ok(()) }).expect("build");
    let error = processor.start().await.map(drop).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::ForeignContinuation);
    assert!(error.message().contains("restored or replaced"), "{error}");
    let running = shop.host("a", &Seen::default()).await;
    running.stop().await.expect("the store that the leases belong to is still accepted");
}

#[tokio::test(start_paused = true)]
async fn after_a_seek_of_all_leases_the_replaced_store_is_processed() {
    let (_, replaced) = shop_whose_orders_were_replaced().await;
    replaced.control().seek(SeekTo::Beginning, Scope::All).apply().await.expect("seek");
    let seen = Seen::default();
    let running = replaced.host("a", &seen).await;
    until("delivery", || seen.len() == 30).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn nobody_compares_positions_with_the_feed_of_another_store() {
    let (_, replaced) = shop_whose_orders_were_replaced().await;
    let (orders, leases) = (&replaced.orders, &replaced.leases);
    let lag = Estimator::new("mailer", orders, leases).lag().await.map(drop);
    let explained = Explain::new("mailer", orders, leases).leases().await.map(drop);
    let located = Locate::new("mailer", orders, leases).item("c1", "o1").await.map(drop);
    for refused in [lag, explained, located] {
        let error = refused.expect_err("its positions are of another store");
        assert_eq!(error.kind(), ErrorKind::ForeignContinuation);
        assert!(error.message().contains("changefeed seek NAME --to beginning"), "{error}");
    }
    replaced.control().seek(SeekTo::Beginning, Scope::All).apply().await.expect("seek");
    assert_eq!(Estimator::new("mailer", orders, leases).lag().await.expect("lag").changes, 30);
}

/// A host knew the store by its endpoint before its SDK showed the id.
#[tokio::test(start_paused = true)]
async fn leases_that_name_the_store_by_its_endpoint_are_adopted() {
    for (endpoint, adopted) in [("localhost:8081", true), ("shop.example.com", false)] {
        let shop = Shop::new(1).await;
        let running = shop.host("a", &Seen::default()).await;
        running.stop().await.expect("stop");
        let info = shop.leases.list("mailer").await.expect("list");
        let info = info.iter().find(|item| item.id.as_str().ends_with(".info")).expect("the start");
        let mut body: serde_json::Value = info.parse().expect("JSON");
        body["properties"]["cf.store"] = endpoint.into();
        shop.leases.upsert(&body).await.expect("as a host wrote it that knew the endpoint only");
        let processor = shop.processor("a").build(|_: Changes<Order>, _: Context| async { Ok(()) }).expect("build");
        match processor.start().await {
            Ok(running) => {
                running.stop().await.expect("stop");
                assert!(adopted, "{endpoint}");
                let id = info.id.as_str();
                let info: serde_json::Value = shop.leases.read(id, id).await.expect("read");
                assert_eq!(info["properties"]["cf.store"], shop.orders.identity().store.as_str());
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ForeignContinuation, "{endpoint}: {error}");
                assert!(!adopted, "{endpoint}: {error}");
            }
        }
    }
}
