//! Two lease documents for one token, as hosts of the .NET SDK 3.20 to 3.58 wrote them: one wins, the other is removed.

mod shop;

use std::time::Duration;

use changefeed::Running;
use serde_json::{Value, json};
use shop::{Notifications, Seen, Shop, checkpoint, pass, until, until_async};

/// One of two documents for a token: its owner, its epoch and its position.
#[derive(Clone, Copy)]
struct Claim {
    owner: Option<&'static str>,
    epoch: Option<u64>,
    position: Option<u64>,
}

const fn free(epoch: Option<u64>, position: u64) -> Claim {
    Claim { owner: None, epoch, position: Some(position) }
}

impl Shop {
    /// A shop of one range with ten orders, whose leases are keyed by `/partitionKey`, where old .NET hosts gave two
    /// documents with one id different keys; and two documents for token 0.
    async fn with_two_documents(claims: [Claim; 2]) -> Self {
        let shop = Self::new(1).await;
        let leases = shop.engine.database("shop").container("graph").partition_key("/partitionKey").create().await;
        let shop = Self { leases: leases.expect("leases"), ..shop };
        shop.host("worker-0", &Seen::default()).await.stop().await.expect("stop");
        shop.write(0..10, 1).await;
        let made = shop.lease_documents().await["0"].clone();
        let id = made["id"].as_str().expect("id");
        shop.leases.delete(id, id).await.expect("delete");
        for (claim, key) in claims.into_iter().zip(["0e8a5f5c-first", "f3b1c2d4-second"]) {
            let mut document = made.clone();
            document["partitionKey"] = key.into();
            claim.write_to(&mut document);
            shop.leases.create(&document).await.expect("create");
        }
        shop
    }

    async fn documents(&self) -> Vec<Value> {
        let items = self.leases.list("mailer").await.expect("list");
        let documents = items.iter().map(|item| item.parse::<Value>().expect("json"));
        documents.filter(|document| document["LeaseToken"] == "0").collect()
    }

    async fn reporting_host(&self, seen: &Seen, notifications: &Notifications) -> Running {
        shop::start(self.processor("worker-1").on_notification(notifications.listen()), seen).await
    }
}

impl Claim {
    fn write_to(self, document: &mut Value) {
        document["Owner"] = json!(self.owner);
        document["ContinuationToken"] = json!(self.position.map(|passed| format!("\"{}\"", passed + 1)));
        document["timestamp"] = "2026-11-16T20:00:00.0000000Z".into();
        document["properties"] = self.epoch.map_or(json!({}), |epoch| json!({"cf.epoch": epoch.to_string()}));
    }
}

fn is_reported(notifications: &Notifications) -> bool {
    notifications.errors("lease 0") > 0 || notifications.text().contains("error at 0:")
}

/// Whichever document comes first, delivery begins after `position`, happens once, and one document is left.
async fn begins_after(position: u64, claims: [Claim; 2]) {
    for claims in [claims, [claims[1], claims[0]]] {
        let shop = Shop::with_two_documents(claims).await;
        let (seen, notifications) = (Seen::default(), Notifications::default());
        let running = shop.reporting_host(&seen, &notifications).await;
        let expected: Vec<String> = (position..10).map(|item| format!("o{item}")).collect();
        until("delivery", || seen.len() >= expected.len()).await;
        until("the other document is reported", || is_reported(&notifications)).await;
        until_async("the other document is removed", || async { shop.documents().await.len() == 1 }).await;
        shop.write(10..12, 1).await;
        until("delivery goes on", || seen.len() >= expected.len() + 2).await;
        pass(Duration::from_secs(30)).await;
        running.stop().await.expect("stop");
        let expected: Vec<String> = (position..12).map(|item| format!("o{item}")).collect();
        assert_eq!(seen.ids(), expected, "in order and once");
        let documents = shop.documents().await;
        assert_eq!(documents.len(), 1);
        assert_eq!(checkpoint(&documents[0]), 12);
    }
}

#[tokio::test(start_paused = true)]
async fn the_higher_epoch_wins_also_if_its_position_is_earlier() {
    begins_after(3, [free(Some(5), 3), free(Some(2), 8)]).await;
}

#[tokio::test(start_paused = true)]
async fn the_higher_epoch_wins_also_if_its_position_is_later() {
    begins_after(8, [free(Some(2), 3), free(Some(5), 8)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_document_with_an_epoch_wins_over_one_without() {
    begins_after(8, [free(None, 3), free(Some(1), 8)]).await;
}

#[tokio::test(start_paused = true)]
async fn at_a_tie_the_earlier_position_wins() {
    begins_after(3, [free(Some(4), 3), free(Some(4), 8)]).await;
    begins_after(3, [free(None, 3), free(None, 8)]).await;
}

#[tokio::test(start_paused = true)]
async fn the_start_is_earlier_than_any_position() {
    begins_after(0, [Claim { owner: None, epoch: None, position: None }, free(None, 8)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_document_that_an_owner_still_renews_is_reported_and_not_removed_before_the_owner_is_gone() {
    let loser = Claim { owner: Some("dotnet"), epoch: None, position: Some(8) };
    let shop = Shop::with_two_documents([free(Some(5), 3), loser]).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    let running = shop.reporting_host(&seen, &notifications).await;
    for _ in 0..12 {
        pass(Duration::from_secs(10)).await;
        let items = shop.leases.list("mailer").await.expect("list");
        let owned = |item: &&changefeed::core::Item| item.parse::<Value>().expect("json")["Owner"] == "dotnet";
        let item = items.iter().find(owned).expect("the document of a living owner");
        let mut document: Value = item.parse().expect("json");
        document["timestamp"] = "2026-11-16T20:00:10.0000000Z".into();
        shop.leases.replace_if(&document, &item.etag).await.expect("renew");
    }
    assert!(is_reported(&notifications), "{}", notifications.text());
    until_async("it is removed", || async { shop.documents().await.len() == 1 }).await;
    until("delivery", || seen.len() >= 7).await;
    running.stop().await.expect("stop");
    assert_eq!(checkpoint(&shop.documents().await[0]), 10);
}

#[tokio::test(start_paused = true)]
async fn so_it_is_where_two_ids_claim_one_token() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.host("worker-0", &Seen::default()).await.stop().await.expect("stop");
    shop.write(0..10, 1).await;
    let mut document = shop.lease_documents().await["0"].clone();
    free(Some(5), 3).write_to(&mut document);
    shop.leases.upsert(&document).await.expect("upsert");
    document["id"] = format!("{}-copy", document["id"].as_str().expect("id")).into();
    free(Some(2), 8).write_to(&mut document);
    shop.leases.create(&document).await.expect("create");
    let running = shop.reporting_host(&seen, &notifications).await;
    until("delivery", || seen.len() >= 7).await;
    until("the other document is reported", || is_reported(&notifications)).await;
    until_async("the other document is removed", || async { shop.documents().await.len() == 1 }).await;
    running.stop().await.expect("stop");
    assert_eq!(seen.ids(), (3..10).map(|item| format!("o{item}")).collect::<Vec<_>>());
}
