//! Bad input: each kind is refused by name, and nothing changes.

use changefeed_core::{
    Batch, Bytes, Continuation, ETag, Epk, ErrorKind, FeedRange, ItemId, ItemKey, ListItems, Lsn, MAX_ITEM_BYTES,
    PartitionKey, PartitionKeyDefinition, StartFrom, Write,
};
use serde_json::json;

use super::{
    Fixture,
    stage::{Stage, refused},
};
use crate::fixtures::{body, create, delete, id, item, item_of_size, session, upsert};

/// A container with one item, so that every kind of write could succeed.
async fn stage(fixture: &dyn Fixture) -> Stage<'_> {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    stage
}

/// Every way to write `body`.
fn every_write(body: &Bytes) -> [Write; 3] {
    [
        Write::Create { body: body.clone() },
        Write::Upsert { body: body.clone(), if_match: None },
        Write::Replace { body: body.clone(), if_match: None },
    ]
}

/// Checks that these bodies are refused however they are written, alone and in a batch, and change nothing.
async fn bodies_are_refused(fixture: &dyn Fixture, bodies: &[Bytes], kind: ErrorKind) {
    let stage = stage(fixture).await;
    let before = stage.snapshot().await;
    for bad in bodies {
        for write in every_write(bad) {
            refused(stage.try_write(Some("a"), write.clone()).await, kind);
            refused(stage.try_write(None, write.clone()).await, kind);
            let error = refused(stage.try_batch("a", vec![upsert(&item("a", "y", 1)), write]).await, kind);
            assert_eq!(error.operation(), Some(1), "the error names the write that failed");
        }
        stage.unchanged_since(&before, &format!("{:?}", bad.slice(..bad.len().min(60)))).await;
    }
}

fn texts(texts: &[&str]) -> Vec<Bytes> {
    texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect()
}

pub(super) async fn an_item_without_an_id_is_refused(fixture: &dyn Fixture) {
    let bodies = [
        r#"{"pk":"a"}"#,
        r#"{"pk":"a","id":1}"#,
        r#"{"pk":"a","id":null}"#,
        r#"{"pk":"a","id":true}"#,
        r#"{"pk":"a","id":["x"]}"#,
        r#"{"pk":"a","id":{"id":"x"}}"#,
        r#"{"pk":"a","Id":"x"}"#,
        r#"{"pk":"a","inner":{"id":"x"}}"#,
    ];
    bodies_are_refused(fixture, &texts(&bodies), ErrorKind::MissingId).await;
}

pub(super) async fn an_id_that_would_break_paths_is_refused(fixture: &dyn Fixture) {
    let ids = ["", "a/b", "a\\b", "a#b", "/", "\\", "#"];
    let bodies: Vec<_> = ids.iter().map(|id| body(&item("a", id, 1))).collect();
    bodies_are_refused(fixture, &bodies, ErrorKind::BadId).await;
    for id in ids {
        assert_eq!(ItemId::new(id).expect_err("a bad id").kind(), ErrorKind::BadId);
    }
}

pub(super) async fn an_id_over_1023_bytes_is_refused(fixture: &dyn Fixture) {
    let bodies = ["x".repeat(1024), "€".repeat(342), "x".repeat(5000)].map(|id| body(&item("a", &id, 1)));
    bodies_are_refused(fixture, &bodies, ErrorKind::BadId).await;
}

pub(super) async fn a_body_that_is_not_an_object_is_refused(fixture: &dyn Fixture) {
    let bodies = texts(&["[]", "null", "true", "1", "-1.5e3", "\"x\"", " [{\"id\":\"x\",\"pk\":\"a\"}] ", "\"{}\""]);
    bodies_are_refused(fixture, &bodies, ErrorKind::NotAnObject).await;
}

pub(super) async fn a_body_that_is_not_json_is_refused(fixture: &dyn Fixture) {
    let bodies = texts(&[
        "",
        " ",
        "{",
        "nul",
        r#"{"id":"x","pk":"a""#,
        r#"{"id":"x","pk":"a",}"#,
        r#"{"id":"x" "pk":"a"}"#,
        r#"{"id":"x","pk":"a"} {}"#,
        r#"{"id":"x","pk":"a"}}"#,
        r#"{'id':'x','pk':'a'}"#,
        r#"{id:"x",pk:"a"}"#,
        r#"{"id":"x","pk":"a","n":NaN}"#,
        r#"{"id":"x","pk":"a","n":01}"#,
        r#"{"id":"x","pk":"a","n":1.}"#,
        r#"{"id":"x","pk":"a","n":+1}"#,
        r#"{"id":"x","pk":"a","n":"\x"}"#,
        "{\"id\":\"x\",\"pk\":\"a\",\"n\":\"line\nbreak\"}",
        "{\"id\":\"x\",\"pk\":\"a\" /* comment */}",
        "\u{feff}{\"id\":\"x\",\"pk\":\"a\"}",
        "{\"id\":\"x\",\"pk\":\"a\"}\u{0}",
    ]);
    bodies_are_refused(fixture, &bodies, ErrorKind::BadJson).await;
}

pub(super) async fn a_body_that_is_not_utf8_is_refused(fixture: &dyn Fixture) {
    let broken: [&[u8]; 4] = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"];
    let bodies: Vec<_> = broken
        .iter()
        .map(|bytes| Bytes::from([&br#"{"id":"x","pk":"a","n":1,"text":""#[..], bytes, &b"\"}"[..]].concat()))
        .collect();
    bodies_are_refused(fixture, &bodies, ErrorKind::NotUtf8).await;
}

pub(super) async fn an_item_over_two_mebibytes_is_refused(fixture: &dyn Fixture) {
    let bodies = [item_of_size("a", "x", MAX_ITEM_BYTES + 1), item_of_size("a", "x", 3 * MAX_ITEM_BYTES)];
    bodies_are_refused(fixture, &bodies, ErrorKind::TooLarge).await;
}

pub(super) async fn an_item_of_two_mebibytes_is_accepted(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let largest = item_of_size("a", "x", MAX_ITEM_BYTES);
    stage.try_write(None, Write::Create { body: largest.clone() }).await.expect("the largest item");
    let stored = stage.get("a", "x").await;
    assert_eq!(crate::fixtures::user_members(&stored.body), crate::fixtures::user_members(&largest));
    assert_eq!(stage.reader(StartFrom::Beginning).drain().await.len(), 1);
}

pub(super) async fn a_body_nested_very_deep_does_no_harm(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let before = stage.list(ListItems::default()).await;
    let depth = 100_000;
    let deep = format!(r#"{{"id":"deep","pk":"a","n":1,"d":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    match stage.try_write(None, Write::Create { body: deep.clone().into() }).await {
        Ok(_) => assert!(stage.get("a", "deep").await.body.len() >= deep.len(), "what was taken is kept"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::BadJson, "{error:?}");
            assert_eq!(stage.list(ListItems::default()).await, before);
        }
    }
}

pub(super) async fn a_wrong_partition_key_is_refused(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let before = stage.snapshot().await;
    let bodies = [
        json!({"id": "x", "pk": "b", "n": 1}),
        json!({"id": "x", "pk": 1, "n": 1}),
        json!({"id": "x", "pk": null, "n": 1}),
        json!({"id": "x", "n": 1}),
        json!({"id": "x", "inner": {"pk": "a"}, "n": 1}),
        json!({"id": "x", "PK": "a", "n": 1}),
        json!({"id": "x", "pk": {"a": 1}, "n": 1}),
        json!({"id": "x", "pk": ["a"], "n": 1}),
    ];
    for bad in &bodies {
        for write in every_write(&body(bad)) {
            refused(stage.try_write(Some("a"), write).await, ErrorKind::WrongPartitionKey);
        }
    }
    for write in every_write(&body(&json!({"id": "x", "pk": ["a"], "n": 1}))) {
        refused(stage.try_write(None, write).await, ErrorKind::WrongPartitionKey);
    }
    stage.unchanged_since(&before, "a write under a wrong key").await;
}

pub(super) async fn a_missing_partition_key_is_refused(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let before = stage.snapshot().await;
    refused(stage.try_write(None, delete("x")).await, ErrorKind::WrongPartitionKey);
    for none in [PartitionKey::none(), PartitionKey::undefined()] {
        let batch = Batch::single(Some(none.clone()), upsert(&item("a", "x", 2)));
        refused(stage.backend().write(batch).await, ErrorKind::WrongPartitionKey);
        refused(stage.backend().read_item(&ItemKey::new(none, id("x"))).await, ErrorKind::ItemNotFound);
    }
    stage.unchanged_since(&before, "a write without a key").await;
}

pub(super) async fn a_key_with_the_wrong_number_of_parts_is_refused(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let before = stage.snapshot().await;
    for long in [PartitionKey::from(("a", "b")), PartitionKey::from(("a", "b", "c"))] {
        parts_are_refused(&stage, long, upsert(&item("a", "x", 2))).await;
    }
    stage.unchanged_since(&before, "a key with too many parts").await;
}

pub(super) async fn a_prefix_does_not_name_an_item(fixture: &dyn Fixture) {
    let definition = PartitionKeyDefinition::hierarchical(["/tenant", "/user", "/session"]).expect("good paths");
    let stage = Stage::with(fixture, |spec| spec.partition_key = definition).await;
    stage.upsert(&session("t", "u", "s", "x", 1)).await;
    let before = stage.snapshot().await;
    for short in [PartitionKey::none(), PartitionKey::from("t"), PartitionKey::from(("t", "u"))] {
        parts_are_refused(&stage, short, upsert(&session("t", "u", "s", "x", 2))).await;
    }
    stage.unchanged_since(&before, "a key with too few parts").await;
}

async fn parts_are_refused(stage: &Stage<'_>, key: PartitionKey, write: Write) {
    for write in [write, delete("x")] {
        let batch = Batch::single(Some(key.clone()), write);
        refused(stage.backend().write(batch).await, ErrorKind::WrongPartitionKey);
    }
    refused(stage.backend().read_item(&ItemKey::new(key, id("x"))).await, ErrorKind::WrongPartitionKey);
}

pub(super) async fn a_text_that_is_not_an_etag_never_reaches_the_store(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let before = stage.snapshot().await;
    let long = format!("\"{}\"", "x".repeat(200));
    for bad in ["", "*", "x", "\"", "\"\"", "\"x", "x\"", "\"a b\"", "\"é\"", "W/\"x\"", &long] {
        refused(ETag::new(bad), ErrorKind::BadETag);
    }
    let unknown = ETag::new("\"never-given-out\"").expect("a well-formed etag");
    refused(stage.container.replace_if(&item("a", "x", 2), &unknown).await, ErrorKind::PreconditionFailed);
    stage.unchanged_since(&before, "an unknown etag").await;
}

pub(super) async fn a_batch_that_is_empty_or_too_long_is_refused(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let before = stage.snapshot().await;
    let too_long = (0..=Batch::MAX_WRITES).map(|n| create(&item("a", &format!("y{n}"), 1))).collect();
    for writes in [Vec::new(), too_long] {
        refused(stage.try_batch("a", writes.clone()).await, ErrorKind::BadBatch);
        let batch = Batch { partition_key: None, writes, return_items: true };
        refused(stage.backend().write(batch).await, ErrorKind::BadBatch);
    }
    stage.unchanged_since(&before, "a bad batch").await;
}

pub(super) async fn a_batch_of_several_partition_keys_is_refused(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let before = stage.snapshot().await;
    let writes = vec![upsert(&item("a", "y", 1)), upsert(&item("b", "y", 1))];
    refused(stage.try_batch("a", writes.clone()).await, ErrorKind::WrongPartitionKey);
    let batch = Batch { partition_key: None, writes, return_items: false };
    refused(stage.backend().write(batch).await, ErrorKind::BadBatch);
    stage.unchanged_since(&before, "a batch of several keys").await;
}

pub(super) async fn a_text_that_is_not_a_continuation_is_refused(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let before = stage.snapshot().await;
    let long = "x".repeat(100_000);
    for bad in ["", "\"", "\"\"", "x", "\"x\"", "-1", "\"-1\"", "1.5", "\"1", "1\"", "0x1", "１", "\u{0}", "é😀", &long]
    {
        stage.reader(Continuation::from_token(bad)).refused(ErrorKind::BadContinuation).await;
    }
    stage.unchanged_since(&before, "a bad continuation").await;
}

pub(super) async fn a_continuation_of_another_container_is_refused(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let other = Stage::named(fixture, "other", |_| {}).await;
    other.put("a", "x", 1).await;
    let before = stage.snapshot().await;
    let mut foreign = other.reader(StartFrom::Beginning);
    foreign.page().await;
    stage.reader(foreign.continuation()).refused(ErrorKind::ForeignContinuation).await;
    stage.unchanged_since(&before, "a foreign continuation").await;
}

pub(super) async fn a_continuation_beyond_the_end_is_refused(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let before = stage.snapshot().await;
    let newest = stage.newest_lsns().await.swap_remove(0);
    for beyond in [newest.next(), Lsn::new(newest.get() + 1000), Lsn::new(u64::MAX - 1), Lsn::new(u64::MAX)] {
        let made_up = Continuation::after(beyond, stage.rid());
        stage.reader(made_up.clone()).refused(ErrorKind::ContinuationBeyondEnd).await;
        let stored = Continuation::from_token(made_up.token());
        stage.reader(stored).refused(ErrorKind::ContinuationBeyondEnd).await;
    }
    let end = Continuation::after(newest, stage.rid());
    assert!(stage.reader(end).page().await.changes.is_empty(), "the end itself is a good position");
    stage.unchanged_since(&before, "a continuation beyond the end").await;
}

pub(super) async fn a_range_that_makes_no_sense_never_reaches_the_store(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let before = stage.snapshot().await;
    let (low, high) = (stage.epk("a").min(stage.epk("b")), stage.epk("a").max(stage.epk("b")));
    refused(FeedRange::new(high.clone(), low.clone()), ErrorKind::BadRange);
    refused(FeedRange::new(low.clone(), low), ErrorKind::BadRange);
    refused(FeedRange::new(high, Epk::MAX.successor()), ErrorKind::BadRange);
    for bad in ["", "FF", "FF-", "-", "zz-FF", "1-FF", "20-10"] {
        refused(bad.parse::<FeedRange>(), ErrorKind::BadRange);
    }
    stage.unchanged_since(&before, "a bad range").await;
}

pub(super) async fn a_range_outside_of_the_named_physical_range_shows_nothing(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 2).await;
    for key in super::stage::many_keys(10) {
        stage.put(&key, &key, 1).await;
    }
    let ranges = stage.ranges().await;
    let mut outside = stage.reader_of(&ranges[1].range, StartFrom::Beginning).physical(&ranges[0].id);
    match outside.try_page().await {
        Ok(page) => assert!(page.changes.is_empty(), "nothing of it lies in the range"),
        Err(error) => assert!(!error.kind().is_transient(), "asking again does not help: {error:?}"),
    }
}

pub(super) async fn a_page_of_nothing_is_refused(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    stage.reader(StartFrom::Beginning).max_items(0).refused(ErrorKind::InvalidArgument).await;
    let nothing = ListItems { max_items: 0, ..ListItems::default() };
    refused(stage.backend().list_items(nothing).await, ErrorKind::InvalidArgument);
}

pub(super) async fn a_listing_that_goes_on_from_nowhere_is_refused(fixture: &dyn Fixture) {
    let stage = stage(fixture).await;
    let before = stage.snapshot().await;
    for bad in ["", "x", "\u{0}", "é😀", "\"1\"", "zz/zz"] {
        let request = ListItems { after: Some(bad.to_owned()), ..ListItems::default() };
        refused(stage.backend().list_items(request).await, ErrorKind::BadContinuation);
    }
    stage.unchanged_since(&before, "a refused listing").await;
}
