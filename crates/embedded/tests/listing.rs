//! The order of listings, and items by resource id.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use changefeed_core::{Container, ListItems, PartitionKey};
use changefeed_embedded::Engine;
use serde_json::json;

async fn ids(container: &Container, mut request: ListItems) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let page = container.backend().list_items(request.clone()).await.unwrap().into_value();
        ids.extend(page.items.iter().map(|item| item.id.as_str().to_owned()));
        match page.next {
            Some(next) => request.after = Some(next),
            None => return ids,
        }
    }
}

#[tokio::test]
async fn items_of_one_partition_key_are_listed_in_the_order_of_their_creation() {
    let engine = Engine::in_memory().unwrap();
    let container = engine.database("db").container("c").partition_key("/pk").open_or_create().await.unwrap();
    let names: Vec<_> = (0..40).map(|n| format!("i{}", n * 7919 % 101)).collect();
    for id in &names {
        container.create(&json!({"id": id, "pk": "a"})).await.unwrap();
        container.create(&json!({"id": id, "pk": "b"})).await.unwrap();
    }
    // Replacing keeps the place, creating again does not.
    container.upsert(&json!({"id": names[3], "pk": "a", "n": 1})).await.unwrap();
    container.delete("a", &names[5]).await.unwrap();
    container.create(&json!({"id": names[5], "pk": "a"})).await.unwrap();
    let mut expected = names.clone();
    let again = expected.remove(5);
    expected.push(again);
    let range = container.identity().partition_key.key_range(&PartitionKey::from("a")).unwrap();
    for max_items in [1, 7, 100] {
        let request = ListItems { range: range.clone(), max_items, ..ListItems::default() };
        assert_eq!(ids(&container, request).await, expected, "{max_items} a page");
    }
    assert_eq!(ids(&container, ListItems { max_items: 9, ..ListItems::default() }).await.len(), 80);
}

#[tokio::test]
async fn an_item_is_found_by_its_resource_id() {
    let engine = Engine::in_memory().unwrap();
    let container = engine.database("db").container("c").partition_key("/pk").open_or_create().await.unwrap();
    for n in 0..20 {
        container.create(&json!({"id": format!("i{n}"), "pk": format!("p{n}")})).await.unwrap();
    }
    let all = container.backend().list_items(ListItems::default()).await.unwrap().into_value().items;
    for item in &all {
        let request = ListItems { rid: Some(item.rid), ..ListItems::default() };
        assert_eq!(ids(&container, request).await, [item.id.as_str()]);
    }
    let gone = &all[4];
    let key = container.identity().partition_key.extract(&gone.body).unwrap();
    container.delete(key, gone.id.as_str()).await.unwrap();
    assert!(ids(&container, ListItems { rid: Some(gone.rid), ..ListItems::default() }).await.is_empty());
}
