//! Hosts that use the SDK and hosts that use our own client, on one processor.

use changefeed::{
    Processor, Running,
    core::{Container, StartFrom},
    remote::{EMULATOR_KEY, Server as Client},
};

use crate::shop::{Seen, Shop, TIMING, start, until};

/// The orders or the leases of the shop, through our own client.
async fn remote(shop: &Shop, name: &str) -> Container {
    // Another name than the one that the SDK uses.
    let endpoint = shop.server.endpoint().replace("127.0.0.1", "localhost");
    Client::connect(&endpoint, EMULATOR_KEY).unwrap().database("shop").container(name).open().await.unwrap()
}

async fn remote_host(shop: &Shop, seen: &Seen) -> Running {
    let (orders, leases) = (remote(shop, "orders").await, remote(shop, "leases").await);
    let builder = Processor::builder("mailer", &orders, &leases).instance_name("remote");
    start(builder.start_from(StartFrom::Beginning).lease_timing(TIMING), seen).await
}

#[tokio::test]
async fn hosts_of_both_clients_share_leases_whatever_they_call_the_server() {
    let (shop, through_sdk, through_own) = (Shop::new(4).await, Seen::default(), Seen::default());
    let orders = remote(&shop, "orders").await;
    assert_eq!(shop.orders.identity(), orders.identity());
    let first = shop.host("sdk", &through_sdk).await;
    shop.write(0..50, 1).await;
    until("delivery", || through_sdk.len() == 50).await;
    let second = remote_host(&shop, &through_own).await;
    until("even shares", || through_sdk.leases() == 2 && through_own.leases() == 2).await;
    shop.write(50..100, 1).await;
    until("delivery", || through_sdk.len() + through_own.len() >= 100).await;
    first.stop().await.unwrap();
    shop.write(100..150, 1).await;
    until("delivery", || through_sdk.len() + through_own.len() >= 150).await;
    second.stop().await.unwrap();
    // And back.
    let third = shop.host("sdk", &through_sdk).await;
    shop.write(150..200, 1).await;
    until("delivery", || through_sdk.len() + through_own.len() >= 200).await;
    third.stop().await.unwrap();
    assert_eq!(through_sdk.len() + through_own.len(), 200, "no duplicates");
    let mut ids = [through_sdk.ids(), through_own.ids()].concat();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 200);
}
