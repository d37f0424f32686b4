//! Lease containers of all kinds: shared, elsewhere, keyed differently, damaged, somebody else's.

mod shop;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Changes, Context, DeadLetter, Processor,
    core::{Container, ErrorKind, StartFrom, Write},
    embedded::Engine,
};
use changefeed_testkit::faulty::{Call, Fault};
use serde_json::{Value, json};
use shop::{Notifications, Order, Seen, Shop, faulty, pass, until, until_async};

#[tokio::test(start_paused = true)]
async fn two_processors_on_one_lease_container_both_see_everything() {
    let shop = Shop::new(2).await;
    let (mails, bills) = (Seen::default(), Seen::default());
    shop.write(0..100, 1).await;
    let mailer = shop.host("worker-1", &mails).await;
    let biller = Processor::builder("biller", &shop.orders, &shop.leases).instance_name("worker-1");
    let biller = shop::start(biller.start_from(StartFrom::Beginning), &bills).await;
    until("delivery", || mails.len() == 100 && bills.len() == 100).await;
    shop.write(0..100, 2).await;
    until("delivery", || mails.len() == 200 && bills.len() == 200).await;
    mailer.stop().await.expect("stop");
    biller.stop().await.expect("stop");
    let names = changefeed::processors(&shop.orders, &shop.leases).await.expect("list");
    assert_eq!(names, ["biller", "mailer"]);
}

#[tokio::test(start_paused = true)]
async fn leases_may_live_in_another_store() {
    let shop = Shop::new(2).await;
    let elsewhere = Engine::in_memory().expect("open");
    let leases = elsewhere.database("ops").container("leases").create().await.expect("leases");
    let shop = Shop { leases, ..shop };
    let seen = Seen::default();
    shop.write(0..100, 1).await;
    let running = shop.host("worker-1", &seen).await;
    until("delivery", || seen.len() == 100).await;
    shop.split(0).await;
    shop.write(0..100, 2).await;
    until("delivery across a split", || seen.len() == 200).await;
    running.stop().await.expect("stop");
    let running = shop.host("worker-2", &seen).await;
    shop.write(0..10, 3).await;
    until("delivery", || seen.len() == 210).await;
    running.stop().await.expect("stop");
    assert!(seen.counts().values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn leases_may_be_keyed_by_partition_key() {
    let shop = Shop::new(2).await;
    let leases = shop.engine.database("shop").container("graph").partition_key("/partitionKey").create().await;
    let shop = Shop { leases: leases.expect("leases"), ..shop };
    let seen = Seen::default();
    shop.write(0..100, 1).await;
    let running = shop.host("worker-1", &seen).await;
    until("delivery", || seen.len() == 100).await;
    shop.split(0).await;
    shop.write(0..100, 2).await;
    until("delivery across a split", || seen.len() == 200).await;
    until_async("successors", || async { shop.lease_documents().await.len() == 3 }).await;
    running.stop().await.expect("stop");
    for document in shop.lease_documents().await.values() {
        assert_eq!(document["partitionKey"], document["id"]);
    }
    let lag = changefeed::Estimator::new("mailer", &shop.orders, &shop.leases).lag().await.expect("lag");
    assert_eq!((lag.changes, lag.leases.len()), (0, 3));
    let control = changefeed::Control::new("mailer", &shop.orders, &shop.leases);
    control.seek(changefeed::SeekTo::Beginning, changefeed::Scope::All).apply().await.expect("seek");
    control.reset().apply().await.expect("reset");
    assert!(shop.leases.list("").await.expect("list").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lease_container_with_another_key_is_refused() {
    let shop = Shop::new(1).await;
    let others = shop.engine.database("shop").container("others").partition_key("/customer").create().await;
    let processor = Processor::builder("mailer", &shop.orders, &others.expect("create"));
    let error = processor.build(|_: Changes<Order>, _: Context| async { Ok(()) }).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let expected =
        "the lease container others has the partition key /customer: leases need one with /id or /partitionKey";
    assert_eq!(error.message(), expected);
}

#[tokio::test(start_paused = true)]
async fn one_container_in_two_roles_is_refused() {
    let shop = Shop::new(1).await;
    let to = |container: &Container| Some(DeadLetter::to(container));
    for (leases, letters, problem) in [
        (&shop.orders, None, "orders is both the monitored container and the lease container"),
        (&shop.leases, to(&shop.orders), "orders is both the monitored container and the dead-letter container"),
        (&shop.leases, to(&shop.leases), "leases is both the lease container and the dead-letter container"),
    ] {
        let mut processor = Processor::builder("mailer", &shop.orders, leases);
        if let Some(letters) = letters {
            processor = processor.dead_letter(letters);
        }
        let error = processor.build(|_: Changes<Order>, _: Context| async { Ok(()) }).expect_err(problem);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{problem}");
        assert!(error.message().starts_with(problem), "{error}");
        assert!(error.message().contains(": pass another container for the "), "{error}");
    }
}

/// Starts a host once, ends it, and returns the lease document with this token.
async fn made_lease(shop: &Shop, token: &str) -> Value {
    shop.host("worker-1", &Seen::default()).await.stop().await.expect("stop");
    shop.lease_documents().await[token].clone()
}

#[tokio::test(start_paused = true)]
async fn leases_of_java_hosts_are_refused_by_name() {
    let shop = Shop::new(1).await;
    let made = made_lease(&shop, "0").await;
    let java = json!({
        "id": made["id"], "_etag": "", "LeaseToken": "0", "ContinuationToken": "\"7\"",
        "timestamp": "2026-01-01T00:00:00Z", "Owner": "java-host",
    });
    shop.leases.upsert(&java).await.expect("upsert");
    let processor = shop.processor("worker-1").build(|_: Changes<Order>, _: Context| async { Ok(()) });
    let error = processor.expect("build").start().await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("lease of a java processor (handleChanges)"), "{error}");
    assert!(error.message().contains("choose another name"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_lease_document_is_reported_and_the_other_leases_go_on() {
    let shop = Shop::new(4).await;
    let mut damaged = made_lease(&shop, "2").await;
    let healthy = damaged.clone();
    damaged["properties"] = "nonsense".into();
    shop.leases.upsert(&damaged).await.expect("upsert");
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..100, 1).await;
    let running = shop::start(shop.processor("worker-1").on_notification(notifications.listen()), &seen).await;
    let lost = shop.ranges().await[2].range.clone();
    let expected = (0..100).filter(|item| !shop::is_in(&shop.orders, &shop::order(*item, 1), &lost)).count();
    until("delivery of the others", || seen.len() == expected).await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(seen.len(), expected);
    let reports = notifications.text().lines().filter(|line| line.contains("cannot be read: properties")).count();
    assert_eq!(reports, 1, "reported once, not every cycle: {}", notifications.text());
    shop.leases.upsert(&healthy).await.expect("upsert");
    until("the repaired one goes on", || seen.len() == 100).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_document_is_created_again_and_nothing_is_skipped() {
    let shop = Shop::new(2).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    let running = shop::start(shop.processor("worker-1").on_notification(notifications.listen()), &seen).await;
    shop.write(0..100, 1).await;
    until("delivery", || seen.len() == 100).await;
    let id = shop.lease_documents().await["1"]["id"].as_str().expect("id").to_owned();
    delete(&shop.leases, &id).await;
    shop.write(0..100, 2).await;
    until("delivery of all", || seen.counts().len() == 200).await;
    until_async("a new document", || async { shop.lease_documents().await.contains_key("1") }).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn after_a_forced_reset_of_running_hosts_their_new_leases_begin_at_fixed_positions() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    // What a .NET host leaves: no start positions.
    let first = shop.host("worker-0", &seen).await;
    first.stop().await.expect("stop");
    let ids = || async {
        let items = shop.leases.list("mailer").await.expect("list");
        items.into_iter().map(|item| item.id.to_string()).collect::<Vec<_>>()
    };
    let info = ids().await.into_iter().find(|id| id.ends_with(".info")).expect("info");
    shop.leases.upsert(&json!({ "id": info })).await.expect("upsert");
    let processor = Processor::builder("mailer", &shop.orders, &shop.leases).instance_name("worker-1");
    let running = shop::start(processor.start_from(StartFrom::Now), &seen).await;
    for id in ids().await {
        delete(&shop.leases, &id).await;
    }
    until_async("new leases", || async { shop.lease_documents().await.len() == 2 }).await;
    // Before `.info` was written, as the start of this host has stored it.
    let fixed = format!("time {}", shop.clock.now().as_millis() - 300_000);
    for (token, lease) in shop.lease_documents().await {
        let start = &lease["properties"]["cf.start"];
        assert_eq!(*start, fixed.as_str(), "lease {token} begins wherever it is first read: {lease}");
    }
    until_async("the mark of a started processor", || async { ids().await.contains(&info) }).await;
    shop.write(0..100, 1).await;
    until("delivery", || seen.len() == 100).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn after_a_forced_reset_the_mark_of_a_started_processor_is_written_although_that_fails_first() {
    let shop = Shop::new(2).await;
    let (seen, refused) = (Seen::default(), Arc::new(AtomicU32::new(0)));
    let state = Arc::clone(&refused);
    let leases = faulty(&shop.leases, move |call: &Call<'_>| {
        let info =
            |write: &Write| matches!(write, Write::Create { body } if String::from_utf8_lossy(body).contains(".info"));
        let writes_info = matches!(call, Call::Write(batch) if batch.writes.iter().any(info));
        // The first start succeeds; after the reset two attempts fail.
        match writes_info && (1..=2).contains(&state.fetch_add(1, Ordering::SeqCst)) {
            true => Fault::Error(ErrorKind::Throttled),
            false => Fault::None,
        }
    });
    let processor = Processor::builder("mailer", &shop.orders, &leases).instance_name("worker-1");
    let running = shop::start(processor.start_from(StartFrom::Now), &seen).await;
    let ids = || async {
        let items = shop.leases.list("mailer").await.expect("list");
        items.into_iter().map(|item| item.id.to_string()).collect::<Vec<_>>()
    };
    for id in ids().await {
        delete(&shop.leases, &id).await;
    }
    until_async("new leases", || async { shop.lease_documents().await.len() == 2 }).await;
    until_async("the mark", || async { ids().await.iter().any(|id| id.ends_with(".info")) }).await;
    assert_eq!(refused.load(Ordering::SeqCst), 4, "one start, two refused attempts, one that succeeded");
    running.stop().await.expect("stop");
}

async fn delete(leases: &Container, id: &str) {
    leases.delete(id, id).await.expect("delete");
}
