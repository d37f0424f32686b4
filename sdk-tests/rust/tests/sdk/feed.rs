//! The change feed in both modes: every start, every scope, resuming by continuation, with exactly what arrives.

use std::collections::BTreeMap;
use std::time::Duration;

use azure_core::time::OffsetDateTime;
use azure_data_cosmos::feed::{ContinuationToken, FeedRange, FeedScope};
use azure_data_cosmos::models::{ContainerProperties, TransactionalBatch};
use azure_data_cosmos::options::ChangeFeedStartFrom;
use serde_json::json;

use crate::server::Server;
use crate::support::{
    Bodies, Item, Place, by_key, client, event, for_keys, full, item, keys, latest, next_page, read_on, run, sorted,
    status, version,
};

const KEYS: usize = 10;

/// The scopes of a container, with the keys that lie in each.
async fn scopes(place: &Place) -> Vec<(&'static str, FeedScope, Vec<String>)> {
    let ranges = place.container.read_feed_ranges(None).await.expect("feed ranges");
    assert_eq!(ranges.len(), 2);
    let cut = |low: &str, high: &str| {
        FeedRange::new(low.try_into().expect("an EPK"), high.try_into().expect("an EPK")).expect("a range")
    };
    let middle = cut("08000000000000000000000000000001", "18000000000000000000000000000001");
    let across = cut("08000000000000000000000000000001", "30000000000000000000000000000001");
    let mut scopes = vec![
        ("container", FeedScope::full_container(), keys(KEYS)),
        ("key", FeedScope::partition("k3"), vec!["k3".to_owned()]),
    ];
    let parts = [
        ("first range", ranges[0].clone()),
        ("last range", ranges[1].clone()),
        ("part of a range", middle),
        ("across ranges", across),
    ];
    for (name, range) in parts {
        let mut inside = Vec::new();
        for key in keys(KEYS) {
            if FeedRange::for_partition(key.clone().into(), &"/pk".into()).is_subset_of(&range) {
                inside.push(key);
            }
        }
        assert!(!inside.is_empty() && inside.len() < KEYS, "{name} is a part, and not an empty one: {inside:?}");
        scopes.push((name, FeedScope::range(range), inside));
    }
    scopes
}

/// Writes two items a key.
async fn write(place: &Place, round: i64) {
    for key in keys(KEYS) {
        for name in ["x", "y"] {
            place.upsert(&item(format!("{key}{name}"), &key, round)).await;
        }
    }
}

fn written(keys: &[String], round: i64) -> BTreeMap<String, Vec<String>> {
    for_keys(keys, |key| vec![format!("{key}x={round}"), format!("{key}y={round}")])
}

#[test]
fn from_the_beginning_then_by_continuation_in_every_scope() {
    run(async {
        let place = Place::new().await;
        write(&place, 1).await;
        let mut readings = Vec::new();
        for (name, scope, keys) in scopes(&place).await {
            let first = place.drain(scope.clone(), ChangeFeedStartFrom::Beginning, latest(3)).await;
            assert_eq!(by_key(&first.changes, version), written(&keys, 1), "{name}");
            assert!(first.sizes.iter().all(|size| *size <= 3), "{name}: {:?}", first.sizes);
            readings.push((name, scope, keys, first));
        }
        write(&place, 2).await;
        for (name, scope, keys, first) in readings {
            let second = place.resume_in(scope.clone(), &first.token, latest(3)).await;
            assert_eq!(by_key(&second.changes, version), written(&keys, 2), "{name}");
            let third = place.resume_in(scope, &second.token, latest(3)).await;
            assert!(third.changes.is_empty(), "{name}");
        }
    });
}

#[test]
fn from_now_then_by_continuation_in_every_scope() {
    run(async {
        let place = Place::new().await;
        write(&place, 1).await;
        let mut readings = Vec::new();
        for (name, scope, keys) in scopes(&place).await {
            let now = place.drain(scope.clone(), ChangeFeedStartFrom::Now, latest(3)).await;
            assert!(now.changes.is_empty(), "{name}");
            readings.push((name, scope, keys, now));
        }
        for round in [2, 3] {
            write(&place, round).await;
            for (name, scope, keys, reading) in &mut readings {
                *reading = place.resume_in(scope.clone(), &reading.token, latest(2)).await;
                assert_eq!(by_key(&reading.changes, version), written(keys, round), "{name}");
            }
        }
    });
}

#[test]
fn from_a_point_in_time_then_by_continuation_in_every_scope() {
    run(async {
        let place = Place::new().await;
        write(&place, 1).await;
        // Times on the wire have whole seconds: what follows must lie in a later one than what was before.
        let into_second = Duration::from_nanos(u64::from(OffsetDateTime::now_utc().nanosecond()));
        tokio::time::sleep(Duration::from_secs(1).saturating_sub(into_second) + Duration::from_millis(5)).await;
        let moment = OffsetDateTime::now_utc();
        write(&place, 2).await;
        let mut readings = Vec::new();
        for (name, scope, keys) in scopes(&place).await {
            let first = place.drain(scope.clone(), ChangeFeedStartFrom::PointInTime(moment), latest(3)).await;
            assert_eq!(by_key(&first.changes, version), written(&keys, 2), "{name}");
            readings.push((name, scope, keys, first));
        }
        write(&place, 3).await;
        for (name, scope, keys, first) in readings {
            let second = place.resume_in(scope, &first.token, latest(3)).await;
            assert_eq!(by_key(&second.changes, version), written(&keys, 3), "{name}");
        }
    });
}

#[test]
fn all_versions_and_deletes_from_now_then_by_continuation_in_every_scope() {
    run(async {
        let place = Place::new().await;
        write(&place, 1).await;
        let mut readings = Vec::new();
        for (name, scope, keys) in scopes(&place).await {
            let now = place.drain(scope.clone(), ChangeFeedStartFrom::Now, full(3)).await;
            assert!(now.changes.is_empty(), "{name}");
            readings.push((name, scope, keys, now));
        }
        for key in keys(KEYS) {
            let id = format!("{key}x");
            place.container.replace_item(key.clone(), &id, item(&id, &key, 2), None).await.expect("a replace");
            place.upsert(&item(&id, &key, 3)).await;
            place.delete(&id, &key).await;
            place.container.create_item(key.clone(), &id, item(&id, &key, 4), None).await.expect("a create");
        }
        for (name, scope, keys, now) in readings {
            let feed = place.resume_in(scope.clone(), &now.token, full(3)).await;
            let expected = for_keys(&keys, |key| {
                vec![
                    format!("replace {key}x 1>2"),
                    format!("replace {key}x 2>3"),
                    format!("delete {key}x 3>"),
                    format!("create {key}x >4"),
                ]
            });
            assert_eq!(by_key(&feed.changes, event), expected, "{name}");
            let idle = place.resume_in(scope, &feed.token, full(3)).await;
            assert!(idle.changes.is_empty(), "{name}");
        }
    });
}

#[test]
fn the_metadata_of_a_full_change() {
    run(async {
        let place = Place::new().await;
        let now = place.drain(FeedScope::full_container(), ChangeFeedStartFrom::Now, full(10)).await;
        place.upsert(&item("1", "a", 1)).await;
        place.upsert(&item("1", "a", 2)).await;
        place.delete("1", "a").await;
        let feed = place.resume(&now.token, full(10)).await;
        assert_eq!(feed.changes.iter().map(event).collect::<Vec<_>>(), ["create 1 >1", "replace 1 1>2", "delete 1 2>"]);
        let metadata: Vec<_> = feed.changes.iter().map(|change| change.metadata().expect("metadata")).collect();
        let lsns: Vec<i64> = metadata.iter().map(|one| one.lsn().expect("an LSN").value()).collect();
        assert!(lsns[0] < lsns[1] && lsns[1] < lsns[2], "{lsns:?}");
        assert_eq!(metadata[1].previous_image_lsn().map(|lsn| lsn.value()), Some(lsns[0]));
        assert_eq!(metadata[2].previous_image_lsn().map(|lsn| lsn.value()), Some(lsns[1]));
        assert_eq!(metadata[2].id(), Some("1"));
        assert_eq!(metadata[2].partition_key(), Some(&json!({ "pk": "a" })));
        for one in metadata {
            let age = OffsetDateTime::now_utc().unix_timestamp()
                - one.conflict_resolution_timestamp().expect("a time").as_secs() as i64;
            assert!((0..10).contains(&age), "{age} s");
            assert_eq!(one.time_to_live_expired(), Some(false));
        }
    });
}

#[test]
fn the_latest_mode_shows_only_the_last_version_and_no_deletes() {
    run(async {
        let place = Place::new().await;
        for value in 0..5 {
            place.upsert(&item("1", "a", value)).await;
            place.upsert(&item("2", "a", value)).await;
            place.upsert(&item("3", "a", value)).await;
        }
        place.delete("2", "a").await;
        place.upsert(&item("1", "a", 9)).await;
        let feed = place.drain(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, latest(10)).await;
        assert_eq!(feed.changes.iter().map(version).collect::<Vec<_>>(), ["3=4", "1=9"]);
    });
}

#[test]
fn a_transaction_is_one_page_and_one_lsn() -> azure_data_cosmos::Result<()> {
    run(async {
        let place = Place::new().await;
        let now = place.drain(FeedScope::full_container(), ChangeFeedStartFrom::Now, full(2)).await;
        let batch = (0..50)
            .try_fold(TransactionalBatch::new("a"), |batch, n| batch.create_item(item(format!("{n:02}"), "a", n)))?;
        place.container.execute_transactional_batch(batch, None).await?;
        let feed = place.resume(&now.token, full(2)).await;
        assert_eq!(feed.sizes, [50]);
        let lsn = |n: usize| feed.changes[n].metadata().and_then(|one| one.lsn()).expect("an LSN").value();
        assert!((0..50).all(|n| lsn(n) == lsn(0)));
        assert_eq!(
            feed.changes.iter().map(event).collect::<Vec<_>>(),
            (0..50).map(|n| format!("create {n:02} >{n}")).collect::<Vec<_>>()
        );
        Ok(())
    })
}

#[test]
fn every_page_is_a_place_to_go_on_from_in_another_client() {
    run(async {
        let place = Place::new().await;
        write(&place, 1).await;
        let expected = place.present().await;
        let mut pages = place.feed(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, latest(3)).await;
        let mut seen = Vec::new();
        while seen.len() < expected.len() {
            seen.extend(next_page(&mut pages).await);
            let token = serde_json::to_string(&pages.to_continuation_token().expect("a token")).expect("JSON");
            let token: ContinuationToken = serde_json::from_str(&token).expect("a token");
            let other = client(&place.server, Bodies::Text).await;
            let container = other.database_client("rust").container_client(&place.name, None).await.expect("a client");
            let elsewhere = Place::of(place.server.clone(), place.name.clone(), container);
            let rest = elsewhere.resume(&token, latest(5)).await;
            let mut both = sorted(&seen, version);
            both.extend(sorted(&rest.changes, version));
            both.sort();
            assert_eq!(both, expected);
        }
    });
}

#[test]
fn one_reader_goes_on_polling() {
    run(async {
        let place = Place::new().await;
        let mut pages = place.feed(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, latest(4)).await;
        for round in 1..4 {
            write(&place, round).await;
            let mut seen = Vec::new();
            while seen.len() < 2 * KEYS {
                seen.extend(next_page(&mut pages).await);
            }
            assert_eq!(by_key(&seen, version), written(&keys(KEYS), round));
        }
        assert!(read_on(pages).await.changes.is_empty());
    });
}

#[test]
fn all_versions_begin_only_now() {
    run(async {
        let place = Place::new().await;
        for start in [ChangeFeedStartFrom::Beginning, ChangeFeedStartFrom::PointInTime(OffsetDateTime::now_utc())] {
            let mut pages = place.feed(FeedScope::full_container(), start, full(3)).await;
            let refused =
                futures::StreamExt::next(&mut pages).await.expect("an answer").expect_err("it has no beginning");
            assert_eq!(status(&refused), (400, 0));
        }
    });
}

#[test]
fn a_prefix_of_a_hierarchical_key_is_a_scope() {
    run(async {
        let place = Place::with(Bodies::Binary, |name| ContainerProperties::new(name, ("/pk", "/user").into())).await;
        let write = async |round: i64| {
            for tenant in ["T1", "T2"] {
                for user in 1..4 {
                    let id = format!("{tenant}{user}");
                    let body = json!({ "id": id, "pk": tenant, "user": user, "v": round });
                    place.container.upsert_item((tenant, user), &id, &body, None).await.expect("an upsert");
                }
            }
        };
        write(1).await;
        let prefix = || FeedScope::partition("T2");
        let first = place.drain(prefix(), ChangeFeedStartFrom::Beginning, latest(2)).await;
        assert_eq!(sorted(&first.changes, version), ["T21=1", "T22=1", "T23=1"]);
        let now = place.drain(prefix(), ChangeFeedStartFrom::Now, full(2)).await;
        write(2).await;
        let second = place.resume_in(prefix(), &first.token, latest(2)).await;
        assert_eq!(sorted(&second.changes, version), ["T21=2", "T22=2", "T23=2"]);
        let changes = place.resume_in(prefix(), &now.token, full(2)).await.changes;
        assert_eq!(sorted(&changes, event), ["replace T21 1>2", "replace T22 1>2", "replace T23 1>2"]);
        let whole = place.drain(FeedScope::partition(("T1", 2)), ChangeFeedStartFrom::Beginning, latest(2)).await;
        assert_eq!(sorted(&whole.changes, version), ["T12=2"]);
    });
}

#[test]
fn a_container_made_again_refuses_old_continuations() -> azure_data_cosmos::Result<()> {
    run(async {
        let client = client(&Server::shared(), Bodies::Binary).await;
        client.create_database("again", None).await?;
        let database = client.database_client("again");
        let make = async || -> azure_data_cosmos::Result<Place> {
            database.create_container(ContainerProperties::new("c", "/pk".into()), None).await?;
            let container = database.container_client("c", None).await?;
            Ok(Place::of(Server::shared(), "c".into(), container))
        };
        let old = make().await?;
        old.upsert(&item("1", "a", 1)).await;
        let reading = old.drain(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, latest(3)).await;
        old.container.delete(None).await?;
        let new = make().await?;
        new.upsert(&item("2", "a", 2)).await;
        for place in [&new, &old] {
            let options = latest(3).with_continuation_token(reading.token.clone());
            let refused = place
                .container
                .query_change_feed::<Item>(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, Some(options))
                .await
                .err()
                .expect("the token is of another container");
            assert_eq!(status(&refused).0, 400, "{refused}");
        }
        // The old handle finds the new container by itself: the server tells it with 400/1024 that its rid is of another.
        old.upsert(&item("3", "b", 3)).await;
        let feed = old.drain(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, latest(3)).await;
        assert_eq!(sorted(&feed.changes, version), ["2=2", "3=3"]);
        assert_eq!(new.present().await, ["2=2", "3=3"]);
        database.delete(None).await?;
        Ok(())
    })
}
