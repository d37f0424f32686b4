//! Our hosts beside one that handles leases as the .NET SDK does, all in processes of their own: both make progress, nothing
//! is lost, nobody takes more than a fair share from a host that renews, and every lease stays a document of that SDK;
//! whatever becomes of the hosts, and however ranges are split and merged.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../testkit/src/dot_net_lease.rs"]
#[allow(unreachable_pub, reason = "public in its own crate")]
mod dot_net_lease;
#[path = "../hosts/mod.rs"]
mod hosts;
mod neighbour;
mod no_deletes;

use std::{
    collections::BTreeSet,
    fs::OpenOptions,
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use changefeed::{
    Context, Notification, Processor, RawChanges,
    core::{RangeId, StartFrom},
    remote::Server as Client,
};
use serde_json::Value;

use self::{
    host::Host,
    hosts::{block_on, connect, create_orders, host, ledger, process, split},
    ledger::{Ledger, Writer},
    neighbour::Neighbour,
    no_deletes::no_deletes,
    process::{Folder, Server, eventually, run},
};

/// All leases, each checked to be a document of the .NET SDK.
fn leases(client: &Client) -> Vec<Value> {
    let items = block_on(async {
        let leases = client.database("shop").container("leases").open().await.unwrap();
        leases.list("fleet").await.unwrap()
    });
    let leases = items.iter().filter(|item| item.id.contains(".."));
    let checked = leases.map(|lease| {
        dot_net_lease::check(&lease.body).unwrap_or_else(|why| panic!("{}: {why}", lease.id));
        serde_json::from_slice(&lease.body).unwrap()
    });
    checked.collect()
}

/// Checks that every lease is a document of the .NET SDK; how many there are.
fn documents(client: &Client) -> usize {
    leases(client).len()
}

/// How many leases there are of this version.
fn of_version(client: &Client, version: u64) -> usize {
    leases(client).iter().filter(|lease| lease["version"] == version).count()
}

/// Whether the tombstone of a lease is among them.
fn has_tombstone(client: &Client) -> bool {
    leases(client).iter().any(|lease| lease["properties"]["cf.gone"] == "true")
}

/// The live ranges in key order: id, and bounds as in the token of a lease of version 1.
fn ranges(client: &Client) -> Vec<(String, String)> {
    let ranges = block_on(async {
        let orders = client.database("shop").container("orders").open().await.unwrap();
        orders.feed_ranges().await.unwrap()
    });
    ranges.iter().map(|range| (range.id.to_string(), range.range.to_string())).collect()
}

/// Where a range begins, in the text form.
fn start_of(range: &str) -> &str {
    range.split_once('-').unwrap().0
}

/// Where a range ends, in the text form.
fn end_of(range: &str) -> &str {
    range.split_once('-').unwrap().1
}

fn split_at(client: &Client, range: &str, at: &str) {
    let (range, at) = (range.parse::<RangeId>().unwrap(), at.parse().unwrap());
    block_on(client.catalog().split("shop", "orders", &range, Some(at))).unwrap();
}

fn merge(client: &Client, ranges: [&str; 2]) {
    let [low, high] = ranges.map(|id| id.parse::<RangeId>().unwrap());
    block_on(client.catalog().merge("shop", "orders", [&low, &high])).unwrap();
}

/// Waits until these have delivered something of what is written from now on, and all of it is delivered.
fn at_work(instances: &[&str], ledger: &mut Ledger, writer: &Writer) {
    let before = ledger.len();
    let all = instances.iter().copied().map(str::to_owned).collect();
    eventually("all hosts at work", || ledger.instances(before).is_superset(&all));
    writer.writes(100);
    ledger.catches_up(writer);
}

/// Starts a host of ours: endpoint, name, ledger.
type Start = fn(&str, &str, &str) -> Host;

#[test]
fn hosts_of_both_kinds_share_the_leases_and_lose_nothing() {
    hosts_of_both_kinds_share_the_leases(Host::start);
}

#[test]
#[cfg(feature = "cosmos")]
fn hosts_over_the_sdk_of_azure_share_the_leases_and_lose_nothing() {
    hosts_of_both_kinds_share_the_leases(Host::over_sdk);
}

fn hosts_of_both_kinds_share_the_leases(start: Start) {
    let folder = Folder::new();
    let mut ledger = Ledger::new(&folder.join("ledger"));
    let server = Server::start(&["--store", &folder.join("store")]);
    let endpoint = server.endpoint();
    let client = connect(&endpoint);
    create_orders(&endpoint, 6);
    block_on(client.database("shop").container("leases").create()).unwrap();
    let writer = Writer::start(endpoint.clone());

    // It joins a host of ours, and takes its share one by one.
    let a = start(&endpoint, "a", ledger.path());
    a.owns(6);
    let net = Neighbour::start(&endpoint, "net", ledger.path());
    net.owns(3);
    a.owns(3);
    assert_eq!(net.taken_from(), ["a", "a", "a"]);
    at_work(&["a", "net"], &mut ledger, &writer);
    assert_eq!(documents(&client), 6);

    // Another one of ours takes its share of both, and no more.
    let b = start(&endpoint, "b", ledger.path());
    b.owns(2);
    net.owns(2);
    a.owns(2);
    net.renews(8);
    at_work(&["a", "b", "net"], &mut ledger, &writer);
    assert_eq!((net.count("lost"), net.leases().len()), (1, 2), "it keeps its share while it renews");
    assert_eq!(documents(&client), 6);

    // One of its ranges is split, and then one of ours.
    let of_net = net.leases().remove(0);
    split(&endpoint, &of_net);
    eventually("seven leases", || documents(&client) == 7 && a.leases() + b.leases() + net.leases().len() == 7);
    at_work(&["a", "b", "net"], &mut ledger, &writer);
    let of_ours = (0..6).map(|id| id.to_string()).find(|id| *id != of_net && !net.leases().contains(id)).unwrap();
    split(&endpoint, &of_ours);
    eventually("eight leases", || documents(&client) == 8 && a.leases() + b.leases() + net.leases().len() == 8);
    at_work(&["a", "b", "net"], &mut ledger, &writer);

    // It leaves: ours take over. It comes back, and ours leave: it takes over all.
    net.stop();
    eventually("all leases with our hosts", || a.leases() + b.leases() == 8);
    at_work(&["a", "b"], &mut ledger, &writer);
    assert_eq!(documents(&client), 8);
    let net = Neighbour::start(&endpoint, "net", ledger.path());
    a.stop();
    b.stop();
    net.owns(8);
    writer.stop();
    ledger.catches_up(&writer);
    assert_eq!(documents(&client), 8);
    net.stop();
}

#[test]
fn hosts_of_both_kinds_follow_merges_with_leases_of_version_1_in_a_container_by_partition_key() {
    hosts_of_both_kinds_follow_merges(Host::start);
}

#[test]
#[cfg(feature = "cosmos")]
fn hosts_over_the_sdk_of_azure_follow_merges_with_leases_of_version_1_in_a_container_by_partition_key() {
    hosts_of_both_kinds_follow_merges(Host::over_sdk);
}

fn hosts_of_both_kinds_follow_merges(start: Start) {
    let folder = Folder::new();
    let mut ledger = Ledger::new(&folder.join("ledger"));
    let server = Server::start(&["--store", &folder.join("store")]);
    let endpoint = server.endpoint();
    let client = connect(&endpoint);
    create_orders(&endpoint, 4);
    block_on(client.database("shop").container("leases").partition_key("/partitionKey").create()).unwrap();
    let writer = Writer::start(endpoint.clone());
    let a = start(&endpoint, "a", ledger.path());
    a.owns(4);
    let net = Neighbour::start(&endpoint, "net", ledger.path());
    net.owns(2);
    a.owns(2);
    at_work(&["a", "net"], &mut ledger, &writer);

    // A range of the one is merged with one of the other: each replaces its own lease.
    let owned = net.leases();
    let live = ranges(&client);
    let pair = live.windows(2).find(|pair| owned.contains(&pair[0].0) != owned.contains(&pair[1].0)).unwrap();
    let tokens = [&pair[0].1, &pair[1].1];
    merge(&client, [&pair[0].0, &pair[1].0]);
    eventually("a lease that the scripted host replaces", || net.count("merged") == 1);
    eventually("two leases of version 1", || of_version(&client, 1) == 2 && documents(&client) == 4);
    eventually("a share for both", || a.leases() == 2 && net.leases().len() == 2);
    at_work(&["a", "net"], &mut ledger, &writer);

    // The merged range is split where the two met: both leases stay.
    let live = ranges(&client);
    let whole = format!("{}-{}", start_of(tokens[0]), end_of(tokens[1]));
    split_at(&client, &live.iter().find(|(_, range)| *range == whole).unwrap().0, end_of(tokens[0]));
    eventually("a lease that stays", || net.count("redirected") == 1);
    eventually("a share for both", || a.leases() == 2 && net.leases().len() == 2);
    at_work(&["a", "net"], &mut ledger, &writer);
    assert_eq!((of_version(&client, 1), documents(&client)), (2, 4));

    // Each of their ranges is split inside: the owner cuts its lease, whichever kind it is of.
    let owned = net.leases();
    assert_eq!(tokens.iter().filter(|token| owned.contains(token)).count(), 1, "{owned:?}, {tokens:?}");
    for (more, token) in tokens.into_iter().enumerate() {
        let live = ranges(&client);
        split(&endpoint, &live.iter().find(|(_, range)| range == token).unwrap().0);
        eventually("one lease more", || of_version(&client, 1) == 3 + more && documents(&client) == 5 + more);
        eventually("all leases owned", || a.leases() + net.leases().len() == 5 + more);
        at_work(&["a", "net"], &mut ledger, &writer);
    }
    eventually("a lease that the scripted host cuts", || net.count("split") == 1);

    // Ours leave, and the other takes over all of them; then the other way round.
    a.stop();
    net.owns(6);
    at_work(&["net"], &mut ledger, &writer);
    let b = start(&endpoint, "b", ledger.path());
    net.stop();
    b.owns(6);
    writer.stop();
    ledger.catches_up(&writer);
    assert_eq!((of_version(&client, 1), documents(&client)), (4, 6));
    b.stop();
}

#[test]
fn hosts_of_either_kind_that_are_killed_or_stand_still_take_nothing_along() {
    let folder = Folder::new();
    let mut ledger = Ledger::new(&folder.join("ledger"));
    let server = Server::start(&["--store", &folder.join("store")]);
    let endpoint = server.endpoint();
    let client = connect(&endpoint);
    create_orders(&endpoint, 6);
    let writer = Writer::start(endpoint.clone());
    let a = Host::start(&endpoint, "a", ledger.path());
    a.owns(6);
    let killed = Neighbour::start(&endpoint, "killed", ledger.path());
    killed.owns(3);
    let net = Neighbour::start(&endpoint, "net", ledger.path());
    eventually("a share for all", || [a.leases(), killed.leases().len(), net.leases().len()] == [2, 2, 2]);
    at_work(&["a", "killed", "net"], &mut ledger, &writer);

    // One stands still when it has delivered a batch and not stored it; the other is killed. Owners that promise nothing are
    // given a minute.
    let token = net.freeze_before_checkpoint();
    killed.kill();
    a.owns(6);
    writer.writes(100);
    ledger.catches_up(&writer);
    assert!(leases(&client).iter().all(|lease| lease["Owner"] == "a"));

    // It goes on with its old etag, is refused, and comes back to a share.
    net.thaw();
    eventually("a checkpoint that is refused", || net.has_said(&format!("lost {token} to a")));
    eventually("a share for the one that is back", || a.leases() == 3 && net.leases().len() == 3);
    at_work(&["a", "net"], &mut ledger, &writer);

    // Ours is killed: another of ours and the one of .NET take over what it had.
    let b = Host::start(&endpoint, "b", ledger.path());
    eventually("a share for all", || [a.leases(), b.leases(), net.leases().len()] == [2, 2, 2]);
    a.kill();
    eventually("all leases owned", || b.leases() + net.leases().len() == 6);
    at_work(&["b", "net"], &mut ledger, &writer);

    // Ours stands still until its leases have expired by `timestamp`, and goes on: it does not work on what it has lost.
    b.signal("STOP");
    net.owns(6);
    writer.writes(100);
    ledger.catches_up(&writer);
    b.signal("CONT");
    eventually("a share for the one that is back", || b.leases() == 3 && net.leases().len() == 3);
    at_work(&["b", "net"], &mut ledger, &writer);
    writer.stop();
    ledger.catches_up(&writer);
    assert_eq!(documents(&client), 6);
    b.stop();
    net.stop();
}

#[test]
fn a_dot_net_host_that_acquires_its_new_leases_late_takes_them_back_and_loses_nothing() {
    let folder = Folder::new();
    let mut ledger = Ledger::new(&folder.join("ledger"));
    let server = Server::start(&["--store", &folder.join("store")]);
    let endpoint = server.endpoint();
    let client = connect(&endpoint);
    create_orders(&endpoint, 2);
    let writer = Writer::start(endpoint.clone());
    let a = Host::start(&endpoint, "a", ledger.path());
    a.owns(2);
    let net = Neighbour::start(&endpoint, "net", ledger.path());
    net.owns(1);
    at_work(&["a", "net"], &mut ledger, &writer);

    // It stands still when it has created leases for the new ranges; ours works on them meanwhile.
    net.freeze_before_children();
    split(&endpoint, &net.leases()[0]);
    let parent = net.frozen();
    writer.writes(100);
    ledger.catches_up(&writer);
    let of_ours = |lease: &Value| lease["Owner"] == "a" && lease["ContinuationToken"].is_string();
    eventually("ours on all that is left", || leases(&client).iter().filter(|lease| of_ours(lease)).count() == 3);

    // It acquires them without an etag, and works on them from where it had created them.
    net.thaw();
    eventually("the leases acquired late", || net.has_said(&format!("split {parent}")));
    eventually("leases that are shared", || {
        let owners: Vec<_> = leases(&client).iter().map(|lease| lease["Owner"].clone()).collect();
        owners.len() == 3 && owners.iter().all(Value::is_string) && a.leases() + net.leases().len() == 3
    });
    at_work(&["a", "net"], &mut ledger, &writer);
    writer.stop();
    ledger.catches_up(&writer);
    net.stop();
    a.owns(3);
    a.stop();
}

/// A host of ours that may not delete leases works on the orders, whose first range is split: that leaves a tombstone.
async fn leave_a_tombstone(endpoint: &str) {
    let server = connect(endpoint);
    let orders = server.database("shop").container("orders").open().await.unwrap();
    let leases = server.database("shop").container("leases").open_or_create().await.unwrap();
    let processor = Processor::builder("fleet", &orders, &no_deletes(&leases)).start_from(StartFrom::Beginning);
    let processor = processor.build(|_: RawChanges, _: Context| async { Ok(()) }).unwrap();
    let running = processor.start().await.unwrap();
    let mut notifications = running.notifications();
    let first = orders.feed_ranges().await.unwrap().remove(0).id;
    server.catalog().split("shop", "orders", &first, None).await.unwrap();
    while !matches!(notifications.recv().await.expect("the host ended"), Notification::Split { .. }) {}
    running.stop().await.unwrap();
}

/// From now on the server refuses requests of .NET hosts to delete leases, or no more.
fn refuse_deletes(endpoint: &str, refuse: bool) {
    let refused = ["--status", "403", "--count", "100000", "--method", "DELETE", "--path-contains", "colls/leases"];
    let what = if refuse { &refused[..] } else { &["--clear"] };
    assert!(run(&[&["fault", "--store", endpoint], what].concat()).status.success());
}

#[test]
fn a_dot_net_host_that_takes_up_a_tombstone_of_ours_repeats_its_split_and_loses_nothing() {
    let folder = Folder::new();
    let mut ledger = Ledger::new(&folder.join("ledger"));
    let server = Server::start(&["--allow-faults", "--store", &folder.join("store")]);
    let endpoint = server.endpoint();
    let client = connect(&endpoint);
    create_orders(&endpoint, 2);
    block_on(leave_a_tombstone(&endpoint));
    assert!(has_tombstone(&client) && documents(&client) == 4);

    // It may not delete it either, and takes it up again and again.
    refuse_deletes(&endpoint, true);
    let writer = Writer::start(endpoint.clone());
    let net = Neighbour::start(&endpoint, "net", ledger.path());
    eventually("the tombstone being taken up", || net.count("kept") >= 2);
    at_work(&["net"], &mut ledger, &writer);

    // A successor is split as well: leases for its ranges are created from its lease, or from the tombstone.
    let a = Host::start(&endpoint, "a", ledger.path());
    at_work(&["a", "net"], &mut ledger, &writer);
    split(&endpoint, &ranges(&client)[0].0);
    writer.writes(100);
    ledger.catches_up(&writer);

    // Once it may delete again, nothing is left of what was split. It leaves, and ours work on all there is.
    refuse_deletes(&endpoint, false);
    let live = || ranges(&client).into_iter().map(|(id, _)| id).collect::<BTreeSet<_>>();
    let tokens = || -> BTreeSet<_> {
        leases(&client).iter().filter_map(|lease| Some(lease["LeaseToken"].as_str()?.to_owned())).collect()
    };
    eventually("a lease for each range, and no other", || tokens() == live() && !has_tombstone(&client));
    at_work(&["a", "net"], &mut ledger, &writer);
    net.stop();
    eventually("all leases with our host", || leases(&client).iter().all(|lease| lease["Owner"] == "a"));
    at_work(&["a"], &mut ledger, &writer);
    writer.stop();
    ledger.catches_up(&writer);
    assert_eq!(documents(&client), 4);
    a.stop();
}

/// A host of ours that begins at now, until it owns all leases; then, unless its calls never end, until it has delivered so
/// many orders.
async fn from_now(endpoint: &str, ledger: &str, delivers: usize, calls_end: bool) {
    let shop = connect(endpoint).database("shop");
    let (orders, leases) =
        (shop.container("orders").open().await.unwrap(), shop.container("leases").open().await.unwrap());
    let (delivered, ledger) = (Arc::new(AtomicUsize::new(0)), ledger.to_owned());
    let count = Arc::clone(&delivered);
    let processor = Processor::builder("fleet", &orders, &leases).instance_name("ours");
    let processor = processor.build(move |changes: RawChanges, _: Context| {
        if calls_end {
            let lines: String = changes.iter().map(|change| format!("{} {} ours\n", change.id, change.lsn)).collect();
            OpenOptions::new().append(true).create(true).open(&ledger).unwrap().write_all(lines.as_bytes()).unwrap();
            count.fetch_add(changes.len(), Ordering::Relaxed);
        }
        async move {
            if !calls_end {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    let running = processor.unwrap().start().await.unwrap();
    let mut notifications = running.notifications();
    while running.owned_leases().len() < 4 || calls_end && delivered.load(Ordering::Relaxed) < delivers {
        notifications.recv().await.expect("the host ended");
    }
    if calls_end {
        running.stop().await.unwrap();
    }
}

#[test]
fn leases_of_a_dot_net_host_without_a_continuation_lose_nothing_when_ours_take_over() {
    for calls_end in [true, false] {
        let folder = Folder::new();
        let mut ledger = Ledger::new(&folder.join("ledger"));
        let server = Server::start(&["--store", &folder.join("store")]);
        let endpoint = server.endpoint();
        let client = connect(&endpoint);
        create_orders(&endpoint, 4);
        block_on(client.database("shop").container("leases").create()).unwrap();
        // It starts the processor, at now, and stops before there is any order.
        let net = Neighbour::from_now(&endpoint, "net", ledger.path());
        net.owns(4);
        net.stop();
        let open = |lease: &Value| lease["ContinuationToken"].is_null() && !lease["timestamp"].is_null();
        assert!(leases(&client).iter().all(open), "{:?}", leases(&client));
        let writer = Writer::start(endpoint.clone());
        writer.writes(100);
        // Ours deliver what came since, or die in their first calls; then a .NET host begins where they were, not at its own
        // start.
        block_on(from_now(&endpoint, ledger.path(), 100, calls_end));
        assert!(leases(&client).iter().all(|lease| !lease["ContinuationToken"].is_null()));
        let net = Neighbour::from_now(&endpoint, "net", ledger.path());
        net.owns(4);
        at_work(&["net"], &mut ledger, &writer);
        writer.stop();
        ledger.catches_up(&writer);
        net.stop();
    }
}
