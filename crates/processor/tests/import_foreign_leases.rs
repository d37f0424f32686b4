//! Import of the leases of a Java processor: created once, at its positions, and only after its hosts are gone.

mod shop;

use changefeed::{
    AppliedLease, ImportOutcome, ImportPlan,
    core::{ErrorKind, StartFrom},
    plan_import,
};
use serde_json::{Value, json};
use shop::{Seen, Shop};

/// The lease of a Java host (`handleChanges`) for a physical range.
fn java_lease(range: &str, continuation: &str, owner: Option<&str>) -> Value {
    json!({
        "id": format!("java_shop_orders..{range}"), "LeaseToken": range, "ContinuationToken": continuation,
        "timestamp": "2026-01-02T03:04:05.678901Z", "Owner": owner,
    })
}

/// Twenty orders, of which a Java host has processed the first ten.
async fn shop_of_java() -> Shop {
    let shop = Shop::new(2).await;
    shop.write(0..10, 1).await;
    for range in shop.ranges().await {
        let page = shop.orders.read_changes(changefeed::core::ReadChanges::new(range.range, StartFrom::Now)).await;
        let position = page.expect("read").continuation.token().to_owned();
        shop.leases.create(&java_lease(range.id.as_str(), &position, None)).await.expect("create");
    }
    shop.write(10..20, 1).await;
    shop
}

async fn plan(shop: &Shop) -> ImportPlan {
    let documents = shop.leases.list("java_shop_orders..").await.expect("list");
    let bodies = documents.iter().map(|item| &*item.body);
    plan_import("mailer", shop.orders.identity(), &shop.ranges().await, bodies, false).expect("plan")
}

async fn apply(shop: &Shop, plan: &ImportPlan) -> changefeed::core::Result<Vec<AppliedLease>> {
    plan.apply(&shop.leases, &shop.leases).await
}

fn outcomes(applied: &[AppliedLease]) -> Vec<ImportOutcome> {
    applied.iter().map(|lease| lease.outcome).collect()
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_applied_goes_on_where_java_stopped() {
    let shop = shop_of_java().await;
    let plan = plan(&shop).await;
    let before = shop.leases.list("").await.expect("list").len();
    let applied = apply(&shop, &plan).await.expect("apply");
    assert_eq!(outcomes(&applied), [ImportOutcome::Created; 2]);
    assert_eq!(shop.leases.list("").await.expect("list").len(), before + 2, "the source stays");
    let seen = Seen::default();
    shop.catch_up(&seen, 10).await;
    let mut ids = seen.ids();
    ids.sort();
    let rest: Vec<String> = (10..20).map(|item| format!("o{item}")).collect();
    assert_eq!(ids, rest, "exactly what Java had not processed");
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_applied_again_changes_nothing() {
    let shop = shop_of_java().await;
    let plan = plan(&shop).await;
    let id = plan.leases[1].id.clone();
    let document: Value = serde_json::from_slice(&plan.leases[1].document).expect("JSON");
    // As after an import that was interrupted.
    shop.leases.create(&document).await.expect("create");
    let applied = apply(&shop, &plan).await.expect("apply");
    assert_eq!(outcomes(&applied), [ImportOutcome::Created, ImportOutcome::Present]);
    shop.catch_up(&Seen::default(), 10).await;
    let etag = shop.leases.read_item(id.as_str(), &id).await.expect("read").etag;
    // The old leases may be gone by now.
    for item in shop.leases.list("java_").await.expect("list") {
        shop.leases.delete(item.id.as_str(), item.id.as_str()).await.expect("delete");
    }
    let applied = apply(&shop, &plan).await.expect("apply again");
    assert_eq!(outcomes(&applied), [ImportOutcome::Present; 2]);
    let planned: Vec<_> = plan.leases.iter().map(|lease| lease.continuation.clone()).collect();
    let now: Vec<_> = applied.iter().map(|lease| lease.continuation.clone()).collect();
    assert_ne!(now, planned, "the report says that a host has worked on them");
    assert_eq!(shop.leases.read_item(id.as_str(), &id).await.expect("read").etag, etag, "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_range_was_split_since_the_import_is_not_created_again() {
    let shop = shop_of_java().await;
    let plan = plan(&shop).await;
    apply(&shop, &plan).await.expect("apply");
    shop.catch_up(&Seen::default(), 10).await;
    shop.split(0).await;
    shop.write(20..30, 1).await;
    shop.catch_up(&Seen::default(), 10).await;
    let before = shop.leases.list("").await.expect("list").len();
    let applied = apply(&shop, &plan).await.expect("apply again");
    assert_eq!(outcomes(&applied), [ImportOutcome::Covered, ImportOutcome::Present]);
    assert_eq!(shop.leases.list("").await.expect("list").len(), before);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_came_back_since_the_plan_was_made_is_noticed_before_anything_is_written() {
    let shop = shop_of_java().await;
    let plan = plan(&shop).await;
    let first = shop.leases.list("java_").await.expect("list").remove(0);
    let lease: Value = first.parse().expect("JSON");
    let token = lease["LeaseToken"].as_str().expect("token").to_owned();
    let position = lease["ContinuationToken"].as_str().expect("position").to_owned();
    let before = shop.leases.list("").await.expect("list").len();

    shop.leases.upsert(&java_lease(&token, &position, Some("java-1"))).await.expect("acquired");
    let error = apply(&shop, &plan).await.expect_err("owned");
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.message().contains("owned by java-1: stop its hosts first"), "{error}");

    shop.leases.upsert(&java_lease(&token, "\"999\"", None)).await.expect("moved and released");
    let error = apply(&shop, &plan).await.expect_err("moved");
    assert_eq!(error.kind(), ErrorKind::PreconditionFailed);
    assert!(error.message().contains("has moved since the plan was made: plan the import again"), "{error}");

    shop.leases.delete(first.id.as_str(), first.id.as_str()).await.expect("deleted");
    let error = apply(&shop, &plan).await.expect_err("deleted");
    assert!(error.message().contains("was deleted since the plan was made"), "{error}");

    shop.leases.upsert(&java_lease(&token, &position, None)).await.expect("as it was");
    assert_eq!(shop.leases.list("").await.expect("list").len(), before, "nothing was written");
    assert_eq!(outcomes(&apply(&shop, &plan).await.expect("apply")), [ImportOutcome::Created; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_does_not_fit_is_refused() {
    let shop = shop_of_java().await;
    let mut owned = plan(&shop).await;
    owned.owned.push(("java_shop_orders..0".to_owned(), "java-1".to_owned()));
    assert_eq!(apply(&shop, &owned).await.expect_err("owned").kind(), ErrorKind::InvalidArgument);
    let keyed = shop.engine.database("shop").container("keyed").partition_key("/partitionKey");
    let keyed = keyed.create().await.expect("create");
    let error = plan(&shop).await.apply(&shop.leases, &keyed).await.expect_err("another partition key");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("pass `keyed` to plan_import"), "{error}");
}
