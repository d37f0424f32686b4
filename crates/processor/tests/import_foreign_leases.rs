//! Import of the leases of a Java processor, or of another one of ours: created once, at its positions, and only after its
//! hosts are gone.

mod shop;

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use changefeed::{
    AppliedLease, Changes, Context, ImportOutcome, ImportPlan, Processor, RawChanges, Scope,
    core::{ErrorKind, Item, StartFrom, Write},
    plan_import,
};
use changefeed_testkit::faulty::{Call, Fault};
use serde_json::{Value, json};
use shop::{Order, Seen, Shop, faulty, order};

const HOUR: Duration = Duration::from_secs(3600);

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
    let documents = shop.leases.list("java_shop_orders.").await.expect("list");
    let bodies = documents.iter().map(|item| &*item.body);
    plan_import("mailer", shop.orders.identity(), &shop.ranges().await, bodies, &StartFrom::Now, false).expect("plan")
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
    assert_eq!(shop.leases.list("").await.expect("list").len(), before + 3, "the source stays, and .info is new");
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
    // A host that may not delete leases leaves a tombstone under the id of the plan.
    let mut tombstone: Value = serde_json::from_slice(&plan.leases[0].document).expect("JSON");
    tombstone["properties"]["cf.gone"] = "true".into();
    shop.leases.create(&tombstone).await.expect("create");
    let again = apply(&shop, &plan).await.expect("apply again");
    assert_eq!(outcomes(&again), [ImportOutcome::Covered, ImportOutcome::Present]);
    assert_ne!(again[0].id, plan.leases[0].id, "the lease of a child");
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

/// What a processor is given that was told to begin at now.
async fn given_from_now(shop: &Shop) -> BTreeSet<String> {
    let seen = Seen::default();
    let (given, builder) = (seen.clone(), shop.processor("job").start_from(StartFrom::Now));
    let job = builder.build(move |changes: Changes<Order>, ctx: Context| {
        given.add(&changes, &ctx);
        async { Ok(()) }
    });
    job.expect("build").run_until_caught_up().await.expect("run");
    seen.ids().into_iter().collect()
}

fn ids(items: Range<u64>) -> BTreeSet<String> {
    items.map(|item| order(item, 1).id).collect()
}

#[tokio::test(start_paused = true)]
async fn what_came_into_a_quiet_range_while_no_host_ran_is_delivered_after_the_import() {
    let shop = Shop::new(2).await;
    shop.write(0..20, 1).await;
    shop.clock.advance(HOUR);
    for range in shop.ranges().await {
        let mut lease = java_lease(range.id.as_str(), "", None);
        lease["ContinuationToken"] = Value::Null;
        shop.leases.create(&lease).await.expect("create");
    }
    shop.leases.create(&json!({"id": "java_shop_orders.info"})).await.expect("create");
    shop.clock.advance(HOUR);
    // The Java hosts are stopped.
    shop.write(100..110, 1).await;
    shop.clock.advance(HOUR);
    apply(&shop, &plan(&shop).await).await.expect("apply");
    shop.clock.advance(HOUR);
    assert_eq!(given_from_now(&shop).await, ids(100..110), "and nothing of what was there before");
    // Where the leases begin is stored, should one be lost.
    shop.write(110..120, 1).await;
    for (token, lease) in shop.lease_documents().await {
        let id = lease["id"].as_str().expect("id");
        shop.leases.delete(id, id).await.unwrap_or_else(|error| panic!("lease {token}: {error}"));
    }
    assert_eq!(given_from_now(&shop).await, ids(100..120));
}

/// The import dies after its first lease, and a host starts.
#[tokio::test(start_paused = true)]
async fn a_host_that_starts_after_an_interrupted_import_creates_the_other_leases_at_their_positions() {
    let shop = shop_of_java().await;
    let plan = plan(&shop).await;
    let (lost, dead) = (plan.leases[1].document.clone(), AtomicBool::new(false));
    let dies = move |write: &Write| matches!(write, Write::Create { body } if **body == *lost);
    let failing = faulty(&shop.leases, move |call: &Call<'_>| match call {
        Call::Write(batch) if batch.writes.iter().any(&dies) || dead.load(Ordering::Relaxed) => {
            dead.store(true, Ordering::Relaxed);
            Fault::Error(ErrorKind::Unavailable)
        }
        _ => Fault::None,
    });
    plan.apply(&shop.leases, &failing).await.expect_err("the import dies");
    assert_eq!(shop.lease_documents().await.len(), 1);
    assert_eq!(given_from_now(&shop).await, ids(10..20), "exactly what Java had not processed");
    let applied = apply(&shop, &plan).await.expect("apply again");
    assert_eq!(outcomes(&applied), [ImportOutcome::Present; 2]);
    assert_eq!(given_from_now(&shop).await, ids(0..0));
}

/// An earlier version did not store the positions of the leases that were missing.
#[tokio::test(start_paused = true)]
async fn a_lease_that_began_later_than_the_plan_says_is_not_taken_for_an_imported_one() {
    let shop = shop_of_java().await;
    let plan = plan(&shop).await;
    let first: Value = serde_json::from_slice(&plan.leases[0].document).expect("JSON");
    shop.leases.create(&first).await.expect("create");
    given_from_now(&shop).await;
    let before = shop.lease_documents().await;
    let error = apply(&shop, &plan).await.expect_err("the other lease began at now");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.message().contains(&plan.leases[1].id), "{error}");
    assert!(error.message().contains("may have begun later"), "{error}");
    assert_eq!(shop.lease_documents().await, before, "nothing was written");
    shop.control().reset().apply().await.expect("reset");
    assert_eq!(outcomes(&apply(&shop, &plan).await.expect("apply")), [ImportOutcome::Created; 2]);
    assert_eq!(given_from_now(&shop).await, ids(10..20));
}

#[tokio::test(start_paused = true)]
async fn leases_of_other_processors_in_the_lease_container_are_left_alone() {
    let shop = shop_of_java().await;
    // One whose name begins in the same way, on the same container.
    let other = Processor::builder("mailer2", &shop.orders, &shop.leases).runtime(shop.runtime());
    let other = other.build(|_: RawChanges, _: Context| async { Ok(()) }).expect("build");
    other.run_until_caught_up().await.expect("run");
    let before = shop.leases.list("mailer2").await.expect("list");
    assert_eq!(outcomes(&apply(&shop, &plan(&shop).await).await.expect("apply")), [ImportOutcome::Created; 2]);
    let etags = |items: &[Item]| items.iter().map(|item| item.etag.clone()).collect::<Vec<_>>();
    assert_eq!(etags(&shop.leases.list("mailer2").await.expect("list")), etags(&before));
    assert_eq!(given_from_now(&shop).await, ids(10..20));
}

#[tokio::test(start_paused = true)]
async fn leases_of_ours_that_are_imported_under_another_name_keep_seeks_and_pauses() {
    let shop = Shop::new(2).await;
    shop.write(0..20, 1).await;
    shop.catch_up(&Seen::default(), 20).await;
    // As a seek leaves them where the store has no continuation for the position.
    for (token, start) in [("0", "beginning"), ("1", "time 1234567")] {
        shop.edit_lease(token, |lease| {
            lease["ContinuationToken"] = Value::Null;
            lease["properties"]["cf.start"] = start.into();
        })
        .await;
    }
    shop.control().pause(Scope::Lease("1".parse().expect("token"))).await.expect("pause");
    let documents = shop.leases.list("mailer").await.expect("list");
    let bodies = documents.iter().map(|item| &*item.body);
    let live = shop.ranges().await;
    let plan = plan_import("sender", shop.orders.identity(), &live, bodies, &StartFrom::Now, false).expect("plan");
    apply(&shop, &plan).await.expect("apply");
    let stored = shop.leases.list("sender").await.expect("list");
    let property = |token: &str, key: &str| {
        let mut leases = stored.iter().map(|item| item.parse::<Value>().expect("json"));
        let lease = leases.find(|lease| lease["LeaseToken"] == token).expect("lease");
        lease["properties"][key].as_str().map(str::to_owned)
    };
    assert_eq!(property("0", "cf.start").as_deref(), Some("beginning"));
    assert_eq!(property("1", "cf.start").as_deref(), Some("time 1234567"));
    assert_eq!((property("0", "cf.paused"), property("1", "cf.paused").as_deref()), (None, Some("true")));
}

/// The container may be another one, with leases of the same ids.
#[tokio::test(start_paused = true)]
async fn leases_that_move_to_another_container_under_the_same_name_are_free_there() {
    let shop = Shop::new(2).await;
    shop.write(0..20, 1).await;
    shop.catch_up(&Seen::default(), 20).await;
    let moved = shop.engine.database("shop").container("moved").create().await.expect("create");
    let read = async || {
        let documents = shop.leases.list("mailer").await.expect("list");
        let bodies = documents.iter().map(|item| &*item.body);
        plan_import("mailer", shop.orders.identity(), &shop.ranges().await, bodies, &StartFrom::Now, false)
            .expect("plan")
    };
    let plan = read().await;
    shop.edit_lease("0", |lease| lease["Owner"] = "late".into()).await;
    let error = plan.apply(&shop.leases, &moved).await.expect_err("owned since the plan was made");
    assert_eq!(error.kind(), ErrorKind::Locked);
    shop.edit_lease("0", |lease| lease["Owner"] = Value::Null).await;
    let applied = plan.apply(&shop.leases, &moved).await.expect("apply");
    assert_eq!(outcomes(&applied), [ImportOutcome::Created; 2]);
    shop.write(20..30, 1).await;
    assert_eq!(given_from_now(&Shop { leases: moved, ..shop.clone() }).await, ids(20..30));
}
