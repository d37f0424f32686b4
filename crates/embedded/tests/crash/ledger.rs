//! What a writer was told: all acknowledged commits of a store, in order, and the picture they add up to.

use std::collections::BTreeMap;

use changefeed_core::{ETag, Timestamp};

/// What a commit did to one item.
#[derive(Clone, Debug)]
pub struct Effect {
    pub id: String,
    /// The number in the body; none after a delete.
    pub number: Option<u64>,
    pub expires: Option<Timestamp>,
    pub etag: Option<ETag>,
}

/// One acknowledged commit, or one that may have landed.
#[derive(Clone, Debug)]
pub struct Commit {
    pub container: String,
    /// The partition key; nothing for changes of the catalog.
    pub key: String,
    /// None while unknown, and for changes of the catalog.
    pub lsn: Option<u64>,
    pub effects: Vec<Effect>,
    pub ranges: Ranges,
}

/// What a commit did to the physical ranges of its container.
#[derive(Clone, Debug, PartialEq)]
pub enum Ranges {
    Unchanged,
    /// Changed, but the answer with the new ids was lost.
    Unknown,
    Are(Vec<String>),
}

/// The newest version of an item.
#[derive(Clone, Debug)]
pub struct Held {
    pub number: u64,
    pub lsn: Option<u64>,
    pub expires: Option<Timestamp>,
    pub etag: Option<ETag>,
}

/// A store as a reader sees it.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Ids of the physical ranges, by container.
    pub ranges: BTreeMap<String, Ranges>,
    /// By container and id.
    pub items: BTreeMap<(String, String), Held>,
}

impl Picture {
    pub fn apply(&mut self, commit: &Commit) {
        if commit.ranges != Ranges::Unchanged {
            self.ranges.insert(commit.container.clone(), commit.ranges.clone());
        }
        for effect in &commit.effects {
            let key = (commit.container.clone(), effect.id.clone());
            match effect.number {
                Some(number) => {
                    let (expires, etag) = (effect.expires, effect.etag.clone());
                    self.items.insert(key, Held { number, lsn: commit.lsn, expires, etag });
                }
                None => drop(self.items.remove(&key)),
            }
        }
    }

    /// Without what has expired.
    pub fn at(&self, now: Timestamp) -> Self {
        let mut picture = self.clone();
        picture.items.retain(|_, held| held.expires.is_none_or(|at| now < at));
        picture
    }

    /// The first difference to `found`, which knows every id and LSN.
    pub fn difference(&self, found: &Self) -> Option<String> {
        let names = |picture: &Self| picture.ranges.keys().cloned().collect::<Vec<_>>();
        if names(self) != names(found) {
            return Some(format!("containers are {:?}, expected {:?}", names(found), names(self)));
        }
        for (name, ranges) in &self.ranges {
            if matches!(ranges, Ranges::Are(_)) && found.ranges.get(name) != Some(ranges) {
                return Some(format!("ranges of {name} are {:?}, expected {ranges:?}", found.ranges.get(name)));
            }
        }
        for (key, held) in &self.items {
            match found.items.get(key) {
                Some(there) if there.number == held.number && (held.lsn.is_none() || there.lsn == held.lsn) => {}
                there => return Some(format!("{key:?} is {there:?}, expected {held:?}")),
            }
        }
        let surplus = found.items.iter().find(|(key, _)| !self.items.contains_key(*key));
        surplus.map(|(key, held)| format!("{key:?} is {held:?}, expected nothing"))
    }
}

/// All commits that were acknowledged, and the one that nobody knows about.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub commits: Vec<Commit>,
    pub in_flight: Option<Commit>,
    /// So many commits must be there even in relaxed mode after a power cut.
    pub safe: usize,
    /// The highest LSN that was ever seen, by container and partition key.
    pub seen: BTreeMap<(String, String), u64>,
    /// The number for the next body.
    pub next_number: u64,
    /// What all acknowledged commits add up to.
    pub picture: Picture,
}

impl Ledger {
    /// Takes in an acknowledged commit.
    pub fn acknowledge(&mut self, commit: Commit) {
        if let Some(lsn) = commit.lsn {
            let seen = self.seen.entry((commit.container.clone(), commit.key.clone())).or_default();
            assert!(*seen < lsn, "lsn {lsn} of {} in {} was given out after {seen}", commit.key, commit.container);
            *seen = lsn;
        }
        self.picture.apply(&commit);
        self.commits.push(commit);
    }

    /// Settles, after a crash, that the first `count` commits are there, the one in flight counted last.
    pub fn settle(&mut self, count: usize, found: &Picture) {
        self.commits.extend(self.in_flight.take());
        self.commits.truncate(count);
        self.safe = self.commits.len();
        if let Some(last) = self.commits.last_mut() {
            if last.ranges == Ranges::Unknown
                && let Some(ranges) = found.ranges.get(&last.container)
            {
                last.ranges = ranges.clone();
            }
            let held = last.effects.first().and_then(|effect| {
                found
                    .items
                    .get(&(last.container.clone(), effect.id.clone()))
                    .filter(|held| Some(held.number) == effect.number)
            });
            last.lsn = last.lsn.or(held.and_then(|held| held.lsn));
            for effect in &mut last.effects {
                let held = found.items.get(&(last.container.clone(), effect.id.clone()));
                effect.etag = held.and_then(|held| held.etag.clone());
            }
        }
        self.picture = Picture::default();
        self.commits.iter().for_each(|commit| self.picture.apply(commit));
    }
}
