//! Who a store is, and what it declares.

use std::sync::Arc;

use changefeed_core::{Catalog, Container, StartFrom, StoreId};

use super::{
    Fixture,
    reader::{Reader, ids},
    stage::{DATABASE, Stage, by_pk},
};

async fn open(catalog: &Arc<dyn Catalog>, name: &str) -> Container {
    catalog.container(DATABASE, name).await.expect("open the container")
}

fn store_of(stage: &Stage<'_>) -> StoreId {
    stage.container.identity().store.clone()
}

pub(super) async fn all_containers_of_a_store_have_the_same_store_id(fixture: &dyn Fixture) {
    let one = Stage::named(fixture, "one", |_| {}).await;
    let two = Stage::named(fixture, "two", |_| {}).await;
    assert_eq!(store_of(&one), store_of(&two));
    assert_eq!(open(&fixture.catalog(), "one").await.identity().store, store_of(&one), "opened again");
    assert_ne!(one.rid(), two.rid());
}

pub(super) async fn the_store_id_survives_reopening_the_store(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    let before = stage.container.identity().clone();
    drop(stage);
    for _ in 0..2 {
        fixture.reopen().await;
        assert_eq!(*open(&fixture.catalog(), "items").await.identity(), before);
    }
}

pub(super) async fn another_store_has_another_store_id(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let other = fixture.other_store().await;
    let database = changefeed_core::DatabaseSpec::new(DATABASE);
    other.create_database(database).await.expect("create the database");
    let spec = changefeed_core::ContainerSpec::new("items", by_pk());
    other.create_container(DATABASE, spec).await.expect("create the container");
    assert_ne!(open(&other, "items").await.identity().store, store_of(&stage), "whatever else is equal");
}

pub(super) async fn all_containers_of_a_store_declare_the_same_capabilities(fixture: &dyn Fixture) {
    let one = Stage::named(fixture, "one", |_| {}).await;
    let two = Stage::named(fixture, "two", |spec| spec.partition_key = by_pk()).await;
    for stage in [&one, &two] {
        assert_eq!(stage.container.capabilities(), fixture.capabilities(), "{}", stage.name());
    }
}

pub(super) async fn a_continuation_survives_reopening_the_store(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for id in ["x", "y", "z"] {
        stage.put("a", id, 1).await;
    }
    let mut reader = stage.reader(StartFrom::Beginning).max_items(1);
    assert_eq!(ids(&reader.page().await.changes), ["x"]);
    let continuation = reader.continuation();
    let range = reader.range().clone();
    drop((reader, stage));
    fixture.reopen().await;
    let container = open(&fixture.catalog(), "items").await;
    let mut reader = Reader::new(&container, range, continuation);
    assert_eq!(ids(&reader.drain().await), ["y", "z"]);
}
