//! Leases as the bootstrap of .NET hosts leaves them: without a continuation until the first change, beside an `.info` that says
//! nothing. Hosts of ours that join or take over lose nothing.

mod shop;

use std::{collections::BTreeSet, ops::Range, time::Duration};

use changefeed::{
    Changes, Context, DelegateError, LeaseArchive, Processor, RawChanges, Scope, SeekTo, Versions,
    core::{ErrorKind, ReadChanges, StartFrom, Timestamp},
};
use changefeed_testkit::faulty::{Call, Fault};
use serde_json::{Value, json};
use shop::{Order, Seen, Shop, TIMING, faulty, is_in, order, start, until, until_async};

const HOUR: Duration = Duration::from_secs(3600);

impl Shop {
    /// How the ids of all documents of processor `mailer` begin.
    fn prefix(&self) -> String {
        let identity = self.orders.identity();
        format!("mailer{}_{}_{}", identity.account_host, identity.database, identity.container)
    }

    async fn write_info(&self) {
        self.leases.create(&json!({"id": format!("{}.info", self.prefix())})).await.expect("info");
    }

    /// A lease for each range, as .NET hosts create them.
    async fn write_dotnet_leases(&self, mode: &str) {
        for physical in self.ranges().await {
            let (min, max) = (physical.range.min_inclusive().to_string(), physical.range.max_exclusive().to_string());
            let lease = json!({
                "id": format!("{}..{}", self.prefix(), physical.id), "version": 0, "_etag": null,
                "LeaseToken": physical.id.to_string(), "FeedRange": {"Range": {"min": min, "max": max}}, "Owner": null,
                "ContinuationToken": null, "properties": {}, "timestamp": null, "_ts": 0, "Mode": mode,
            });
            self.leases.create(&lease).await.expect("lease");
        }
    }

    /// A shop with two ranges in which .NET hosts have started an hour after `old` orders were written, and none has come since.
    async fn of_dotnet(old: u64) -> Self {
        let shop = Self::new(2).await;
        shop.write(0..old, 1).await;
        shop.clock.advance(HOUR);
        shop.write_dotnet_leases("Incremental Feed").await;
        shop.write_info().await;
        shop.clock.advance(HOUR);
        shop
    }

    async fn info(&self) -> Value {
        let id = format!("{}.info", self.prefix());
        self.leases.read(id.as_str(), &id).await.expect("info")
    }

    /// What a job is given that was told to begin there.
    async fn given_from(&self, from: StartFrom) -> BTreeSet<String> {
        let seen = Seen::default();
        let (given, builder) = (seen.clone(), self.processor("job").start_from(from));
        let job = builder.build(move |changes: Changes<Order>, ctx: Context| {
            given.add(&changes, &ctx);
            async { Ok(()) }
        });
        job.expect("build").run_until_caught_up().await.expect("run");
        seen.ids().into_iter().collect()
    }
}

fn ids(items: Range<u64>) -> BTreeSet<String> {
    items.map(|item| order(item, 1).id).collect()
}

#[tokio::test(start_paused = true)]
async fn what_came_while_no_host_ran_is_delivered_although_no_lease_has_a_continuation() {
    let shop = Shop::of_dotnet(20).await;
    // A .NET host has had one of the leases; neither of them had a change.
    shop.dotnet_acquires("0", "dotnet").await;
    shop.edit_lease("0", |lease| lease["Owner"] = Value::Null).await;
    shop.write(100..120, 1).await;
    assert_eq!(shop.given_from(StartFrom::Now).await, ids(100..120), "and nothing of what was there before");
    shop.clock.advance(HOUR);
    assert_eq!(shop.given_from(StartFrom::Now).await, ids(0..0), "once");
}

#[tokio::test(start_paused = true)]
async fn what_came_shortly_before_the_leases_were_created_is_delivered_as_well() {
    let shop = Shop::new(2).await;
    shop.write(0..20, 1).await;
    // A .NET host has started, and waits for the lock.
    shop.clock.advance(Duration::from_secs(60));
    shop.write_dotnet_leases("Incremental Feed").await;
    shop.write_info().await;
    shop.clock.advance(HOUR);
    assert_eq!(shop.given_from(StartFrom::Now).await, ids(0..20));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_began_at_the_beginning_or_at_a_time_goes_on_there_if_our_hosts_are_told_the_same() {
    for (start, expected) in [(StartFrom::Beginning, ids(0..40)), (StartFrom::Time(Timestamp::default()), ids(0..40))] {
        let shop = Shop::of_dotnet(40).await;
        assert_eq!(shop.given_from(start).await, expected);
    }
    // A time after the first start of the .NET hosts is none that they can have been given.
    let shop = Shop::of_dotnet(40).await;
    shop.write(100..120, 1).await;
    shop.clock.advance(HOUR);
    assert_eq!(shop.given_from(StartFrom::Time(shop.clock.now())).await, ids(100..120));
}

#[tokio::test(start_paused = true)]
async fn where_they_begin_is_stored_before_start_returns_and_survives_a_crash() {
    let shop = Shop::of_dotnet(20).await;
    let processor = || shop.processor("worker-1").start_from(StartFrom::Now);
    let failing = processor()
        .build(|_: RawChanges, _: Context| async { Err::<(), _>(DelegateError::from("not yet")) })
        .expect("build");
    let running = failing.start().await.expect("start");
    let known = shop.info().await["properties"]["cf.anchors"].clone();
    assert!(known.as_str().is_some_and(|known| known.contains("time")), "{known}");
    shop.write(100..120, 1).await;
    until_async("the leases are owned", async || shop.owners().await.iter().all(Option::is_some)).await;
    drop(running);
    shop.clock.advance(HOUR);
    // .NET hosts would begin after these, at their own start, if the leases had no continuation still.
    for (token, lease) in shop.lease_documents().await {
        assert!(lease["ContinuationToken"].is_string(), "lease {token}: {lease}");
    }
    let seen = Seen::default();
    let running = start(processor(), &seen).await;
    until("delivery", || seen.len() == 20).await;
    running.stop().await.expect("stop");
    assert_eq!(shop.info().await["properties"]["cf.anchors"], known, "it is found once");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_dotnet_host_gives_up_later_begins_there_too() {
    let shop = Shop::of_dotnet(20).await;
    for token in ["0", "1"] {
        shop.dotnet_acquires(token, "dotnet").await;
    }
    let seen = Seen::default();
    let running = start(shop.processor("worker-1").start_from(StartFrom::Now), &seen).await;
    shop.write(100..120, 1).await;
    // It handles one of the leases, and never gets to the other.
    let range = shop.ranges().await[1].range.clone();
    let page = shop.orders.read_changes(ReadChanges::new(range.clone(), StartFrom::Now)).await.expect("read");
    let token = page.into_value().continuation.token().to_owned();
    shop.edit_lease("1", |lease| lease["ContinuationToken"] = token.as_str().into()).await;
    let owned = async || shop.owners().await.iter().flatten().all(|owner| owner == "worker-1");
    until_async("the silent owner is replaced", owned).await;
    let expected: BTreeSet<String> = (100..120)
        .map(|item| order(item, 1))
        .filter(|order| !is_in(&shop.orders, order, &range))
        .map(|order| order.id)
        .collect();
    until("delivery", || seen.len() >= expected.len()).await;
    running.stop().await.expect("stop");
    assert_eq!(seen.ids().into_iter().collect::<BTreeSet<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_lease_document_that_was_lost_is_created_again_there() {
    let shop = Shop::of_dotnet(20).await;
    shop.write(100..120, 1).await;
    let lost = format!("{}..1", shop.prefix());
    shop.leases.delete(lost.as_str(), &lost).await.expect("delete");
    let seen = Seen::default();
    let running = start(shop.processor("worker-1").start_from(StartFrom::Now), &seen).await;
    until("delivery", || seen.len() == 20).await;
    running.stop().await.expect("stop");
    assert_eq!(seen.ids().into_iter().collect::<BTreeSet<_>>(), ids(100..120));
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_dotnet_host_that_failed_before_it_wrote_info_begin_at_their_creation() {
    let shop = Shop::new(2).await;
    shop.write(0..20, 1).await;
    shop.clock.advance(HOUR);
    shop.write_dotnet_leases("Incremental Feed").await;
    shop.clock.advance(HOUR);
    shop.write(100..120, 1).await;
    assert_eq!(shop.given_from(StartFrom::Now).await, ids(100..120));
}

/// An earlier version of ours wrote the store into `.info` and nothing else: when it was created is not known any more.
#[tokio::test(start_paused = true)]
async fn where_nobody_knows_when_the_leases_were_created_they_begin_at_the_beginning() {
    let shop = Shop::of_dotnet(20).await;
    let mut info = shop.info().await;
    info["properties"] = json!({"cf.store": shop.orders.identity().store.to_string()});
    shop.leases.replace(&info).await.expect("replace");
    assert_eq!(shop.given_from(StartFrom::Now).await, ids(0..20));
}

#[tokio::test(start_paused = true)]
async fn where_the_store_has_no_start_at_a_time_they_begin_at_the_beginning() {
    let shop = Shop::of_dotnet(20).await;
    shop.write(100..120, 1).await;
    let orders = faulty(&shop.orders, |call: &Call<'_>| match call {
        Call::ReadChanges(ReadChanges { start: StartFrom::Time(_), .. }) => Fault::Error(ErrorKind::Unsupported),
        _ => Fault::None,
    });
    let shop = Shop { orders, ..shop };
    assert_eq!(shop.given_from(StartFrom::Now).await, ids(0..20).into_iter().chain(ids(100..120)).collect());
}

#[tokio::test(start_paused = true)]
async fn leases_with_all_versions_begin_at_the_first_version_there_is() {
    let shop = Shop::with_history().await;
    shop.write_dotnet_leases("Full-Fidelity Feed").await;
    shop.write_info().await;
    shop.write(0..20, 1).await;
    shop.write(0..20, 2).await;
    let seen = Seen::default();
    let given = seen.clone();
    let processor =
        Processor::builder("mailer", &shop.orders, &shop.leases).instance_name("worker-1").lease_timing(TIMING);
    let processor =
        processor.runtime(shop.runtime()).all_versions().build(move |versions: Versions<Order>, _: Context| {
            given.lock().extend(versions.iter().filter_map(|version| version.current.clone()));
            async { Ok(()) }
        });
    let running = processor.expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 40).await;
    running.stop().await.expect("stop");
}

/// A lease container that was created again, by a .NET host this time: a host that runs still knows where they began.
#[tokio::test(start_paused = true)]
async fn info_that_a_dotnet_host_created_again_gets_the_positions_that_a_running_host_knows() {
    let mut shop = Shop::new(2).await;
    shop.write(0..20, 1).await;
    let seen = Seen::default();
    let running = start(shop.processor("worker-1"), &seen).await;
    until("delivery", || seen.len() == 20).await;
    shop.recreate_leases().await;
    shop.clock.advance(HOUR);
    shop.write_info().await;
    let known = async || shop.info().await["properties"]["cf.anchors"].is_string();
    until_async("its positions are stored", known).await;
    until("all is delivered again", || seen.len() == 40).await;
    running.stop().await.expect("stop");
}

/// Exports the leases, deletes them, and an hour later imports what `edit` leaves of them.
async fn restore(shop: &Shop, edit: impl Fn(&mut Value)) {
    let text = shop.control().export().await.expect("export").to_json();
    let mut archive: Value = serde_json::from_str(&text).expect("json");
    edit(&mut archive);
    for item in shop.leases.list("").await.expect("list") {
        shop.leases.delete(item.id.as_str(), item.id.as_str()).await.expect("delete");
    }
    shop.clock.advance(HOUR);
    let archive = LeaseArchive::from_json(archive.to_string().as_bytes()).expect("archive");
    shop.control().import(archive).apply().await.expect("import");
}

#[tokio::test(start_paused = true)]
async fn leases_that_were_exported_and_imported_begin_where_they_began_before() {
    for (start, old) in [(StartFrom::Now, 0..0), (StartFrom::Beginning, 0..20)] {
        let shop = Shop::of_dotnet(20).await;
        shop.write(100..105, 1).await;
        restore(&shop, |_| ()).await;
        shop.write(105..110, 1).await;
        let expected: BTreeSet<String> = ids(old).union(&ids(100..110)).cloned().collect();
        assert_eq!(shop.given_from(start).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn leases_that_were_imported_without_their_marker_begin_when_they_were_created() {
    let shop = Shop::of_dotnet(20).await;
    shop.write(100..105, 1).await;
    restore(&shop, |archive| archive["info"] = Value::Null).await;
    assert_eq!(shop.given_from(StartFrom::Now).await, ids(100..105));
}

/// Nobody knows when the hosts began: only the beginning loses nothing.
#[tokio::test(start_paused = true)]
async fn leases_of_an_archive_of_an_earlier_version_begin_at_the_beginning() {
    let shop = Shop::of_dotnet(20).await;
    shop.write(100..105, 1).await;
    let without_time = |document: &mut Value| drop(document.as_object_mut().expect("object").remove("_ts"));
    restore(&shop, |archive| {
        without_time(&mut archive["info"]);
        archive["leases"].as_array_mut().expect("leases").iter_mut().for_each(without_time);
    })
    .await;
    let expected: BTreeSet<String> = ids(0..20).union(&ids(100..105)).cloned().collect();
    assert_eq!(shop.given_from(StartFrom::Now).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_seek_of_one_lease_leaves_the_others_where_they_begin() {
    let shop = Shop::of_dotnet(20).await;
    let lease = "1".parse().expect("token");
    shop.control().seek(SeekTo::Now, Scope::Lease(lease)).apply().await.expect("seek");
    shop.clock.advance(HOUR);
    shop.write(100..120, 1).await;
    assert_eq!(shop.given_from(StartFrom::Now).await, ids(100..120), "and nothing of what was there before");
}
