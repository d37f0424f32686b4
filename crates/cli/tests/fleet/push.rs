//! Wake-ups by push, through a server in a process of its own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use changefeed::{
    Context, Processor, RawChanges,
    core::{Container, StartFrom},
    remote::{EMULATOR_KEY, Server as Client},
};
use serde_json::json;
use tokio::sync::mpsc;

use crate::{
    block_on,
    host::Host,
    process::{Folder, Server},
    proxy::Proxy,
    soak::pass,
};

/// How many changes are timed.
const CHANGES: usize = 200;

async fn containers(server: &Server, ranges: usize) -> (Container, Container) {
    let client = Client::connect(&server.endpoint(), EMULATOR_KEY).unwrap();
    let shop = client.database("shop");
    let orders = shop.container("orders").ranges(ranges).open_or_create().await.unwrap();
    let leases = shop.container("leases").open_or_create().await.unwrap();
    (orders, leases)
}

/// No poll would find a change so soon: a host polls once an hour here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "how long a change takes is what is tested")]
async fn a_change_reaches_its_delegate_by_push_long_before_a_poll_would_find_it() {
    let server = Server::start(&["--store", "memory"]);
    let (orders, leases) = containers(&server, 8).await;
    let (report, mut delivered) = mpsc::unbounded_channel();
    let processor = Processor::builder("mailer", &orders, &leases)
        .instance_name("a")
        .start_from(StartFrom::Beginning)
        .poll_interval(Duration::from_secs(3600))
        .build(move |changes: RawChanges, _: Context| {
            let now = Instant::now();
            let sent = changes.iter().try_for_each(|change| report.send((change.id.as_str().to_owned(), now)));
            async move { Ok(sent?) }
        })
        .unwrap();
    let running = processor.start().await.unwrap();
    let committed = Arc::new(Mutex::new(BTreeMap::new()));
    let mut took = Vec::new();
    for number in 0..CHANGES {
        let id = number.to_string();
        orders.create(&json!({ "id": id })).await.unwrap();
        committed.lock().unwrap().insert(id, Instant::now());
        let (id, at) = tokio::time::timeout(Duration::from_secs(30), delivered.recv()).await.unwrap().unwrap();
        took.push(at.saturating_duration_since(committed.lock().unwrap()[&id]));
    }
    took.sort();
    running.stop().await.unwrap();
    let (half, most) = (took[CHANGES / 2], took[CHANGES * 99 / 100]);
    eprintln!("commit to delegate: p50 {half:?}, p99 {most:?}");
    // Unoptimised, on a machine that does other things: far from the 5 ms of a release build, far from an hour.
    assert!(half < Duration::from_millis(100), "p50 {half:?}, p99 {most:?}");
}

/// Wake-ups make polls of feeds rare; what is left are renewals, and reads of what others may have written to leases.
#[test]
fn an_idle_host_reads_its_leases_once_in_an_acquire_interval_and_hardly_any_feed() {
    let folder = Folder::new();
    let server = Server::start(&["--store", "memory"]);
    block_on(containers(&server, 4));
    let network = Proxy::start(server.address());
    let host = Host::start(&network.endpoint(), "a", &folder.join("ledger"));
    host.owns(4);
    // Until it has found out that nothing happens.
    pass(Duration::from_secs(10));
    let calls = ["write", "read_changes", "watch", "list_items", "read_item", "feed_ranges"];
    let before = calls.map(|call| network.count(call));
    pass(Duration::from_secs(20));
    let counts = calls.map(|call| network.count(call)).into_iter().zip(before).map(|(after, before)| after - before);
    let [writes, reads, watches, ..] = counts.clone().collect::<Vec<_>>()[..] else { panic!("six counts") };
    eprintln!("in 20 s: {:?}", calls.into_iter().zip(counts).collect::<Vec<_>>());
    // Of four leases each is renewed every 3 s.
    assert!(writes <= 32, "{writes} renewals");
    // The feed of the leases every 2 s, each of the four feeds once at most.
    assert!(reads <= 16, "{reads} reads");
    assert!(watches <= 14, "{watches} wake-up calls");
    host.stop();
}
