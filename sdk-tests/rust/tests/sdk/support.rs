//! What every test needs: clients, containers, and readers of change feeds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use azure_core::credentials::Secret;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::{ChangeFeedPageIterator, ContinuationToken, FeedScope};
use azure_data_cosmos::models::{ChangeFeedItem, ChangeFeedOperationType, ContainerProperties, PartitionKeyDefinition};
use azure_data_cosmos::options::{
    BinaryEncodingOptions, ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom, MaxItemCountHint,
};
use azure_data_cosmos::{AccountEndpoint, AccountReference, CosmosClient, CosmosError, Query, RoutingStrategy};
use futures::{StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::server::Server;

/// The emulator's public key, which the server takes unless it is told another.
const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// The SDK gives an empty page for each range without news and never ends; this many in a row are several rounds over
/// the largest number of ranges in these tests.
const IDLE: usize = 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    pub id: String,
    pub pk: String,
    pub v: i64,
}

pub fn item(id: impl Into<String>, pk: impl Into<String>, v: i64) -> Item {
    Item { id: id.into(), pk: pk.into(), v }
}

/// How items travel.
#[derive(Clone, Copy, Debug)]
pub enum Bodies {
    Binary,
    Text,
}

/// Runs a test. All share one runtime: the SDK keeps its connections for the whole process, and a connection ends with the
/// runtime that opened it.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
    RUNTIME.block_on(test)
}

pub async fn client(server: &Server, bodies: Bodies) -> CosmosClient {
    let endpoint: AccountEndpoint = server.endpoint.parse().expect("an endpoint");
    let account = AccountReference::with_authentication_key(endpoint, Secret::from(KEY));
    let mut builder = CosmosClient::builder();
    if let Bodies::Text = bodies {
        builder = builder.with_binary_encoding_options(BinaryEncodingOptions::new().with_enabled(false));
    }
    builder.build(account, RoutingStrategy::ProximityTo("South Central US".into())).await.expect("a client")
}

/// A container with two ranges, keyed by `/pk`, and where it is.
pub struct Place {
    pub server: Server,
    pub name: String,
    pub container: ContainerClient,
    /// How many pages of its feeds were read to their end.
    pub pages: Arc<AtomicUsize>,
}

impl Place {
    pub async fn new() -> Self {
        Self::with(Bodies::Binary, |name| ContainerProperties::new(name, PartitionKeyDefinition::from("/pk"))).await
    }

    pub async fn with(bodies: Bodies, properties: impl FnOnce(String) -> ContainerProperties) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let server = Server::shared();
        let client = client(&server, bodies).await;
        if let Err(error) = client.create_database("rust", None).await {
            assert_eq!(status(&error).0, 409, "another test made the database first");
        }
        let database = client.database_client("rust");
        let name = format!("container-{}-", NEXT.fetch_add(1, Ordering::Relaxed));
        database.create_container(properties(name.clone()), None).await.expect("a container");
        let container = database.container_client(&name, None).await.expect("a container client");
        Self::of(server, name, container)
    }

    /// A container that is there already.
    pub fn of(server: Server, name: String, container: ContainerClient) -> Self {
        Self { server, name, container, pages: Arc::default() }
    }

    pub async fn upsert(&self, item: &Item) {
        self.container.upsert_item(item.pk.clone(), &item.id, item, None).await.expect("an upsert");
    }

    pub async fn delete(&self, id: &str, pk: &str) {
        self.container.delete_item(pk.to_owned(), id, None).await.expect("a delete");
    }

    /// `id=v` of everything that is there, sorted.
    pub async fn present(&self) -> Vec<String> {
        let rows: Vec<Item> = self.query("SELECT * FROM c", FeedScope::full_container()).await;
        let mut rows: Vec<String> = rows.iter().map(|row| format!("{}={}", row.id, row.v)).collect();
        rows.sort();
        rows
    }

    pub async fn query<T>(&self, query: impl Into<Query>, scope: FeedScope) -> Vec<T>
    where
        T: serde::de::DeserializeOwned + Send + 'static,
    {
        let rows = self.container.query_items::<T>(query, scope, None).await.expect("a query");
        rows.try_collect().await.expect("rows")
    }

    pub fn split(&self, range: &str) -> Vec<String> {
        self.server.split(&self.name, range).into_iter().map(|child| child.id).collect()
    }

    pub fn split_all(&self) {
        for range in self.ranges() {
            self.split(&range);
        }
    }

    pub fn merge(&self, left: &str, right: &str) {
        assert_eq!(self.server.merge(&self.name, left, right).len(), 1);
    }

    pub fn merge_first_two(&self) {
        let ranges = self.ranges();
        self.merge(&ranges[0], &ranges[1]);
    }

    pub fn ranges(&self) -> Vec<String> {
        self.server.ranges(&self.name).into_iter().map(|range| range.id).collect()
    }

    pub async fn feed(&self, scope: FeedScope, start: ChangeFeedStartFrom, options: ChangeFeedOptions) -> Pages {
        self.container.query_change_feed(scope, start, Some(options)).await.expect("a feed")
    }

    /// Reads a feed until nothing has come for several rounds.
    pub async fn drain(&self, scope: FeedScope, start: ChangeFeedStartFrom, options: ChangeFeedOptions) -> Reading {
        read_counting(self.feed(scope, start, options).await, &self.pages).await
    }

    pub async fn resume(&self, token: &ContinuationToken, options: ChangeFeedOptions) -> Reading {
        self.resume_in(FeedScope::full_container(), token, options).await
    }

    pub async fn resume_in(&self, scope: FeedScope, token: &ContinuationToken, options: ChangeFeedOptions) -> Reading {
        // The SDK says that the start is ignored where there is a token. It is not: `Now` here would send its
        // `If-None-Match: *` for every range that the token has not seen yet and lose what is in it, because
        // `with_change_feed_start(Beginning)` of 1.0.0 does not take back the header of the start that was passed.
        self.drain(scope, ChangeFeedStartFrom::Beginning, options.with_continuation_token(token.clone())).await
    }
}

pub type Change = ChangeFeedItem<Item>;
pub type Pages = ChangeFeedPageIterator<Change>;

/// What one run through a feed brought, and where to go on.
pub struct Reading {
    pub changes: Vec<Change>,
    pub sizes: Vec<usize>,
    /// How many requests it took beyond one a page: those that failed and were tried again, and what that made necessary.
    pub retries: usize,
    pub token: ContinuationToken,
}

pub async fn read_on(pages: Pages) -> Reading {
    read_counting(pages, &AtomicUsize::new(0)).await
}

async fn read_counting(mut pages: Pages, read: &AtomicUsize) -> Reading {
    let (mut changes, mut sizes, mut retries, mut idle) = (Vec::new(), Vec::new(), 0, 0);
    while idle < IDLE {
        let page = pages.next().await.expect("a change feed has no end").expect("a page");
        read.fetch_add(1, Ordering::Release);
        retries += page.diagnostics().requests().len() - 1;
        let page = page.into_items();
        idle = if page.is_empty() { idle + 1 } else { 0 };
        if !page.is_empty() {
            sizes.push(page.len());
        }
        changes.extend(page);
    }
    Reading { changes, sizes, retries, token: pages.to_continuation_token().expect("a token") }
}

/// Reads the next page that holds something.
pub async fn next_page(pages: &mut Pages) -> Vec<Change> {
    for _ in 0..IDLE {
        let page = pages.next().await.expect("a change feed has no end").expect("a page").into_items();
        if !page.is_empty() {
            return page;
        }
    }
    panic!("nothing came");
}

pub fn latest(page_size: u32) -> ChangeFeedOptions {
    let hint = MaxItemCountHint::Limit(page_size.try_into().expect("a page size is not zero"));
    ChangeFeedOptions::default().with_max_item_count(hint)
}

pub fn full(page_size: u32) -> ChangeFeedOptions {
    latest(page_size).with_mode(ChangeFeedMode::AllVersionsAndDeletes)
}

/// `id=v` of each change of the latest-version feed.
pub fn version(change: &Change) -> String {
    assert!(change.operation_type().is_none() && change.previous().is_none(), "the latest mode tells the item alone");
    let current = change.current().expect("the latest mode tells of items that are there");
    format!("{}={}", current.id, current.v)
}

/// `operation id before>now` of each change of the full feed.
pub fn event(change: &Change) -> String {
    let operation = match change.operation_type() {
        Some(ChangeFeedOperationType::Create) => "create",
        Some(ChangeFeedOperationType::Replace) => "replace",
        Some(ChangeFeedOperationType::Delete) => "delete",
        other => panic!("an operation the full feed does not have: {other:?}"),
    };
    let of = |item: Option<&Item>| item.map(|item| item.v.to_string()).unwrap_or_default();
    let id = &change.current().or(change.previous()).expect("a change has an item").id;
    format!("{operation} {id} {}>{}", of(change.previous()), of(change.current()))
}

/// What came for each partition key, in order.
pub fn by_key(changes: &[Change], what: impl Fn(&Change) -> String) -> BTreeMap<String, Vec<String>> {
    let mut groups = BTreeMap::<String, Vec<String>>::new();
    for change in changes {
        let item = change.current().or(change.previous()).expect("a change has an item");
        groups.entry(item.pk.clone()).or_default().push(what(change));
    }
    groups
}

/// The same for each of some keys.
pub fn for_keys(keys: &[String], what: impl Fn(&str) -> Vec<String>) -> BTreeMap<String, Vec<String>> {
    keys.iter().map(|key| (key.clone(), what(key))).collect()
}

pub fn sorted(changes: &[Change], what: impl Fn(&Change) -> String) -> Vec<String> {
    let mut told: Vec<String> = changes.iter().map(what).collect();
    told.sort();
    told
}

pub fn status(error: &CosmosError) -> (u16, u16) {
    let status = error.status();
    (u16::from(status.status_code()), status.sub_status().map_or(0, |sub| sub.value()))
}

pub fn keys(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("k{n}")).collect()
}
