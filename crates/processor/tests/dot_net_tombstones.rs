//! A .NET host that acquires a tombstone of ours takes it for a lease: it splits it again, and copies the mark of the tombstone
//! into the leases that it creates, as it copies all properties. Such a lease is no tombstone.

mod shop;

use std::time::Duration;

use changefeed::core::{ErrorKind, Write};
use changefeed_testkit::faulty::{Call, Fault};
use serde_json::{Value, json};
use shop::{Seen, Shop, faulty, pass, until, until_async};

impl Shop {
    /// A shop whose range 0 was split into 1 and 2 by a host that may not delete leases: a tombstone is left. Then range 1 was
    /// split into 3 and 4, and the tombstone acquired by a .NET host, which has created leases for these at its position and
    /// acquired them; orders were written meanwhile.
    async fn with_a_tombstone_split_by_dotnet() -> (Self, Seen) {
        let (shop, seen) = (Self::new(1).await, Seen::default());
        let running = shop.without_deletes().host("a", &seen).await;
        shop.write(0..20, 1).await;
        until("delivery", || seen.len() >= 20).await;
        shop.split(0).await;
        until_async("a tombstone", || async { shop.tombstone().await.is_some() }).await;
        running.stop().await.expect("stop");
        let split = shop.ranges().await.into_iter().next().expect("a range");
        assert_eq!(split.id.as_str(), "1");
        shop.split(0).await;
        let tombstone = shop.tombstone().await.expect("a tombstone");
        for physical in shop.ranges().await.into_iter().filter(|range| range.parents.contains(&split.id)) {
            let mut child = tombstone.clone();
            let members = child.as_object_mut().expect("an object");
            members.retain(|name, _| !name.starts_with('_') && name != "PartitionId");
            let id = tombstone["id"].as_str().expect("an id").replace("..0", &format!("..{}", physical.id));
            let (min, max) = (physical.range.min_inclusive().to_string(), physical.range.max_exclusive().to_string());
            members.insert("id".to_owned(), json!(id));
            members.insert("LeaseToken".to_owned(), json!(physical.id.as_str()));
            members.insert("FeedRange".to_owned(), json!({"Range": {"min": min, "max": max}}));
            members.insert("Owner".to_owned(), json!("net"));
            shop.leases.create(&child).await.expect("create");
        }
        shop.write(20..60, 1).await;
        (shop, seen)
    }

    /// The same, where leases may not be deleted.
    fn without_deletes(&self) -> Self {
        let deletes = |call: &Call<'_>| match call {
            Call::Write(batch) if batch.writes.iter().any(|write| matches!(write, Write::Delete { .. })) => {
                Fault::Error(ErrorKind::Forbidden)
            }
            _ => Fault::None,
        };
        Self { leases: faulty(&self.leases, deletes), ..self.clone() }
    }

    /// The tombstone of a lease, if there is one.
    async fn tombstone(&self) -> Option<Value> {
        let documents = self.leases.list("mailer").await.expect("list");
        let mut documents = documents.iter().map(|item| item.parse::<Value>().expect("json"));
        documents.find(|document| document["properties"]["cf.gone"] == json!("true"))
    }

    /// What the .NET host does when it stops: its leases are released as they are.
    async fn dotnet_releases(&self) {
        for token in ["3", "4"] {
            self.edit_lease(token, |lease| lease["Owner"] = Value::Null).await;
        }
    }

    /// Waits until our host works on all leases, of which there is one for each range.
    async fn is_tidy(&self) {
        until_async("a lease for each range", || async {
            let leases = self.lease_documents().await;
            leases.keys().collect::<Vec<_>>() == ["2", "3", "4"]
                && leases.values().all(|lease| lease["Owner"] == "b" && lease["properties"]["cf.gone"].is_null())
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn leases_with_the_mark_of_a_tombstone_that_alone_have_their_keys_are_worked_on() {
    let (shop, seen) = Shop::with_a_tombstone_split_by_dotnet().await;
    // It has split the lease of range 1, too, found those of 3 and 4, and left.
    let leases = shop.lease_documents().await;
    let id = leases["1"]["id"].as_str().expect("an id");
    shop.leases.delete(id, id).await.expect("delete");
    shop.dotnet_releases().await;
    let running = shop.host("b", &seen).await;
    until("delivery", || seen.counts().len() == 60).await;
    shop.is_tidy().await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_split_that_finds_leases_with_the_mark_of_a_tombstone_leaves_no_hole() {
    let (shop, seen) = Shop::with_a_tombstone_split_by_dotnet().await;
    let running = shop.without_deletes().host("b", &seen).await;
    // Our host splits the lease of range 1. The .NET host works on and leaves only then.
    until_async("the lease of range 1 being replaced", || async {
        for token in ["3", "4"] {
            shop.dotnet_renews(token, "net").await;
        }
        pass(Duration::from_millis(500)).await;
        !shop.lease_documents().await.contains_key("1")
    })
    .await;
    let leases = shop.lease_documents().await;
    assert!(["3", "4"].iter().all(|token| leases[*token]["Owner"] == "net"), "{leases:?}");
    assert!(["3", "4"].iter().all(|token| leases[*token]["properties"]["cf.gone"].is_null()), "{leases:?}");
    shop.dotnet_releases().await;
    until("delivery", || seen.counts().len() == 60).await;
    shop.is_tidy().await;
    running.stop().await.expect("stop");
}
