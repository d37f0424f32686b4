//! The feed of one physical range: its records in LSN order.

use super::{Entry, Fate, Location};
use crate::format::record::Place;

/// Dead entries are swept out when they outnumber the others, but not before there are this many.
const SWEEP_MINIMUM: usize = 64;

/// Entries in the order of their places. New ones come at the end; dead ones are skipped and swept out in bulk, so
/// that adding and killing cost little and reading is a walk through an array.
#[derive(Debug, Default)]
pub(crate) struct FeedLog {
    entries: Vec<Entry>,
    /// The places of the entries, apart: a search goes through these alone.
    places: Vec<u64>,
    dead: usize,
}

impl FeedLog {
    /// From entries in order.
    pub(crate) fn from_sorted(entries: Vec<Entry>) -> Self {
        debug_assert!(entries.is_sorted_by_key(|entry| entry.place));
        let dead = entries.iter().filter(|entry| entry.fate == Fate::Dead).count();
        let places = entries.iter().map(|entry| entry.place.packed()).collect();
        let mut log = Self { entries, places, dead };
        log.sweep();
        log
    }

    pub(crate) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        debug_assert!(self.entries.last().is_none_or(|last| last.place < entry.place));
        self.places.push(entry.place.packed());
        self.entries.push(entry);
    }

    /// All entries after `lsn`, dead ones included.
    pub(crate) fn after(&self, lsn: u64) -> &[Entry] {
        let next = Place { lsn: lsn.saturating_add(1), op: 0 }.packed();
        let from = self.places.partition_point(|place| *place < next);
        &self.entries[from..]
    }

    pub(crate) fn all(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn find(&self, place: Place) -> Option<&Entry> {
        self.position(place).map(|index| &self.entries[index])
    }

    pub(crate) fn set_fate(&mut self, place: Place, fate: Fate) -> Option<&Entry> {
        let index = self.position(place)?;
        let entry = &mut self.entries[index];
        debug_assert!(entry.fate != Fate::Dead);
        entry.fate = fate;
        if fate != Fate::Dead {
            return Some(&self.entries[index]);
        }
        self.dead += 1;
        Some(&self.entries[index])
    }

    pub(crate) fn relocate(&mut self, place: Place, from: Location, to: Location) -> bool {
        match self.position(place) {
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
            self.places.clear();
            self.places.extend(self.entries.iter().map(|entry| entry.place.packed()));
        }
    }

    fn position(&self, place: Place) -> Option<usize> {
        self.places.binary_search(&place.packed()).ok()
    }
}
