//! Parts of a physical range, where the service refuses to read them, and single keys, which are read by their names.

use changefeed::{Context, Locate, Processor, Progress, Pull, RawChanges, core::StartFrom};
use changefeed_core::{FeedRange, Mode, PartitionKey, PartitionKeyDefinition, ReadChanges};
use serde_json::json;

use crate::{
    proxy::Rules,
    seen::{Seen, TIMING, until},
    stage::{Stage, drain, shown},
};

const REFUSING: Rules =
    Rules { refuse_parts: true, hide_range_ids: false, shift_etags: false, replaced: Vec::new(), answering: None };

fn half(text: &str) -> FeedRange {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_part_that_is_refused_is_picked_out_of_the_whole_range() {
    let stage = Stage::new(REFUSING).await;
    stage.write(0..300).await;
    let (orders, direct) = (stage.open("orders").await, stage.direct("orders").await);
    let parts = ["-1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF-FF"].map(half);
    let mut all = 0;
    for (part, max_items) in parts.iter().zip([7, 1000]) {
        let request = ReadChanges::new(part.clone(), StartFrom::Beginning).max_items(max_items);
        let (pages, expected) = (drain(&orders, request.clone()).await, drain(&direct, request).await);
        assert_eq!(shown(&pages), shown(&expected));
        all += shown(&pages).len();
        for page in &pages {
            assert!(page.changes.len() <= max_items && page.remaining.is_none());
            // Each continuation is right: what follows is what follows in the store itself.
            let request = ReadChanges::new(part.clone(), page.continuation.clone());
            let rest = request.clone();
            assert_eq!(shown(&drain(&orders, request).await), shown(&drain(&direct, rest).await));
        }
    }
    assert_eq!(all, 300);
    assert_eq!(stage.gateway.take_counts().refused, 1, "it is found out once");
}

#[tokio::test]
async fn the_first_change_of_a_part_is_found_behind_many_of_other_keys() {
    let stage = Stage::new(REFUSING).await;
    stage.write(0..2500).await;
    let (orders, direct) = (stage.open("orders").await, stage.direct("orders").await);
    let last = json!({"id": "last", "customer": "the only one"});
    direct.upsert(&last).await.unwrap();
    let key = direct.identity().partition_key.key_range(&"the only one".into()).unwrap();
    let request = ReadChanges::new(key, StartFrom::Beginning).max_items(1);
    let page = orders.read_changes(request.clone()).await.unwrap().into_value();
    assert_eq!(page.changes[0].id.as_str(), "last");
    assert_eq!(page.newest_lsn, direct.read_changes(request).await.unwrap().newest_lsn);
    let counts = stage.gateway.take_counts();
    assert!(counts.feed <= 10, "{counts:?}");
}

#[tokio::test]
async fn all_versions_and_deletes_of_a_part_are_picked_out_as_well() {
    for definition in [
        PartitionKeyDefinition::hash("/customer"),
        PartitionKeyDefinition::hash_v1("/customer"),
        PartitionKeyDefinition::hierarchical(["/customer", "/id"]),
    ] {
        let stage = Stage::new(REFUSING).await;
        let definition = definition.unwrap();
        stage.create("versions", definition.clone()).await;
        let (orders, direct) = (stage.open("versions").await, stage.direct("versions").await);
        let parts = [half("-1F"), half("1F-FF")];
        let begin = |part: &FeedRange, from| ReadChanges::new(part.clone(), from).mode(Mode::AllVersions);
        let mut starts = Vec::new();
        for part in &parts {
            starts.push(orders.read_changes(begin(part, StartFrom::Now)).await.unwrap().into_value().continuation);
        }
        for number in 0..60 {
            let (id, customer) = (number.to_string(), format!("c{}", number % 20));
            direct.upsert(&json!({"id": id, "customer": customer})).await.unwrap();
            if number % 3 == 0 {
                let key: PartitionKey = match definition.paths().len() {
                    1 => customer.as_str().into(),
                    _ => (customer.as_str(), id.as_str()).into(),
                };
                direct.delete(key, &id).await.unwrap();
            }
        }
        let mut all = 0;
        for (part, start) in parts.iter().zip(starts) {
            let request = begin(part, start.into()).max_items(9);
            let pages = drain(&orders, request.clone()).await;
            assert_eq!(shown(&pages), shown(&drain(&direct, request).await), "{definition}");
            all += shown(&pages).len();
        }
        assert_eq!(all, 80, "{definition}");
    }
}

#[tokio::test]
async fn one_key_is_read_by_its_name() {
    let stage = Stage::new(REFUSING).await;
    stage.write(0..120).await;
    let (orders, direct) = (stage.open("orders").await, stage.direct("orders").await);
    let mut pull = Pull::partition_key(&orders, "c7", StartFrom::Beginning).unwrap().max_items(2);
    let mut ids = Vec::new();
    loop {
        let page = pull.next_page().await.unwrap();
        if page.is_empty() {
            break;
        }
        ids.extend(page.changes.iter().map(|change| change.id.to_string()));
    }
    assert_eq!(ids, ["7", "57", "107"]);
    direct.upsert(&json!({"id": "later", "customer": "c7"})).await.unwrap();
    assert_eq!(pull.next_page().await.unwrap().changes[0].id.as_str(), "later");
    assert_eq!(stage.gateway.take_counts().refused, 0);
    // A bookmark has the keys, not the name.
    let text = pull.bookmark().to_string();
    direct.upsert(&json!({"id": "last", "customer": "c7"})).await.unwrap();
    let mut resumed = Pull::resume(&orders, &text.parse().unwrap()).unwrap();
    assert_eq!(resumed.next_page().await.unwrap().changes[0].id.as_str(), "last");
}

#[tokio::test]
async fn a_host_reads_a_merged_range_and_an_item_is_located() {
    let stage = Stage::new(REFUSING).await;
    stage.write(0..100).await;
    let (orders, leases) = (stage.open("orders").await, stage.open("leases").await);
    let catalog = stage.catalog();
    let children = catalog.split("shop", "orders", &orders.feed_ranges().await.unwrap()[0].id, None).await.unwrap();
    let seen = Seen::default();
    let host = || {
        let own = seen.clone();
        let builder = Processor::builder("mailer", &orders, &leases).instance_name("a").lease_timing(TIMING);
        let builder = builder.start_from(StartFrom::Beginning).poll_interval(std::time::Duration::from_millis(50));
        builder.build(move |changes: RawChanges, context: Context| {
            own.note(&changes, &context);
            async { Ok(()) }
        })
    };
    let running = host().unwrap().start().await.unwrap();
    until("delivery", || seen.distinct() >= 100).await;
    running.stop().await.unwrap();
    let ids = [&children[0].id, &children[1].id];
    catalog.merge("shop", "orders", ids).await.unwrap();
    stage.write(100..200).await;
    let running = host().unwrap().start().await.unwrap();
    until("delivery", || seen.distinct() >= 200).await;
    running.stop().await.unwrap();
    assert!(stage.gateway.take_counts().refused > 0, "leases are parts of the range");
    let found = Locate::new("mailer", &orders, &leases).item("c7", "157").await.unwrap();
    assert_eq!(found.progress, Progress::Passed);
    stage.direct("orders").await.upsert(&json!({"id": "157", "customer": "c7"})).await.unwrap();
    let found = Locate::new("mailer", &orders, &leases).item("c7", "157").await.unwrap();
    assert_eq!(found.progress, Progress::Waiting { after: 0 });
}
