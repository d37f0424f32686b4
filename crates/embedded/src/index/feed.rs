//! The feed of one physical range: its records in LSN order.

use changefeed_core::Epk;

use super::{Entry, Fate, Location, position::Position};
use crate::format::record::Place;

/// Dead entries are swept out when they outnumber the others, but not before there are this many.
const SWEEP_MINIMUM: usize = 64;

/// Entries are counted in blocks of so many.
const BLOCK: usize = 1024;

/// Entries in the order of LSN, key and place in the batch. An LSN has one transaction, and so one key, unless ranges
/// that had counted apart were merged. New entries come at the end; dead ones are skipped and swept out in bulk, so that
/// adding and killing cost little and reading is a walk through an array.
#[derive(Debug, Default)]
pub(crate) struct FeedLog {
    entries: Vec<Entry>,
    /// The LSNs of the entries, apart: a search goes through these, and then through the few that share one.
    lsns: Vec<u64>,
    dead: usize,
    /// How many entries of each block no reader sees.
    hidden: Vec<usize>,
    /// How many entries of each block are items as they are now.
    latest: Vec<usize>,
}

impl FeedLog {
    /// From entries in order.
    pub(crate) fn from_sorted(entries: Vec<Entry>) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.order() < b.order()));
        let dead = entries.iter().filter(|entry| entry.fate == Fate::Dead).count();
        let mut log = Self { entries, dead, ..Self::default() };
        log.survey();
        log.sweep();
        log
    }

    pub(crate) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        debug_assert!(self.entries.last().is_none_or(|last| last.order() < entry.order()));
        if self.entries.len().is_multiple_of(BLOCK) {
            self.hidden.push(0);
            self.latest.push(0);
        }
        if let Some(latest) = self.latest.last_mut() {
            *latest += usize::from(entry.is_item());
        }
        if let Some(hidden) = self.hidden.last_mut() {
            *hidden += usize::from(entry.fate.is_hidden());
        }
        self.lsns.push(entry.place.lsn);
        self.entries.push(entry);
    }

    /// All entries after `position`, dead ones included.
    pub(crate) fn after(&self, position: &Position) -> &[Entry] {
        &self.entries[self.first_after(position)..]
    }

    /// How many entries after `position` some reader may see.
    pub(crate) fn shown_after(&self, position: &Position) -> usize {
        let from = self.first_after(position);
        let (block, next) = (from / BLOCK, (from / BLOCK + 1) * BLOCK);
        let near = self.entries[from..next.min(self.entries.len())].iter();
        let near = near.filter(|entry| !entry.fate.is_hidden()).count();
        let far: usize = self.hidden.iter().skip(block + 1).sum();
        near + self.entries.len().saturating_sub(next).saturating_sub(far)
    }

    /// How many entries after `position` are items as they are now, expired or not.
    pub(crate) fn latest_after(&self, position: &Position) -> usize {
        let from = self.first_after(position);
        let (block, next) = (from / BLOCK, (from / BLOCK + 1) * BLOCK);
        let near = self.entries[from..next.min(self.entries.len())].iter().filter(|entry| entry.is_item()).count();
        near + self.latest.iter().skip(block + 1).sum::<usize>()
    }

    fn first_after(&self, position: &Position) -> usize {
        let first = self.lsns.partition_point(|lsn| *lsn <= position.complete());
        if position.inside.is_none() {
            return first;
        }
        first + self.entries[first..].partition_point(|entry| !position.is_before(entry.place.lsn, &entry.key.epk))
    }

    pub(crate) fn all(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn find(&self, place: Place, epk: &Epk) -> Option<&Entry> {
        self.position(place, epk).map(|index| &self.entries[index])
    }

    pub(crate) fn set_fate(&mut self, place: Place, epk: &Epk, fate: Fate) -> Option<&Entry> {
        let index = self.position(place, epk)?;
        let entry = &mut self.entries[index];
        debug_assert!(entry.fate != Fate::Dead);
        self.hidden[index / BLOCK] += usize::from(fate.is_hidden());
        self.hidden[index / BLOCK] -= usize::from(entry.fate.is_hidden());
        self.dead += usize::from(fate == Fate::Dead);
        self.latest[index / BLOCK] -= usize::from(entry.is_item());
        entry.fate = fate;
        self.latest[index / BLOCK] += usize::from(entry.is_item());
        Some(entry)
    }

    pub(crate) fn relocate(&mut self, place: Place, epk: &Epk, from: Location, to: Location) -> bool {
        match self.position(place, epk) {
            Some(index) if self.entries[index].location == from => {
                self.entries[index].location = to;
                self.entries[index].fate != Fate::Dead
            }
            _ => false,
        }
    }

    /// Throws dead entries out if they are the majority.
    pub(crate) fn sweep(&mut self) {
        if self.dead >= SWEEP_MINIMUM && self.dead * 2 >= self.entries.len() {
            self.entries.retain(|entry| entry.fate != Fate::Dead);
            self.dead = 0;
            if self.entries.capacity() > 4 * self.entries.len().max(SWEEP_MINIMUM) {
                self.entries.shrink_to(2 * self.entries.len());
            }
            self.survey();
        }
    }

    /// Notes anew where the entries are and how many of them are hidden.
    fn survey(&mut self) {
        self.lsns.clear();
        self.lsns.extend(self.entries.iter().map(|entry| entry.place.lsn));
        self.hidden.clear();
        let hidden = |block: &[Entry]| block.iter().filter(|entry| entry.fate.is_hidden()).count();
        self.hidden.extend(self.entries.chunks(BLOCK).map(hidden));
        self.latest.clear();
        let latest = |block: &[Entry]| block.iter().filter(|entry| entry.is_item()).count();
        self.latest.extend(self.entries.chunks(BLOCK).map(latest));
    }

    fn position(&self, place: Place, epk: &Epk) -> Option<usize> {
        let first = self.lsns.partition_point(|lsn| *lsn < place.lsn);
        let wanted = (place.lsn, epk, place.op);
        if self.entries.get(first)?.order() == wanted {
            return Some(first);
        }
        let same = self.lsns[first..].partition_point(|lsn| *lsn == place.lsn);
        let found = self.entries[first..first + same].binary_search_by(|entry| entry.order().cmp(&wanted));
        found.ok().map(|at| first + at)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use changefeed_core::ItemId;

    use super::*;
    use crate::{
        format::record::{RecordHeader, RecordKind},
        index::Key,
    };

    fn entry(lsn: u64) -> Entry {
        let place = Place { lsn, op: 0 };
        let (kind, previous) = (RecordKind::Put, Place::default());
        let header = RecordHeader { kind, container: 1, place, previous, ordinal: 0, timestamp: 0, ttl: 0 };
        let key = Arc::new(Key::new(Epk::MIN, ItemId::new("x").unwrap()));
        Entry::new(&header, key, Location { segment: 1, offset: 0, bytes: 0 })
    }

    fn check(log: &FeedLog, newest: u64) {
        for lsn in [0, 1, 7, 1022, 1023, 1024, 1025, 2048, 2900, newest - 1, newest, newest + 1] {
            let position = &Position::after(lsn);
            let shown = log.after(position).iter().filter(|entry| !entry.fate.is_hidden()).count();
            assert_eq!(log.shown_after(position), shown, "after {lsn}");
            let latest = log.after(position).iter().filter(|entry| entry.is_item()).count();
            assert_eq!(log.latest_after(position), latest, "after {lsn}");
        }
    }

    #[test]
    fn shown_entries_are_counted_in_blocks() {
        let mut log = FeedLog::default();
        check(&log, 1);
        for newest in 1..=3000 {
            log.push(entry(newest));
            let fate = match newest % 7 {
                0 => Fate::Dead,
                1 => Fate::Tombstone,
                2 => Fate::Superseded { at: 5 },
                _ => Fate::Newest,
            };
            log.set_fate(Place { lsn: newest, op: 0 }, &Epk::MIN, fate).unwrap();
        }
        check(&log, 3000);
        for lsn in (1..=3000).filter(|lsn| lsn % 7 > 0 && lsn % 5 > 0) {
            log.set_fate(Place { lsn, op: 0 }, &Epk::MIN, Fate::Dead).unwrap();
            if lsn % 500 == 1 {
                check(&log, 3000);
            }
        }
        log.sweep();
        assert!(log.all().len() < 1000);
        check(&log, 3000);
        check(&FeedLog::from_sorted(log.into_entries()), 3000);
    }

    #[test]
    fn changes_of_merged_ranges_that_share_an_lsn_are_told_apart() {
        let at = |lsn, key: u8, op| {
            let mut one = entry(lsn);
            one.key = Arc::new(Key::new(Epk::from_bytes(&[key]), ItemId::new("x").unwrap()));
            one.place.op = op;
            one
        };
        let all = [(1, 1, 0), (2, 1, 0), (2, 1, 1), (2, 5, 0), (2, 5, 1), (2, 9, 0), (3, 1, 0)];
        let log = FeedLog::from_sorted(all.iter().map(|(lsn, key, op)| at(*lsn, *key, *op)).collect());
        for (lsn, key, op) in all {
            let found = log.find(Place { lsn, op }, &Epk::from_bytes(&[key])).unwrap();
            assert_eq!((found.place.lsn, found.key.epk.as_bytes(), found.place.op), (lsn, &[key][..], op));
        }
        assert!(log.find(Place { lsn: 2, op: 0 }, &Epk::from_bytes(&[6])).is_none());
        assert!(log.find(Place { lsn: 2, op: 2 }, &Epk::from_bytes(&[5])).is_none());
        let after = |lsn, key: u8| log.after(&Position { lsn, inside: Some(Epk::from_bytes(&[key])) }).len();
        assert_eq!([after(2, 0), after(2, 1), after(2, 4), after(2, 5), after(2, 9)], [6, 4, 4, 2, 1]);
        assert_eq!(log.after(&Position::after(2)).len(), 1);
    }
}
