//! Export and import: the positions of a processor survive the loss of its lease container, and hosts that run are not
//! overwritten.

mod shop;

use changefeed::{ImportAction, LeaseArchive, Scope, adopt_store, core::ErrorKind};
use serde_json::{Value, json};
use shop::{Seen, Shop, until};

async fn caught_up(ranges: usize, items: u64) -> Shop {
    let shop = Shop::new(ranges).await;
    shop.write(0..items, 1).await;
    shop.catch_up(&Seen::default(), usize::try_from(items).expect("few")).await;
    shop
}

async fn delete_all_leases(shop: &Shop) {
    for item in shop.leases.list("").await.expect("list") {
        shop.leases.delete(item.id.as_str(), item.id.as_str()).await.expect("delete");
    }
}

fn actions(imported: &[changefeed::ImportedLease]) -> Vec<(&str, ImportAction)> {
    imported.iter().map(|one| (one.lease.as_str(), one.action)).collect()
}

#[tokio::test(start_paused = true)]
async fn an_archive_brings_back_leases_that_were_lost() {
    let shop = caught_up(2, 20).await;
    let text = shop.control().export().await.expect("export").to_json();
    let archive = LeaseArchive::from_json(text.as_bytes()).expect("read");
    assert_eq!((archive.processor.as_str(), archive.leases.len()), ("mailer", 2));
    assert!(archive.leases.iter().all(|lease| lease.get("_etag").is_none()), "{text}");
    shop.write(20..30, 1).await;
    delete_all_leases(&shop).await;

    let would = shop.control().import(archive.clone()).dry_run().await.expect("dry run");
    assert_eq!(actions(&would), [("0", ImportAction::Create), ("1", ImportAction::Create)]);
    assert!(shop.leases.list("").await.expect("list").is_empty(), "a dry run writes nothing");
    assert_eq!(shop.control().import(archive).apply().await.expect("import"), would);
    let seen = Seen::default();
    shop.catch_up(&seen, 10).await;
    let mut ids = seen.ids();
    ids.sort();
    let rest: Vec<String> = (20..30).map(|item| format!("o{item}")).collect();
    assert_eq!(ids, rest, "exactly what was not handled before");
}

#[tokio::test(start_paused = true)]
async fn an_import_moves_leases_back_and_deletes_those_that_the_archive_does_not_have() {
    let shop = caught_up(1, 10).await;
    let archive = shop.control().export().await.expect("export");
    shop.split(0).await;
    shop.write(10..20, 1).await;
    shop.catch_up(&Seen::default(), 10).await;
    let imported = shop.control().import(archive).apply().await.expect("import");
    assert_eq!(
        actions(&imported),
        [("0", ImportAction::Create), ("1", ImportAction::Delete), ("2", ImportAction::Delete)]
    );
    // The lease of the range before the split is replaced by the next host, at the position of the archive.
    let seen = Seen::default();
    shop.catch_up(&seen, 10).await;
    assert_eq!(seen.counts().len(), 10);
}

/// Earlier versions cut long ids of leases at another place.
#[tokio::test(start_paused = true)]
async fn a_lease_under_another_id_does_not_undo_an_import() {
    let shop = caught_up(1, 10).await;
    let archive = shop.control().export().await.expect("export");
    shop.write(10..20, 1).await;
    shop.catch_up(&Seen::default(), 10).await;
    let mut lease = shop.lease_documents().await["0"].clone();
    let id = lease["id"].as_str().expect("an id").to_owned();
    lease["id"] = format!("{id}-cut").into();
    shop.leases.create(&lease).await.expect("create");
    shop.leases.delete(id.as_str(), id.as_str()).await.expect("delete");
    shop.control().import(archive).apply().await.expect("import");
    let ids: Vec<String> = shop.leases.list("").await.expect("list").iter().map(|item| item.id.to_string()).collect();
    assert!(ids.contains(&id) && !ids.contains(&format!("{id}-cut")), "{ids:?}");
    let seen = Seen::default();
    shop.catch_up(&seen, 10).await;
    assert_eq!(seen.counts().len(), 10, "what the import moved back");
}

#[tokio::test(start_paused = true)]
async fn living_hosts_are_not_overwritten_unless_that_is_said() {
    let shop = caught_up(2, 10).await;
    let archive = shop.control().export().await.expect("export");
    let seen = Seen::default();
    let running = shop.host("a", &seen).await;
    shop.write(10..20, 1).await;
    until("delivery", || seen.len() == 10).await;
    let error = shop.control().import(archive.clone()).apply().await.expect_err("a host is alive");
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.message().contains("hosts are alive: a;"), "{error}");
    shop.control().import(archive).force(true).apply().await.expect("import");
    until("everything again", || seen.len() == 20).await;
    running.stop().await.expect("stop");
}

/// Breaks a document as a program does that writes something else into it.
async fn damage(shop: &Shop, id: &str, edit: impl Fn(&mut Value)) {
    let found = shop.leases.read_item(id, id).await.expect("read");
    let mut document: Value = found.parse().expect("json");
    edit(&mut document);
    shop.leases.upsert(&document).await.expect("write");
}

#[tokio::test(start_paused = true)]
async fn an_import_replaces_and_deletes_documents_that_cannot_be_read() {
    let shop = caught_up(2, 20).await;
    let archive = shop.control().export().await.expect("export");
    let documents = shop.lease_documents().await;
    let id = documents["0"]["id"].as_str().expect("id").to_owned();
    shop.write(20..30, 1).await;
    damage(&shop, &id, |lease| lease["ContinuationToken"] = 7.into()).await;
    // One that the archive does not have.
    let mut stray = documents["1"].clone();
    stray["id"] = format!("{id}x").into();
    stray["ContinuationToken"] = 7.into();
    shop.leases.create(&stray).await.expect("create");
    let refused = shop.control().pause(Scope::All).await.expect_err("one of them would not be paused");
    assert!(refused.message().contains("replace it by importing leases that were exported"), "{refused}");

    let would = shop.control().import(archive.clone()).dry_run().await.expect("dry run");
    let expected = [("0", ImportAction::Replace), ("1", ImportAction::Replace), ("0x", ImportAction::Delete)];
    assert_eq!(actions(&would), expected);
    assert_eq!((&would[0].from, &would[2].from), (&None, &None), "nobody knows where they stood");
    assert_eq!(shop.control().import(archive).apply().await.expect("import"), would);
    let seen = Seen::default();
    shop.catch_up(&seen, 10).await;
    assert_eq!(seen.counts().len(), 10, "exactly what was not handled before");
    assert_eq!(shop.leases.list(&format!("{id}x")).await.expect("list").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_import_replaces_a_marker_that_cannot_be_read() {
    let shop = caught_up(1, 5).await;
    let archive = shop.control().export().await.expect("export");
    let id = archive.info.as_ref().and_then(|info| info["id"].as_str()).expect("id").to_owned();
    damage(&shop, &id, |info| *info = json!({ "id": id, "properties": 7 })).await;
    let error = shop.control().pause(Scope::All).await.expect_err("the marker cannot be read");
    assert!(error.message().contains("replace it by importing leases that were exported"), "{error}");
    let damaged = shop.control().export().await.expect("documents as they are");
    assert_eq!(damaged.info.expect("the marker")["properties"], 7);
    shop.control().import(archive).apply().await.expect("import");
    assert_eq!(shop.control().pause(Scope::All).await.expect("pause").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn documents_of_a_newer_version_are_not_taken_for_damaged() {
    let shop = caught_up(1, 5).await;
    let archive = shop.control().export().await.expect("export");
    let id = shop.lease_documents().await["0"]["id"].as_str().expect("id").to_owned();
    damage(&shop, &id, |lease| lease["version"] = 9.into()).await;
    let error = shop.control().import(archive.clone()).apply().await.expect_err("newer hosts use it");
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.message().contains("is not damaged, but of other hosts"), "{error}");
    shop.control().import(archive).force(true).apply().await.expect("import");
}

#[tokio::test(start_paused = true)]
async fn positions_of_another_store_are_accepted_only_if_that_is_said() {
    let (shop, copy) = (caught_up(2, 10).await, Shop::new(2).await);
    copy.write(0..12, 1).await;
    let archive = shop.control().export().await.expect("export");
    let error = copy.control().import(archive.clone()).apply().await.expect_err("another store");
    assert_eq!(error.kind(), ErrorKind::ForeignContinuation);
    assert!(copy.leases.list("").await.expect("list").is_empty(), "nothing was written");
    copy.control().import(archive).accept_other_store(true).apply().await.expect("import");
    let seen = Seen::default();
    copy.catch_up(&seen, 2).await;
    assert_eq!(seen.ids(), ["o10", "o11"]);
}

#[tokio::test(start_paused = true)]
async fn an_import_under_another_name_makes_another_processor() {
    let shop = caught_up(1, 5).await;
    shop.control().pause(Scope::All).await.expect("pause");
    let archive = shop.control().export().await.expect("export");
    let control = changefeed::Control::new("printer", &shop.orders, &shop.leases).runtime(shop.runtime());
    control.import(archive).apply().await.expect("import");
    let names = changefeed::processors(&shop.orders, &shop.leases).await.expect("processors");
    assert_eq!(names, ["mailer", "printer"]);
    assert_eq!(control.resume(Scope::All).await.expect("resume").len(), 1, "the pause came with it");
}

#[tokio::test(start_paused = true)]
async fn a_position_that_the_feed_does_not_have_is_refused_before_anything_is_written() {
    let shop = caught_up(2, 5).await;
    let mut archive = shop.control().export().await.expect("export");
    archive.leases[1]["ContinuationToken"] = "no position".into();
    let before = shop.lease_documents().await;
    let error = shop.control().import(archive).apply().await.expect_err("no position");
    assert_eq!(error.kind(), ErrorKind::BadContinuation, "{error}");
    assert_eq!(shop.lease_documents().await, before);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_archive_is_refused_with_a_sentence() {
    let shop = caught_up(1, 1).await;
    let good: Value = serde_json::from_str(&shop.control().export().await.expect("export").to_json()).expect("JSON");
    let with = |member: &str, value: Value| {
        let mut bad = good.clone();
        bad[member] = value;
        bad.to_string()
    };
    for (text, words) in [
        ("no JSON".to_owned(), "no archive"),
        ("{}".to_owned(), "no archive"),
        (with("version", json!(2)), "version 2"),
        (with("dialect", json!("java")), "\"java\""),
        (with("leases", json!({})), "damaged"),
        (with("info", json!([])), ".info document is not a JSON object"),
    ] {
        let error = LeaseArchive::from_json(text.as_bytes()).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(words), "{error}");
    }
    let bad = with("leases", json!([{ "id": "x" }]));
    let archive = LeaseArchive::from_json(bad.as_bytes()).expect("an archive");
    let error = shop.control().import(archive).apply().await.expect_err("no lease");
    assert!(error.message().contains("document x of the archive cannot be read"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn leases_that_were_copied_with_their_store_go_on_once_they_are_adopted() {
    let (shop, other) = (caught_up(1, 10).await, Shop::new(1).await);
    other.write(0..15, 1).await;
    // The leases lie beside the orders that have another identity now, as after a restore.
    let restored = Shop { orders: other.orders.clone(), ..shop.clone() };
    let (from, to) = (shop.engine.store_id(), other.engine.store_id());
    assert_eq!(adopt_store(&shop.leases, from, to).await.expect("adopt"), 1);
    assert_eq!(adopt_store(&shop.leases, from, to).await.expect("adopt"), 0);
    let seen = Seen::default();
    restored.catch_up(&seen, 5).await;
    assert_eq!(seen.len(), 5);
}
