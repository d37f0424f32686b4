//! Batches: all writes under one key, one LSN, together or not at all.

use changefeed_core::{Batch, ErrorKind, ItemKey, Operation, PartitionKeyDefinition, StartFrom, Write};

use super::{
    Fixture,
    reader::{ids, versions},
    stage::{Stage, refused},
};
use crate::fixtures::{body, create, delete, id, item, item_number, replace, session, upsert};

pub(super) async fn a_batch_happens_under_one_lsn_and_returns_one_result_for_each(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "old", 1).await;
    let before = stage.put("a", "dead", 1).await.lsn;
    let writes = vec![
        create(&item("a", "new", 1)),
        replace(&item("a", "old", 2)),
        delete("dead"),
        upsert(&item("a", "maybe", 1)),
    ];
    let written = stage.batch("a", writes).await;
    assert_eq!(written.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["new", "old", "dead", "maybe"]);
    assert_eq!(written.iter().map(|one| one.created).collect::<Vec<_>>(), [true, false, false, true]);
    assert!(written.iter().all(|one| one.lsn == written[0].lsn && one.timestamp == written[0].timestamp));
    assert!(written[0].lsn > before);
    for one in &written {
        let stored = stage.try_get("a", &one.id).await.ok().map(|item| (item.etag, item.lsn));
        assert_eq!(stored, one.etag.clone().map(|etag| (etag, one.lsn)), "{one:?}");
    }
    assert_eq!(ids(&stage.reader(StartFrom::Beginning).drain().await), ["new", "old", "maybe"], "in batch order");
}

pub(super) async fn a_batch_happens_together_or_not_at_all(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let old = stage.put("a", "there", 1).await.etag.expect("an etag");
    stage.put("a", "there", 2).await;
    let before = stage.snapshot().await;
    let stale = || Some(old.clone());
    let bad: [(Write, ErrorKind); 7] = [
        (create(&item("a", "there", 3)), ErrorKind::AlreadyExists),
        (replace(&item("a", "missing", 3)), ErrorKind::ItemNotFound),
        (delete("missing"), ErrorKind::ItemNotFound),
        (Write::Replace { body: body(&item("a", "there", 3)), if_match: stale() }, ErrorKind::PreconditionFailed),
        (Write::Delete { id: id("there"), if_match: stale() }, ErrorKind::PreconditionFailed),
        (create(&item("b", "other", 3)), ErrorKind::WrongPartitionKey),
        (Write::Create { body: "[]".into() }, ErrorKind::NotAnObject),
    ];
    for (culprit, kind) in bad {
        for position in 0..3 {
            let mut writes = vec![create(&item("a", "one", 1)), replace(&item("a", "there", 9))];
            // Last, behind a write that would have changed the etag; first; and in between.
            writes.insert(position, culprit.clone());
            let error = refused(stage.try_batch("a", writes).await, kind);
            assert_eq!(error.operation(), Some(position), "the error names the write that failed: {error:?}");
            stage.unchanged_since(&before, "a refused batch").await;
        }
    }
}

pub(super) async fn an_item_written_twice_in_a_batch_appears_once_at_its_newest(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let written = stage.batch("a", vec![create(&item("a", "x", 1)), replace(&item("a", "x", 2))]).await;
    assert_eq!(written[0].lsn, written[1].lsn);
    assert_ne!(written[0].etag, written[1].etag, "each write has an etag of its own");
    let stored = stage.get("a", "x").await;
    assert_eq!((item_number(&stored), Some(stored.etag)), (2, written[1].etag.clone()));
    assert_eq!(versions(&stage.reader(StartFrom::Beginning).drain().await), ["x=2"]);
}

pub(super) async fn a_batch_may_delete_what_it_created_and_create_what_it_deleted(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "old", 1).await;
    let rid = stage.get("a", "old").await.rid;
    let writes = vec![create(&item("a", "brief", 1)), delete("brief"), delete("old"), create(&item("a", "old", 2))];
    let written = stage.batch("a", writes).await;
    assert!(written[3].created, "after the delete there was none");
    refused(stage.try_get("a", "brief").await, ErrorKind::ItemNotFound);
    let again = stage.get("a", "old").await;
    assert_eq!(item_number(&again), 2);
    assert_ne!(again.rid, rid, "it is another item now");
    assert_eq!(versions(&stage.reader(StartFrom::Beginning).drain().await), ["old=2"]);
}

pub(super) async fn all_versions_of_a_batch_come_in_its_order(fixture: &dyn Fixture) {
    let stage = super::all_versions::stage(fixture).await;
    stage.put("a", "old", 1).await;
    let mut reader = super::all_versions::reader(&stage).await.max_items(1);
    let writes = vec![create(&item("a", "x", 1)), replace(&item("a", "x", 2)), delete("old"), delete("x")];
    let written = stage.batch("a", writes).await;
    let changes = reader.drain().await;
    let seen: Vec<_> = changes.iter().map(|change| (change.operation, change.id.as_str())).collect();
    let expected =
        [(Operation::Create, "x"), (Operation::Replace, "x"), (Operation::Delete, "old"), (Operation::Delete, "x")];
    assert_eq!(seen, expected, "in the order of the batch");
    assert!(changes.iter().all(|change| change.lsn == written[0].lsn));
    assert_eq!(changes[1].previous_lsn, Some(written[0].lsn), "the previous version is of the same batch");
}

pub(super) async fn a_batch_of_a_hundred_writes_is_accepted(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let writes: Vec<_> = (0..100).map(|n| create(&item("a", &format!("x{n}"), n))).collect();
    assert_eq!(writes.len(), Batch::MAX_WRITES);
    assert_eq!(stage.batch("a", writes).await.len(), 100);
    for max_items in [1, 30, 1000] {
        let changes = stage.reader(StartFrom::Beginning).max_items(max_items).drain().await;
        assert_eq!(changes.len(), 100, "on one page or on several");
    }
}

pub(super) async fn a_batch_takes_its_partition_key_from_the_bodies(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let writes = vec![create(&item("a", "x", 1)), upsert(&item("a", "y", 1))];
    let batch = Batch { partition_key: None, writes, return_items: false };
    stage.backend().write(batch).await.expect("the bodies tell the key");
    assert_eq!(item_number(&stage.get("a", "y").await), 1);
}

pub(super) async fn a_batch_under_a_hierarchical_key_is_one_transaction(fixture: &dyn Fixture) {
    let definition = PartitionKeyDefinition::hierarchical(["/tenant", "/user", "/session"]).expect("good paths");
    let stage = Stage::with(fixture, |spec| spec.partition_key = definition).await;
    let writes = vec![create(&session("t", "u", "s", "x", 1)), create(&session("t", "u", "s", "y", 2))];
    let batch = Batch { partition_key: Some(("t", "u", "s").into()), writes, return_items: false };
    stage.backend().write(batch).await.expect("commit the batch");
    let changes = stage.reader(StartFrom::Beginning).max_items(1).drain().await;
    assert_eq!(ids(&changes), ["x", "y"]);
    assert_eq!(changes[0].lsn, changes[1].lsn);
    let read = stage.backend().read_item(&ItemKey::new(("t", "u", "s"), id("y"))).await.expect("read");
    assert_eq!(item_number(&read), 2);
}
