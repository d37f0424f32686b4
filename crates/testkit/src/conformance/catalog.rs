//! Databases and containers.

use std::time::Duration;

use changefeed_core::{
    Batch, ContainerSpec, DatabaseInfo, DatabaseSpec, ErrorKind, FeedRange, ItemKey, ListItems, PartitionKeyDefinition,
    ReadChanges, StartFrom, TimeToLive,
};
use serde_json::json;

use super::{
    Feature, Fixture,
    reader::versions,
    stage::{DATABASE, Stage, by_pk, refused},
};
use crate::fixtures::{id, item, upsert};

fn spec(name: &str) -> ContainerSpec {
    ContainerSpec::new(name, by_pk())
}

pub(super) async fn databases_are_listed_by_name(fixture: &dyn Fixture) {
    let catalog = fixture.catalog();
    assert_eq!(catalog.list_databases().await.expect("list"), []);
    let mut created = Vec::new();
    for name in ["b", "a", "ab", "B", "é", "with space"] {
        let info = catalog.create_database(DatabaseSpec::new(name)).await.expect("create");
        assert_eq!(info.name, name);
        created.push(info);
    }
    created.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(catalog.list_databases().await.expect("list"), created);
    let mut rids: Vec<_> = created.iter().map(|info| info.rid).collect();
    rids.sort();
    rids.dedup();
    assert_eq!(rids.len(), created.len(), "each has a resource id of its own");
    catalog.delete_database("ab").await.expect("delete");
    created.retain(|info| info.name != "ab");
    assert_eq!(catalog.list_databases().await.expect("list"), created);
}

pub(super) async fn a_database_keeps_what_the_store_does_not_know(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let spec = |extra| DatabaseSpec { name: "shared".to_owned(), extra };
    let members = |value| serde_json::Map::from_iter([("mine".to_owned(), json!({ "max": value }))]);
    let created = stage.catalog.create_database(spec(members(4000))).await.expect("create");
    assert_eq!(created.extra, members(4000));
    let listed =
        async || stage.catalog.list_databases().await.expect("list").into_iter().find(|info| info.name == "shared");
    assert_eq!(listed().await.as_ref(), Some(&created));
    stage.catalog.create_container("shared", self::spec("items")).await.expect("create");
    let replaced = stage.catalog.replace_database(spec(members(5000))).await.expect("replace");
    assert_eq!(replaced, DatabaseInfo { extra: members(5000), ..created });
    assert_eq!(listed().await, Some(replaced));
    assert_eq!(stage.catalog.list_containers("shared").await.expect("list").len(), 1, "its containers stay");
    assert_eq!(stage.get("a", "x").await.id.as_str(), "x", "others are not touched");
}

pub(super) async fn containers_are_listed_by_name(fixture: &dyn Fixture) {
    let catalog = fixture.catalog();
    catalog.create_database(DatabaseSpec::new(DATABASE)).await.expect("create");
    assert_eq!(catalog.list_containers(DATABASE).await.expect("list"), []);
    for name in ["b", "a", "ab", "B"] {
        catalog.create_container(DATABASE, spec(name)).await.expect("create");
    }
    let names = async || -> Vec<String> {
        let listed = catalog.list_containers(DATABASE).await.expect("list");
        listed.into_iter().map(|info| info.spec.name).collect()
    };
    assert_eq!(names().await, ["B", "a", "ab", "b"]);
    catalog.delete_container(DATABASE, "ab").await.expect("delete");
    assert_eq!(names().await, ["B", "a", "b"]);
}

pub(super) async fn a_name_that_is_taken_is_refused(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let before = stage.snapshot().await;
    refused(stage.catalog.create_database(DatabaseSpec::new(DATABASE)).await, ErrorKind::AlreadyExists);
    refused(stage.catalog.create_container(DATABASE, spec("items")).await, ErrorKind::AlreadyExists);
    stage.unchanged_since(&before, "a refused creation").await;
}

pub(super) async fn a_name_that_would_break_paths_is_refused(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let long = "x".repeat(256);
    for bad in ["", "a/b", "a\\b", "a#b", "a?b", "a\nb", &long] {
        refused(stage.catalog.create_database(DatabaseSpec::new(bad)).await, ErrorKind::BadId);
        refused(stage.catalog.create_container(DATABASE, spec(bad)).await, ErrorKind::BadId);
    }
    assert_eq!(stage.catalog.list_databases().await.expect("list").len(), 1);
    assert_eq!(stage.catalog.list_containers(DATABASE).await.expect("list").len(), 1);
}

pub(super) async fn an_unknown_database_is_not_found(fixture: &dyn Fixture) {
    let catalog = Stage::new(fixture).await.catalog;
    let kind = ErrorKind::DatabaseNotFound;
    refused(catalog.replace_database(DatabaseSpec::new("nowhere")).await, kind);
    refused(catalog.delete_database("nowhere").await, kind);
    refused(catalog.list_containers("nowhere").await, kind);
    refused(catalog.create_container("nowhere", spec("items")).await, kind);
    refused(catalog.replace_container("nowhere", spec("items")).await, kind);
    refused(catalog.delete_container("nowhere", "items").await, kind);
    refused(catalog.container("nowhere", "items").await, kind);
    assert_eq!(catalog.list_databases().await.expect("list").len(), 1);
}

pub(super) async fn an_unknown_container_is_not_found(fixture: &dyn Fixture) {
    let catalog = Stage::new(fixture).await.catalog;
    let kind = ErrorKind::ContainerNotFound;
    for unknown in ["nothing", "Items", "items ", ""] {
        refused(catalog.replace_container(DATABASE, spec(unknown)).await, kind);
        refused(catalog.delete_container(DATABASE, unknown).await, kind);
        refused(catalog.container(DATABASE, unknown).await, kind);
    }
    assert_eq!(catalog.list_containers(DATABASE).await.expect("list").len(), 1);
}

pub(super) async fn a_container_knows_who_it_is(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let identity = stage.container.identity();
    let database = stage.catalog.list_databases().await.expect("list").swap_remove(0);
    let listed = stage.catalog.list_containers(DATABASE).await.expect("list").swap_remove(0);
    assert_eq!((identity.database_name.as_str(), identity.container_name.as_str()), (DATABASE, "items"));
    assert_eq!((identity.database, identity.container), (database.rid, listed.rid));
    assert_eq!(identity.container.database_part(), identity.database, "its resource id contains the database's");
    assert_eq!(identity.partition_key, by_pk());
    assert!(!identity.account_host.is_empty() && identity.account_host == identity.account_host.to_lowercase());
    let again = stage.catalog.container(DATABASE, "items").await.expect("open again");
    assert_eq!(again.identity(), identity);
}

pub(super) async fn the_same_name_in_two_databases_is_two_containers(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.catalog.create_database(DatabaseSpec::new("other")).await.expect("create");
    stage.catalog.create_container("other", spec("items")).await.expect("create");
    let other = stage.catalog.container("other", "items").await.expect("open");
    assert_ne!(other.identity().container, stage.rid());
    stage.put("a", "x", 1).await;
    refused(other.read_item("a", "x").await, ErrorKind::ItemNotFound);
    stage.catalog.delete_database("other").await.expect("delete");
    refused(other.read_item("a", "x").await, ErrorKind::ContainerNotFound);
    assert_eq!(stage.list(ListItems::default()).await.len(), 1);
}

pub(super) async fn two_handles_are_one_container(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let again = stage.catalog.container(DATABASE, "items").await.expect("open again");
    stage.put("a", "x", 1).await;
    assert_eq!(again.read_item("a", "x").await.expect("read"), stage.get("a", "x").await);
    again.upsert(&item("a", "x", 2)).await.expect("write");
    assert_eq!(versions(&stage.reader(StartFrom::Beginning).drain().await), ["x=2"]);
}

pub(super) async fn a_container_keeps_its_settings(fixture: &dyn Fixture) {
    let catalog = Stage::new(fixture).await.catalog;
    let mut full = spec("full");
    full.partition_key = PartitionKeyDefinition::hash("/deep/\"odd name\"").expect("a good path");
    if fixture.supports(Feature::TimeToLive) {
        full.time_to_live = TimeToLive::Seconds(77);
    }
    if fixture.capabilities().all_versions {
        full.all_versions_retention = Some(Duration::from_secs(600));
    }
    full.extra.insert("indexingPolicy".to_owned(), json!({"includedPaths": [{"path": "/*"}], "é": [1, null]}));
    let created = catalog.create_container(DATABASE, full.clone()).await.expect("create");
    assert_eq!(created.spec, full);
    let listed = catalog.list_containers(DATABASE).await.expect("list");
    assert_eq!(listed.iter().find(|info| info.spec.name == "full"), Some(&created));
}

pub(super) async fn settings_can_be_replaced_without_losing_items(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let mut reader = stage.reader(StartFrom::Beginning);
    reader.page().await;
    let mut changed = spec("items");
    changed.extra.insert("note".to_owned(), json!("new"));
    let replaced = stage.catalog.replace_container(DATABASE, changed.clone()).await.expect("replace");
    assert_eq!((replaced.rid, &replaced.spec), (stage.rid(), &changed));
    assert_eq!(stage.catalog.list_containers(DATABASE).await.expect("list"), [replaced]);
    stage.put("a", "y", 2).await;
    assert_eq!(versions(&reader.drain().await), ["y=2"], "handles and continuations live on");
    assert_eq!(stage.list(ListItems::default()).await.len(), 2);
}

pub(super) async fn the_partition_key_of_a_container_cannot_change(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let before = stage.catalog.list_containers(DATABASE).await.expect("list");
    let other = ContainerSpec::new("items", PartitionKeyDefinition::hash("/other").expect("a good path"));
    refused(stage.catalog.replace_container(DATABASE, other).await, ErrorKind::InvalidArgument);
    assert_eq!(stage.catalog.list_containers(DATABASE).await.expect("list"), before);
}

pub(super) async fn a_container_without_ranges_is_refused(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let none = ContainerSpec { ranges: 0, ..spec("none") };
    refused(stage.catalog.create_container(DATABASE, none).await, ErrorKind::InvalidArgument);
    refused(stage.catalog.container(DATABASE, "none").await, ErrorKind::ContainerNotFound);
}

/// Asks an old handle for everything a handle can do.
async fn answers_not_found(stage: &Stage<'_>) {
    let (backend, kind) = (stage.backend(), ErrorKind::ContainerNotFound);
    refused(backend.feed_ranges().await, kind);
    refused(backend.read_changes(ReadChanges::new(FeedRange::full(), StartFrom::Beginning)).await, kind);
    refused(backend.read_item(&ItemKey::new("a", id("x"))).await, kind);
    refused(backend.write(Batch::single(None, upsert(&item("a", "x", 9)))).await, kind);
    refused(backend.list_items(ListItems::default()).await, kind);
    refused(backend.time_to_live().await, kind);
}

pub(super) async fn a_handle_to_a_deleted_container_answers_not_found_for_ever(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    stage.catalog.delete_container(DATABASE, "items").await.expect("delete");
    answers_not_found(&stage).await;
    let again = Stage::new(fixture).await;
    answers_not_found(&stage).await;
    assert_eq!(again.list(ListItems::default()).await, [], "the new one begins empty");
    again.put("a", "y", 1).await;
    answers_not_found(&stage).await;
    assert_eq!(versions(&again.reader(StartFrom::Beginning).drain().await), ["y=1"]);
}

pub(super) async fn a_container_is_opened_again_by_its_name(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    assert_eq!(stage.container.reopen().await.expect("open again").identity(), stage.container.identity());
    stage.catalog.delete_container(DATABASE, "items").await.expect("delete");
    refused(stage.container.reopen().await, ErrorKind::ContainerNotFound);
    let again = Stage::new(fixture).await;
    let opened = stage.container.reopen().await.expect("open the new one");
    assert_eq!(opened.identity(), again.container.identity());
    opened.upsert(&json!({"id": "x", "pk": "a"})).await.expect("write to the new one");
    assert_eq!(again.list(ListItems::default()).await.len(), 1);
}

pub(super) async fn a_container_created_again_refuses_the_continuations_of_the_old_one(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let mut reader = stage.reader(StartFrom::Beginning);
    reader.page().await;
    stage.catalog.delete_container(DATABASE, "items").await.expect("delete");
    let again = Stage::new(fixture).await;
    assert_ne!(again.rid(), stage.rid(), "a resource id never comes back");
    again.put("a", "x", 1).await;
    again.put("a", "x", 2).await;
    again.reader(reader.continuation()).refused(ErrorKind::ForeignContinuation).await;
}

pub(super) async fn deleting_a_database_deletes_its_containers(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let rid = stage.container.identity().database;
    stage.catalog.delete_database(DATABASE).await.expect("delete");
    answers_not_found(&stage).await;
    refused(stage.catalog.container(DATABASE, "items").await, ErrorKind::DatabaseNotFound);
    let again = Stage::new(fixture).await;
    assert_ne!(again.container.identity().database, rid);
    assert_ne!(again.rid(), stage.rid());
    assert_eq!(again.list(ListItems::default()).await, []);
    answers_not_found(&stage).await;
}
