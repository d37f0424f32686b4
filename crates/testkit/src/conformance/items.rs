//! Items: creating, reading, replacing, deleting.

use changefeed_core::{Batch, ErrorKind, ItemKey, PartitionKey, PartitionKeyDefinition, Write};
use serde_json::{Value, json};

use super::{
    Fixture,
    stage::{Stage, refused},
};
use crate::fixtures::{body, create, delete, id, item, item_number, object, replace, session, upsert, user_members};

pub(super) async fn a_created_item_reads_back_as_it_was_written(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let written = stage.container.create(&item("a", "x", 1)).await.expect("create");
    let read = stage.get("a", "x").await;
    assert!(written.created);
    assert_eq!((&read.id, Some(&read.etag)), (&id("x"), written.etag.as_ref()));
    assert_eq!((read.lsn, read.timestamp), (written.lsn, written.timestamp));
    assert_eq!(user_members(&read.body), item("a", "x", 1));
}

pub(super) async fn a_stored_body_tells_its_etag_rid_and_timestamp_but_no_lsn(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let read = stage.get("a", "x").await;
    let body = object(&read.body);
    assert_eq!(body.get("_etag"), Some(&read.etag.as_str().into()));
    assert_eq!(body.get("_rid"), Some(&read.rid.to_string().into()));
    assert_eq!(body.get("_ts"), Some(&read.timestamp.as_secs().into()));
    assert_eq!(body.get("_lsn"), None, "_lsn appears in the feed only");
    assert_eq!(read.rid.container_part(), Some(stage.rid()), "an item's resource id contains its container's");
}

pub(super) async fn a_create_of_an_existing_item_is_refused(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let before = stage.snapshot().await;
    refused(stage.container.create(&item("a", "x", 2)).await, ErrorKind::AlreadyExists);
    stage.unchanged_since(&before, "a refused create").await;
}

pub(super) async fn the_same_id_under_another_partition_key_is_another_item(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.container.create(&item("a", "x", 1)).await.expect("create under a");
    stage.container.create(&item("b", "x", 2)).await.expect("create under b");
    assert_eq!(item_number(&stage.get("a", "x").await), 1);
    assert_eq!(item_number(&stage.get("b", "x").await), 2);
    stage.remove("a", "x").await;
    assert_eq!(item_number(&stage.get("b", "x").await), 2);
    refused(stage.try_get("a", "x").await, ErrorKind::ItemNotFound);
}

pub(super) async fn an_upsert_creates_or_replaces(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    assert!(stage.put("a", "x", 1).await.created, "the first upsert creates");
    assert!(!stage.put("a", "x", 2).await.created, "the second replaces");
    assert_eq!(item_number(&stage.get("a", "x").await), 2);
}

pub(super) async fn a_replace_puts_a_whole_new_body(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.upsert(&json!({"id": "x", "pk": "a", "n": 1, "old": true})).await;
    let written = stage.container.replace(&json!({"id": "x", "pk": "a", "n": 2, "new": [1]})).await.expect("replace");
    assert!(!written.created);
    let read = stage.get("a", "x").await;
    assert_eq!(user_members(&read.body), json!({"id": "x", "pk": "a", "n": 2, "new": [1]}));
}

pub(super) async fn a_missing_item_is_not_found(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let before = stage.snapshot().await;
    for (pk, id) in [("a", "y"), ("b", "x"), ("", "x"), ("a", "X"), ("a", "x ")] {
        refused(stage.try_get(pk, id).await, ErrorKind::ItemNotFound);
        refused(stage.container.replace(&item(pk, id, 1)).await, ErrorKind::ItemNotFound);
        refused(stage.container.delete(pk, id).await, ErrorKind::ItemNotFound);
    }
    stage.unchanged_since(&before, "looking for a missing item").await;
}

pub(super) async fn a_deleted_item_is_gone_and_can_be_created_again(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let first = stage.get("a", "x").await;
    stage.remove("a", "x").await;
    refused(stage.try_get("a", "x").await, ErrorKind::ItemNotFound);
    refused(stage.container.delete("a", "x").await, ErrorKind::ItemNotFound);
    assert!(stage.container.create(&item("a", "x", 2)).await.expect("create again").created);
    let second = stage.get("a", "x").await;
    assert_eq!(item_number(&second), 2);
    assert_ne!(second.rid, first.rid, "a resource id ends with its item");
}

pub(super) async fn a_resource_id_is_stable_from_creation_to_deletion(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    stage.put("a", "y", 1).await;
    let rid = stage.get("a", "x").await.rid;
    stage.put("a", "x", 2).await;
    stage.container.replace(&item("a", "x", 3)).await.expect("replace");
    assert_eq!(stage.get("a", "x").await.rid, rid);
    assert_ne!(stage.get("a", "y").await.rid, rid, "each item has its own");
}

pub(super) async fn system_members_of_a_client_are_discarded(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let forged = json!({
        "_rid": "forged", "_self": "forged", "_etag": "\"forged\"", "_ts": 1, "_lsn": 99, "_attachments": "forged",
        "id": "x", "pk": "a", "n": 1,
    });
    for write in [create(&forged), replace(&forged), upsert(&forged)] {
        stage.try_write(Some("a"), write).await.expect("a body with system members is taken");
        let read = stage.get("a", "x").await;
        assert_store_owns_its_members(&object(&read.body));
        assert_eq!(user_members(&read.body), item("a", "x", 1));
    }
    let changes = stage.reader(changefeed_core::StartFrom::Beginning).drain().await;
    let current = changes.first().and_then(|change| change.current.clone()).expect("the change carries the item");
    assert_store_owns_its_members(&object(&current));
}

fn assert_store_owns_its_members(body: &serde_json::Map<String, Value>) {
    for name in ["_rid", "_self", "_etag", "_attachments"] {
        let forged = body.get(name).and_then(Value::as_str).is_some_and(|value| value.contains("forged"));
        assert!(!forged, "{name} of a client is discarded: {body:?}");
    }
    assert_ne!(body.get("_ts"), Some(&1.into()), "_ts of a client is discarded");
    assert_ne!(body.get("_lsn"), Some(&99.into()), "_lsn of a client is discarded");
}

pub(super) async fn system_members_are_recognised_however_they_are_spelled(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let text =
        r#" { "\u005fetag" : "\"forged\"" , "_\u0074s":1,"\u0069\u0064":"x", "_\u006csn" : 99 , "pk":"a","n":1 } "#;
    stage.try_write(Some("a"), Write::Create { body: text.into() }).await.expect("escaped names are names");
    let read = stage.get("a", "x").await;
    assert_store_owns_its_members(&object(&read.body));
    assert_eq!(user_members(&read.body), item("a", "x", 1));
    let text = String::from_utf8(read.body.to_vec()).expect("bodies are UTF-8");
    assert!(!text.contains("forged"), "no spelling of a system member survives: {text}");
}

pub(super) async fn only_system_members_at_the_top_belong_to_the_store(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let nested = json!({
        "id": "x", "pk": "a", "n": 1, "_mine": 1, "_": 2, "etag": "e", "ts": 3, "__etag": 4, "_ETAG": 5,
        "inner": {"_etag": "kept", "_lsn": 7, "_ts": 8, "_rid": 9, "id": 10}, "list": [{"_etag": 1}],
    });
    stage.upsert(&nested).await;
    assert_eq!(user_members(&stage.get("a", "x").await.body), nested);
}

pub(super) async fn a_write_returns_the_stored_item_only_when_asked(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let batch = |return_items, writes| Batch { partition_key: Some("a".into()), writes, return_items };
    let write = |return_items, write| stage.backend().write(batch(return_items, vec![write]));
    let quiet = write(false, create(&item("a", "x", 1))).await.expect("create");
    assert!(quiet[0].item.is_none(), "nobody asked for the item");
    for asked in [upsert(&item("a", "x", 2)), replace(&item("a", "x", 3)), create(&item("a", "y", 4))] {
        let written = write(true, asked).await.expect("write").swap_remove(0);
        let stored = written.item.expect("the item was asked for");
        assert_eq!(stored, stage.get("a", &written.id).await);
    }
    let deleted = write(true, delete("x")).await.expect("delete").swap_remove(0);
    assert!(deleted.item.is_none() && deleted.etag.is_none(), "a delete leaves nothing to return");
}

pub(super) async fn every_json_value_survives(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let deep = (0..60).fold(json!("bottom"), |inner, _| json!([{"d": inner}]));
    let rich = json!({
        "id": "x", "pk": "a", "n": 1, "": "empty name", "null": null, "yes": true, "no": false, "zero": 0, "minus": -1,
        "big": u64::MAX, "small": i64::MIN, "fraction": 0.1, "tiny": 5e-324, "huge": 1.7976931348623157e308,
        "text": "quote \" backslash \\ slash / newline \n tab \t nul \u{0} é ✓ 😀 \u{2028}",
        "empty": {}, "none": [], "mixed": [1, "a", null, {"b": [[]]}], "na\"me\\é": 1, "deep": deep,
    });
    stage.upsert(&rich).await;
    assert_eq!(user_members(&stage.get("a", "x").await.body), rich);
    let changes = stage.reader(changefeed_core::StartFrom::Beginning).drain().await;
    assert_eq!(user_members(changes[0].current.as_deref().expect("the item")), rich);
}

pub(super) async fn a_body_is_stored_under_the_id_that_it_shows(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let before = stage.snapshot().await;
    let twice = r#"{"id":"first","pk":"a","n":1,"id":"second"}"#;
    match stage.try_write(Some("a"), Write::Create { body: twice.into() }).await {
        Ok(written) => {
            let stored = stage.get("a", &written[0].id).await;
            assert_eq!(object(&stored.body).get("id"), Some(&stored.id.as_str().into()));
            assert_eq!(stage.list(Default::default()).await, [stored]);
        }
        Err(_) => stage.unchanged_since(&before, "a refused body").await,
    }
}

pub(super) async fn partition_keys_of_every_type_are_apart(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let keys =
        [Value::Null, json!(true), json!(false), json!(0), json!(1), json!(1.5), json!(-1), json!(""), json!("1")];
    for (n, key) in keys.iter().enumerate() {
        let body = body(&json!({"id": "x", "pk": key, "n": n}));
        stage.try_write(None, Write::Create { body }).await.expect("create under a key of its own");
    }
    let without = body(&json!({"id": "x", "n": keys.len()}));
    stage.try_write(None, Write::Create { body: without }).await.expect("create without a key");
    for (n, key) in keys.iter().map(|key| format!("[{key}]")).chain(["[{}]".to_owned()]).enumerate() {
        let key: PartitionKey = key.parse().expect("a partition key");
        let read = stage.backend().read_item(&ItemKey::new(key, id("x"))).await.expect("read");
        assert_eq!(item_number(&read), n as u64);
    }
    let one = stage.backend().read_item(&ItemKey::new("[1.0]".parse::<PartitionKey>().expect("key"), id("x"))).await;
    assert_eq!(item_number(&one.expect("1 and 1.0 are the same key")), 4);
}

pub(super) async fn ids_of_every_allowed_shape_are_accepted(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let long = ["x".repeat(1023), "€".repeat(341)];
    let ids = [
        "x",
        " ",
        "a b",
        "..",
        "%2F",
        "a+b",
        "😀",
        "\"quoted\"",
        "a&b=c",
        "a?b",
        "x\n\t\r",
        "\u{0}\u{7f}\u{85}",
        "null",
        "__",
        "'",
        "日本",
        &long[0],
        &long[1],
    ];
    for id in ids {
        let written = stage.container.create(&item("a", id, 1)).await.expect("create");
        assert_eq!(written.id.as_str(), id);
        assert_eq!(stage.get("a", id).await.id.as_str(), id);
    }
    assert_eq!(stage.reader(changefeed_core::StartFrom::Beginning).drain().await.len(), ids.len());
    for id in ids {
        stage.remove("a", id).await;
    }
}

pub(super) async fn hierarchical_keys_name_items_with_all_their_parts(fixture: &dyn Fixture) {
    let paths = ["/tenant", "/user", "/session"];
    let definition = PartitionKeyDefinition::hierarchical(paths).expect("good paths");
    let stage = Stage::with(fixture, |spec| spec.partition_key = definition).await;
    for (n, (tenant, user)) in [("t", "u"), ("t", "v"), ("u", "t")].into_iter().enumerate() {
        stage.container.create(&session(tenant, user, "s", "x", n as u64)).await.expect("create");
    }
    let read = stage.container.read_item(("t", "v", "s"), "x").await.expect("read by the whole key");
    assert_eq!(item_number(&read), 1);
    stage.container.delete(("t", "u", "s"), "x").await.expect("delete by the whole key");
    refused(stage.container.read_item(("t", "u", "s"), "x").await, ErrorKind::ItemNotFound);
    assert_eq!(stage.list(Default::default()).await.len(), 2);
}

pub(super) async fn version_1_keys_name_items_like_others(fixture: &dyn Fixture) {
    let definition = PartitionKeyDefinition::hash_v1("/pk").expect("a good path");
    let stage = Stage::with(fixture, |spec| spec.partition_key = definition).await;
    stage.put("a", "x", 1).await;
    stage.put("b", "x", 2).await;
    stage.put("a", "x", 3).await;
    assert_eq!(item_number(&stage.get("a", "x").await), 3);
    assert_eq!(item_number(&stage.get("b", "x").await), 2);
    assert_eq!(stage.reader(changefeed_core::StartFrom::Beginning).drain().await.len(), 2);
}

pub(super) async fn a_nested_partition_key_path_is_followed(fixture: &dyn Fixture) {
    let definition = PartitionKeyDefinition::hash("/who/name").expect("a good path");
    let stage = Stage::with(fixture, |spec| spec.partition_key = definition).await;
    let nested = json!({"id": "x", "n": 1, "who": {"name": "a"}, "name": "b"});
    stage.upsert(&nested).await;
    assert_eq!(user_members(&stage.get("a", "x").await.body), nested);
}
