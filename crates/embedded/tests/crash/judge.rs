//! Compares what a store shows with what its writer was told.

use std::collections::{BTreeMap, VecDeque};

use changefeed_core::{
    Change, Container, Continuation, FeedRange, ListItems, Mode, Operation, PartitionKeyDefinition, ReadChanges,
    StartFrom, Timestamp, check_tiling,
};
use changefeed_embedded::Engine;

use super::{
    ledger::{Held, Ledger, Picture, Ranges},
    script,
};

pub const DATABASE: &str = "shop";

/// A change of all-versions mode: LSN, id, number before, number after.
pub type Version = (u64, String, Option<u64>, Option<u64>);

/// How far each part of the key space had come.
pub type Ends = Vec<(FeedRange, u64)>;

/// Everything that point reads and listings show. Checks on the way that ranges tile the key space and that the feed
/// of latest versions holds exactly the items, in LSN order.
pub async fn look(engine: &Engine) -> Picture {
    let mut picture = Picture::default();
    let Ok(containers) = engine.catalog().list_containers(DATABASE).await else { return picture };
    for info in containers {
        let name = info.spec.name;
        let container = engine.catalog().container(DATABASE, &name).await.unwrap();
        let ranges = container.feed_ranges().await.unwrap();
        check_tiling(&ranges).unwrap();
        let ids = ranges.iter().map(|range| range.id.to_string()).collect();
        picture.ranges.insert(name.clone(), Ranges::Are(ids));
        let items = items(&container).await;
        check_latest(&container, &items).await;
        picture.items.extend(items.into_iter().map(|(id, held)| ((name.clone(), id), held)));
    }
    picture
}

/// All items of a container, by id.
pub async fn items(container: &Container) -> BTreeMap<String, Held> {
    let mut found = BTreeMap::new();
    let mut request = ListItems { max_items: 5, ..ListItems::default() };
    loop {
        let page = container.backend().list_items(request.clone()).await.unwrap().into_value();
        for item in page.items {
            let (lsn, etag) = (Some(item.lsn.get()), Some(item.etag.clone()));
            let held = Held { number: number(&item.body), lsn, expires: None, etag };
            assert!(found.insert(item.id.to_string(), held).is_none(), "{} was listed twice", item.id);
        }
        match page.next {
            Some(next) => request.after = Some(next),
            None => return found,
        }
    }
}

async fn check_latest(container: &Container, items: &BTreeMap<String, Held>) {
    let mut left = items.clone();
    for physical in container.feed_ranges().await.unwrap() {
        let mut before = 0;
        for change in changes(container, &physical.range, StartFrom::Beginning, Mode::LatestVersion).await {
            assert!(before <= change.lsn.get(), "{change:?} comes after lsn {before}");
            before = change.lsn.get();
            let held = left.remove(&*change.id).unwrap_or_else(|| panic!("{change:?} is no item, or came twice"));
            let shown = (change.current.as_deref().map(number), Some(change.lsn.get()));
            assert_eq!(shown, (Some(held.number), held.lsn), "{change:?}");
        }
    }
    assert!(left.is_empty(), "the feed left out {left:?}");
}

/// All changes of a physical range after `start`.
pub async fn changes(container: &Container, range: &FeedRange, start: StartFrom, mode: Mode) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    let mut start = start;
    loop {
        let request = ReadChanges::new(range.clone(), start).mode(mode).max_items(7);
        let page = container.read_changes(request).await.unwrap().into_value();
        if page.changes.is_empty() {
            return all;
        }
        if let (Some(last), Some(next)) = (all.last(), page.changes.first()) {
            let is_other = last.lsn < next.lsn || last.lsn == next.lsn && key(last) != key(next);
            assert!(is_other, "a page begins with {next:?} after {last:?}");
        }
        all.extend(page.changes);
        start = page.continuation.into();
    }
}

/// All versions of all items of a container since then; those of each key in order. Read as a processor does whose
/// leases are older than the ranges are.
pub async fn versions(container: &Container, since: &Ends) -> Vec<Version> {
    let mut all = Vec::new();
    let ranges = container.feed_ranges().await.unwrap();
    for (part, lsn) in since {
        for physical in ranges.iter().filter(|physical| physical.range.overlaps(part)) {
            let min = physical.range.min_inclusive().max(part.min_inclusive()).clone();
            let max = physical.range.max_exclusive().min(part.max_exclusive()).clone();
            let (range, start) = (FeedRange::new(min, max).unwrap(), Continuation::from_token(format!("\"{lsn}\"")));
            for change in changes(container, &range, start.into(), Mode::AllVersions).await {
                let before = change.previous.as_deref().map(number);
                let after = change.current.as_deref().map(number);
                let gone = matches!(change.operation, Operation::Delete | Operation::Expire);
                assert_eq!((change.operation == Operation::Create, gone), (before.is_none(), after.is_none()));
                all.push((change.lsn.get(), change.id.to_string(), before, after));
            }
        }
    }
    all
}

/// How far each range of a container has come.
pub async fn ends(container: &Container) -> Ends {
    let mut ends = Vec::new();
    for physical in container.feed_ranges().await.unwrap() {
        let request = ReadChanges::new(physical.range.clone(), StartFrom::Now);
        ends.push((physical.range, container.read_changes(request).await.unwrap().newest_lsn.get()));
    }
    ends
}

/// How far the range of a partition key had come.
pub fn end_of(definition: &PartitionKeyDefinition, ends: &Ends, key: &str) -> u64 {
    let epk = definition.epk(&key.into()).unwrap();
    ends.iter().find(|(range, _)| range.contains(&epk)).map_or(0, |(_, lsn)| *lsn)
}

/// Finds how many commits of the ledger a reopened store shows, at least `least`, and checks everything else that
/// must hold. The ledger goes on from there.
pub async fn judge(engine: &Engine, ledger: &mut Ledger, least: usize, versioned: &str, now: Timestamp) {
    let found = look(engine).await;
    let all: Vec<_> = ledger.commits.iter().chain(&ledger.in_flight).cloned().collect();
    let mut picture = Picture::default();
    let (mut verdict, mut objections) = (None, Vec::new());
    for count in 0..=all.len() {
        if count >= least {
            match picture.at(now).difference(&found) {
                None => verdict = Some(count),
                Some(objection) => objections.push(format!("not {count} of {}: {objection}", all.len())),
            }
        }
        all.get(count).into_iter().for_each(|commit| picture.apply(commit));
    }
    let Some(count) = verdict else { panic!("no prefix of the ledger is there: {objections:#?}") };
    ledger.settle(count, &found);
    let mut known: BTreeMap<&str, (Container, Ends)> = BTreeMap::new();
    for ((name, key), seen) in &ledger.seen {
        if !known.contains_key(&**name) {
            let Ok(container) = engine.catalog().container(DATABASE, name).await else { continue };
            let ends = ends(&container).await;
            known.insert(name, (container, ends));
        }
        let (container, ends) = &known[&**name];
        let newest = end_of(&container.identity().partition_key, ends, key);
        assert!(*seen <= newest, "the newest lsn of {key} in {name} went back from {seen} to {newest}");
        let part = container.identity().partition_key.key_range(&key.as_str().into()).unwrap();
        let start = Continuation::from_token(format!("\"{seen}\"")).into();
        drop(changes(container, &part, start, Mode::LatestVersion).await);
    }
    if let Ok(container) = engine.catalog().container(DATABASE, versioned).await {
        check_versions(ledger, versioned, versions(&container, &vec![(FeedRange::full(), 0)]).await);
    }
}

/// Every version of the ledger must be in the feed once, those of each key in order.
fn check_versions(ledger: &Ledger, container: &str, found: Vec<Version>) {
    let mut numbers: BTreeMap<&str, u64> = BTreeMap::new();
    let mut feeds: BTreeMap<String, VecDeque<Version>> = BTreeMap::new();
    for version in found {
        feeds.entry(script::key_of(&version.1)).or_default().push_back(version);
    }
    for commit in ledger.commits.iter().filter(|commit| commit.container == container) {
        for effect in &commit.effects {
            let before = match effect.number {
                Some(number) => numbers.insert(&effect.id, number),
                None => numbers.remove(&*effect.id),
            };
            let feed = feeds.entry(commit.key.clone()).or_default();
            let (lsn, id, previous, current) =
                feed.pop_front().unwrap_or_else(|| panic!("the feed of {} ends before {effect:?}", commit.key));
            assert_eq!((&*id, previous, current), (&*effect.id, before, effect.number), "at lsn {lsn}");
            assert_eq!(lsn, commit.lsn.unwrap_or(lsn), "{effect:?}");
        }
    }
    feeds.retain(|_, feed| !feed.is_empty());
    assert!(feeds.is_empty(), "the feed goes on after the last commit: {feeds:?}");
}

/// The partition key of a change.
fn key(change: &Change) -> String {
    let body = change.current.as_ref().or(change.previous.as_ref()).unwrap();
    let value: serde_json::Value = serde_json::from_slice(body).unwrap();
    value["key"].to_string()
}

fn number(body: &[u8]) -> u64 {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap();
    value["number"].as_u64().unwrap()
}
