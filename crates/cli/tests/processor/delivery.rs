//! Delivery: everything, in order, from where it was asked.

use changefeed::{Context, Processor, RawChanges, core::StartFrom};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::shop::{Seen, Shop, TIMING, pass, start, until};

#[tokio::test]
async fn every_change_is_delivered_once_and_in_order() {
    let (shop, seen) = (Shop::new(3).await, Seen::default());
    let running = shop.host("a", &seen).await;
    shop.write(0..300, 1).await;
    until("delivery", || seen.len() >= 300).await;
    running.stop().await.unwrap();
    assert_eq!((seen.len(), seen.distinct()), (300, 300));
    seen.in_order_and_once();
}

#[tokio::test]
async fn what_was_written_before_the_start_is_delivered_from_the_beginning() {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    shop.write(0..100, 1).await;
    let running = shop.host("a", &seen).await;
    until("delivery", || seen.len() >= 100).await;
    running.stop().await.unwrap();
    assert_eq!(seen.distinct(), 100);
}

#[tokio::test]
async fn a_processor_that_starts_now_sees_only_what_comes_after() {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    shop.write(0..50, 1).await;
    let running = start(shop.builder("a").start_from(StartFrom::Now), &seen).await;
    shop.write(100..120, 1).await;
    until("delivery", || seen.len() >= 20).await;
    running.stop().await.unwrap();
    assert!(seen.ids().iter().all(|id| id.parse::<u32>().unwrap() >= 100), "{:?}", seen.ids());
}

#[tokio::test]
async fn an_item_that_was_replaced_is_delivered_at_its_newest_version() {
    let shop = Shop::new(1).await;
    for n in 1..=5 {
        shop.write(0..1, n).await;
    }
    let (report, mut versions) = mpsc::unbounded_channel();
    let processor = shop.builder("a").build(move |changes: changefeed::Changes<Value>, _: Context| {
        let sent = changes.iter().try_for_each(|order| report.send(order["n"].clone()));
        async move { Ok(sent?) }
    });
    let running = processor.unwrap().start().await.unwrap();
    assert_eq!(versions.recv().await, Some(json!(5)));
    running.stop().await.unwrap();
    assert!(versions.try_recv().is_err(), "once");
}

#[tokio::test]
async fn batches_are_no_larger_than_asked() {
    let shop = Shop::new(1).await;
    shop.write(0..50, 1).await;
    let (report, mut sizes) = mpsc::unbounded_channel();
    let processor = shop.builder("a").max_items(7).build(move |changes: RawChanges, _: Context| {
        let sent = report.send(changes.len());
        async move { Ok(sent?) }
    });
    let running = processor.unwrap().start().await.unwrap();
    let mut delivered = 0;
    while delivered < 50 {
        let size = sizes.recv().await.unwrap();
        assert!(size <= 7, "{size}");
        delivered += size;
    }
    running.stop().await.unwrap();
}

#[tokio::test]
async fn two_processors_on_one_lease_container_both_see_everything() {
    let (shop, mails, bills) = (Shop::new(2).await, Seen::default(), Seen::default());
    let mailer = shop.host("a", &mails).await;
    let biller = Processor::builder("biller", &shop.orders, &shop.leases).instance_name("a").lease_timing(TIMING);
    let biller = start(biller.start_from(StartFrom::Beginning), &bills).await;
    shop.write(0..100, 1).await;
    until("delivery", || mails.len() >= 100 && bills.len() >= 100).await;
    mailer.stop().await.unwrap();
    biller.stop().await.unwrap();
    assert_eq!((mails.distinct(), bills.distinct()), (100, 100));
}

#[tokio::test]
async fn nothing_is_delivered_again_after_a_quiet_time() {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    let running = shop.host("a", &seen).await;
    shop.write(0..20, 1).await;
    until("delivery", || seen.len() >= 20).await;
    pass(TIMING.renew * 3).await;
    shop.write(20..40, 1).await;
    until("delivery", || seen.len() >= 40).await;
    running.stop().await.unwrap();
    assert_eq!((seen.len(), seen.distinct()), (40, 40));
}

#[tokio::test]
async fn leases_may_live_on_another_server() {
    let (shop, other, seen) = (Shop::new(2).await, Shop::new(1).await, Seen::default());
    let builder = || {
        let builder = Processor::builder("mailer", &shop.orders, &other.leases).instance_name("a");
        builder.start_from(StartFrom::Beginning).lease_timing(TIMING)
    };
    shop.write(0..50, 1).await;
    start(builder(), &seen).await.stop().await.unwrap();
    let running = start(builder(), &seen).await;
    shop.write(50..100, 1).await;
    until("delivery", || seen.distinct() >= 100).await;
    running.stop().await.unwrap();
    assert_eq!(seen.len(), 100);
}
