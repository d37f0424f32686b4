//! Each fault does what it says, and only that.

use std::sync::atomic::{AtomicUsize, Ordering};

use changefeed_core::{Catalog, Container, Database, Effect, StartFrom};
use tokio::sync::Notify;

use super::*;
use crate::{clock::TestClock, fixtures::item, model::ModelStore};

async fn container() -> Container {
    let store: Arc<dyn Catalog> = Arc::new(ModelStore::new(TestClock::new()));
    Database::new(store, "db").container("items").partition_key("/pk").create().await.unwrap()
}

fn faulty(inner: &Container, plan: impl FaultPlan) -> Container {
    Container::new(Arc::new(Faulty::new(inner.backend().clone(), plan)))
}

fn runs(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test);
}

/// Whether the future is still pending after it was polled.
async fn hangs(future: impl Future) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = tokio::task::yield_now() => true,
    }
}

#[test]
fn without_faults_the_store_is_as_it_was() {
    runs(async {
        let inner = container().await;
        let outer = faulty(&inner, Script::default());
        outer.create(&item("a", "x", 1)).await.unwrap();
        assert_eq!(outer.read_item("a", "x").await.unwrap(), inner.read_item("a", "x").await.unwrap());
        assert_eq!(outer.list("").await.unwrap().len(), 1);
        assert_eq!(outer.identity(), inner.identity());
        let ranges = outer.feed_ranges().await.unwrap();
        let page = outer.read_changes(ReadChanges::new(ranges[0].range.clone(), StartFrom::Beginning)).await.unwrap();
        assert_eq!(page.changes.len(), 1);
        outer.backend().changed(&ranges[0].range, &Continuation::from_token("\"0\"")).await;
    });
}

#[test]
fn an_error_comes_instead_of_the_call() {
    runs(async {
        let inner = container().await;
        let outer = faulty(&inner, Script::new([Fault::Error(ErrorKind::Unavailable), Fault::Throttled]));
        for kind in [ErrorKind::Unavailable, ErrorKind::Throttled] {
            let error = outer.create(&item("a", "x", 1)).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (kind, Effect::None));
        }
        assert_eq!(inner.list("").await.unwrap().len(), 0);
        outer.create(&item("a", "x", 1)).await.unwrap();
    });
}

#[test]
fn a_throttled_call_carries_the_wait_and_the_charge() {
    runs(async {
        let inner = container().await;
        let retry_after = Duration::from_millis(40);
        let outer = faulty(&inner, Script::new([Fault::ThrottledFor { retry_after, request_charge: 0.5 }]));
        let error = outer.create(&item("a", "x", 1)).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Throttled, Effect::None));
        assert_eq!((error.retry_after(), error.request_charge()), (Some(retry_after), 0.5));
        assert_eq!(inner.list("").await.unwrap().len(), 0);
    });
}

#[test]
fn a_panic_comes_before_or_after_the_call() {
    runs(async {
        let inner = container().await;
        for (id, fault, landed) in [("x", Fault::Panic, false), ("y", Fault::DidItThenPanicked, true)] {
            let outer = faulty(&inner, Script::new([fault]));
            let value = item("a", id, 1);
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(async move { outer.create(&value).await.map(drop) });
            assert!(tasks.join_next().await.unwrap().unwrap_err().is_panic());
            assert_eq!(inner.read_item("a", id).await.is_ok(), landed);
        }
    });
}

#[test]
fn a_write_that_was_done_reports_an_unknown_effect() {
    runs(async {
        let inner = container().await;
        let outer = faulty(&inner, Script::new([Fault::DidItThenFailed, Fault::FailedWithoutDoingIt]));
        for (id, landed) in [("x", true), ("y", false)] {
            let error = outer.create(&item("a", id, 1)).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown));
            assert_eq!(inner.read_item("a", id).await.is_ok(), landed);
        }
    });
}

#[test]
fn a_write_that_is_refused_is_refused_for_its_own_reason() {
    runs(async {
        let inner = container().await;
        inner.create(&item("a", "x", 1)).await.unwrap();
        let outer = faulty(&inner, Script::new([Fault::DidItThenFailed]));
        let error = outer.create(&item("a", "x", 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    });
}

#[test]
fn a_read_that_fails_has_no_effect() {
    runs(async {
        let inner = container().await;
        inner.create(&item("a", "x", 1)).await.unwrap();
        let outer = faulty(&inner, |_: &Call<'_>| Fault::DidItThenFailed);
        let error = outer.read_item("a", "x").await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::None));
        assert_eq!(error.to_string(), "injected into read_item");
    });
}

#[test]
fn latency_holds_the_call_until_the_callers_future_is_over() {
    runs(async {
        let inner = container().await;
        let gate = Arc::new(Notify::new());
        let wait = gate.clone();
        let outer = faulty(&inner, Script::new([Fault::Latency(Box::pin(async move { wait.notified().await }))]));
        let value = item("a", "x", 1);
        let mut write = std::pin::pin!(outer.create(&value));
        assert!(hangs(write.as_mut()).await);
        assert_eq!(inner.list("").await.unwrap().len(), 0);
        gate.notify_one();
        write.await.unwrap();
        assert_eq!(inner.list("").await.unwrap().len(), 1);
    });
}

#[test]
fn a_call_that_never_returns_was_done_or_not_as_configured() {
    runs(async {
        let inner = container().await;
        let outer = faulty(&inner, Script::new([Fault::NeverReturns, Fault::DidItThenNeverReturned]));
        for (id, landed) in [("x", false), ("y", true)] {
            assert!(hangs(outer.create(&item("a", id, 1))).await);
            assert_eq!(inner.read_item("a", id).await.is_ok(), landed);
        }
    });
}

#[test]
fn waiting_for_changes_returns_for_nothing_where_others_fail() {
    runs(async {
        let inner = container().await;
        let outer = faulty(&inner, Script::new([Fault::Throttled, Fault::NeverReturns]));
        let (range, newest) = (FeedRange::full(), Continuation::from_token("\"0\""));
        outer.backend().changed(&range, &newest).await;
        inner.create(&item("a", "x", 1)).await.unwrap();
        assert!(hangs(outer.backend().changed(&range, &newest)).await);
    });
}

#[test]
fn a_plan_sees_each_call_once_and_can_choose() {
    runs(async {
        let inner = container().await;
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let plan = move |call: &Call<'_>| {
            count.fetch_add(1, Ordering::SeqCst);
            if call.is_write() { Fault::Throttled } else { Fault::None }
        };
        let outer = faulty(&inner, plan);
        assert_eq!(outer.create(&item("a", "x", 1)).await.unwrap_err().kind(), ErrorKind::Throttled);
        assert_eq!(outer.list("").await.unwrap().len(), 0);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    });
}
