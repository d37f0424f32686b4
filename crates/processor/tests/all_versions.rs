//! All versions and deletes, end to end.

mod shop;

use std::sync::{Arc, Mutex};

use changefeed::{
    Context, Processor, Running, Versions,
    core::{ErrorKind, Operation, StartFrom},
};
use shop::{Order, Seen, Shop, order, until};

/// Item, operation, version before and after.
type Log = Arc<Mutex<Vec<(String, Operation, Option<u64>, Option<u64>)>>>;

async fn host(shop: &Shop, log: &Log) -> Running {
    let log = Arc::clone(log);
    let record = move |versions: Versions<Order>, _: Context| {
        let log = Arc::clone(&log);
        async move {
            let version = |order: Option<Order>| order.map(|order| order.version);
            let entries =
                versions.into_iter().map(|one| (one.id, one.operation, version(one.previous), version(one.current)));
            log.lock().expect("lock").extend(entries);
            Ok(())
        }
    };
    let processor = Processor::builder("mailer", &shop.orders, &shop.leases).all_versions();
    let processor = processor.instance_name("worker-1").runtime(shop.runtime());
    processor.build(record).expect("build").start().await.expect("start")
}

#[tokio::test(start_paused = true)]
async fn every_version_and_delete_arrives_in_order_with_what_was_before() {
    let shop = Shop::with_history().await;
    let log = Log::default();
    shop.write(0..5, 0).await;
    let running = host(&shop, &log).await;
    shop.write(7..8, 1).await;
    shop.write(7..8, 2).await;
    shop.orders.delete("c7", "o7").await.expect("delete");
    shop.write(7..8, 3).await;
    let length = || log.lock().expect("lock").len();
    until("delivery", || length() == 4).await;
    running.stop().await.expect("stop");
    let entry = |operation, before, after| ("o7".to_owned(), operation, before, after);
    let expected = [
        entry(Operation::Create, None, Some(1)),
        entry(Operation::Replace, Some(1), Some(2)),
        entry(Operation::Delete, Some(2), None),
        entry(Operation::Create, None, Some(3)),
    ];
    assert_eq!(*log.lock().expect("lock"), expected);
    // What happens while no host runs is not lost.
    shop.orders.delete("c7", "o7").await.expect("delete");
    shop.write(0..5, 1).await;
    let running = host(&shop, &log).await;
    until("delivery", || length() == 10).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn the_delegate_gets_ids_as_they_are() {
    let shop = Shop::with_history().await;
    let log = Log::default();
    let running = host(&shop, &log).await;
    let mut odd = order(1, 0);
    odd.id = "a?\n\u{1b}".to_owned();
    shop.orders.create(&odd).await.expect("create");
    until("delivery", || !log.lock().expect("lock").is_empty()).await;
    running.stop().await.expect("stop");
    assert_eq!(log.lock().expect("lock")[0].0, odd.id);
}

#[tokio::test(start_paused = true)]
async fn all_versions_survive_a_split() {
    let shop = Shop::with_history().await;
    let log = Log::default();
    let running = host(&shop, &log).await;
    for version in 1..=6 {
        shop.write(0..20, version).await;
        if version % 2 == 0 {
            let range = shop.ranges().await[0].id.clone();
            shop.engine.catalog().split("shop", "history", &range, None).await.expect("split");
        }
    }
    until("delivery", || log.lock().expect("lock").len() == 120).await;
    running.stop().await.expect("stop");
    let log = log.lock().expect("lock");
    for item in 0..20 {
        let id = order(item, 0).id;
        let versions: Vec<u64> = log.iter().filter(|entry| entry.0 == id).filter_map(|entry| entry.3).collect();
        assert_eq!(versions, [1, 2, 3, 4, 5, 6], "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_without_history_and_a_start_in_the_past_are_refused() {
    let shop = Shop::new(1).await;
    let processor = Processor::builder("mailer", &shop.orders, &shop.leases).all_versions();
    let processor = processor.build(|_: Versions<Order>, _: Context| async { Ok(()) }).expect("build");
    let error = processor.start().await.expect_err("no history");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("set its all-versions retention first"), "{error}");
    let shop = Shop::with_history().await;
    let processor = Processor::builder("mailer", &shop.orders, &shop.leases).all_versions();
    let processor = processor.start_from(StartFrom::Beginning);
    let error = processor.build(|_: Versions<Order>, _: Context| async { Ok(()) }).expect_err("beginning");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn a_processor_cannot_change_its_mode() {
    let shop = Shop::with_history().await;
    let running = host(&shop, &Log::default()).await;
    running.stop().await.expect("stop");
    let processor = shop.processor("worker-1").build(|_: changefeed::Changes<Order>, _: Context| async { Ok(()) });
    let error = processor.expect("build").start().await.expect_err("another mode");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("was made for AllVersions mode"), "{error}");
    assert!(error.message().contains("use another processor name"), "{error}");
    drop(Seen::default());
}
