//! Splits and merges in the middle of a feed: nothing is lost, nothing comes twice, each key keeps its order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::options::ChangeFeedStartFrom;
use futures::future::join_all;

use crate::support::{
    Place, by_key, event, for_keys, full, item, keys, latest, next_page, read_on, run, sorted, version,
};

const KEYS: usize = 12;

/// What happens to the ranges.
#[derive(Clone, Copy, Debug)]
enum Change {
    SplitOne,
    SplitAll,
    Merge,
    SplitAndMergeTheChildren,
    MergeAcrossTheOldBorder,
    SplitTwiceAndMergeAll,
}

impl Change {
    fn to(self, place: &Place) {
        match self {
            Self::SplitOne => drop(place.split("0")),
            Self::SplitAll => place.split_all(),
            Self::Merge => place.merge("0", "1"),
            Self::SplitAndMergeTheChildren => {
                let children = place.split("0");
                place.merge(&children[0], &children[1]);
            }
            Self::MergeAcrossTheOldBorder => {
                let (left, right) = (place.split("0"), place.split("1"));
                place.merge(&left[1], &right[0]);
            }
            Self::SplitTwiceAndMergeAll => {
                place.split_all();
                place.split_all();
                while place.ranges().len() > 1 {
                    place.merge_first_two();
                }
            }
        }
    }
}

async fn write(place: &Place, round: i64) {
    for key in keys(KEYS) {
        place.upsert(&item(format!("{key}x"), &key, round)).await;
        place.upsert(&item(format!("{key}-{round}"), &key, round)).await;
    }
}

async fn the_latest_feed_goes_on_by_continuation(change: Change) {
    let place = Place::new().await;
    write(&place, 1).await;
    let first = place.drain(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, latest(5)).await;
    assert_eq!(sorted(&first.changes, version), place.present().await);
    change.to(&place);
    write(&place, 2).await;
    let second = place.resume(&first.token, latest(5)).await;
    let expected = for_keys(&keys(KEYS), |key| vec![format!("{key}x=2"), format!("{key}-2=2")]);
    assert_eq!(by_key(&second.changes, version), expected);
    assert!(place.resume(&second.token, latest(5)).await.changes.is_empty());
}

async fn the_latest_feed_goes_on_in_the_middle_of_a_reading(change: Change) {
    let place = Place::new().await;
    write(&place, 1).await;
    write(&place, 2).await;
    let mut pages = place.feed(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, latest(5)).await;
    let mut seen = next_page(&mut pages).await;
    seen.extend(next_page(&mut pages).await);
    assert_eq!(seen.len(), 10);
    change.to(&place);
    let again = seen[0].current().expect("an item").clone();
    place.upsert(&item(&again.id, &again.pk, 3)).await;
    let told = sorted(&seen, version);
    let unseen = place.present().await.into_iter().find(|one| !told.contains(one) && !one.ends_with("=3"));
    let unseen = unseen.expect("not everything was read").split('=').next().expect("an id").to_owned();
    let key = unseen.trim_end_matches('x').split('-').next().expect("a key").to_owned();
    place.delete(&unseen, &key).await;
    seen.extend(read_on(pages).await.changes);
    let mut expected = place.present().await;
    expected.push(format!("{}={}", again.id, again.v));
    expected.sort();
    assert_eq!(sorted(&seen, version), expected);
}

async fn all_versions_go_on_by_continuation(change: Change) {
    let place = Place::new().await;
    let now = place.drain(FeedScope::full_container(), ChangeFeedStartFrom::Now, full(5)).await;
    write(&place, 1).await;
    write(&place, 2).await;
    change.to(&place);
    for key in keys(KEYS) {
        place.delete(&format!("{key}-1"), &key).await;
    }
    let feed = place.resume(&now.token, full(5)).await;
    let expected = for_keys(&keys(KEYS), |key| {
        vec![
            format!("create {key}x >1"),
            format!("create {key}-1 >1"),
            format!("replace {key}x 1>2"),
            format!("create {key}-2 >2"),
            format!("delete {key}-1 1>"),
        ]
    });
    assert_eq!(by_key(&feed.changes, event), expected);
    assert!(place.resume(&feed.token, full(5)).await.changes.is_empty());
}

async fn all_versions_go_on_in_the_middle_of_a_reading(change: Change) {
    let place = Place::new().await;
    let now = place.drain(FeedScope::full_container(), ChangeFeedStartFrom::Now, full(5)).await;
    write(&place, 1).await;
    write(&place, 2).await;
    let options = full(5).with_continuation_token(now.token);
    let mut pages = place.feed(FeedScope::full_container(), ChangeFeedStartFrom::Now, options).await;
    let mut seen = next_page(&mut pages).await;
    seen.extend(next_page(&mut pages).await);
    change.to(&place);
    write(&place, 3).await;
    seen.extend(read_on(pages).await.changes);
    let expected = for_keys(&keys(KEYS), |key| {
        vec![
            format!("create {key}x >1"),
            format!("create {key}-1 >1"),
            format!("replace {key}x 1>2"),
            format!("create {key}-2 >2"),
            format!("replace {key}x 2>3"),
            format!("create {key}-3 >3"),
        ]
    });
    assert_eq!(by_key(&seen, event), expected);
}

/// One test for each way of reading and each change of ranges.
macro_rules! through {
    ($($name:ident: $change:ident),* $(,)?) => {$(
        mod $name {
            use super::{Change, run};

            #[test]
            fn the_latest_feed_goes_on_by_continuation() {
                run(async {
                super::the_latest_feed_goes_on_by_continuation(Change::$change).await;
                });
            }

            #[test]
            fn the_latest_feed_goes_on_in_the_middle_of_a_reading() {
                run(async {
                super::the_latest_feed_goes_on_in_the_middle_of_a_reading(Change::$change).await;
                });
            }

            #[test]
            fn all_versions_go_on_by_continuation() {
                run(async {
                super::all_versions_go_on_by_continuation(Change::$change).await;
                });
            }

            #[test]
            fn all_versions_go_on_in_the_middle_of_a_reading() {
                run(async {
                super::all_versions_go_on_in_the_middle_of_a_reading(Change::$change).await;
                });
            }
        }
    )*};
}

through! {
    a_split: SplitOne,
    splits_of_all: SplitAll,
    a_merge: Merge,
    a_split_and_a_merge_of_the_children: SplitAndMergeTheChildren,
    a_merge_across_the_old_border: MergeAcrossTheOldBorder,
    two_splits_of_all_and_merges_down_to_one: SplitTwiceAndMergeAll,
}

#[test]
fn nothing_is_lost_while_writes_splits_merges_and_readings_go_on_at_once() {
    const ROUNDS: i64 = 25;
    run(async {
        let place = Place::new().await;
        let first = place.drain(FeedScope::full_container(), ChangeFeedStartFrom::Now, full(4)).await;
        let (done, server, name) = (Arc::new(AtomicBool::new(false)), place.server.clone(), place.name.clone());
        let writing = async {
            let write = async |keys: Vec<String>| {
                for value in 0..ROUNDS {
                    for key in &keys {
                        place.upsert(&item("x", key, value)).await;
                    }
                }
            };
            let all = keys(KEYS);
            join_all(all.chunks(4).map(|keys| write(keys.to_vec()))).await;
            done.store(true, Ordering::Release);
        };
        let (stop, pages) = (Arc::clone(&done), Arc::clone(&place.pages));
        // The SDK gives up on a page that meets more than ten changes of the ranges.
        let after_a_page = move || {
            let before = pages.load(Ordering::Acquire);
            while pages.load(Ordering::Acquire) == before && !stop.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            !stop.load(Ordering::Acquire)
        };
        let changing = tokio::task::spawn_blocking(move || {
            let mut changes = 0;
            while after_a_page() {
                // The two halves on both sides of the border become one range and, cut at the border, two again.
                let ranges: Vec<String> = server.ranges(&name).into_iter().map(|range| range.id).collect();
                let (left, right) = (server.split(&name, &ranges[0]), server.split(&name, &ranges[1]));
                after_a_page();
                let middle = server.merge(&name, &left[1].id, &right[0].id);
                let first = server.merge(&name, &left[0].id, &middle[0].id);
                after_a_page();
                let all = server.merge(&name, &first[0].id, &right[1].id);
                server.split(&name, &all[0].id);
                changes += 6;
            }
            changes
        });
        let reading = async {
            let (mut all_versions, mut last) = (Vec::new(), Vec::new());
            let mut latest_token = None;
            let mut full_token = first.token.clone();
            loop {
                let over = done.load(Ordering::Acquire);
                let reading = place.resume(&full_token, full(4)).await;
                all_versions.extend(reading.changes);
                full_token = reading.token;
                let reading = match &latest_token {
                    None => place.drain(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, latest(4)).await,
                    Some(token) => place.resume(token, latest(4)).await,
                };
                last.extend(reading.changes);
                latest_token = Some(reading.token);
                if over {
                    return (all_versions, last);
                }
            }
        };
        let ((), (all_versions, last)) = tokio::join!(writing, reading);
        assert!(changing.await.expect("the commands end well") >= 6, "the ranges changed under way");
        let expected = for_keys(&keys(KEYS), |_| {
            (0..ROUNDS)
                .map(|v| if v == 0 { "create x >0".to_owned() } else { format!("replace x {}>{v}", v - 1) })
                .collect()
        });
        assert_eq!(by_key(&all_versions, event), expected);
        let last = by_key(&last, |change| format!("{:02}", change.current().expect("an item").v));
        assert_eq!(last.keys().cloned().collect::<BTreeSet<_>>(), keys(KEYS).into_iter().collect());
        for (key, values) in last {
            assert!(values.is_sorted_by(|a, b| a < b), "{key}: {values:?}");
            assert_eq!(values.last(), Some(&format!("{:02}", ROUNDS - 1)), "{key}");
        }
    });
}

#[test]
fn old_feed_ranges_and_one_key_keep_their_border() {
    run(async {
        let place = Place::new().await;
        let ranges = place.container.read_feed_ranges(None).await.expect("feed ranges");
        let scopes =
            [FeedScope::range(ranges[0].clone()), FeedScope::range(ranges[1].clone()), FeedScope::partition("k5")];
        let mut readings = Vec::new();
        for scope in scopes {
            readings.push((place.drain(scope.clone(), ChangeFeedStartFrom::Now, latest(5)).await, scope, Vec::new()));
        }
        for (round, change) in
            [Change::SplitAll, Change::SplitTwiceAndMergeAll, Change::SplitAll].into_iter().enumerate()
        {
            change.to(&place);
            let round = round as i64;
            write(&place, round).await;
            for (reading, scope, inside) in &mut readings {
                *reading = place.resume_in(scope.clone(), &reading.token, latest(5)).await;
                let came = by_key(&reading.changes, version);
                if inside.is_empty() {
                    *inside = came.keys().cloned().collect::<Vec<_>>();
                }
                let expected =
                    for_keys(inside, |key| vec![format!("{key}x={round}"), format!("{key}-{round}={round}")]);
                assert_eq!(came, expected);
            }
        }
        let mut both = [readings[0].2.clone(), readings[1].2.clone()].concat();
        both.sort();
        let mut all = keys(KEYS);
        all.sort();
        assert_eq!(both, all);
        assert_eq!(readings[2].2, ["k5"]);
    });
}
