//! The whole idea on the embedded store: changes written are changes handled.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use changefeed::{
    Changes, Context, Processor, Running,
    core::{Container, StartFrom},
    embedded::Engine,
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    id: String,
    customer: String,
    version: u64,
}

type Seen = Arc<Mutex<BTreeMap<String, Vec<(u64, String)>>>>;

async fn containers() -> (Container, Container) {
    let engine = Engine::in_memory().expect("open");
    let shop = engine.database("shop");
    let orders = shop.container("orders").partition_key("/customer").ranges(4).create().await.expect("orders");
    let leases = shop.container("leases").create().await.expect("leases");
    (orders, leases)
}

async fn host(name: &str, orders: &Container, leases: &Container, seen: &Seen) -> Running {
    let seen = Arc::clone(seen);
    let processor = Processor::builder("mailer", orders, leases)
        .instance_name(name)
        .start_from(StartFrom::Beginning)
        .build(move |changes: Changes<Order>, ctx: Context| {
            let seen = Arc::clone(&seen);
            async move {
                for order in &changes {
                    let mut seen = seen.lock().expect("lock");
                    seen.entry(order.id.clone()).or_default().push((order.version, ctx.instance().to_owned()));
                }
                Ok(())
            }
        })
        .expect("build");
    processor.start().await.expect("start")
}

async fn write(orders: &Container, items: std::ops::Range<u64>, version: u64) {
    for item in items {
        let order = Order { id: format!("o{item}"), customer: format!("c{}", item % 50), version };
        orders.upsert(&order).await.expect("upsert");
    }
}

/// Waits until `condition` holds; the limit only ends a test that would hang.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    panic!("{what} did not happen");
}

#[tokio::test(start_paused = true)]
async fn every_change_reaches_the_delegate_once_when_nothing_fails() {
    let (orders, leases) = containers().await;
    let seen = Seen::default();
    write(&orders, 0..500, 1).await;
    let running = host("worker-1", &orders, &leases, &seen).await;
    until("delivery", || seen.lock().expect("lock").len() == 500).await;
    write(&orders, 0..500, 2).await;
    until("second delivery", || seen.lock().expect("lock").values().all(|versions| versions.len() == 2)).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn two_hosts_share_the_leases_and_a_stop_hands_everything_over_without_duplicates() {
    let (orders, leases) = containers().await;
    let seen = Seen::default();
    let first = host("worker-1", &orders, &leases, &seen).await;
    write(&orders, 0..200, 1).await;
    until("delivery", || seen.lock().expect("lock").len() == 200).await;
    let second = host("worker-2", &orders, &leases, &seen).await;
    let mut version = 1;
    loop {
        version += 1;
        assert!(version < 200, "the second host never got a lease");
        write(&orders, 0..200, version).await;
        let count = version as usize;
        until("delivery", || seen.lock().expect("lock").values().all(|versions| versions.len() >= count)).await;
        let newest: Vec<String> = seen
            .lock()
            .expect("lock")
            .values()
            .filter_map(|versions| versions.last())
            .map(|last| last.1.clone())
            .collect();
        if newest.iter().any(|name| name == "worker-1") && newest.iter().any(|name| name == "worker-2") {
            break;
        }
        tokio::time::advance(Duration::from_millis(500)).await;
    }
    first.stop().await.expect("stop");
    version += 1;
    write(&orders, 0..200, version).await;
    let count = version as usize;
    until("delivery", || seen.lock().expect("lock").values().all(|versions| versions.len() >= count)).await;
    second.stop().await.expect("stop");
    for (id, versions) in seen.lock().expect("lock").iter() {
        let numbers: Vec<u64> = versions.iter().map(|(version, _)| *version).collect();
        assert_eq!(numbers, (1..=version).collect::<Vec<_>>(), "{id}");
    }
}
