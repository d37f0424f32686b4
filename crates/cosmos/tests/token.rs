//! Holds the continuation token of the SDK still: the bridge from raw ETags depends on its form, which is opaque by
//! contract. A failure here after an update of the SDK means that `src/token.rs` must be looked at before it is used.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "those of the SDK are, and a test has room for them")]

mod support;

use azure_data_cosmos::{
    ContainerClient, FeedScope,
    feed::{ChangeFeedPageIterator, ContinuationToken},
    models::ChangeFeedItem,
    options::{ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use changefeed_core::{
    Container, ContainerSpec, DatabaseSpec, ErrorKind, FeedRange, Mode, PartitionKeyDefinition, PhysicalRange,
    ReadChanges, StartFrom,
};
use changefeed_cosmos::Account;
use changefeed_embedded::Engine;
use changefeed_server::Server;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use support::{OnSdk, connect, on_sdk};
use time::OffsetDateTime;

type Pages = ChangeFeedPageIterator<ChangeFeedItem<Value>>;

/// A server with `shop/orders`, all versions kept.
struct Stage {
    engine: Engine,
    _server: Server,
    account: Account,
    sdk: ContainerClient,
    orders: Container,
}

impl Stage {
    async fn new() -> Self {
        let engine = Engine::in_memory().unwrap();
        let server = Server::builder(engine.catalog()).listen(([127, 0, 0, 1], 0).into()).start().await.unwrap();
        let catalog = engine.catalog();
        catalog.create_database(DatabaseSpec::new("shop")).await.unwrap();
        let mut spec = ContainerSpec::new("orders", PartitionKeyDefinition::hash("/customer").unwrap());
        spec.all_versions_retention = Some(std::time::Duration::from_secs(600));
        catalog.create_container("shop", spec).await.unwrap();
        let account = connect(server.endpoint()).await;
        let own = account.clone();
        let (sdk, orders) = on_sdk(async move {
            let sdk = own.client().database_client("shop").container_client("orders", None).await.unwrap();
            (sdk, own.container("shop", "orders").await.unwrap())
        })
        .await;
        Self { engine, _server: server, account, sdk, orders: OnSdk::container(&orders) }
    }

    async fn write(&self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            let order = json!({"id": number.to_string(), "customer": format!("c{}", number % 7)});
            self.orders.upsert(&order).await.unwrap();
        }
    }

    fn rid(&self) -> String {
        self.orders.identity().container.to_string()
    }

    async fn split(&self) {
        let ranges = self.orders.feed_ranges().await.unwrap();
        self.engine.catalog().split("shop", "orders", &ranges[0].id, None).await.unwrap();
    }

    /// The feed of the whole container through the SDK alone, and its token before the first page.
    async fn feed(&self, start: ChangeFeedStartFrom, mode: ChangeFeedMode, token: Option<String>) -> (Pages, Value) {
        let sdk = self.sdk.clone();
        on_sdk(async move {
            let mut options = ChangeFeedOptions::default().with_mode(mode);
            if let Some(token) = token {
                options = options.with_continuation_token(ContinuationToken::from_string(token));
            }
            let pages = sdk.query_change_feed(FeedScope::full_container(), start, Some(options)).await.unwrap();
            let token = decoded(&pages.to_continuation_token().unwrap());
            (pages, token)
        })
        .await
    }

    /// A token of one range.
    fn token(&self, etag: &str) -> Value {
        json!({"op": "ChangeFeed", "rid": self.rid(), "root": {"kind": "unordered_merge", "active_tokens": [
            {"min_epk": "", "max_epk": "FF", "server_continuation": etag}], "start_from": {"kind": "beginning"}}})
    }
}

/// The ids of the next page, and the token after it.
async fn page(mut pages: Pages) -> (Vec<String>, Value, Pages) {
    on_sdk(async move {
        let page = pages.next().await.unwrap().unwrap();
        let id = |item: &ChangeFeedItem<Value>| item.current().unwrap()["id"].as_str().unwrap().to_owned();
        let ids = page.items().iter().map(id).collect();
        let token = decoded(&pages.to_continuation_token().unwrap());
        (ids, token, pages)
    })
    .await
}

fn decoded(token: &ContinuationToken) -> Value {
    let payload = token.as_str().strip_prefix("c1.").expect("tokens have version 1");
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

fn encoded(token: &Value) -> String {
    format!("c1.{}", BASE64_URL_SAFE_NO_PAD.encode(token.to_string()))
}

#[tokio::test]
async fn the_sdk_writes_its_token_in_this_form_and_no_other() {
    let stage = Stage::new().await;
    let moment = OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap();
    let (latest, all) = (ChangeFeedMode::LatestVersion, ChangeFeedMode::AllVersionsAndDeletes);
    let starts = [
        (ChangeFeedStartFrom::Beginning, latest, json!({"kind": "beginning"})),
        (ChangeFeedStartFrom::Now, latest, json!({"kind": "now"})),
        (
            ChangeFeedStartFrom::PointInTime(moment),
            latest,
            json!({"kind": "point_in_time", "value": "2023-11-14T22:13:20Z"}),
        ),
        (ChangeFeedStartFrom::Now, all, json!({"kind": "now"})),
    ];
    for (start, mode, start_from) in starts {
        let (pages, before) = stage.feed(start, mode, None).await;
        let mut expected = stage.token("\"1\"");
        expected["root"]["start_from"] = start_from;
        if mode == all {
            expected["cfm"] = json!(true);
        }
        let (_, after, _) = page(pages).await;
        assert_eq!(after, expected, "after a page");
        expected["root"].as_object_mut().unwrap().remove("active_tokens");
        assert_eq!(before, expected, "before the first page there is no position");
    }
}

#[tokio::test]
async fn the_sdk_goes_on_after_a_raw_etag_and_gives_it_back() {
    let stage = Stage::new().await;
    stage.write(0..10).await;
    // The first write has LSN 2.
    let token = stage.token("\"8\"");
    let (pages, planned) =
        stage.feed(ChangeFeedStartFrom::Beginning, ChangeFeedMode::LatestVersion, Some(encoded(&token))).await;
    assert_eq!(planned, token, "the position is in the plan before anything is sent");
    let (ids, after, _) = page(pages).await;
    assert_eq!(ids, ["7", "8", "9"]);
    assert_eq!(after, stage.token("\"11\""));
}

/// Why the plan is checked before the first request: the SDK takes such a token and reads everything again.
#[tokio::test]
async fn a_token_that_the_sdk_ignores_shows_in_its_plan() {
    let stage = Stage::new().await;
    stage.write(0..3).await;
    let mut renamed = stage.token("\"3\"");
    let root = renamed["root"].as_object_mut().unwrap();
    let tokens = root.remove("active_tokens").unwrap();
    root.insert("positions".to_owned(), tokens);
    let (pages, planned) =
        stage.feed(ChangeFeedStartFrom::Beginning, ChangeFeedMode::LatestVersion, Some(encoded(&renamed))).await;
    assert_eq!(planned["root"].get("active_tokens"), None);
    assert_eq!(page(pages).await.0, ["0", "1", "2"], "from the beginning, without a word");
}

#[tokio::test]
async fn tokens_of_other_containers_versions_and_modes_are_refused() {
    let stage = Stage::new().await;
    let mut foreign = stage.token("\"1\"");
    foreign["rid"] = json!("ADyiAIABAAE=");
    let newer = encoded(&stage.token("\"1\"")).replace("c1.", "c2.");
    for bad in [encoded(&foreign), newer] {
        let sdk = stage.sdk.clone();
        let options = ChangeFeedOptions::default().with_continuation_token(ContinuationToken::from_string(bad));
        let refused = on_sdk(async move {
            let start = ChangeFeedStartFrom::Beginning;
            sdk.query_change_feed::<Value>(FeedScope::full_container(), start, Some(options)).await.err()
        });
        assert_eq!(u16::from(refused.await.unwrap().status().status_code()), 400);
    }
}

/// Why the token is checked after each page: the SDK goes on in both children, and one position is not enough for them.
#[tokio::test]
async fn a_split_shows_as_two_positions_in_the_token() {
    let stage = Stage::new().await;
    stage.write(0..10).await;
    let (pages, _) = stage.feed(ChangeFeedStartFrom::Beginning, ChangeFeedMode::LatestVersion, None).await;
    let (_, whole, pages) = page(pages).await;
    assert_eq!(whole["root"]["active_tokens"].as_array().unwrap().len(), 1);
    stage.split().await;
    stage.write(10..20).await;
    let (_, halves, _) = page(pages).await;
    assert_eq!(halves["root"]["active_tokens"].as_array().unwrap().len(), 2, "{halves}");
}

/// Reads the whole of a range.
async fn drain(container: &Container, range: &FeedRange, start: StartFrom) -> Vec<String> {
    let (mut start, mut ids) = (start, Vec::new());
    loop {
        let page = container.read_changes(ReadChanges::new(range.clone(), start).max_items(3)).await.unwrap();
        if page.changes.is_empty() {
            return ids;
        }
        ids.extend(page.changes.iter().map(|change| change.id.as_str().to_owned()));
        start = page.continuation.clone().into();
    }
}

#[tokio::test]
async fn children_begin_at_the_etag_of_their_parent_and_nothing_is_lost() {
    let stage = Stage::new().await;
    stage.write(0..20).await;
    let now = stage.orders.read_changes(ReadChanges::new(FeedRange::full(), StartFrom::Now)).await.unwrap();
    let position = StartFrom::from(now.continuation.clone());
    stage.split().await;
    stage.write(20..60).await;
    let request = ReadChanges::new(FeedRange::full(), position.clone());
    // The client still believes in one range; then it knows better. Neither page may be used.
    for _ in 0..2 {
        assert_eq!(stage.orders.read_changes(request.clone()).await.unwrap_err().kind(), ErrorKind::RangeGone);
    }
    let mut seen = Vec::new();
    let ranges: Vec<PhysicalRange> = stage.orders.feed_ranges().await.unwrap();
    assert_eq!(ranges.len(), 2);
    for child in &ranges {
        seen.extend(drain(&stage.orders, &child.range, position.clone()).await);
    }
    seen.sort_by_key(|id| id.parse::<u32>().unwrap());
    assert_eq!(seen, (20..60).map(|number: u32| number.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_new_client_does_not_take_one_half_for_the_whole() {
    let stage = Stage::new().await;
    stage.split().await;
    stage.write(0..20).await;
    let account = stage.account.clone();
    let fresh = on_sdk(async move { account.container("shop", "orders").await.unwrap() }).await;
    let fresh = OnSdk::container(&fresh);
    for start in [StartFrom::Beginning, StartFrom::Now] {
        for mode in [Mode::LatestVersion, Mode::AllVersions] {
            if (&start, mode) != (&StartFrom::Beginning, Mode::AllVersions) {
                let request = ReadChanges::new(FeedRange::full(), start.clone()).mode(mode);
                assert_eq!(fresh.read_changes(request).await.unwrap_err().kind(), ErrorKind::RangeGone);
            }
        }
    }
}
