//! Servers that throttle and fail: what the SDK survives, and what it must tell.

use std::time::{Duration, Instant};

use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::options::{ChangeFeedStartFrom, ItemReadOptions};

use crate::support::{Item, Place, event, full, item, keys, latest, run, sorted, status, version};

#[test]
fn throttling_is_waited_out() {
    run(async {
        let place = Place::new().await;
        place.upsert(&item("1", "a", 1)).await;
        place.server.throttle(&place.name, "2");
        let start = Instant::now();
        place.upsert(&item("2", "a", 2)).await;
        assert!(start.elapsed() >= Duration::from_millis(500), "it had to wait");
        place.server.throttle(&place.name, "2");
        let feed = place.drain(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, latest(5)).await;
        assert!(feed.retries > 0, "it was throttled");
        assert_eq!(sorted(&feed.changes, version), ["1=1", "2=2"]);
    });
}

async fn a_read_survives(status: &str, substatus: &str) {
    let place = Place::new().await;
    place.upsert(&item("1", "a", 1)).await;
    place.server.fault(&place.name, &["--status", status, "--substatus", substatus, "--method", "GET"]);
    let read = place.container.read_item("a", "1", None).await.expect("a read");
    let requests = read.diagnostics().requests().len();
    assert_eq!(requests, 2, "one failure and one answer");
    assert_eq!(read.into_model::<Item>().expect("an item"), item("1", "a", 1));
}

#[test]
fn a_read_survives_503() {
    run(async {
        a_read_survives("503", "0").await;
    });
}

#[test]
fn a_read_survives_500() {
    run(async {
        a_read_survives("500", "0").await;
    });
}

#[test]
fn a_read_survives_408() {
    run(async {
        a_read_survives("408", "0").await;
    });
}

#[test]
fn a_read_survives_410() {
    run(async {
        a_read_survives("410", "1002").await;
    });
}

#[test]
fn a_read_survives_449() {
    run(async {
        a_read_survives("449", "0").await;
    });
}

#[test]
fn a_read_survives_a_session_that_is_behind() {
    run(async {
        a_read_survives("404", "1002").await;
    });
}

#[test]
fn a_refusal_reaches_the_caller() {
    run(async {
        let place = Place::new().await;
        place.upsert(&item("1", "a", 1)).await;
        for (code, substatus) in [("400", "0"), ("401", "0")] {
            place.server.fault(&place.name, &["--status", code, "--substatus", substatus, "--method", "GET"]);
            let refused = place.container.read_item("a", "1", None).await.expect_err("it was refused");
            assert_eq!(status(&refused).0.to_string(), code);
        }
        assert_eq!(place.present().await, ["1=1"]);
    });
}

/// One, unless a failure still waits for somebody.
async fn requests_of_a_read(place: &Place) -> usize {
    place.container.read_item("k0", "i0", None).await.expect("a read").diagnostics().requests().len()
}

async fn both_feeds_survive(code: &str, substatus: &str) {
    let place = Place::new().await;
    let first = place.drain(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, latest(2)).await;
    let now = place.drain(FeedScope::full_container(), ChangeFeedStartFrom::Now, full(2)).await;
    for (n, key) in keys(8).iter().enumerate() {
        place.upsert(&item(format!("i{n}"), key, n as i64)).await;
    }
    let path = format!("{}/docs", place.name);
    let fail = || place.server.fault(&path, &["--status", code, "--substatus", substatus, "--method", "GET"]);
    fail();
    let feed = place.resume(&first.token, latest(2)).await;
    assert_eq!(requests_of_a_read(&place).await, 1, "the failure was met by the feed");
    assert_eq!(sorted(&feed.changes, version), (0..8).map(|n| format!("i{n}={n}")).collect::<Vec<_>>());
    fail();
    let feed = place.resume(&now.token, full(2)).await;
    assert_eq!(requests_of_a_read(&place).await, 1, "the failure was met by the feed");
    assert_eq!(sorted(&feed.changes, event), (0..8).map(|n| format!("create i{n} >{n}")).collect::<Vec<_>>());
}

#[test]
fn both_feeds_survive_a_range_that_is_gone() {
    run(async {
        both_feeds_survive("410", "1002").await;
    });
}

#[test]
fn both_feeds_survive_a_split_that_goes_on() {
    run(async {
        both_feeds_survive("410", "1007").await;
    });
}

#[test]
fn both_feeds_survive_503() {
    run(async {
        both_feeds_survive("503", "0").await;
    });
}

#[test]
fn both_feeds_survive_429() {
    run(async {
        both_feeds_survive("429", "3200").await;
    });
}

#[test]
fn a_write_whose_answer_is_lost_is_there_once() {
    run(async {
        // The SDK tries again by itself and meets its own first try.
        let place = Place::new().await;
        let now = place.drain(FeedScope::full_container(), ChangeFeedStartFrom::Now, full(5)).await;
        place.server.fault(&place.name, &["--status", "408", "--after", "--method", "POST"]);
        let lost =
            place.container.create_item("a", "1", item("1", "a", 1), None).await.expect_err("the answer was lost");
        assert_eq!(status(&lost), (409, 0));
        let changes = place.resume(&now.token, full(5)).await.changes;
        assert_eq!(sorted(&changes, event), ["create 1 >1"]);
    });
}

#[test]
fn reads_follow_writes_by_session_token_also_through_a_split() {
    run(async {
        let place = Place::new().await;
        let written = place.container.upsert_item("a", "1", item("1", "a", 1), None).await.expect("an upsert");
        let token = written.headers().session_token().expect("a session token").clone();
        for _ in 0..2 {
            let options = ItemReadOptions::default().with_session_token(token.clone());
            let read = place.container.read_item("a", "1", Some(options)).await.expect("a read");
            assert_eq!(read.into_model::<Item>().expect("an item").v, 1);
            place.split_all();
        }
    });
}

#[test]
fn a_session_token_ahead_of_the_server_is_told() {
    run(async {
        let place = Place::new().await;
        let written = place.container.upsert_item("a", "1", item("1", "a", 1), None).await.expect("an upsert");
        let token = written.headers().session_token().expect("a session token").to_string();
        let ahead = format!("{}#999999", token.split('#').next().expect("a range and a version"));
        let options = ItemReadOptions::default().with_session_token(ahead);
        let late = place.container.read_item("a", "1", Some(options)).await.expect_err("nobody is that far");
        assert_eq!(status(&late).0, 503, "{late}");
    });
}
