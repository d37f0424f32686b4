//! What the backend makes of 429, 408, 449, 503, 410, lost connections and responses that are lost after the commit: with
//! a server of this project and with the emulator inside of the SDK.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "those of the SDK are, and a test has room for them")]

mod stage;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use azure_data_cosmos::fault_injection::{FaultInjectionErrorType as Error, FaultOperationType as Operation};
use changefeed_core::{Container, Effect, ErrorKind, FeedRange, ReadChanges, StartFrom};
use serde_json::json;
use stage::{BUDGET, Fault, Place, SERVICES, Service, Stage};

/// What recovers by itself if it happens once.
const PASSING: [Error; 7] = [
    Error::TooManyRequests,
    Error::Timeout,
    Error::RetryWith,
    Error::ServiceUnavailable,
    Error::PartitionIsGone,
    Error::InternalServerError,
    Error::ConnectionError,
];

/// What a call may take beyond its budget: half a second in which the SDK reports its own error, and as much for a busy
/// machine.
const GRACE: Duration = Duration::from_secs(1);

fn once(error: Error, operation: Operation) -> Fault {
    Fault { error: Some(error), operation, hits: Some(1), delay: Duration::ZERO }
}

fn always(error: Error, operation: Operation) -> Fault {
    Fault { error: Some(error), operation, hits: None, delay: Duration::ZERO }
}

/// Every such request takes longer.
fn slow(operation: Operation, delay: Duration) -> Fault {
    Fault { error: None, operation, hits: None, delay }
}

async fn write(container: &Container, ids: &[&str]) {
    for id in ids {
        container.upsert(&json!({"id": id, "pk": "a"})).await.unwrap();
    }
}

async fn ids(container: &Container, start: StartFrom) -> changefeed_core::Result<(Vec<String>, StartFrom)> {
    let page = container.read_changes(ReadChanges::new(FeedRange::full(), start)).await?;
    let ids = page.changes.iter().map(|change| change.id.as_str().to_owned()).collect();
    Ok((ids, page.continuation.clone().into()))
}

#[tokio::test]
async fn a_page_of_the_feed_comes_although_one_request_fails() {
    for service in SERVICES {
        for error in PASSING {
            let stage = Stage::new(service, once(error, Operation::ChangeFeedItem)).await;
            write(&stage.direct, &["1", "2"]).await;
            let (seen, next) = ids(&stage.orders, StartFrom::Beginning).await.unwrap();
            assert_eq!(seen, ["1", "2"], "{service:?} {error:?}");
            write(&stage.direct, &["3"]).await;
            assert_eq!(ids(&stage.orders, next).await.unwrap().0, ["3"], "{service:?} {error:?}");
            assert_eq!(stage.hits(), [1], "{service:?} {error:?}");
        }
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
async fn a_feed_that_fails_on_and_on_is_given_up_within_its_budget_and_items_are_not_touched() {
    let kinds = [
        (Error::TooManyRequests, ErrorKind::Throttled),
        (Error::ServiceUnavailable, ErrorKind::Unavailable),
        (Error::RetryWith, ErrorKind::Unavailable),
    ];
    for service in SERVICES {
        for (error, kind) in kinds {
            let stage = Stage::new(service, always(error, Operation::ChangeFeedItem)).await;
            let begin = Instant::now();
            let failed = ids(&stage.orders, StartFrom::Beginning).await.unwrap_err();
            // Either it gave up by itself or the budget was over.
            assert!([kind, ErrorKind::Timeout].contains(&failed.kind()), "{service:?} {failed:?}");
            assert_eq!(failed.effect(), Effect::None);
            assert!(begin.elapsed() < BUDGET + GRACE, "{service:?} {error:?}: {:?}", begin.elapsed());
            write(&stage.orders, &["1"]).await;
        }
    }
}

/// Each call alone stays below the limit: the ranges, the page and, since it is empty, the settings of the container.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
async fn all_calls_of_one_read_have_one_budget() {
    let operations =
        [Operation::MetadataPartitionKeyRanges, Operation::ChangeFeedItem, Operation::MetadataReadContainer];
    for service in SERVICES {
        let stage = Stage::with(service, &operations.map(|operation| slow(operation, BUDGET * 9 / 10))).await;
        let begin = Instant::now();
        let failed = ids(&stage.orders, StartFrom::Beginning).await.unwrap_err();
        assert!(begin.elapsed() < BUDGET + GRACE, "{service:?}: {:?}", begin.elapsed());
        assert_eq!((failed.kind(), failed.effect()), (ErrorKind::Timeout, Effect::None), "{service:?} {failed:?}");
    }
}

#[tokio::test]
async fn a_throttled_write_happens_once_and_says_so_if_it_does_not() {
    for service in SERVICES {
        let stage = Stage::new(service, once(Error::TooManyRequests, Operation::CreateItem)).await;
        stage.orders.create(&json!({"id": "1", "pk": "a"})).await.unwrap();
        assert_eq!(stage.hits(), [1], "{service:?}");
        let stage = Stage::new(service, always(Error::TooManyRequests, Operation::CreateItem)).await;
        let error = stage.orders.create(&json!({"id": "1", "pk": "a"})).await.unwrap_err();
        assert!([ErrorKind::Throttled, ErrorKind::Timeout].contains(&error.kind()), "{service:?} {error:?}");
        if error.kind() == ErrorKind::Throttled {
            assert_eq!(error.effect(), Effect::None, "{service:?}");
        }
        let missing = stage.direct.read_item("a", "1").await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::ItemNotFound);
    }
}

/// The answer to a write is lost after the service has performed it: nobody may be told that it did not happen.
#[tokio::test]
async fn a_write_whose_answer_is_lost_is_never_reported_as_not_done() {
    for service in SERVICES {
        let lost = |operation| once(Error::ResponseTimeoutAfterService, operation);
        let stage = Stage::new(service, lost(Operation::CreateItem)).await;
        if let Err(error) = stage.orders.create(&json!({"id": "1", "pk": "a"})).await {
            assert_eq!(error.effect(), Effect::Unknown, "{service:?} create: {error:?}");
        }
        assert_eq!(stage.hits(), [1], "{service:?} create");
        assert_eq!(stage.direct.read_item("a", "1").await.unwrap().id.as_str(), "1", "it landed");

        let stage = Stage::new(service, lost(Operation::UpsertItem)).await;
        if let Err(error) = stage.orders.upsert(&json!({"id": "1", "pk": "a"})).await {
            assert_eq!(error.effect(), Effect::Unknown, "{service:?} upsert: {error:?}");
        }
        assert_eq!(stage.hits(), [1], "{service:?} upsert");
        assert_eq!(stage.direct.read_item("a", "1").await.unwrap().id.as_str(), "1", "it landed");

        let stage = Stage::new(service, lost(Operation::ReplaceItem)).await;
        write(&stage.direct, &["1"]).await;
        let before = stage.direct.read_item("a", "1").await.unwrap().etag;
        if let Err(error) = stage.orders.replace_if(&json!({"id": "1", "pk": "a", "n": 2}), &before).await {
            assert_eq!(error.effect(), Effect::Unknown, "{service:?} replace: {error:?}");
        }
        assert_eq!(stage.hits(), [1], "{service:?} replace");
        assert_ne!(stage.direct.read_item("a", "1").await.unwrap().etag, before, "it landed");

        let stage = Stage::new(service, lost(Operation::DeleteItem)).await;
        write(&stage.direct, &["1"]).await;
        let etag = stage.direct.read_item("a", "1").await.unwrap().etag;
        if let Err(error) = stage.orders.delete_if("a", "1", &etag).await {
            assert_eq!(error.effect(), Effect::Unknown, "{service:?} delete: {error:?}");
        }
        assert_eq!(stage.hits(), [1], "{service:?} delete");
        assert_eq!(stage.direct.read_item("a", "1").await.unwrap_err().kind(), ErrorKind::ItemNotFound, "it landed");
    }
}

#[tokio::test]
async fn a_write_that_may_have_landed_says_so() {
    for service in SERVICES {
        for error in [Error::Timeout, Error::ServiceUnavailable, Error::ResponseTimeout] {
            let stage = Stage::new(service, always(error, Operation::UpsertItem)).await;
            let failed = stage.orders.upsert(&json!({"id": "1", "pk": "a"})).await.unwrap_err();
            assert_eq!(failed.effect(), Effect::Unknown, "{service:?} {error:?}: {failed:?}");
            assert!(failed.kind().is_transient(), "{service:?} {error:?}: {failed:?}");
        }
    }
}

#[tokio::test]
async fn a_refusal_by_condition_is_certain_if_nothing_was_lost() {
    for service in SERVICES {
        let stage = Stage::new(service, once(Error::TooManyRequests, Operation::CreateItem)).await;
        write(&stage.direct, &["1"]).await;
        let error = stage.orders.create(&json!({"id": "1", "pk": "a"})).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::AlreadyExists, Effect::None), "{service:?} {error:?}");
        assert_eq!(stage.hits(), [1], "{service:?}");
        let old = stage.direct.read_item("a", "1").await.unwrap().etag;
        write(&stage.direct, &["1"]).await;
        let error = stage.orders.replace_if(&json!({"id": "1", "pk": "a"}), &old).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::PreconditionFailed, Effect::None), "{service:?}");
    }
}

/// The emulator splits as the service does: with a time in which it answers 410/1007.
#[tokio::test]
async fn a_split_of_the_emulator_is_noticed_and_its_children_go_on() {
    let place = Place::new(Service::Emulator).await;
    let Place::Emulator(store, _) = &place else { unreachable!("it is the emulator") };
    let orders = place.open().await;
    for number in 0..20 {
        orders.upsert(&json!({"id": number.to_string(), "pk": format!("k{number}")})).await.unwrap();
    }
    let (seen, next) = ids(&orders, StartFrom::Beginning).await.unwrap();
    assert_eq!(seen.len(), 20);
    let only = orders.feed_ranges().await.unwrap().remove(0);
    store.split_partition("shop", "orders", only.id.as_str().parse().unwrap(), Duration::ZERO);
    let children = loop {
        match orders.feed_ranges().await {
            Ok(ranges) if ranges.len() == 2 => break ranges,
            Ok(_) => {}
            // The SDK gives up if the split takes longer than its ten attempts.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        }
    };
    for number in 20..40 {
        orders.upsert(&json!({"id": number.to_string(), "pk": format!("k{number}")})).await.unwrap();
    }
    assert_eq!(ids(&orders, next.clone()).await.unwrap_err().kind(), ErrorKind::RangeGone);
    let mut seen = Vec::new();
    for child in children {
        let page = orders.read_changes(ReadChanges::new(child.range, next.clone())).await.unwrap();
        seen.extend(page.changes.iter().map(|change| change.id.as_str().parse::<u32>().unwrap()));
    }
    seen.sort_unstable();
    assert_eq!(seen, (20..40).collect::<Vec<_>>());
}
