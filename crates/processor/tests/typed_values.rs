//! What a delegate gets beside its values, and the errors that it may fail with.

mod shop;

use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use changefeed::{
    Changes, Context, Failure, Processor, Versions,
    core::{ETag, Lsn, PartitionKey, StartFrom},
};
use serde::Deserialize;
use shop::{Notifications, Seen, Shop, order, until};

/// An order and nothing else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StrictOrder {
    id: String,
    customer: String,
    version: u64,
}

/// What was noted of a change.
#[derive(Clone, Debug, PartialEq)]
struct Noted {
    item: String,
    key: Option<PartitionKey>,
    lsn: Lsn,
    etag: Option<ETag>,
    change_id: String,
}

type Notes = Arc<Mutex<Vec<Noted>>>;

async fn strict_host(shop: &Shop, name: &str, notes: &Notes) -> changefeed::Running {
    let notes = Arc::clone(notes);
    let builder = Processor::builder(name, &shop.orders, &shop.leases).start_from(StartFrom::Beginning);
    let processor = builder.runtime(shop.runtime()).build(move |orders: Changes<StrictOrder>, _: Context| {
        let notes = Arc::clone(&notes);
        async move {
            for (order, info) in orders.with_info() {
                assert_eq!(order.id, info.id().as_str());
                assert!(order.customer.starts_with('c') && order.version > 0);
                let (key, etag, change_id) = (info.partition_key(), info.etag(), info.change_id());
                let noted = Noted { item: order.id.clone(), key, lsn: info.lsn(), etag, change_id };
                notes.lock().expect("lock").push(noted);
            }
            Ok(())
        }
    });
    processor.expect("build").start().await.expect("start")
}

#[tokio::test(start_paused = true)]
async fn values_come_without_system_members_and_with_what_the_store_knows() {
    let shop = Shop::new(2).await;
    let written = shop.orders.upsert(&order(7, 1)).await.expect("upsert");
    let notes = Notes::default();
    let running = strict_host(&shop, "mailer", &notes).await;
    until("delivery", || !notes.lock().expect("lock").is_empty()).await;
    let noted = notes.lock().expect("lock")[0].clone();
    assert_eq!((noted.item.as_str(), noted.key, noted.lsn), ("o7", Some(PartitionKey::from("c7")), written.lsn));
    assert_eq!(noted.etag, written.etag);
    running.stop().await.expect("stop");
    // A struct that is read from the container directly needs no system members either.
    let read: StrictOrder = shop.orders.read("c7", "o7").await.expect("read");
    assert_eq!(read.version, 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_has_one_id_for_all_deliveries_and_processors() {
    let shop = Shop::new(2).await;
    shop.write(0..20, 1).await;
    let (first, second) = (Notes::default(), Notes::default());
    let running = [strict_host(&shop, "mailer", &first).await, strict_host(&shop, "biller", &second).await];
    let lists = [&first, &second];
    until("delivery", || lists.iter().all(|list| list.lock().expect("lock").len() == 20)).await;
    let ids = |notes: &Notes| {
        let mut ids: Vec<String> = notes.lock().expect("lock").iter().map(|noted| noted.change_id.clone()).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(&first), ids(&second));
    // The next version of an item is another change.
    shop.write(0..20, 2).await;
    until("delivery", || lists.iter().all(|list| list.lock().expect("lock").len() == 40)).await;
    let mut all = ids(&first);
    all.dedup();
    assert_eq!(all.len(), 40);
    assert!(all.iter().all(|id| id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_graphic())), "{all:?}");
    for running in running {
        running.stop().await.expect("stop");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_still_has_its_partition_key() {
    let shop = Shop::with_history().await;
    let keys = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&keys);
    let builder = Processor::builder("auditor", &shop.orders, &shop.leases).runtime(shop.runtime()).all_versions();
    let processor = builder.build(move |versions: Versions<StrictOrder>, _: Context| {
        let kept = Arc::clone(&kept);
        async move {
            for (version, info) in versions.with_info() {
                kept.lock().expect("lock").push((
                    version.current.is_some(),
                    info.partition_key(),
                    info.etag().is_some(),
                ));
            }
            Ok(())
        }
    });
    let running = processor.expect("build").start().await.expect("start");
    shop.write(3..4, 1).await;
    shop.orders.delete("c3", "o3").await.expect("delete");
    until("delivery", || keys.lock().expect("lock").len() == 2).await;
    let key = Some(PartitionKey::from("c3"));
    assert_eq!(*keys.lock().expect("lock"), [(true, key.clone(), true), (false, key, false)]);
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_delegate_fails_with_anyhow_and_the_error_can_be_found_again() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..3, 1).await;
    let found = Arc::new(Mutex::new(None));
    let (kept, noted) = (seen.clone(), Arc::clone(&found));
    let builder = shop.processor("worker-1").on_notification(notifications.listen()).on_error(move |report| {
        if let Failure::Delegate(error) = &report.failure {
            *noted.lock().expect("lock") = error.downcast_ref::<std::num::ParseIntError>().cloned();
        }
    });
    let processor = builder.build(move |changes: Changes<shop::Order>, ctx: Context| {
        let seen = kept.clone();
        async move {
            if ctx.attempt() == 1 {
                "many".parse::<u32>().context("count the parcels")?;
            }
            seen.add(&changes, &ctx);
            Ok(())
        }
    });
    let running = processor.expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 3).await;
    assert!(found.lock().expect("lock").is_some(), "the cause has kept its type");
    assert!(notifications.text().contains("count the parcels: invalid digit"), "{}", notifications.text());
    running.stop().await.expect("stop");
}
