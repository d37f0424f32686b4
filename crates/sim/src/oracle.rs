//! The oracle: every change that was written, and what became of it.

use std::collections::BTreeMap;

use changefeed_core::Mode;

use crate::checks::{key_range::KeyRange, reset::StartPositions};

/// A change of one item.
#[derive(Clone, Debug, Default)]
pub struct WrittenChange {
    /// Its position.
    pub lsn: u64,
    /// Its number: the n-th write of the run.
    pub number: u64,
    /// The item, as a number.
    pub item: u32,
    /// Its partition key, as a number.
    pub key: u32,
    /// The effective partition key.
    pub epk: Vec<u8>,
    /// When it was written, in microseconds.
    pub written_at: u64,
    /// Whether it deletes the item.
    pub deleted: bool,
    /// Whether no delegate can handle it.
    pub poison: bool,
    /// Whether it crashes the process that handles it.
    pub killer: bool,
    /// Whether it does not parse as the type of a typed delegate.
    pub unparsable: bool,
    /// Whether a newer change of the same item exists.
    pub superseded: bool,
    /// How often a delegate has handled it.
    pub handled: u32,
    /// Whether the user has checkpointed it.
    pub claimed: bool,
    /// Whether the user had checkpointed it before an operator wanted it to be delivered again.
    pub claimed_before: bool,
    /// How often a delegate has asked for it again.
    pub retries: u32,
    /// Whether it is in the dead-letter container.
    pub dead_lettered: bool,
    /// Since when an operator wants it to be delivered again, in microseconds.
    pub due_since: Option<u64>,
    /// Whether an operator has moved past it.
    pub skipped: bool,
}

#[derive(Debug, Default)]
struct Key {
    changes: Vec<usize>,
    /// How many of them, from the first on, were delivered or need not be.
    begun: usize,
}

/// All changes of a run.
#[derive(Debug)]
pub struct Oracle {
    mode: Mode,
    manual: bool,
    changes: Vec<WrittenChange>,
    by_place: BTreeMap<(u64, u32), usize>,
    by_number: BTreeMap<u64, usize>,
    newest: BTreeMap<u32, usize>,
    keys: BTreeMap<u32, Key>,
    /// How many changes were written before the processor was first started.
    start: Option<usize>,
}

/// Where an operator moved a lease to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// After an LSN.
    After(u64),
    /// To the changes since a moment, in microseconds. Ranges that were split since have different LSNs at that moment.
    Since(u64),
}

impl Target {
    /// Whether the change is before it.
    pub fn passes(self, change: &WrittenChange) -> bool {
        match self {
            Self::After(lsn) => change.lsn <= lsn,
            Self::Since(moment) => change.written_at < moment,
        }
    }
}

impl Oracle {
    /// An oracle before the first write.
    pub fn new(mode: Mode, manual: bool) -> Self {
        Self {
            mode,
            manual,
            changes: Vec::new(),
            by_place: BTreeMap::new(),
            by_number: BTreeMap::new(),
            newest: BTreeMap::new(),
            keys: BTreeMap::new(),
            start: None,
        }
    }

    /// Records a change that was just committed.
    pub fn wrote(&mut self, mut change: WrittenChange) {
        let at = self.changes.len();
        if let Some(older) = self.newest.insert(change.item, at).and_then(|older| self.changes.get_mut(older)) {
            older.superseded = true;
            // A typed delegate of an all-versions processor parses the previous version, too.
            change.unparsable |= self.mode == Mode::AllVersions && older.unparsable && !older.deleted;
        }
        self.by_place.insert((change.lsn, change.item), at);
        self.by_number.insert(change.number, at);
        self.keys.entry(change.key).or_default().changes.push(at);
        self.changes.push(change);
    }

    /// The processor was started for the first time: from now on nothing may be lost.
    pub fn started(&mut self, from_beginning: bool) {
        self.start.get_or_insert(if from_beginning { 0 } else { self.changes.len() });
    }

    /// The position of `range` at the first start.
    pub fn start_position(&self, range: &KeyRange) -> Option<u64> {
        let before = self.changes.get(..self.start?)?.iter().filter(|change| range.contains(&change.epk));
        before.map(|change| change.lsn).max()
    }

    /// The index of a change by position and item.
    pub fn find(&self, lsn: u64, item: u32) -> Option<usize> {
        self.by_place.get(&(lsn, item)).copied()
    }

    /// The index of a change by its number.
    pub fn find_number(&self, number: u64) -> Option<usize> {
        self.by_number.get(&number).copied()
    }

    /// A change by its index.
    pub fn get(&self, at: usize) -> Option<&WrittenChange> {
        self.changes.get(at)
    }

    /// Changes a record.
    pub fn update(&mut self, at: usize, update: impl FnOnce(&mut WrittenChange)) {
        if let Some(change) = self.changes.get_mut(at) {
            update(change);
        }
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether `range` has a change after `lsn`.
    pub fn has_news(&self, range: &KeyRange, lsn: u64) -> bool {
        let newest = self.keys.values().filter_map(|key| self.get(*key.changes.last()?));
        newest.into_iter().any(|change| change.lsn > lsn && range.contains(&change.epk))
    }

    /// The position of the newest change of `range`; 0 if there is none.
    pub fn newest_position(&self, range: &KeyRange) -> u64 {
        self.in_range(range, 0).map(|(_, change)| change.lsn).max().unwrap_or(0)
    }

    /// Whether the feed shows this change.
    fn is_shown(&self, change: &WrittenChange) -> bool {
        self.mode == Mode::AllVersions || !change.superseded && !change.deleted
    }

    /// Whether the processor owes this change: the feed shows it, and it came after the start.
    fn is_owed(&self, at: usize, change: &WrittenChange) -> bool {
        let started = self.start.is_some_and(|start| at >= start) || change.due_since.is_some();
        self.is_shown(change) && started && !change.skipped
    }

    fn is_done(&self, change: &WrittenChange) -> bool {
        let done = change.dead_lettered || if self.manual { change.claimed } else { change.handled > 0 };
        done && change.due_since.is_none()
    }

    fn in_range<'a>(&'a self, range: &'a KeyRange, after: u64) -> impl Iterator<Item = (usize, &'a WrittenChange)> {
        let all = self.changes.iter().enumerate();
        all.filter(move |(_, change)| change.lsn > after && range.contains(&change.epk))
    }

    /// The first change of `range` after `from` up to `to` that is not done: a checkpoint must not pass it.
    pub fn undone(&self, range: &KeyRange, from: u64, to: u64) -> Option<&WrittenChange> {
        let mut passed = self.in_range(range, from).filter(|(_, change)| change.lsn <= to);
        let found = passed.find(|(at, change)| self.is_owed(*at, change) && !self.is_done(change));
        found.and_then(|(at, _)| self.get(at))
    }

    /// Changes that are owed and were not handled.
    pub fn unhandled(&self) -> impl Iterator<Item = &WrittenChange> {
        let open = |change: &WrittenChange| !change.dead_lettered && change.handled == 0 || change.due_since.is_some();
        let all = self.changes.iter().enumerate();
        all.filter(move |(at, change)| self.is_owed(*at, change) && open(change)).map(|(_, change)| change)
    }

    /// Changes of `range` after `lsn` that were not handled, owed or not: a lease may begin before it must.
    pub fn waiting<'a>(&'a self, range: &'a KeyRange, lsn: u64) -> impl Iterator<Item = &'a WrittenChange> {
        let open = |change: &WrittenChange| {
            self.is_shown(change) && !change.dead_lettered && change.handled == 0 && !change.skipped
        };
        self.in_range(range, lsn).map(|(_, change)| change).filter(move |change| open(change))
    }

    /// The number of changes of `range` that the feed shows after `lsn`.
    pub fn shown_after(&self, range: &KeyRange, lsn: u64) -> usize {
        self.in_range(range, lsn).filter(|(_, change)| self.is_shown(change)).count()
    }

    /// Whether there is a change of `range` after `lsn` that is owed.
    pub fn owed_after(&self, range: &KeyRange, lsn: u64) -> bool {
        self.in_range(range, lsn).any(|(at, change)| self.is_owed(at, change))
    }

    /// Changes that no delegate can handle, are owed, and are no dead letters.
    pub fn without_dead_letter(&self) -> impl Iterator<Item = &WrittenChange> {
        let bad = |change: &WrittenChange| change.poison || change.killer || change.unparsable;
        let all = self.changes.iter().enumerate();
        let missing = move |(at, change): &(usize, &WrittenChange)| {
            self.is_owed(*at, change) && bad(change) && !change.dead_lettered && change.handled == 0
        };
        all.filter(missing).map(|(_, change)| change)
    }

    /// Items whose newest change does not parse.
    pub fn unparsable_items(&self) -> Vec<u32> {
        let newest =
            self.newest.iter().filter(|(_, at)| self.changes.get(**at).is_some_and(|change| change.unparsable));
        newest.map(|(item, _)| *item).collect()
    }

    /// A change is delivered; returns an earlier change of its key that is owed and was never delivered.
    pub fn deliver(&mut self, at: usize) -> Option<&WrittenChange> {
        let change = self.changes.get(at)?;
        let key = self.keys.get(&change.key)?;
        let place = key.changes.binary_search(&at).ok()?;
        let between = key.changes.get(key.begun..place).unwrap_or_default();
        // What does not parse is not given to a typed delegate; what becomes of it is checked elsewhere.
        // A host that has not noticed a seek yet may still deliver later changes.
        let passed = |change: &WrittenChange| change.unparsable || change.dead_lettered || change.due_since.is_some();
        let owed = |at: &&usize| self.get(**at).is_some_and(|change| self.is_owed(**at, change) && !passed(change));
        let skipped = between.iter().find(owed).copied();
        let key = self.keys.get_mut(&change.key)?;
        key.begun = key.begun.max(place + 1);
        skipped.and_then(|at| self.changes.get(at))
    }

    /// An operator moved the lease of `range` from one position to another: what lies after the new one is due again,
    /// and what lies before it is not owed any more. `except`: leases in it that were moved already.
    pub fn sought(&mut self, range: &KeyRange, except: &[KeyRange], to: Target, now: u64) {
        let shown: Vec<bool> = self.changes.iter().map(|change| self.is_shown(change)).collect();
        let moved =
            |change: &WrittenChange| range.contains(&change.epk) && !except.iter().any(|one| one.contains(&change.epk));
        for (change, shown) in self.changes.iter_mut().zip(shown).filter(|(change, _)| moved(change)) {
            if to.passes(change) {
                change.skipped = true;
                change.due_since = None;
            } else if shown {
                change.skipped = false;
                change.claimed_before |= std::mem::take(&mut change.claimed);
                change.due_since = Some(now);
            }
        }
    }

    /// A .NET host has overwritten or deleted the lease of `range`, and where an operator had moved it with it.
    pub fn seek_undone(&mut self, range: &KeyRange) {
        for change in self.changes.iter_mut().filter(|change| range.contains(&change.epk)) {
            if change.due_since.take().is_some() {
                change.claimed |= change.handled > 0;
            }
        }
    }

    /// A reset has deleted the lease of `range` after the others were created again: where a seek meanwhile moved it does
    /// not count any more. `starts`: where ranges of a processor that begins at the beginning begin, as `.info` says, or said
    /// before the reset deleted it: what is before that is not owed, since an earlier seek has passed it.
    pub fn reset_range(&mut self, range: &KeyRange, starts: Option<&StartPositions>) {
        for change in self.changes.iter_mut().filter(|change| range.contains(&change.epk)) {
            let was_due = change.due_since.take().is_some();
            change.claimed |= was_due && change.claimed_before;
            let passed = starts.is_none_or(|starts| starts.leave_out(change));
            change.skipped |= was_due && change.handled == 0 && passed;
        }
    }

    /// The processor was reset and bootstrapped again.
    pub fn reset(&mut self, from_beginning: bool) {
        for change in &mut self.changes {
            change.claimed |= change.due_since.take().is_some() && change.claimed_before;
            change.skipped |= !from_beginning;
        }
    }
}
