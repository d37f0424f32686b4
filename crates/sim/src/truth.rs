//! The truth: every change that was written, and what became of it.

use std::collections::BTreeMap;

use changefeed_core::{Epk, FeedRange, Mode};

/// A change of one item.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its position.
    pub lsn: u64,
    /// The item, as a number.
    pub item: u32,
    /// Its partition key, as a number.
    pub key: u32,
    /// Where the key lies.
    pub epk: Epk,
    /// Whether the item ended.
    pub deleted: bool,
    /// Whether no delegate can handle it.
    pub poison: bool,
    /// Whether it kills the process that handles it.
    pub killer: bool,
    /// Whether a newer change of the same item exists.
    pub superseded: bool,
    /// How often a delegate has handled it.
    pub handled: u32,
    /// Whether the user has said that it is done, by a checkpoint of their own.
    pub claimed: bool,
    /// How often a delegate has asked for it again, and for no other item's sake.
    pub asked: u32,
    /// Whether it is in the dead-letter container.
    pub dead: bool,
    /// How often processes have died while it was delivered.
    pub deaths: u32,
}

#[derive(Debug, Default)]
struct Key {
    changes: Vec<usize>,
    /// How many of them, from the first on, were delivered or need not be.
    begun: usize,
}

/// All changes of a run.
#[derive(Debug)]
pub struct Truth {
    mode: Mode,
    manual: bool,
    changes: Vec<Written>,
    places: BTreeMap<(u64, u32), usize>,
    newest: BTreeMap<u32, usize>,
    keys: BTreeMap<u32, Key>,
    /// Changes up to here were written before the processor was first started.
    floor: Option<u64>,
}

impl Truth {
    /// Before anything was written.
    pub fn new(mode: Mode, manual: bool) -> Self {
        let (changes, places, newest, keys) = (Vec::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { mode, manual, changes, places, newest, keys, floor: None }
    }

    /// Takes in a change that was just committed.
    pub fn wrote(&mut self, change: Written) {
        let at = self.changes.len();
        if let Some(older) = self.newest.insert(change.item, at).and_then(|older| self.changes.get_mut(older)) {
            older.superseded = true;
        }
        self.places.insert((change.lsn, change.item), at);
        self.keys.entry(change.key).or_default().changes.push(at);
        self.changes.push(change);
    }

    /// The processor was started for the first time: from now on nothing may be lost.
    pub fn started(&mut self, from_beginning: bool) {
        let newest = self.changes.last().map_or(0, |change| change.lsn);
        self.floor.get_or_insert(if from_beginning { 0 } else { newest });
    }

    /// The number of a change.
    pub fn find(&self, lsn: u64, item: u32) -> Option<usize> {
        self.places.get(&(lsn, item)).copied()
    }

    /// A change by its number.
    pub fn get(&self, at: usize) -> Option<&Written> {
        self.changes.get(at)
    }

    /// Changes a change.
    pub fn update(&mut self, at: usize, update: impl FnOnce(&mut Written)) {
        if let Some(change) = self.changes.get_mut(at) {
            update(change);
        }
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there is a change in `range` after `lsn`.
    pub fn has_news(&self, range: &FeedRange, lsn: u64) -> bool {
        self.changes.iter().rev().take_while(|change| change.lsn > lsn).any(|change| range.contains(&change.epk))
    }

    /// Whether the feed shows this change.
    fn is_shown(&self, change: &Written) -> bool {
        self.mode == Mode::AllVersions || !change.superseded && !change.deleted
    }

    /// Whether the feed owes this change: it shows it, and it came after the start.
    fn is_owed(&self, change: &Written) -> bool {
        self.is_shown(change) && self.floor.is_some_and(|floor| change.lsn > floor)
    }

    fn is_done(&self, change: &Written) -> bool {
        change.dead || if self.manual { change.claimed } else { change.handled > 0 }
    }

    /// The first change of `range` after `from` up to `to` that is not done: a checkpoint must not pass it.
    pub fn undone(&self, range: &FeedRange, from: u64, to: u64) -> Option<&Written> {
        let first = self.changes.partition_point(|change| change.lsn <= from);
        let mut passed = self.changes.iter().skip(first).take_while(|change| change.lsn <= to);
        passed.find(|change| range.contains(&change.epk) && self.is_owed(change) && !self.is_done(change))
    }

    /// Changes that are owed and that nobody has handled.
    pub fn unhandled(&self) -> impl Iterator<Item = &Written> {
        self.changes.iter().filter(|change| self.is_owed(change) && !change.dead && change.handled == 0)
    }

    /// Changes of `range` after `lsn` that nobody has handled, owed or not: a lease may begin before it must.
    pub fn waiting(&self, range: &FeedRange, lsn: u64) -> impl Iterator<Item = &Written> {
        let first = self.changes.partition_point(|change| change.lsn <= lsn);
        let open = |change: &&Written| self.is_shown(change) && !change.dead && change.handled == 0;
        self.changes.iter().skip(first).filter(open).filter(|change| range.contains(&change.epk))
    }

    /// How many changes of `range` the feed shows after `lsn`.
    pub fn shown_after(&self, range: &FeedRange, lsn: u64) -> usize {
        let first = self.changes.partition_point(|change| change.lsn <= lsn);
        let shown = |change: &&Written| self.is_shown(change) && range.contains(&change.epk);
        self.changes.iter().skip(first).filter(shown).count()
    }

    /// Whether there is a change of `range` after `lsn` that is owed.
    pub fn owed_after(&self, range: &FeedRange, lsn: u64) -> bool {
        let first = self.changes.partition_point(|change| change.lsn <= lsn);
        self.changes.iter().skip(first).any(|change| range.contains(&change.epk) && self.is_owed(change))
    }

    /// Changes that no delegate can handle, are owed, and are not among the dead letters.
    pub fn unburied(&self) -> impl Iterator<Item = &Written> {
        self.changes.iter().filter(|change| self.is_owed(change) && (change.poison || change.killer) && !change.dead)
    }

    /// A change is delivered: an earlier one of its key that was never delivered and is owed has been passed over.
    pub fn deliver(&mut self, at: usize) -> Option<&Written> {
        let change = self.changes.get(at)?;
        let key = self.keys.get(&change.key)?;
        let place = key.changes.binary_search(&at).ok()?;
        let between = key.changes.get(key.begun..place).unwrap_or_default();
        let skipped = between.iter().filter_map(|at| self.changes.get(*at)).position(|change| self.is_owed(change));
        let skipped = skipped.and_then(|offset| between.get(offset)).copied();
        let key = self.keys.get_mut(&change.key)?;
        key.begun = key.begun.max(place + 1);
        skipped.and_then(|at| self.changes.get(at))
    }
}
