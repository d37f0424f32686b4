//! Leases of .NET hosts older than 2021: they name a physical range and do not say which keys it holds.

mod shop;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use changefeed::{
    Changes, Notification, Processor, Running,
    core::{
        Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, ErrorKind, FeedRange,
        Item, ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, TimeToLive, Write,
        WriteResult,
    },
};
use changefeed_testkit::faulty::{Call, Fault};
use serde_json::{Value, json};
use shop::{Notifications, Seen, Shop, checkpoint, faulty, pass, until, until_async};

impl Shop {
    /// A host that would begin now, if it did not find any leases.
    async fn host_from_now(&self, notifications: &Notifications, seen: &Seen) -> Running {
        let processor = Processor::builder("mailer", &self.orders, &self.leases).instance_name("worker-1");
        shop::start(processor.runtime(self.runtime()).on_notification(notifications.listen()), seen).await
    }

    /// Leaves behind what an old fleet would have that had handled so many orders, as `handled` says for each lease by its
    /// token.
    async fn leave_old_leases(&self, handled: impl Fn(&str) -> u64) {
        let ranges = self.ranges().await;
        self.leave_old_leases_at(|token| {
            let range = &ranges.iter().find(|range| range.id.as_str() == token).expect("a range").range;
            let passed = (0..handled(token)).filter(|item| shop::is_in(&self.orders, &shop::order(*item, 1), range));
            passed.count() as u64 + 1
        })
        .await;
    }

    /// The tombstone of a lease, if there is one.
    async fn tombstone(&self) -> Option<Value> {
        let documents = self.leases.list("mailer").await.expect("list");
        let mut documents = documents.iter().map(|item| item.parse::<Value>().expect("json"));
        documents.find(|document| document["properties"]["cf.gone"] == json!("true"))
    }

    /// Leaves behind leases without ranges, modes and properties, each at the LSN that `at` says for its token.
    async fn leave_old_leases_at(&self, at: impl Fn(&str) -> u64) {
        self.host_from_now(&Notifications::default(), &Seen::default()).await.stop().await.expect("stop");
        for item in self.leases.list("mailer").await.expect("list") {
            let mut document: Value = item.parse().expect("json");
            let members = document.as_object_mut().expect("an object");
            members.remove("properties");
            if let Some(token) = members.get("LeaseToken").and_then(Value::as_str).map(str::to_owned) {
                members.remove("FeedRange");
                members.remove("Mode");
                members.insert("PartitionId".to_owned(), json!(token));
                members.insert("ContinuationToken".to_owned(), json!(format!("\"{}\"", at(&token))));
                members.insert("properties".to_owned(), json!({}));
            }
            self.leases.upsert(&document).await.expect("upsert");
        }
    }
}

fn ids(items: std::ops::Range<u64>) -> Vec<String> {
    let mut ids: Vec<String> = items.map(|item| format!("o{item}")).collect();
    ids.sort_unstable();
    ids
}

fn sorted(seen: &Seen) -> Vec<String> {
    let mut ids = seen.ids();
    ids.sort_unstable();
    ids
}

/// Whether an error names the lease.
fn is_reported(notifications: &Notifications, token: &str) -> bool {
    notifications.errors(&format!("lease {token}")) > 0 || notifications.text().contains(&format!("error at {token}:"))
}

fn acquired(notification: &Notification) -> bool {
    matches!(notification, Notification::LeaseAcquired(_))
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_a_range_continues_at_its_checkpoint() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..10, 1).await;
    shop.leave_old_leases(|_| 5).await;
    let running = shop.host_from_now(&notifications, &seen).await;
    until("delivery", || seen.len() >= 5).await;
    running.stop().await.expect("stop");
    assert_eq!(sorted(&seen), ids(5..10));
}

#[tokio::test(start_paused = true)]
async fn a_range_that_was_split_while_no_host_ran_continues_at_the_checkpoint() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..10, 1).await;
    shop.leave_old_leases(|_| 5).await;
    shop.split(0).await;
    let running = shop.host_from_now(&notifications, &seen).await;
    until("delivery", || sorted(&seen) == ids(5..10)).await;
    shop.write(10..30, 1).await;
    until("delivery goes on", || sorted(&seen) == ids(5..30)).await;
    running.stop().await.expect("stop");
    assert_eq!(shop.lease_documents().await.len(), 2, "the old lease is replaced by those of the children");
}

#[tokio::test(start_paused = true)]
async fn so_does_a_range_whose_children_were_split_again() {
    let shop = Shop::new(2).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..50, 1).await;
    shop.leave_old_leases(|_| 20).await;
    shop.split(0).await;
    shop.split(1).await;
    let running = shop.host_from_now(&notifications, &seen).await;
    until("delivery", || sorted(&seen) == ids(20..50)).await;
    pass(Duration::from_secs(10)).await;
    running.stop().await.expect("stop");
    assert_eq!(sorted(&seen), ids(20..50));
}

#[tokio::test(start_paused = true)]
async fn ranges_that_were_merged_continue_at_the_checkpoint_that_they_share() {
    let shop = Shop::new(2).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..50, 1).await;
    // Both had passed ten orders of their own.
    shop.leave_old_leases_at(|_| 11).await;
    let ranges = shop.ranges().await;
    let of_range = |range: &PhysicalRange| {
        let inside = (0..50).filter(|item| shop::is_in(&shop.orders, &shop::order(*item, 1), &range.range));
        inside.skip(10).map(|item| format!("o{item}")).collect::<Vec<_>>()
    };
    let mut expected: Vec<String> = ranges.iter().flat_map(of_range).collect();
    expected.sort_unstable();
    assert_eq!(expected.len(), 30);
    shop.merge(0).await;
    let running = shop.host_from_now(&notifications, &seen).await;
    until("delivery", || sorted(&seen) == expected).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn ranges_that_were_merged_at_different_checkpoints_lose_nothing() {
    let shop = Shop::new(2).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..50, 1).await;
    shop.leave_old_leases(|token| if token == "0" { 10 } else { 40 }).await;
    let first = shop.ranges().await[0].range.clone();
    shop.merge(0).await;
    let running = shop.host_from_now(&notifications, &seen).await;
    pass(Duration::from_secs(60)).await;
    let owed = |item: &u64| *item >= 40 || *item >= 10 && shop::is_in(&shop.orders, &shop::order(*item, 1), &first);
    let delivered = (0..50).filter(owed).all(|item| seen.ids().contains(&format!("o{item}")));
    // No position in the merged range stands for both checkpoints: an honest answer is to ask the operator.
    let reported = is_reported(&notifications, "0") || is_reported(&notifications, "1");
    assert!(delivered || reported, "{:?}\n{}", seen.ids(), notifications.text());
    assert!(notifications.count(acquired) <= 4, "acquired and dropped in a loop: {}", notifications.text());
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_of_a_lease_without_a_range_names_it_so_that_later_merges_leave_it_in_place() {
    let shop = Shop::new(2).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..10, 1).await;
    let first = shop.ranges().await[0].range.clone();
    let deletes = |call: &Call<'_>| match call {
        Call::Write(batch) if batch.writes.iter().any(|write| matches!(write, Write::Delete { .. })) => {
            Fault::Error(ErrorKind::Forbidden)
        }
        _ => Fault::None,
    };
    let host = Shop { leases: faulty(&shop.leases, deletes), ..shop.clone() };
    let running = shop::start(host.processor("worker-1").on_notification(notifications.listen()), &seen).await;
    until("delivery", || sorted(&seen) == ids(0..10)).await;
    let without_range = |lease: &mut Value| drop(lease.as_object_mut().expect("an object").remove("FeedRange"));
    shop.edit_lease("0", without_range).await;
    shop.split(0).await;
    until_async("a tombstone", || async { shop.tombstone().await.is_some() }).await;
    let tombstone = shop.tombstone().await.expect("a tombstone");
    let bounds = [&tombstone["FeedRange"]["Range"]["min"], &tombstone["FeedRange"]["Range"]["max"]];
    assert_eq!(
        bounds,
        [&json!(first.min_inclusive().to_string()), &json!(first.max_exclusive().to_string())],
        "{tombstone}"
    );
    shop.merge(0).await;
    shop.merge(0).await;
    shop.write(10..30, 1).await;
    until("delivery goes on", || sorted(&seen) == ids(0..30)).await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(notifications.errors("FeedRange"), 0, "{}", notifications.text());
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn where_the_store_knows_no_parents_the_lease_is_reported_and_left_alone() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..10, 1).await;
    shop.leave_old_leases(|_| 5).await;
    shop.split(0).await;
    let orders = Container::new(Arc::new(WithoutParents(Arc::clone(shop.orders.backend()))));
    let host = Shop { orders, ..shop.clone() };
    let running = host.host_from_now(&notifications, &seen).await;
    pass(Duration::from_secs(60)).await;
    assert!(is_reported(&notifications, "0"), "reported, by its token: {}", notifications.text());
    let ways = ["seek", "reset", "FeedRange", "delete"];
    assert!(
        ways.iter().any(|way| notifications.errors(way) > 0),
        "with the way to resolve it: {}",
        notifications.text()
    );
    assert!(notifications.count(acquired) <= 2, "acquired and dropped in a loop: {}", notifications.text());
    running.stop().await.expect("stop");
    let documents = shop.lease_documents().await;
    assert_eq!(checkpoint(&documents["0"]), 5, "the old checkpoint is kept");
    let past: Vec<&Value> = documents.values().filter(|lease| checkpoint(lease) > 5).collect();
    assert!(past.is_empty() && seen.len() == 0, "nothing starts past the checkpoint: {past:?}");
}

#[tokio::test(start_paused = true)]
async fn a_first_start_beside_an_old_lease_of_unknown_range_is_refused_and_creates_nothing() {
    let shop = Shop::new(1).await;
    shop.write(0..10, 1).await;
    shop.leave_old_leases(|_| 5).await;
    let ids = || async {
        let items = shop.leases.list("mailer").await.expect("list");
        items.into_iter().map(|item| item.id.to_string()).collect::<Vec<_>>()
    };
    // The old fleet ended before it had created all leases.
    let info = ids().await.into_iter().find(|id| id.ends_with(".info")).expect("info");
    shop.leases.delete(info.as_str(), &info).await.expect("delete");
    shop.split(0).await;
    let orders = Container::new(Arc::new(WithoutParents(Arc::clone(shop.orders.backend()))));
    let processor = Processor::builder("mailer", &orders, &shop.leases).instance_name("worker-1");
    let processor = processor.build(|_: Changes<Value>, _| async { Ok(()) }).expect("build");
    let error = processor.start().await.expect_err("refused");
    assert!(error.message().contains("lease 0 has no FeedRange"), "{error}");
    assert_eq!(ids().await, [info.replace(".info", "..0")]);
}

#[tokio::test(start_paused = true)]
async fn ranges_that_cannot_be_read_are_reported_and_the_lease_goes_on_when_they_can() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..10, 1).await;
    shop.leave_old_leases(|_| 5).await;
    let down = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&down);
    let orders = faulty(&shop.orders, move |call: &Call<'_>| match call {
        Call::FeedRanges if state.load(Ordering::SeqCst) => Fault::NeverReturns,
        _ => Fault::None,
    });
    let host = Shop { orders, ..shop.clone() };
    let processor = Processor::builder("mailer", &host.orders, &host.leases).instance_name("worker-1");
    let processor = processor.runtime(host.runtime()).on_notification(notifications.listen());
    down.store(true, Ordering::SeqCst);
    let running = shop::start(processor, &seen).await;
    pass(Duration::from_secs(60)).await;
    assert!(notifications.failures(|_| true) > 0, "reported: {}", notifications.text());
    assert!(notifications.count(acquired) <= 5, "acquired and dropped in a loop: {}", notifications.text());
    down.store(false, Ordering::SeqCst);
    until("delivery", || sorted(&seen) == ids(5..10)).await;
    running.stop().await.expect("stop");
}

/// A store that does not tell which ranges a range descends from.
#[derive(Debug)]
struct WithoutParents(Arc<dyn Backend>);

#[async_trait]
impl Backend for WithoutParents {
    fn identity(&self) -> &ContainerIdentity {
        self.0.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().range_parents(false)
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        let ranges = self.0.feed_ranges().await?;
        let without = |range| PhysicalRange { parents: Vec::new(), ..range };
        Ok(ranges.map(|ranges| ranges.into_iter().map(without).collect()))
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.0.read_changes(request).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        self.0.changed(range, continuation).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.0.read_item(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        self.0.write(batch).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.0.list_items(request).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.0.time_to_live().await
    }

    async fn reopen(&self) -> Result<Container> {
        self.0.reopen().await
    }
}
