//! A reset while hosts run: where they create the leases again.

mod shop;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use changefeed::{
    Control, Processor, Running, Scope, SeekTo,
    core::{Container, StartFrom, Write},
};
use changefeed_testkit::faulty::{Call, Fault};
use serde_json::{Value, json};

use crate::shop::{Seen, Shop, faulty, pass, until, until_async};

/// A host that begins at now.
async fn start_now(shop: &Shop, seen: &Seen) -> Running {
    let processor = Processor::builder("mailer", &shop.orders, &shop.leases).instance_name("worker-1");
    shop::start(processor.start_from(StartFrom::Now).lease_timing(shop::TIMING).runtime(shop.runtime()), seen).await
}

/// The ids of the processor's documents that are no leases, without what they have in common.
async fn marks(leases: &Container) -> Vec<String> {
    let items = leases.list("mailer").await.expect("list");
    let ids = items.iter().map(|item| item.id.as_str()).filter(|id| !id.contains(".."));
    ids.filter_map(|id| Some(id.rsplit_once('.')?.1.to_owned())).collect()
}

async fn edit_info(leases: &Container, edit: impl Fn(&mut Value)) {
    let items = leases.list("mailer").await.expect("list");
    let info = items.iter().find(|item| item.id.as_str().ends_with(".info")).expect("info");
    let mut info: Value = serde_json::from_slice(&info.body).expect("JSON");
    edit(&mut info);
    leases.upsert(&info).await.expect("upsert");
}

#[tokio::test(start_paused = true)]
async fn after_a_forced_reset_hosts_begin_where_the_last_seek_went_although_they_have_not_read_that() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    let running = start_now(&shop, &seen).await;
    shop.control().pause(Scope::All).await.expect("pause");
    until("the leases to be given up", || running.owned_leases().is_empty()).await;
    shop.write(0..10, 1).await;
    shop.control().seek(SeekTo::Now, Scope::All).apply().await.expect("skip");
    // The host reads where the leases begin now.
    pass(shop::TIMING.expiration * 2).await;
    shop.control().seek(SeekTo::Beginning, Scope::All).apply().await.expect("seek");
    shop.control().reset().forced().apply().await.expect("reset");
    until("everything", || seen.len() == 10).await;
    until_async("the mark of a started processor", || async { marks(&shop.leases).await == ["info"] }).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn what_a_forced_reset_leaves_for_hosts_does_not_count_for_those_that_start() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    shop.write(0..10, 1).await;
    let running = shop.host("worker-1", &seen).await;
    until("delivery", || seen.len() == 10).await;
    running.stop().await.expect("stop");
    shop.control().reset().forced().apply().await.expect("reset");
    assert_eq!(marks(&shop.leases).await, ["reset"]);
    let running = start_now(&shop, &seen).await;
    assert_eq!(marks(&shop.leases).await, ["info"]);
    shop.write(10..15, 1).await;
    until("delivery of what is new", || seen.len() >= 15).await;
    running.stop().await.expect("stop");
    assert_eq!(seen.len(), 15, "it begins where its own start option says");
    shop.control().reset().forced().apply().await.expect("reset");
    assert_eq!(marks(&shop.leases).await, ["reset"]);
    shop.host("worker-2", &seen).await.stop().await.expect("stop");
    shop.control().reset().apply().await.expect("reset");
    assert!(shop.leases.list("").await.expect("list").is_empty(), "nothing is left");
}

#[tokio::test(start_paused = true)]
async fn a_reset_deletes_the_positions_that_it_has_stored_and_no_later_ones() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    let running = start_now(&shop, &seen).await;
    shop.write(0..10, 1).await;
    until("delivery", || seen.len() == 10).await;
    seen.take();
    // A seek writes `.info` while the reset is about to delete it.
    let (raw, deletes) = (shop.leases.clone(), Arc::new(AtomicU32::new(0)));
    let positions = json!([{ "range": "-FF", "start": "beginning" }]).to_string();
    let (counted, edited) = (Arc::clone(&deletes), raw.clone());
    let leases = faulty(&raw, move |call: &Call<'_>| {
        let is_info = |write: &Write| matches!(write, Write::Delete { id, .. } if id.as_str().ends_with(".info"));
        let deletes_info = matches!(call, Call::Write(batch) if batch.writes.iter().any(is_info));
        if !deletes_info || counted.fetch_add(1, Ordering::SeqCst) > 0 {
            return Fault::None;
        }
        let (edited, positions) = (edited.clone(), positions.clone());
        Fault::Latency(Box::pin(async move {
            edit_info(&edited, |info| info["properties"]["cf.anchors"] = positions.as_str().into()).await;
        }))
    });
    let control = Control::new("mailer", &shop.orders, &leases).runtime(shop.runtime());
    control.reset().forced().apply().await.expect("reset");
    assert_eq!(deletes.load(Ordering::SeqCst), 2);
    until("everything again", || seen.len() == 10).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn hosts_that_run_create_info_again_although_all_leases_are_there() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    let running = start_now(&shop, &seen).await;
    until("the leases", || running.owned_leases().len() == 2).await;
    shop.write(0..10, 1).await;
    until("delivery", || seen.len() == 10).await;
    pass(shop::TIMING.expiration * 2).await;
    // A reset, and a host that creates the leases and dies before it writes `.info`.
    let documents = shop.lease_documents().await;
    shop.control().reset().forced().apply().await.expect("reset");
    for mut lease in documents.into_values() {
        (lease["Owner"], lease["properties"]) = (Value::Null, json!({}));
        shop.leases.upsert(&lease).await.expect("upsert");
    }
    until_async("the mark of a started processor", || async { marks(&shop.leases).await == ["info"] }).await;
    shop.control().seek(SeekTo::Beginning, Scope::All).apply().await.expect("seek");
    let info = shop.leases.list("mailer").await.expect("list");
    let info = info.iter().find(|item| item.id.as_str().ends_with(".info")).expect("info");
    assert!(String::from_utf8_lossy(&info.body).contains("cf.anchors"), "a seek is stored");
    until("everything again", || seen.len() == 20).await;
    running.stop().await.expect("stop");
}
