//! Clients that read with weak consistency and without sessions: leases are read with the consistency of the account.

use azure_data_cosmos::options::{OperationOptions, OperationOptionsBuilder, ReadConsistencyStrategy};
use azure_data_cosmos_driver::in_memory_emulator::{ConsistencyLevel, WriteMode};
use changefeed_core::{Container, FeedRange, ReadChanges, StartFrom};
use changefeed_cosmos::{CosmosContainer, Options};
use serde_json::json;

use crate::{
    account::{Emulated, Received},
    shop::Shop,
    support::{OnSdk, on_sdk},
};

const STRATEGY: &str = "x-ms-cosmos-read-consistency-strategy";
const SESSION: &str = "x-ms-session-token";

/// What a program may have set for all its requests; `AZURE_COSMOS_READ_CONSISTENCY_STRATEGY` counts less.
fn weak() -> OperationOptions {
    OperationOptionsBuilder::new()
        .with_read_consistency_strategy(ReadConsistencyStrategy::Eventual)
        .with_session_capturing_disabled(true)
        .build()
}

/// Opens the leases through a client with these options, writes one, and reads it in each way that hosts do.
async fn reads_of_leases(emulated: &Emulated, options: OperationOptions) -> Vec<Received> {
    Shop::create(emulated);
    let (client, properties) = (emulated.client(options, &["East US"]).await, emulated.properties().await);
    let opened = on_sdk(async move {
        CosmosContainer::open_leases(&client, "shop", "leases", &properties, Options::new()).await.unwrap()
    });
    let leases: Container = OnSdk::container(&opened.await);
    let before = emulated.requests().len();
    leases.create(&json!({"id": "a"})).await.unwrap();
    leases.read_item("a", "a").await.unwrap();
    assert_eq!(leases.list("").await.unwrap().len(), 1);
    let page = leases.read_changes(ReadChanges::new(FeedRange::full(), StartFrom::Beginning)).await.unwrap();
    assert_eq!(page.changes.len(), 1);
    let requests = emulated.requests().split_off(before);
    let is_query = |request: &Received| request.header("content-type").is_some_and(|kind| kind.contains("query"));
    let is_read = |request: &Received| request.method == "GET" || is_query(request);
    let reads: Vec<_> =
        requests.into_iter().filter(|request| request.is_for_items_of("leases") && is_read(request)).collect();
    assert!(reads.len() >= 3, "the item, a listing and a page of the feed: {reads:?}");
    reads
}

#[tokio::test]
async fn leases_are_read_with_the_session_whatever_the_client_of_the_program_says() {
    for read in reads_of_leases(&Emulated::new().await, weak()).await {
        assert_eq!(read.header(STRATEGY), Some("Session"), "{read:?}");
        assert!(read.header(SESSION).is_some_and(|token| !token.is_empty()), "{read:?}");
    }
}

#[tokio::test]
async fn leases_in_an_account_with_stronger_consistency_are_read_with_that() {
    for strong in [ConsistencyLevel::Strong, ConsistencyLevel::BoundedStaleness] {
        let emulated = Emulated::with_consistency(&["East US"], WriteMode::Single, strong).await;
        for read in reads_of_leases(&emulated, weak()).await {
            assert_eq!(read.header(STRATEGY), None, "{read:?}");
            assert_eq!(read.header("x-ms-consistency-level"), None, "{read:?}");
        }
    }
}
