//! A script of writes that does everything a store can do, chosen by a seed.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use changefeed_core::{Batch, Effect as Reach, Error, ErrorKind, ItemId, PartitionKey, Result, TimeToLive, Write};
use changefeed_embedded::{Builder, Durability, Engine};
use changefeed_testkit::clock::TestClock;
use serde_json::json;

use super::{
    judge::{self, DATABASE},
    ledger::{Commit, Effect, Ledger, Ranges},
    now,
    rng::Rng,
};

/// Newest versions only; items may have a time to live.
pub const PLAIN: &str = "plain";
/// All versions, for longer than any test.
pub const VERSIONED: &str = "versioned";
/// All versions, for a second only: history is purged and compacted all the time.
pub const BRIEF: &str = "brief";

/// How many items there are at most.
const IDS: u64 = 12;

/// How many partition keys they are spread over.
const KEYS: u64 = 4;

/// The partition key of an item.
pub fn key_of(id: &str) -> String {
    format!("k{}", id.parse::<u64>().unwrap() % KEYS)
}

/// Writes to a store, and notes what was acknowledged.
#[derive(Debug)]
pub struct Script {
    pub clock: TestClock,
    pub ledger: Ledger,
    pub durability: Durability,
    /// Bodies have up to so many bytes that mean nothing.
    pub filler: u64,
    /// Small, so that segments end and are compacted all the time.
    pub segment_bytes: u64,
    rng: Rng,
}

impl Script {
    pub fn new(seed: u64, durability: Durability) -> Self {
        Self {
            clock: TestClock::new(),
            ledger: Ledger::default(),
            durability,
            filler: 20_000,
            segment_bytes: 192 * 1024,
            rng: Rng::new(seed),
        }
    }

    /// Another future of the same past, with a clock of its own.
    pub fn fork(&self) -> Self {
        let clock = TestClock::at(self.clock.now());
        Self { clock, ledger: self.ledger.clone(), rng: self.rng.clone(), ..*self }
    }

    pub fn builder(&self) -> Builder {
        let builder = Engine::builder().durability(self.durability);
        builder.clock(Arc::new(self.clock.clone())).segment_bytes(self.segment_bytes)
    }

    /// Creates the containers, unless they are there.
    pub fn prepare(&mut self, engine: &Engine) -> Result<()> {
        for (name, retention) in [(PLAIN, None), (VERSIONED, Some(1_000_000)), (BRIEF, Some(1))] {
            if self.ledger.picture.ranges.contains_key(name) {
                continue;
            }
            let mut builder = engine.database(DATABASE).container(name).partition_key("/key").ranges(2);
            builder = match retention {
                Some(seconds) => builder.all_versions(Duration::from_secs(seconds)),
                None => builder.time_to_live(TimeToLive::ItemsOnly),
            };
            let ranges = Ranges::Are(vec!["0".to_owned(), "1".to_owned()]);
            let commit =
                Commit { container: name.to_owned(), key: String::new(), lsn: None, effects: Vec::new(), ranges };
            let created = now(builder.create()).map(drop);
            self.note(commit, created)?;
        }
        Ok(())
    }

    /// One step. An error means that the store failed.
    pub fn step(&mut self, engine: &Engine) -> Result<()> {
        match self.rng.below(100) {
            0..80 => self.step_write(engine),
            80..84 => self.split(engine),
            84..87 => self.merge(engine),
            87..92 => {
                self.clock.advance(Duration::from_millis(700));
                now(engine.expire())
            }
            _ => now(engine.settle()),
        }
    }

    /// A step that writes items.
    pub fn step_write(&mut self, engine: &Engine) -> Result<()> {
        let container = [PLAIN, PLAIN, VERSIONED, BRIEF][self.rng.below(4) as usize].to_owned();
        let picture = self.ledger.picture.at(self.clock.now());
        let key = self.rng.below(KEYS);
        let count = if self.rng.percent(30) { 2 + self.rng.below(3) } else { 1 };
        let (mut writes, mut effects) = (Vec::new(), Vec::<Effect>::new());
        for _ in 0..count {
            let id = format!("{}", self.rng.below(IDS / KEYS) * KEYS + key);
            if effects.iter().any(|effect| effect.id == id) {
                continue;
            }
            let held = picture.items.get(&(container.clone(), id.clone()));
            let if_match = held.and_then(|held| held.etag.clone()).filter(|_| self.rng.percent(50));
            if held.is_some() && self.rng.percent(30) {
                writes.push(Write::Delete { id: ItemId::new(id.as_str()).unwrap(), if_match });
                effects.push(Effect { id, number: None, expires: None, etag: None });
                continue;
            }
            self.ledger.next_number += 1;
            let number = self.ledger.next_number;
            let seconds = (container == PLAIN && self.rng.percent(20)).then(|| 1 + self.rng.below(3));
            // What stays for ever is short, so that compaction finds something to throw away.
            let longest = if container == VERSIONED { self.filler / 10 } else { self.filler };
            let filler = "x".repeat(self.rng.below(longest) as usize);
            let mut body = json!({"id": id, "key": format!("k{key}"), "number": number, "filler": filler});
            if let Some(seconds) = seconds {
                body["ttl"] = json!(seconds);
            }
            let body = Bytes::from(body.to_string());
            let expires = seconds.map(|seconds| self.clock.now().saturating_add(Duration::from_secs(seconds)));
            effects.push(Effect { id, number: Some(number), expires, etag: None });
            writes.push(match held {
                None if self.rng.percent(50) => Write::Create { body },
                Some(_) if self.rng.percent(50) => Write::Replace { body, if_match },
                _ => Write::Upsert { body, if_match },
            });
        }
        let partition_key = Some(PartitionKey::from(format!("k{key}")));
        let (name, name_of_key, ranges) = (container.clone(), format!("k{key}"), Ranges::Unchanged);
        let commit = Commit { container: name, key: name_of_key, lsn: None, effects, ranges };
        let handle = now(engine.catalog().container(DATABASE, &container))?;
        let written = now(handle.backend().write(Batch { partition_key, writes, return_items: false }));
        let mut commit = commit;
        if let Ok(written) = &written {
            commit.lsn = written.first().map(|written| written.lsn.get());
            for (effect, written) in commit.effects.iter_mut().zip(&**written) {
                assert_eq!(Some(written.lsn.get()), commit.lsn, "the writes of a batch share their lsn");
                effect.etag = written.etag.clone();
            }
        }
        self.note(commit, written.map(drop))
    }

    fn split(&mut self, engine: &Engine) -> Result<()> {
        let (container, ranges) = self.some_ranges(engine)?;
        if ranges.len() > 6 {
            return Ok(());
        }
        let victim = ranges[self.rng.below(ranges.len() as u64) as usize].clone();
        let split = now(engine.catalog().split(DATABASE, &container, &victim, None));
        self.note_layout(engine, container, split.map(drop))
    }

    fn merge(&mut self, engine: &Engine) -> Result<()> {
        let (container, ranges) = self.some_ranges(engine)?;
        if ranges.len() < 3 {
            return Ok(());
        }
        let at = self.rng.below(ranges.len() as u64 - 1) as usize;
        let merged = now(engine.catalog().merge(DATABASE, &container, [&ranges[at], &ranges[at + 1]]));
        self.note_layout(engine, container, merged.map(drop))
    }

    fn some_ranges(&mut self, engine: &Engine) -> Result<(String, Vec<changefeed_core::RangeId>)> {
        let container = [PLAIN, VERSIONED, BRIEF][self.rng.below(3) as usize].to_owned();
        let handle = now(engine.catalog().container(DATABASE, &container))?;
        let ranges = now(handle.feed_ranges())?;
        Ok((container, ranges.into_iter().map(|range| range.id).collect()))
    }

    fn note_layout(&mut self, engine: &Engine, container: String, outcome: Result<()>) -> Result<()> {
        let ranges = match outcome {
            Ok(()) => now(judge::look(engine)).ranges.remove(&container).unwrap(),
            Err(_) => Ranges::Unknown,
        };
        self.note(Commit { container, key: String::new(), lsn: None, effects: Vec::new(), ranges }, outcome)
    }

    /// Notes the outcome of a commit: done, perhaps done, or not done.
    fn note(&mut self, commit: Commit, outcome: Result<()>) -> Result<()> {
        let is_catalog = commit.ranges != Ranges::Unchanged;
        match outcome {
            Ok(()) => {
                self.ledger.acknowledge(commit);
                if is_catalog || self.durability == Durability::Durable {
                    self.ledger.safe = self.ledger.commits.len();
                }
                Ok(())
            }
            Err(error) => {
                assert!(is_honest(&error), "a script makes no mistakes: {error:?}");
                if error.effect() == Reach::Unknown {
                    self.ledger.in_flight = Some(commit);
                }
                Err(error)
            }
        }
    }
}

/// Whether an error is one of a failing disk.
fn is_honest(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Closed)
}
