//! Identities that may not do everything: the processor goes on, and says what is missing.

use std::sync::{Arc, Mutex};

use changefeed::core::ErrorKind;
use serde_json::{Value, json};

use crate::{
    process::run,
    shop::{Seen, Shop, start, until},
};

/// From now on the service refuses such requests, as it does for an identity without the data action.
fn forbid(shop: &Shop, method: &str, path: &str) {
    let endpoint = shop.server.endpoint();
    let fault = ["fault", "--store", &endpoint, "--status", "403", "--substatus", "5300", "--count", "100000"];
    assert!(run(&[&fault[..], &["--method", method, "--path-contains", path]].concat()).status.success());
}

#[tokio::test]
async fn without_the_right_to_delete_a_split_leaves_a_tombstone_and_no_loop() {
    let (shop, seen) = (Shop::new(1).await, Seen::default());
    forbid(&shop, "DELETE", "colls/leases");
    let running = shop.host("a", &seen).await;
    shop.write(0..50, 1).await;
    until("delivery", || seen.len() >= 50).await;
    shop.split(0).await;
    shop.write(50..100, 1).await;
    until("delivery", || seen.len() >= 100).await;
    until("two leases", || seen.leases() == 2).await;
    running.stop().await.unwrap();
    let documents = shop.leases.list("mailer").await.unwrap();
    let documents = documents.iter().map(|item| item.parse::<Value>().unwrap());
    let tombstones: Vec<_> = documents.filter(|lease| lease["properties"].get("cf.gone").is_some()).collect();
    assert_eq!(tombstones.len(), 1, "the lease of the split range is marked");
    // KEDA keeps a host awake for a range that is gone, if the document has this member.
    assert_eq!((tombstones[0].get("LeaseToken"), &tombstones[0]["PartitionId"]), (None, &json!("0")));
    // Whoever starts next does not take it up again.
    let running = shop.host("b", &seen).await;
    shop.write(100..120, 1).await;
    until("delivery", || seen.len() >= 120).await;
    running.stop().await.unwrap();
    assert_eq!((seen.len(), seen.distinct()), (120, 120));
}

#[tokio::test]
async fn without_the_right_to_create_containers_the_error_says_so() {
    let shop = Shop::new(1).await;
    forbid(&shop, "POST", "dbs/shop/colls");
    let error = shop.database().container("more").create().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden, "{error:?}");
    assert!(error.message().contains("docs/azure.md lists the data actions"), "{error}");
}

#[tokio::test]
async fn without_the_right_to_read_changes_the_host_says_so_and_recovers_when_it_is_granted() {
    let (shop, seen) = (Shop::new(1).await, Seen::default());
    let running = start(shop.builder("a"), &seen).await;
    shop.write(0..10, 1).await;
    until("delivery", || seen.len() >= 10).await;
    running.stop().await.unwrap();
    let endpoint = shop.server.endpoint();
    let fault = ["fault", "--store", &endpoint, "--status", "403", "--substatus", "5300", "--count", "3"];
    assert!(run(&[&fault[..], &["--method", "GET", "--path-contains", "colls/orders/docs"]].concat()).status.success());
    let errors = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&errors);
    let builder = shop.builder("a").on_error(move |report| own.lock().unwrap().push(report.failure.to_string()));
    let running = start(builder, &seen).await;
    shop.write(10..20, 1).await;
    until("delivery", || seen.len() >= 20).await;
    running.stop().await.unwrap();
    let errors = errors.lock().unwrap();
    assert!(errors.iter().any(|error| error.contains("has no role that allows it")), "{errors:?}");
}
