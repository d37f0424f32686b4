//! A process that changes a long container is killed in the middle: of another time to live or retention, which the index
//! follows in slices, and of a split or merge, which is copied in slices.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use changefeed_core::{
    Batch, Change, Clock, Container, ContainerSpec, Continuation, DatabaseSpec, ErrorKind, FeedRange, Mode, Operation,
    PartitionKey, PartitionKeyDefinition, ReadChanges, StartFrom, SystemClock, TimeToLive, Write, check_tiling,
};
use changefeed_embedded::{Durability, Engine};
use changefeed_testkit::clock::TestClock;
use serde_json::{Value, json};

use crate::process::{Process, folder, orders, say};

/// Several times what is looked at under the lock at once.
const KEYS: u64 = 130;
const ITEMS_PER_KEY: u64 = 100;

/// Of so many keys one was written a moment ago, the others two hours ago.
const FRESH: u64 = 10;

/// Keys that are written during the change.
const BUSY_KEYS: u64 = 20;

/// How often each change is killed before it ends.
const KILLS: u32 = 4;

/// No change counts as shorter: its process may have been ahead of what was heard of it.
const SHORT: Duration = Duration::from_millis(5);

const HOUR: Duration = Duration::from_secs(3600);

/// Shorter and longer than the age of the old items.
const ONE: TimeToLive = TimeToLive::Seconds(3600);
const THREE: TimeToLive = TimeToLive::Seconds(3 * 3600);

/// The settings that are changed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Settings {
    time_to_live: TimeToLive,
    retention: Option<Duration>,
}

impl Settings {
    const fn new(time_to_live: TimeToLive, retention: Option<Duration>) -> Self {
        Self { time_to_live, retention }
    }

    fn spec(self) -> ContainerSpec {
        let partition_key = PartitionKeyDefinition::hash("/pk").unwrap();
        let Self { time_to_live, retention: all_versions_retention } = self;
        ContainerSpec { time_to_live, all_versions_retention, ..ContainerSpec::new("c", partition_key) }
    }

    async fn of(engine: &Engine) -> Self {
        let spec = engine.catalog().list_containers("d").await.unwrap().remove(0).spec;
        Self { time_to_live: spec.time_to_live, retention: spec.all_versions_retention }
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Set(Settings),
    Split,
    Merge,
}

const VERSIONED: Settings = Settings::new(TimeToLive::Off, Some(Duration::from_secs(10 * 3600)));
const EXPIRING: Settings = Settings::new(THREE, None);

/// What a container is before, and what is done to it. Those with a merge have two ranges.
const CHANGES: [(Settings, Act); 8] = [
    (VERSIONED, Act::Set(Settings { time_to_live: ONE, ..VERSIONED })),
    (VERSIONED, Act::Set(Settings { time_to_live: TimeToLive::ItemsOnly, retention: None })),
    (VERSIONED, Act::Set(Settings { retention: Some(HOUR), ..VERSIONED })),
    (VERSIONED, Act::Split),
    (EXPIRING, Act::Set(Settings { time_to_live: ONE, ..EXPIRING })),
    (EXPIRING, Act::Set(Settings { time_to_live: TimeToLive::Off, ..EXPIRING })),
    (EXPIRING, Act::Set(Settings { retention: Some(HOUR), time_to_live: ONE })),
    (EXPIRING, Act::Merge),
];

/// An item: partition key and id.
type Slot = (String, String);

/// The `ttl` of an item: most have none, some one that is over after an hour, some one that is not.
fn own_ttl(id: u64) -> Option<u32> {
    match id % 10 {
        1 => Some(100_000),
        2 => Some(3600),
        _ => None,
    }
}

fn is_fresh(key: u64) -> bool {
    key.is_multiple_of(FRESH)
}

/// Whether an item has expired.
fn is_over(settings: Settings, key: u64, id: u64) -> bool {
    let ttl = match settings.time_to_live {
        TimeToLive::Off => None,
        TimeToLive::ItemsOnly => own_ttl(id),
        TimeToLive::Seconds(seconds) => own_ttl(id).or(Some(seconds)),
    };
    !is_fresh(key) && ttl.is_some_and(|ttl| ttl <= 2 * 3600)
}

fn slots() -> impl Iterator<Item = (u64, u64)> {
    (0..KEYS).flat_map(|key| (0..ITEMS_PER_KEY).map(move |id| (key, id)))
}

fn slot(key: u64, id: u64) -> Slot {
    (format!("k{key}"), id.to_string())
}

/// Writes all items of some keys.
async fn fill(container: &Container, keys: impl Iterator<Item = u64>, number: u64) {
    for key in keys {
        let body = |id: u64| {
            let mut body = json!({"id": id.to_string(), "pk": format!("k{key}"), "number": number});
            if let Some(ttl) = own_ttl(id) {
                body["ttl"] = json!(ttl);
            }
            Bytes::from(body.to_string())
        };
        let writes = (0..ITEMS_PER_KEY).map(|id| Write::Upsert { body: body(id), if_match: None }).collect();
        let partition_key = Some(PartitionKey::from(format!("k{key}")));
        container.backend().write(Batch { partition_key, writes, return_items: false }).await.unwrap();
    }
}

fn open(folder: &Path, durability: Durability, clock: Arc<dyn Clock>) -> Engine {
    Engine::builder().durability(durability).clock(clock).segment_bytes(1024 * 1024).open(folder).unwrap()
}

/// A store with one long container, to be copied. Returns the ids of its ranges.
async fn prepare(folder: &Path, settings: Settings, act: Act) -> BTreeSet<String> {
    let now = SystemClock.wall();
    let clock = TestClock::at(now);
    clock.set(changefeed_core::Timestamp::from_millis(now.as_millis() - 2 * 3_600_000));
    let engine = open(folder, Durability::Relaxed, Arc::new(clock.clone()));
    let catalog = engine.catalog();
    catalog.create_database(DatabaseSpec::new("d")).await.unwrap();
    catalog.create_container("d", settings.spec()).await.unwrap();
    let container = catalog.container("d", "c").await.unwrap();
    fill(&container, 0..KEYS, 1).await;
    clock.set(now);
    fill(&container, (0..KEYS).filter(|key| is_fresh(*key)), 2).await;
    let ranges = container.feed_ranges().await.unwrap();
    if matches!(act, Act::Merge) && ranges.len() == 1 {
        catalog.split("d", "c", &ranges[0].id, None).await.unwrap();
    }
    let ids = range_ids(&container).await;
    drop((container, catalog));
    engine.close().await.unwrap();
    ids
}

async fn range_ids(container: &Container) -> BTreeSet<String> {
    container.feed_ranges().await.unwrap().iter().map(|range| range.id.to_string()).collect()
}

fn copy(from: &Path, to: &Path) {
    drop(std::fs::remove_dir_all(to));
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// The process that is killed. Does nothing as a test.
///
/// It says `open`, then `begin` before the change, `done` after it and `followed` when the index has followed it. Meanwhile
/// it writes, and says `try KEY NUMBER` before and `ack KEY NUMBER` after each write. Without a change it only opens the
/// store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changer() {
    let Some([folder, change]) = orders() else { return };
    let engine = open(Path::new(&folder), Durability::Durable, Arc::new(SystemClock));
    let catalog = engine.catalog();
    let container = catalog.container("d", "c").await.unwrap();
    say("open");
    if let Ok(change) = change.parse::<usize>() {
        tokio::join!(write(&container), perform(&engine, &container, CHANGES[change].1));
    }
    std::future::pending().await
}

async fn perform(engine: &Engine, container: &Container, act: Act) {
    let catalog = engine.catalog();
    let ranges = container.feed_ranges().await.unwrap();
    say("begin");
    match act {
        Act::Set(settings) => drop(catalog.replace_container("d", settings.spec()).await.unwrap()),
        Act::Split => drop(catalog.split("d", "c", &ranges[0].id, None).await.unwrap()),
        Act::Merge => drop(catalog.merge("d", "c", [&ranges[0].id, &ranges[1].id]).await.unwrap()),
    }
    say("done");
    engine.expire().await.unwrap();
    say("followed");
}

async fn write(container: &Container) {
    for number in 1.. {
        let key = number % BUSY_KEYS;
        say(format_args!("try {key} {number}"));
        container.upsert(&json!({"id": "x", "pk": format!("busy{key}"), "number": number})).await.unwrap();
        say(format_args!("ack {key} {number}"));
    }
}

/// What one killed process leaves us to expect.
struct Expected {
    before: Settings,
    act: Act,
    ranges_before: BTreeSet<String>,
    /// The change was acknowledged.
    done: bool,
    /// By key: the last number that was acknowledged, and the last that was tried.
    busy: BTreeMap<String, (u64, u64)>,
}

impl Expected {
    fn listen(&mut self, lines: &[String]) {
        assert!(!lines.iter().any(|line| line.contains("panicked")), "the process failed: {lines:#?}");
        for line in lines {
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["done"] => self.done = true,
                ["try", key, number] => self.busy.entry(format!("busy{key}")).or_default().1 = number.parse().unwrap(),
                ["ack", key, number] => self.busy.entry(format!("busy{key}")).or_default().0 = number.parse().unwrap(),
                _ => {}
            }
        }
    }

    /// Compares a store with what is expected. `followed`: nothing is left to be done.
    async fn check(&self, engine: &Engine, followed: bool) {
        let settings = Settings::of(engine).await;
        match self.act {
            Act::Set(after) if self.done => assert_eq!(settings, after, "the change was acknowledged"),
            Act::Set(after) => assert!(settings == self.before || settings == after, "{settings:?}"),
            _ => assert_eq!(settings, self.before),
        }
        let container = engine.catalog().container("d", "c").await.unwrap();
        self.check_ranges(&container).await;
        let items = self.check_items(&container, settings).await;
        check_latest(&container, &items, followed).await;
        if followed {
            check_versions(&container, settings, &items).await;
        }
        engine.verify().unwrap();
    }

    async fn check_ranges(&self, container: &Container) {
        check_tiling(&container.feed_ranges().await.unwrap()).unwrap();
        let ids = range_ids(container).await;
        let (count, is_same) = (ids.len(), ids == self.ranges_before);
        let expected = match self.act {
            Act::Set(_) => self.ranges_before.len(),
            Act::Split => 2,
            Act::Merge => 1,
        };
        let is_changed = count == expected && (matches!(self.act, Act::Set(_)) || ids.is_disjoint(&self.ranges_before));
        assert!(is_changed || is_same && !self.done, "{ids:?} after {:?}, done: {}", self.ranges_before, self.done);
    }

    /// Every item that has not expired is there, and no other.
    async fn check_items(&self, container: &Container, settings: Settings) -> BTreeMap<Slot, u64> {
        let listed = container.list("").await.unwrap();
        let count = listed.len();
        let items: BTreeMap<Slot, u64> = listed.iter().map(|item| parsed(&item.body)).collect();
        assert_eq!(items.len(), count, "an item was listed twice");
        let mut left = items.clone();
        for (key, id) in slots() {
            let expected = (!is_over(settings, key, id)).then_some(if is_fresh(key) { 2 } else { 1 });
            let found = left.remove(&slot(key, id));
            // It may have been deleted before the change.
            let is_old = found.is_none() && is_over(self.before, key, id);
            assert!(is_old || found == expected, "item {id} of k{key} is {found:?} with {settings:?}");
        }
        for (key, (acked, tried)) in &self.busy {
            let number = left.remove(&(key.clone(), "x".to_owned())).unwrap_or_default();
            assert!((*acked..=*tried).contains(&number), "{key} is {number}, expected {acked} to {tried}");
        }
        assert!(left.is_empty(), "nobody wrote {left:?}");
        for (key, id) in slots().step_by(701) {
            let slot = slot(key, id);
            match container.read::<Value>(slot.0.as_str(), &slot.1).await {
                Ok(_) => assert!(items.contains_key(&slot), "{slot:?} is not listed"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ItemNotFound, "{error:?}");
                    assert!(!items.contains_key(&slot), "{slot:?} is listed");
                }
            }
        }
        items
    }
}

/// Slot and number of an item.
fn parsed(body: &[u8]) -> (Slot, u64) {
    let body: Value = serde_json::from_slice(body).unwrap();
    let text = |name: &str| body[name].as_str().unwrap().to_owned();
    ((text("pk"), text("id")), body["number"].as_u64().unwrap())
}

/// All changes of a range, and what was said to remain after the first page.
async fn changes(container: &Container, range: &FeedRange, start: StartFrom, mode: Mode) -> (Vec<Change>, Option<u64>) {
    let (mut all, mut start, mut remaining) = (Vec::new(), start, None);
    loop {
        let page = container.read_changes(ReadChanges::new(range.clone(), start).mode(mode).count_remaining()).await;
        let page = page.unwrap().into_value();
        if all.is_empty() {
            remaining = page.remaining.map(|remaining| remaining + page.changes.len() as u64);
        }
        if page.changes.is_empty() {
            return (all, remaining);
        }
        all.extend(page.changes);
        start = page.continuation.into();
    }
}

/// The feed of latest versions has exactly the items, in the order of their LSNs.
async fn check_latest(container: &Container, items: &BTreeMap<Slot, u64>, followed: bool) {
    let mut seen = BTreeMap::new();
    for physical in container.feed_ranges().await.unwrap() {
        let (feed, remaining) = changes(container, &physical.range, StartFrom::Beginning, Mode::LatestVersion).await;
        assert!(feed.is_sorted_by_key(|change| change.lsn));
        assert!(remaining.map_or(!followed, |counted| counted == feed.len() as u64), "{remaining:?}: {}", feed.len());
        for change in feed {
            let (slot, number) = parsed(change.current.as_deref().unwrap());
            assert!(seen.insert(slot, number).is_none(), "{change:?} came twice");
        }
    }
    assert!(seen == *items, "the feed has {} items, expected {}", seen.len(), items.len());
}

/// What the history says of each item, in order, leads to the item as it is, and nothing is missing between.
async fn check_versions(container: &Container, settings: Settings, items: &BTreeMap<Slot, u64>) {
    let start = || StartFrom::from(Continuation::from_token("\"0\""));
    let Some(retention) = settings.retention else {
        let request = ReadChanges::new(FeedRange::full(), StartFrom::Now).mode(Mode::AllVersions);
        let is_refused = container
            .read_changes(request)
            .await
            .is_err_and(|error| matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::RangeGone));
        assert!(is_refused, "there is no history");
        return;
    };
    let mut states: BTreeMap<Slot, u64> = BTreeMap::new();
    for physical in container.feed_ranges().await.unwrap() {
        if retention == HOUR {
            let request = ReadChanges::new(physical.range.clone(), start()).mode(Mode::AllVersions);
            let error = container.read_changes(request).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ContinuationExpired, "{error:?}");
            continue;
        }
        for change in changes(container, &physical.range, start(), Mode::AllVersions).await.0 {
            let body = change.current.as_deref().or(change.previous.as_deref()).unwrap();
            let (slot, number) = parsed(body);
            let before = change.previous.as_deref().map(|body| parsed(body).1);
            assert_eq!(states.remove(&slot), before, "{change:?} does not follow");
            if !matches!(change.operation, Operation::Expire | Operation::Delete) {
                states.insert(slot, number);
            }
        }
    }
    assert!(retention == HOUR || states == *items, "history leads to {} items of {}", states.len(), items.len());
}

/// Kills the changes of containers that begin with `before`.
async fn kill_changes(before: Settings, name: &str) {
    let (template, work) = (folder(&format!("{name}-template")), folder(name));
    let path = work.to_str().unwrap();
    let (mut kills, mut halfway, mut unfinished) = (0, 0, 0);
    for (number, (_, act)) in CHANGES.iter().enumerate().filter(|(_, (settings, _))| *settings == before) {
        drop(std::fs::remove_dir_all(&template));
        let ranges_before = prepare(&template, before, *act).await;
        let mut length = Duration::ZERO;
        for kill in 0..=KILLS {
            copy(&template, &work);
            let mut process = Process::start("changes::changer", [path, &number.to_string()]);
            process.hear("begin");
            let life = if kill == 0 {
                // The first one tells how long it takes.
                length = process.time_until("followed").max(SHORT);
                Duration::ZERO
            } else {
                length * (kill - 1) / KILLS
            };
            let lines = process.kill_after(life);
            let busy = BTreeMap::new();
            let mut expected = Expected { before, act: *act, ranges_before: ranges_before.clone(), done: false, busy };
            expected.listen(&lines);
            let has_followed = lines.iter().any(|line| line == "followed");
            eprintln!(
                "{act:?}: killed after {life:?} of {length:?}, done: {}, followed: {has_followed}",
                expected.done
            );
            kills += 1;
            unfinished += u32::from(!expected.done);
            halfway += u32::from(!has_followed);
            if kill % 2 == 1 {
                // The next process is killed while it continues.
                let mut process = Process::start("changes::changer", [path, "-"]);
                process.hear("open");
                expected.listen(&process.kill_after(length / 4));
            }
            look(&work, &expected, kill == KILLS).await;
        }
    }
    eprintln!(
        "{kills} kills, {halfway} before the index had followed, {unfinished} before the change was acknowledged"
    );
    assert!(halfway >= kills / 4, "{halfway} of {kills} kills came in time");
    for folder in [template, work] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// Checks a store as its process left it, after everything that is due was done, and at the end opened once more.
async fn look(work: &Path, expected: &Expected, again: bool) {
    // Stands still, so that nothing expires between two looks at it.
    let clock = Arc::new(TestClock::at(SystemClock.wall()));
    let engine = open(work, Durability::Durable, clock.clone());
    expected.check(&engine, false).await;
    engine.expire().await.unwrap();
    engine.settle().await.unwrap();
    expected.check(&engine, true).await;
    engine.close().await.unwrap();
    if again {
        let engine = open(work, Durability::Durable, clock);
        expected.check(&engine, true).await;
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_change_of_a_container_with_history_is_done_or_not_if_its_process_is_killed() {
    kill_changes(VERSIONED, "versioned").await;
}

#[tokio::test]
async fn a_change_of_a_container_with_a_time_to_live_is_done_or_not_if_its_process_is_killed() {
    kill_changes(EXPIRING, "expiring").await;
}
