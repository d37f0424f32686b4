//! All versions and deletes.

use std::time::Duration;

use changefeed::{Context, Processor, Versions, core::Operation};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::shop::{Shop, TIMING};

#[tokio::test]
async fn all_versions_are_delivered_with_their_deletes() {
    let shop = Shop::new(1).await;
    let accounts = shop.database().container("accounts").all_versions(Duration::from_secs(600));
    let accounts = accounts.create().await.unwrap();
    let (report, mut versions) = mpsc::unbounded_channel();
    let audit = Processor::builder("audit", &accounts, &shop.leases).lease_timing(TIMING).all_versions();
    let audit = audit.build(move |batch: Versions<Value>, _: Context| {
        let sent = batch.into_iter().try_for_each(|version| report.send(version.operation));
        async move { Ok(sent?) }
    });
    let running = audit.unwrap().start().await.unwrap();
    accounts.create(&json!({"id": "x", "n": 1})).await.unwrap();
    accounts.replace(&json!({"id": "x", "n": 2})).await.unwrap();
    accounts.delete("x", "x").await.unwrap();
    for expected in [Operation::Create, Operation::Replace, Operation::Delete] {
        assert_eq!(versions.recv().await, Some(expected));
    }
    running.stop().await.unwrap();
}
