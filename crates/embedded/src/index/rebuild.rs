//! The index of a container from all its records, as a start finds them in the log.

use std::{collections::VecDeque, sync::Arc};

use changefeed_core::TimeToLive;

use super::{
    Entry, Key, Location, RecordState,
    container::{ContainerIndex, History},
    expiry::Expiry,
    items::Items,
    range::{self, RangeStart, Watermark},
};
use crate::format::record::{ChangeId, RecordKind};

/// Everything that the log has of one container, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) entries: Vec<Entry>,
    pub(crate) watermarks: Vec<Watermark>,
    /// Which entries come from records without their checksum.
    pub(crate) damaged: Vec<usize>,
}

impl Records {
    /// The newest LSN of any range.
    pub(crate) fn newest(&self) -> u64 {
        let shown = self.entries.iter().map(|entry| entry.change_id.lsn);
        shown.chain(self.watermarks.iter().map(|watermark| watermark.lsn)).max().unwrap_or(0)
    }

    /// The newest LSN whose history is gone in any range.
    pub(crate) fn purged(&self) -> u64 {
        self.watermarks.iter().map(|watermark| watermark.purged).max().unwrap_or(0)
    }

    /// The first damaged record of which nothing proves that a newer one has replaced it: one that is whole, has its key,
    /// and names its change id as that of the version before. Change ids of a key are unique, so if the damage has made its key
    /// or its change id another's, nothing names it.
    pub(crate) fn unproven(&self) -> Option<&Entry> {
        let is_whole = |at: usize| self.damaged.binary_search(&at).is_err();
        let others = || self.entries.iter().enumerate().filter(|(at, _)| is_whole(*at)).map(|(_, entry)| entry);
        let mut damaged = self.damaged.iter().filter_map(|at| self.entries.get(*at));
        damaged.find(|damaged| {
            let mut same_key = others().filter(|other| other.key == damaged.key);
            let replaced = same_key.clone().any(|other| other.previous == damaged.change_id);
            !replaced || same_key.any(|other| other.change_id == damaged.change_id)
        })
    }

    /// The damaged entries, with their container.
    pub(crate) fn claims(&self, container: u32) -> impl Iterator<Item = (u32, Entry)> {
        self.damaged.iter().filter_map(move |at| Some((container, self.entries.get(*at)?.clone())))
    }

    fn newest_number(&self) -> u64 {
        let shown = self.entries.iter().map(|entry| entry.document_number);
        shown.chain(self.watermarks.iter().map(|watermark| watermark.number)).max().unwrap_or(0)
    }
}

impl ContainerIndex {
    /// The index of a container with these ranges and settings. `on_dead` is called for each dead record.
    pub(crate) fn rebuild(
        ranges: Vec<RangeStart>,
        history: History,
        time_to_live: TimeToLive,
        mut records: Records,
        now: u64,
        on_dead: &mut impl FnMut(Location),
    ) -> Self {
        let number = records.newest_number();
        let entries = &mut records.entries;
        let mut followed = vec![None; entries.len()];
        let mut items = Items::of_records(entries, |old, new| followed[old] = Some(new));
        let mut retired = Vec::new();
        let mut gone = Vec::new();
        for at in 0..entries.len() {
            let superseded = followed[at].map(|new| (entries[new].timestamp, new));
            let is_delete = entries[at].kind != RecordKind::Put;
            let entry = &mut entries[at];
            let retire = |(when, order): (u64, usize)| (when, order, Arc::clone(&entry.key), entry.change_id);
            match (history, superseded) {
                (History::Off, Some(_)) => entry.state = RecordState::Dead,
                (History::Off, None) if is_delete => match items.get(&entry.key).is_some_and(|state| state.stale > 0) {
                    true => entry.state = RecordState::Tombstone,
                    false => {
                        entry.state = RecordState::Dead;
                        gone.push(Arc::clone(&entry.key));
                    }
                },
                (History::Milliseconds(_), superseded) => {
                    retired.extend(is_delete.then_some((entry.timestamp, at)).map(&retire));
                    retired.extend(superseded.map(&retire));
                    if let Some((at, _)) = superseded {
                        entry.state = RecordState::Superseded { at };
                    }
                }
                (History::Off, None) => {}
            }
        }
        gone.iter().for_each(|key| items.remove(key));
        entries.iter().filter(|entry| entry.state == RecordState::Dead).for_each(|entry| on_dead(entry.location));
        let ranges = range::fill(ranges, records.entries);
        let mut expiry = Expiry::new(time_to_live);
        let live = ranges.iter().flat_map(|range| range.feed.all()).filter(|entry| entry.is_item());
        live.for_each(|entry| expiry.insert(entry));
        let mut index = Self::with(items, ranges, number, history, in_order(retired), expiry);
        for watermark in records.watermarks {
            index.raise(&watermark);
        }
        index.purge(now, usize::MAX, on_dead);
        index
    }
}

/// What retires, in the order of its end.
fn in_order(mut retired: Vec<(u64, usize, Arc<Key>, ChangeId)>) -> VecDeque<(u64, Arc<Key>, ChangeId)> {
    retired.sort_by_key(|(at, order, ..)| (*at, *order));
    retired.into_iter().map(|(at, _, key, change_id)| (at, key, change_id)).collect()
}
