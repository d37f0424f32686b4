//! A process that writes is killed at random moments, again and again, on one folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use changefeed_core::{
    Batch, Clock, Container, ETag, ItemId, PartitionKey, PartitionKeyDefinition, SystemClock, TimeToLive, Timestamp,
    Write,
};
use changefeed_embedded::{Durability, Engine};
use changefeed_testkit::clock::TestClock;
use serde_json::json;

use crate::{
    crash::{
        judge::{self, DATABASE},
        ledger::{Picture, Ranges},
        rng::Rng,
    },
    process::{Process, folder, orders, say},
};

/// How often the writer is killed.
const CYCLES: u64 = 120;

/// The writers in each process; each has a partition key, and all items under it, to itself.
const WRITERS: u64 = 4;

/// Items of each writer in each container.
const IDS: u64 = 6;

/// Small, so that segments end and are compacted all the time.
const SEGMENT_BYTES: u64 = 256 * 1024;

/// Name and retention in milliseconds: newest versions only; all versions; all versions, but purged all the time.
const CONTAINERS: [(&str, Option<u64>); 3] = [("plain", None), ("versioned", Some(3_600_000)), ("brief", Some(200))];
const VERSIONED: &str = "versioned";

async fn open(folder: &str, mode: &str, clock: Arc<dyn Clock>) -> (Engine, BTreeMap<&'static str, Container>) {
    let durability = if mode == "relaxed" { Durability::Relaxed } else { Durability::Durable };
    let builder = Engine::builder().durability(durability).clock(clock).segment_bytes(SEGMENT_BYTES);
    let engine = builder.open(folder).unwrap();
    let mut containers = BTreeMap::new();
    for (name, retention) in CONTAINERS {
        let mut builder = engine.database(DATABASE).container(name).partition_key("/key");
        builder = match retention {
            Some(millis) => builder.all_versions(Duration::from_millis(millis)),
            None => builder.time_to_live(TimeToLive::ItemsOnly),
        };
        containers.insert(name, builder.open_or_create().await.unwrap());
    }
    (engine, containers)
}

/// The process that is killed. Does nothing as a test.
///
/// It says `try W C ID=NUMBER…` before each write of writer W to container C (`ID=-`: delete) and `ack W LSN MILLIS`
/// after it; `cut C` before a split or merge and `ranges C ID…` after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer() {
    let Some([folder, mode, cycle]) = orders() else { return };
    let (engine, containers) = open(&folder, &mode, Arc::new(SystemClock)).await;
    let cycle: u64 = cycle.parse().unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..WRITERS {
        let (engine, containers) = (engine.clone(), containers.clone());
        writers.spawn(async move { Writer::new(number, cycle, containers).await.run(&engine).await });
    }
    writers.join_all().await;
}

/// The partition key of a writer.
fn partition_key(writer: impl std::fmt::Display) -> String {
    format!("writer {writer}")
}

/// One of the writers of a process.
struct Writer {
    number: u64,
    rng: Rng,
    next: u64,
    containers: BTreeMap<&'static str, Container>,
    /// The items that are there, with their etags, by container and id.
    there: BTreeMap<(&'static str, String), ETag>,
}

impl Writer {
    async fn new(number: u64, cycle: u64, containers: BTreeMap<&'static str, Container>) -> Self {
        let mut there = BTreeMap::new();
        for (name, container) in &containers {
            for item in container.list(&format!("{number}-")).await.unwrap() {
                there.insert((*name, item.id.to_string()), item.etag);
            }
        }
        Self { number, rng: Rng::new(cycle * WRITERS + number), next: cycle * 1_000_000, containers, there }
    }

    async fn run(mut self, engine: &Engine) {
        for round in 1.. {
            if self.number == 0 && round % 20 == 0 {
                self.cut(engine).await;
            }
            if self.number == 1 && round % 50 == 0 {
                engine.settle().await.unwrap();
            }
            self.write().await;
        }
    }

    /// Splits or merges.
    async fn cut(&mut self, engine: &Engine) {
        let (name, _) = CONTAINERS[self.rng.below(3) as usize];
        let ranges = self.containers[name].feed_ranges().await.unwrap();
        let at = self.rng.below(ranges.len() as u64) as usize;
        say(format!("cut {name}"));
        if ranges.len() < 5 {
            engine.catalog().split(DATABASE, name, &ranges[at].id, None).await.unwrap();
        } else {
            let at = at.min(ranges.len() - 2);
            engine.catalog().merge(DATABASE, name, [&ranges[at].id, &ranges[at + 1].id]).await.unwrap();
        }
        let ranges = self.containers[name].feed_ranges().await.unwrap();
        let ids: Vec<String> = ranges.iter().map(|range| range.id.to_string()).collect();
        say(format!("ranges {name} {}", ids.join(" ")));
    }

    async fn write(&mut self) {
        let (name, _) = CONTAINERS[self.rng.below(3) as usize];
        let expiring = name == "plain" && self.rng.percent(20);
        let count = if expiring || self.rng.percent(70) { 1 } else { 2 + self.rng.below(3) };
        let mut tried: BTreeMap<String, Option<u64>> = BTreeMap::new();
        let mut writes = Vec::new();
        for _ in 0..count {
            let kind = if expiring { "brief" } else { "long" };
            let id = format!("{}-{kind}-{}", self.number, self.rng.below(IDS));
            if tried.contains_key(&id) {
                continue;
            }
            let (number, write) = self.choose(name, &id, expiring);
            tried.insert(id, number);
            writes.push(write);
        }
        let shown = |(id, number): (&String, &Option<u64>)| match number {
            Some(number) => format!(" {id}={number}"),
            None => format!(" {id}=-"),
        };
        say(format!("try {} {name}{}", self.number, tried.iter().map(shown).collect::<String>()));
        let partition_key = Some(PartitionKey::from(partition_key(self.number)));
        let batch = Batch { partition_key, writes, return_items: false };
        let written = self.containers[name].backend().write(batch).await.unwrap().into_value();
        let (lsn, timestamp) = (written[0].lsn, written[0].timestamp.as_millis());
        say(format!("ack {} {lsn} {}", self.number, if expiring { timestamp + 1000 } else { u64::MAX }));
        for one in written.into_iter().filter(|_| !expiring) {
            let slot = (name, one.id.to_string());
            match one.etag {
                Some(etag) => drop(self.there.insert(slot, etag)),
                None => drop(self.there.remove(&slot)),
            }
        }
    }

    fn choose(&mut self, name: &'static str, id: &str, expiring: bool) -> (Option<u64>, Write) {
        let etag = self.there.get(&(name, id.to_owned())).cloned().filter(|_| !expiring);
        let if_match = etag.clone().filter(|_| self.rng.percent(50));
        if etag.is_some() && self.rng.percent(30) {
            return (None, Write::Delete { id: ItemId::new(id).unwrap(), if_match });
        }
        self.next += 1;
        let number = self.next;
        let filler = "x".repeat(self.rng.below(if name == VERSIONED { 500 } else { 6000 }) as usize);
        let ttl = expiring.then_some(1);
        let mut body = json!({"id": id, "key": partition_key(self.number), "number": number, "filler": filler});
        if let Some(ttl) = ttl {
            body["ttl"] = json!(ttl);
        }
        let body = Bytes::from(body.to_string());
        let write = match etag {
            Some(_) if self.rng.percent(50) => Write::Replace { body, if_match },
            None if !expiring && self.rng.percent(50) => Write::Create { body },
            _ => Write::Upsert { body, if_match },
        };
        (Some(number), write)
    }
}

/// One write as the parent heard of it.
#[derive(Clone, Debug)]
struct Tried {
    container: String,
    effects: Vec<(String, Option<u64>)>,
    /// LSN, and when it expires.
    acked: Option<(u64, u64)>,
}

/// What an item may be.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    number: Option<u64>,
    lsn: Option<u64>,
    expires: u64,
}

type Slot = (String, String);

/// What the parent knows: the store as it was when last looked at, and everything said since.
#[derive(Debug, Default)]
struct Witness {
    known: BTreeMap<Slot, Candidate>,
    tried: Vec<Tried>,
    /// Each writer's last write in its process, if it was not acknowledged.
    in_flight: Vec<Tried>,
    ranges: BTreeMap<String, Ranges>,
    /// By container and partition key.
    lsns: BTreeSet<(String, String, u64)>,
    newest: BTreeMap<String, judge::Ends>,
    acknowledged: usize,
}

impl Witness {
    /// Takes in what one process said before it was killed.
    fn listen(&mut self, lines: &[String]) {
        let mut open: BTreeMap<&str, usize> = BTreeMap::new();
        let keys = PartitionKeyDefinition::hash("/key").unwrap();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["try", writer, container, effects @ ..] => {
                    let effects = effects.iter().map(|effect| effect.split_once('=').unwrap());
                    let effects = effects.map(|(id, number)| (id.to_owned(), number.parse().ok())).collect();
                    open.insert(writer, self.tried.len());
                    self.tried.push(Tried { container: (*container).to_owned(), effects, acked: None });
                }
                ["ack", writer, lsn, expires] => {
                    let tried = &mut self.tried[open.remove(writer).unwrap()];
                    let lsn = lsn.parse().unwrap();
                    tried.acked = Some((lsn, expires.parse().unwrap()));
                    self.acknowledged += 1;
                    let (name, key) = (tried.container.clone(), partition_key(writer));
                    let newest = self.newest.get(&name).map_or(0, |ends| judge::end_of(&keys, ends, &key));
                    assert!(newest < lsn, "{tried:?} is not after {newest}, which was seen before its process began");
                    assert!(self.lsns.insert((name, key, lsn)), "lsn {lsn} was given twice: {tried:?}");
                }
                ["cut", container] => drop(self.ranges.insert((*container).to_owned(), Ranges::Unknown)),
                ["ranges", container, ids @ ..] => {
                    let ids = ids.iter().map(|id| (*id).to_owned()).collect();
                    self.ranges.insert((*container).to_owned(), Ranges::Are(ids));
                }
                _ => assert!(!line.contains("panicked"), "the writer failed: {lines:#?}"),
            }
        }
        self.in_flight = open.into_values().map(|at| self.tried[at].clone()).collect();
    }

    /// What each item may be: its last acknowledged version, or a later one that was not acknowledged.
    fn candidates(&self) -> BTreeMap<Slot, Vec<Candidate>> {
        let mut all: BTreeMap<Slot, Vec<Candidate>> =
            self.known.iter().map(|(slot, known)| (slot.clone(), vec![*known])).collect();
        for tried in &self.tried {
            for (id, number) in &tried.effects {
                let nothing = Candidate { number: None, lsn: None, expires: u64::MAX };
                let slot = (tried.container.clone(), id.clone());
                let list = all.entry(slot).or_insert_with(|| vec![nothing]);
                match tried.acked {
                    Some((lsn, expires)) => *list = vec![Candidate { number: *number, lsn: Some(lsn), expires }],
                    None => list.push(Candidate { number: *number, lsn: None, expires: 0 }),
                }
            }
        }
        all
    }

    /// Compares the store with what was said, and remembers it.
    async fn look(&mut self, engine: &Engine, containers: &BTreeMap<&'static str, Container>, now: Timestamp) {
        let found = judge::look(engine).await;
        self.check_items(&found, now.as_millis());
        self.check_batches(&found);
        for (name, ranges) in &found.ranges {
            let expected = self.ranges.insert(name.clone(), ranges.clone());
            let is_fine = matches!(&expected, None | Some(Ranges::Unknown)) || expected.as_ref() == Some(ranges);
            assert!(is_fine, "{name} has {ranges:?}, expected {expected:?}");
        }
        if let Some(since) = self.newest.get(VERSIONED) {
            let versions = judge::versions(&containers[VERSIONED], since).await;
            self.check_versions(versions);
        }
        self.remember(&found);
        for (name, container) in containers {
            let ends = judge::ends(container).await;
            let keys = &container.identity().partition_key;
            for key in (0..WRITERS).map(partition_key) {
                let newest = judge::end_of(keys, &ends, &key);
                let seen = self.newest.get(*name).map_or(0, |seen| judge::end_of(keys, seen, &key));
                let slots = ((*name).to_owned(), key.clone(), 0)..=((*name).to_owned(), key.clone(), u64::MAX);
                let seen = seen.max(self.lsns.range(slots).next_back().map_or(0, |(.., lsn)| *lsn));
                assert!(seen <= newest, "the newest lsn of {key} in {name} went back from {seen} to {newest}");
            }
            self.newest.insert((*name).to_owned(), ends);
        }
    }

    fn check_items(&self, found: &Picture, now: u64) {
        let candidates = self.candidates();
        for (slot, list) in &candidates {
            let fits = |candidate: &Candidate| match found.items.get(slot) {
                Some(held) => {
                    candidate.number == Some(held.number) && (candidate.lsn.is_none() || candidate.lsn == held.lsn)
                }
                None => candidate.number.is_none() || candidate.expires <= now && slot.1.contains("-brief-"),
            };
            assert!(list.iter().any(fits), "{slot:?} is {:?}, expected one of {list:?}", found.items.get(slot));
        }
        let stranger = found.items.keys().find(|slot| !candidates.contains_key(*slot));
        assert_eq!(stranger, None, "nobody wrote it");
    }

    /// The last batch of each writer is there as a whole or not at all.
    fn check_batches(&self, found: &Picture) {
        for tried in self.in_flight.iter().filter(|tried| tried.effects.len() > 1) {
            let landed = |(id, number): &(String, Option<u64>)| {
                let held = found.items.get(&(tried.container.clone(), id.clone()));
                held.map(|held| held.number) == *number
            };
            let count = tried.effects.iter().filter(|effect| landed(effect)).count();
            assert!(count == 0 || count == tried.effects.len(), "{count} writes of {tried:?} landed");
        }
    }

    /// Every acknowledged version since the last look is in the feed once and in order, and each names the one before.
    fn check_versions(&self, versions: Vec<judge::Version>) {
        let mut feeds: BTreeMap<String, Vec<(u64, Option<u64>)>> = BTreeMap::new();
        let known = |id: &str| self.known.get(&(VERSIONED.to_owned(), id.to_owned())).and_then(|known| known.number);
        for (lsn, id, previous, current) in versions {
            let feed = feeds.entry(id.clone()).or_default();
            let before = feed.last().map_or_else(|| known(&id), |(_, number)| *number);
            assert_eq!(previous, before, "the version before lsn {lsn} of {id} is missing");
            feed.push((lsn, current));
        }
        let is_acked = |id: &str, lsn: u64| {
            let writer = id.split('-').next().unwrap_or_default();
            self.lsns.contains(&(VERSIONED.to_owned(), partition_key(writer), lsn))
        };
        for tried in self.tried.iter().filter(|tried| tried.container == VERSIONED) {
            for (id, number) in &tried.effects {
                let feed = feeds.entry(id.clone()).or_default();
                match (tried.acked, feed.first()) {
                    (Some((lsn, _)), first) => assert_eq!(first, Some(&(lsn, *number)), "{id}: {tried:?}, {feed:?}"),
                    (None, Some((lsn, shown))) if shown == number && !is_acked(id, *lsn) => {}
                    (None, _) => continue,
                }
                feed.remove(0);
            }
        }
        for (id, feed) in feeds {
            assert!(feed.is_empty(), "{id} has versions that nobody wrote: {feed:?}");
        }
    }

    fn remember(&mut self, found: &Picture) {
        let candidates = self.candidates();
        self.known.clear();
        for (slot, list) in candidates {
            let held = found.items.get(&slot);
            let number = held.map(|held| held.number);
            let expires =
                list.iter().filter(|one| one.number == number).map(|one| one.expires).max().unwrap_or(u64::MAX);
            let lsn = held.and_then(|held| held.lsn);
            self.known.insert(slot, Candidate { number, lsn, expires });
        }
        self.tried.clear();
        self.in_flight.clear();
    }
}

/// Starts a writer, kills it after a while, and returns what it said.
fn live_and_die(folder: &str, mode: &str, cycle: u64, life: Duration) -> Vec<String> {
    Process::start("writes::writer", [folder, mode, &cycle.to_string()]).kill_after(life)
}

/// Whether compaction has made one segment of several.
fn has_merged_segment(folder: &Path) -> bool {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.into_iter().any(|name| name.ends_with(".log") && name[..8] != name[9..17])
}

#[tokio::test]
async fn nothing_that_was_acknowledged_is_lost_when_the_writer_is_killed_again_and_again() {
    let folder = folder("writes");
    let path = folder.to_str().unwrap();
    let mut rng = Rng::new(1);
    let mut witness = Witness::default();
    let (mut looks, mut merged) = (0, 0);
    for cycle in 1..=CYCLES {
        let mode = if rng.percent(50) { "durable" } else { "relaxed" };
        // Often during recovery, which takes a few milliseconds.
        let millis = if rng.percent(30) { rng.below(60) } else { 60 + rng.below(300) };
        eprintln!("cycle {cycle}: {mode}, killed after {millis} ms, {} acknowledged so far", witness.acknowledged);
        witness.listen(&live_and_die(path, mode, cycle, Duration::from_millis(millis)));
        if rng.percent(40) && cycle < CYCLES {
            // The next process finds what this one left, without anybody having closed the store in between.
            continue;
        }
        looks += 1;
        merged += usize::from(has_merged_segment(&folder));
        let mode = if rng.percent(50) { "durable" } else { "relaxed" };
        // Stands still, so that nothing expires between two looks at it.
        let clock = TestClock::at(SystemClock.wall());
        let (engine, containers) = open(path, mode, Arc::new(clock.clone())).await;
        witness.look(&engine, &containers, clock.now()).await;
        if rng.percent(40) || cycle == CYCLES {
            engine.expire().await.unwrap();
            engine.settle().await.unwrap();
            witness.look(&engine, &containers, clock.now()).await;
            drop((engine, containers));
            let (engine, containers) = open(path, "durable", Arc::new(clock.clone())).await;
            witness.look(&engine, &containers, clock.now()).await;
            engine.close().await.unwrap();
            drop(containers);
        }
    }
    eprintln!("{CYCLES} kills, {looks} looks, {merged} after compaction, {} writes", witness.acknowledged);
    assert!(merged > 10, "compaction hardly ever merged segments: {merged}");
    assert!(witness.acknowledged > 1000, "the writers hardly came to write: {}", witness.acknowledged);
    std::fs::remove_dir_all(&folder).unwrap();
}
