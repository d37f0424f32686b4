//! Lease documents of every kind and state are documents of the .NET SDK, as a reader says that shares no code with ours.

use std::{fs, path::Path, time::Duration};

use changefeed::{
    Context, LeaseTiming, Processor, RawChanges,
    core::{Container, StartFrom},
    embedded::Engine,
};
use changefeed_testkit::dot_net_lease::check;
use serde_json::json;

/// Documents of other kinds, of Java, and with members of versions to come, which are kept and not ours.
const OTHERS: [&str; 5] = ["info", "lock", "java", "unknown-members", "sdk-v2-origin"];

#[test]
fn stored_examples_of_every_state_are_documents_of_the_dot_net_sdk() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/lease");
    let mut checked = 0;
    for entry in fs::read_dir(folder).expect("read the folder") {
        let path = entry.expect("read the folder").path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if OTHERS.iter().any(|other| name.starts_with(other)) {
            continue;
        }
        check(&fs::read(&path).expect("read an example")).unwrap_or_else(|why| panic!("{name}: {why}"));
        checked += 1;
    }
    assert!(checked >= 8, "found only {checked}");
}

/// All leases of the processor.
async fn check_all(leases: &Container, when: &str) -> usize {
    let documents = leases.list("mailer").await.expect("list the leases");
    let leases: Vec<_> = documents.iter().filter(|item| item.id.contains("..")).collect();
    for lease in &leases {
        check(&lease.body).unwrap_or_else(|why| panic!("{when}: {}: {why}", lease.id));
    }
    leases.len()
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the clock is paused")]
async fn leases_stay_documents_of_the_dot_net_sdk_through_their_life() {
    let engine = Engine::in_memory().expect("open");
    let shop = engine.database("shop");
    let orders = shop.container("orders").partition_key("/customer").ranges(2).create().await.expect("orders");
    let leases = shop.container("leases").create().await.expect("leases");
    let timing = LeaseTiming {
        acquire: Duration::from_millis(300),
        renew: Duration::from_millis(800),
        expiration: Duration::from_secs(5),
    };
    let host = |name: &str| {
        let processor = Processor::builder("mailer", &orders, &leases).instance_name(name).lease_timing(timing);
        processor.start_from(StartFrom::Beginning).build(|_: RawChanges, _: Context| async { Ok(()) }).expect("build")
    };
    let first = host("a").start().await.expect("start");
    for number in 0..50 {
        let order = json!({"id": number.to_string(), "customer": format!("c{}", number % 7)});
        orders.upsert(&order).await.expect("write");
        tokio::time::sleep(Duration::from_millis(100)).await;
        check_all(&leases, "while it is worked on").await;
    }
    let second = host("b").start().await.expect("start");
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        check_all(&leases, "while it is handed over").await;
    }
    let range = orders.feed_ranges().await.expect("ranges").remove(0);
    engine.catalog().split("shop", "orders", &range.id, None).await.expect("split");
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        check_all(&leases, "while it is split").await;
    }
    first.stop().await.expect("stop");
    second.stop().await.expect("stop");
    assert_eq!(check_all(&leases, "after the stop").await, 3);
}
