//! Lease containers that are deleted and created again: what operators did before is kept as far as hosts know it.

mod shop;

use std::time::Duration;

use changefeed::{Notification, Release, Scope, SeekTo, core::StartFrom};
use shop::{Notifications, Seen, Shop, pass, until, until_async};

#[tokio::test(start_paused = true)]
async fn a_seek_is_not_undone_when_the_lease_container_is_created_again() {
    let mut shop = Shop::new(2).await;
    let seen = Seen::default();
    shop.write(0..10, 1).await;
    let running = shop::start(shop.processor("a").start_from(StartFrom::Now), &seen).await;
    shop.write(10..12, 1).await;
    until("delivery", || seen.len() == 2).await;
    shop.control().seek(SeekTo::Beginning, Scope::All).apply().await.expect("seek");
    until("everything again", || seen.len() == 14).await;
    pass(shop::TIMING.expiration * 2).await;
    seen.take();
    // The checkpoints go with the container; where the processor begins is known.
    shop.recreate_leases().await;
    until("everything again", || seen.counts().len() == 12).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn what_was_rewound_begins_again_there_when_the_lease_container_is_created_again() {
    let mut shop = Shop::new(1).await;
    let (old, new) = (Seen::default(), Seen::default());
    let first = shop::start(shop.processor("a").start_from(StartFrom::Now), &old).await;
    shop.engine.catalog().delete_container("shop", "orders").await.expect("delete");
    pass(Duration::from_millis(10)).await;
    let again = shop.engine.database("shop").container("orders").partition_key("/customer");
    shop.orders = again.create().await.expect("orders");
    shop.write(0..20, 1).await;
    // A host that is new there begins after these orders; the first one moves its lease back.
    let second = shop::start(shop.processor("b").start_from(StartFrom::Now), &new).await;
    second.stop().await.expect("stop");
    until("delivery", || old.counts().len() == 20).await;
    old.take();
    shop.recreate_leases().await;
    until("everything again", || old.counts().len() == 20).await;
    first.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_with_a_reset() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    let running = shop.host("a", &seen).await;
    shop.write(0..10, 1).await;
    until("delivery", || seen.len() == 10).await;
    shop.control().pause(Scope::All).await.expect("pause");
    until("the leases to be given up", || running.owned_leases().is_empty()).await;
    pass(shop::TIMING.acquire * 2).await;
    shop.control().reset().forced().apply().await.expect("reset");
    until_async("the leases", || async { shop.lease_documents().await.len() == 2 }).await;
    until("everything again", || seen.len() == 20).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_of_a_paused_processor_stays_paused() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    let running = shop.host("a", &seen).await;
    shop.control().pause(Scope::All).await.expect("pause");
    until("the leases to be given up", || running.owned_leases().is_empty()).await;
    pass(shop::TIMING.acquire * 2).await;
    let items = shop.leases.list("mailer").await.expect("list");
    let lost = items.iter().find(|item| item.id.contains("..")).expect("a lease");
    shop.leases.delete(lost.id.as_str(), &lost.id).await.expect("delete");
    until_async("the lease", || async { shop.lease_documents().await.len() == 2 }).await;
    shop.write(0..10, 1).await;
    pass(shop::TIMING.expiration * 2).await;
    assert_eq!(seen.len(), 0, "it is paused");
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn leases_that_went_with_their_container_are_not_reported_as_released_by_an_operator() {
    let mut shop = Shop::new(8).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    let mut hosts = Vec::new();
    for name in ["a", "b", "c"] {
        hosts.push(shop::start(shop.processor(name).on_notification(notifications.listen()), &seen).await);
    }
    until("a share of the leases for each", || hosts.iter().all(|host| !host.owned_leases().is_empty())).await;
    let lost = |notification: &Notification, by_operator: bool| match notification {
        Notification::LeaseReleased(_, Release::Lost(loss)) => {
            !by_operator || loss.to_string() == "released by an operator"
        }
        _ => false,
    };
    for round in 0..10 {
        shop.recreate_leases().await;
        until_async("the leases", || async { shop.lease_documents().await.len() == 8 }).await;
        // The moments at which hosts look differ from round to round.
        pass(shop::TIMING.expiration + Duration::from_millis(350) * round).await;
    }
    assert!(notifications.any(|one| lost(one, false)));
    assert!(!notifications.any(|one| lost(one, true)), "{}", notifications.text());
    for host in hosts {
        host.stop().await.expect("stop");
    }
}
