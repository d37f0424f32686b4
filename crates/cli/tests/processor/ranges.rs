//! Splits and merges, followed over the network.

use crate::shop::{Seen, Shop, until};

#[tokio::test]
async fn a_split_is_followed_without_loss_or_repetition() {
    let (shop, seen) = (Shop::new(1).await, Seen::default());
    let running = shop.host("a", &seen).await;
    shop.write(0..100, 1).await;
    shop.split(0).await;
    shop.write(100..200, 1).await;
    until("delivery", || seen.len() >= 200).await;
    until("two leases", || seen.leases() == 2).await;
    running.stop().await.unwrap();
    assert_eq!((seen.len(), seen.distinct()), (200, 200));
    seen.in_order_and_once();
}

#[tokio::test]
async fn a_merge_is_followed_without_loss() {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    let running = shop.host("a", &seen).await;
    shop.write(0..100, 1).await;
    until("delivery", || seen.len() >= 100).await;
    shop.merge(0, 1).await;
    shop.write(100..200, 1).await;
    until("delivery", || seen.distinct() >= 200).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_split_while_no_host_runs_is_found_at_the_next_start() {
    let (shop, seen) = (Shop::new(1).await, Seen::default());
    let running = shop.host("a", &seen).await;
    shop.write(0..30, 1).await;
    until("delivery", || seen.len() >= 30).await;
    running.stop().await.unwrap();
    shop.split(0).await;
    shop.write(30..60, 1).await;
    let running = shop.host("b", &seen).await;
    until("delivery", || seen.len() >= 60).await;
    running.stop().await.unwrap();
    assert_eq!((seen.len(), seen.distinct()), (60, 60));
}

#[tokio::test]
async fn two_hosts_share_the_children_of_splits() {
    let (shop, seen) = (Shop::new(1).await, [Seen::default(), Seen::default()]);
    let first = shop.host("a", &seen[0]).await;
    let second = shop.host("b", &seen[1]).await;
    shop.split(0).await;
    shop.write(0..50, 1).await;
    until("one child each", || seen.iter().all(|own| own.leases() == 1)).await;
    until("delivery", || seen[0].distinct() + seen[1].distinct() >= 50).await;
    first.stop().await.unwrap();
    second.stop().await.unwrap();
}
