//! Writes of leases that fail, or whose answer is lost: nothing is lost, order is kept, and a checkpoint is neither repeated
//! nor forgotten.

use std::collections::BTreeMap;

use azure_data_cosmos::fault_injection::{FaultInjectionErrorType as Error, FaultOperationType as Operation};
use serde_json::Value;

use crate::shop::{FAULTS, Seen, Shop, rule, until};

/// The positions of all leases.
async fn positions(shop: &Shop) -> BTreeMap<String, String> {
    let documents = shop.leases.list("mailer").await.unwrap();
    let documents = documents.iter().map(|item| item.parse::<Value>().unwrap());
    let position = |lease: Value| {
        Some((lease["LeaseToken"].as_str()?.to_owned(), lease["ContinuationToken"].as_str()?.to_owned()))
    };
    documents.filter_map(position).collect()
}

/// Two hosts, one after the other: what the first one has stored is where the second one begins.
async fn delivers_everything_once_and_in_order(error: Error, operation: Operation, hits: u32) {
    let fault = rule(error, operation, "leases", hits);
    let (shop, seen) = (Shop::with_faults(2, vec![fault.clone()]).await, Seen::default());
    shop.write(0..30, 1).await;
    let running = shop.host("a", &seen).await;
    until("delivery", || seen.distinct() >= 30).await;
    shop.write(30..60, 1).await;
    until("delivery", || seen.distinct() >= 60).await;
    until("the faults", || fault.hit_count() >= hits).await;
    running.stop().await.unwrap();
    let stored = positions(&shop).await;
    assert_eq!(stored.len(), 2, "{error:?} {operation:?}: {stored:?}");
    let running = shop.host("b", &seen).await;
    shop.write(60..80, 1).await;
    until("delivery", || seen.distinct() >= 80).await;
    running.stop().await.unwrap();
    let mut ids: Vec<u32> = seen.ids().iter().map(|id| id.parse().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..80).collect::<Vec<_>>(), "{error:?} {operation:?}: everything, and nothing twice");
    seen.in_order_and_once();
    assert!(positions(&shop).await.iter().any(|(token, position)| stored[token] != *position), "it moved on");
}

#[tokio::test]
async fn leases_are_created_although_requests_fail() {
    for error in FAULTS {
        delivers_everything_once_and_in_order(error, Operation::CreateItem, 2).await;
    }
}

#[tokio::test]
async fn checkpoints_are_stored_although_requests_fail() {
    for error in FAULTS {
        delivers_everything_once_and_in_order(error, Operation::ReplaceItem, 3).await;
    }
}
