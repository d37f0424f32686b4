//! The index of one container: its items, its ranges, what expires and what retention still holds.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use changefeed_core::{Epk, RangeId, TimeToLive};

use super::{
    Entry, Key, Location, RecordState,
    expiry::{ByTime, Expiry},
    feed::FeedLog,
    items::{ItemState, Items},
    range::{self, RangeEnds, RangeIndex, RangeStart, Watermark},
    relayout::Relayout,
};
use crate::format::record::{ChangeId, RecordKind};

/// What a container keeps of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum History {
    /// Nothing: newest versions only.
    Off,
    /// Superseded versions and deletes, for this many milliseconds.
    Milliseconds(u64),
}

/// The index of one container.
#[derive(Debug)]
pub(crate) struct ContainerIndex {
    pub(crate) items: Items,
    ranges: Vec<RangeIndex>,
    /// Where the ranges end, for searches.
    ends: RangeEnds,
    /// The newest document number given out and synced.
    pub(crate) number: u64,
    pub(crate) history: History,
    pub(crate) expiry: Expiry,
    /// Records whose retention has begun to run, in the order of its end.
    retired: VecDeque<(u64, Arc<Key>, ChangeId)>,
    /// A split or merge that is being prepared.
    relayout: Option<Relayout>,
}

impl ContainerIndex {
    /// An empty index. `ranges` tile the key space.
    pub(crate) fn new(ranges: Vec<RangeStart>, history: History, time_to_live: TimeToLive) -> Self {
        let ranges = range::fill(ranges, Vec::new());
        Self::with(Items::default(), ranges, 0, history, VecDeque::new(), Expiry::new(time_to_live))
    }

    /// An index of these parts.
    pub(super) fn with(
        items: Items,
        ranges: Vec<RangeIndex>,
        number: u64,
        history: History,
        retired: VecDeque<(u64, Arc<Key>, ChangeId)>,
        expiry: Expiry,
    ) -> Self {
        let ends = RangeEnds::of(&ranges);
        Self { items, ranges, ends, number, history, expiry, retired, relayout: None }
    }

    pub(crate) fn ranges(&self) -> &[RangeIndex] {
        &self.ranges
    }

    pub(crate) fn range_of(&self, epk: &Epk) -> Option<&RangeIndex> {
        self.ranges.get(self.range_position(epk))
    }

    /// Where the range of a key stands. Good as long as the ranges stay as they are.
    pub(crate) fn range_position(&self, epk: &Epk) -> usize {
        self.ends.position(&self.ranges, epk)
    }

    /// The newest LSN of any range.
    pub(crate) fn newest(&self) -> u64 {
        self.ranges.iter().map(|range| range.lsn).max().unwrap_or(0)
    }

    /// Takes note of what is used up and gone, though no record shows it.
    pub(super) fn raise(&mut self, watermark: &Watermark) {
        self.number = self.number.max(watermark.number);
        let position = self.range_position(&watermark.epk);
        if let Some(range) = self.ranges.get_mut(position) {
            range.reach(watermark.lsn);
            range.horizon.raise(&watermark.epk, watermark.purged);
        }
    }

    /// Leaves out LSNs and document numbers that may have been given to changes that were lost.
    pub(crate) fn skip(&mut self, lsns: u64, numbers: u64) {
        self.number += numbers;
        self.ranges.iter_mut().for_each(|range| range.reach(range.lsn + lsns));
    }

    /// The live item with this key, expired or not.
    pub(crate) fn item(&self, key: &Arc<Key>) -> Option<&Entry> {
        let state = self.items.get(key).filter(|state| state.live)?;
        self.range_of(&key.epk)?.feed.find(state.change_id, &key.epk)
    }

    /// Whether an item's time is over, by the container's setting as it is now.
    pub(crate) fn is_expired(&self, entry: &Entry, now: u64) -> bool {
        self.expiry.expires_at(entry).is_some_and(|at| at <= now)
    }

    /// Takes in a record that is newer than all others of its range. `on_dead` is called for each record that is dead now.
    pub(crate) fn apply(&mut self, entry: Entry, on_dead: &mut impl FnMut(Location)) {
        self.number = self.number.max(entry.document_number);
        let key = Arc::clone(&entry.key);
        let (change_id, kind, timestamp) = (entry.change_id, entry.kind, entry.timestamp);
        let state =
            ItemState { change_id, document_number: entry.document_number, live: kind == RecordKind::Put, stale: 0 };
        if let Some(old) = self.items.insert(&key, state) {
            self.supersede(&key, old.change_id, timestamp, on_dead);
            let stale = old.stale + u32::from(old.live);
            if stale > 0
                && let Some(state) = self.items.get_mut(&key)
            {
                state.stale = stale;
            }
        }
        if kind == RecordKind::Put {
            self.expiry.insert(&entry);
        }
        let position = self.range_position(&key.epk);
        if let Some(range) = self.ranges.get_mut(position) {
            // Readers are woken afterwards, when the whole commit is visible.
            range.lsn = range.lsn.max(change_id.lsn);
            if let Some(relayout) = &mut self.relayout {
                relayout.add(&entry);
            }
            range.feed.push(entry);
        }
        if kind != RecordKind::Put {
            match self.history {
                History::Off => self.hide_delete(&key, change_id, on_dead),
                _ => self.retired.push_back((timestamp, key, change_id)),
            }
        }
    }

    /// Marks the current record of a key as superseded.
    fn supersede(&mut self, key: &Arc<Key>, change_id: ChangeId, at: u64, on_dead: &mut impl FnMut(Location)) {
        let state = if self.history == History::Off { RecordState::Dead } else { RecordState::Superseded { at } };
        let Some(entry) = self.set_state(key, change_id, state) else { return };
        if entry.kind == RecordKind::Put {
            self.expiry.remove(&entry);
        }
        match state {
            RecordState::Dead => on_dead(entry.location),
            _ => self.retired.push_back((at, Arc::clone(key), change_id)),
        }
    }

    /// A delete that no reader needs: it stays only as long as older records of its key are on disk.
    fn hide_delete(&mut self, key: &Arc<Key>, change_id: ChangeId, on_dead: &mut impl FnMut(Location)) {
        let needed = self.items.get(key).is_some_and(|state| state.change_id == change_id && state.stale > 0);
        let state = if needed { RecordState::Tombstone } else { RecordState::Dead };
        if let Some(entry) = self.set_state(key, change_id, state)
            && !needed
        {
            on_dead(entry.location);
            self.items.remove(key);
        }
    }

    fn set_state(&mut self, key: &Key, change_id: ChangeId, state: RecordState) -> Option<Entry> {
        let position = self.range_position(&key.epk);
        let entry = self.ranges.get_mut(position)?.feed.set_state(change_id, &key.epk, state)?;
        if let Some(copy) = self.relayout.as_mut().and_then(|relayout| relayout.copy_of(change_id, &key.epk)) {
            copy.set_state(change_id, &key.epk, state);
        }
        Some(entry)
    }

    /// Purges history whose retention ended before `now`, at most `limit` records. Returns what is left of `limit`.
    pub(crate) fn purge(&mut self, now: u64, limit: usize, on_dead: &mut impl FnMut(Location)) -> usize {
        let (retention, now) = match self.history {
            // Without history every retired record is due, whatever its time.
            History::Off => (0, u64::MAX),
            History::Milliseconds(retention) => (retention, now),
        };
        let mut left = limit;
        while left > 0 && self.retired.front().is_some_and(|(at, ..)| at.saturating_add(retention) < now) {
            left -= 1;
            let Some((_, key, change_id)) = self.retired.pop_front() else { break };
            let Some(entry) = self.range_of(&key.epk).and_then(|range| range.feed.find(change_id, &key.epk)) else {
                continue;
            };
            match entry.state {
                RecordState::Superseded { at } if at.saturating_add(retention) < now => {
                    if let Some(entry) = self.set_state(&key, change_id, RecordState::Dead) {
                        on_dead(entry.location);
                    }
                    self.cut_history(&key.epk, change_id.lsn);
                }
                RecordState::Newest if entry.kind != RecordKind::Put => {
                    self.hide_delete(&key, change_id, on_dead);
                    self.cut_history(&key.epk, change_id.lsn);
                }
                _ => {}
            }
        }
        left
    }

    fn cut_history(&mut self, epk: &Epk, lsn: u64) {
        let position = self.range_position(epk);
        if let Some(range) = self.ranges.get_mut(position) {
            range.horizon.raise(epk, lsn);
        }
    }

    /// Whether compaction must keep the record.
    pub(crate) fn needs(&self, epk: &Epk, change_id: ChangeId) -> bool {
        let entry = self.range_of(epk).and_then(|range| range.feed.find(change_id, epk));
        entry.is_some_and(|entry| entry.state != RecordState::Dead)
    }

    /// Notes that compaction moved a record. Says whether the record still means something.
    pub(crate) fn moved(&mut self, epk: &Epk, change_id: ChangeId, from: Location, to: Location) -> bool {
        if let Some(copy) = self.relayout.as_mut().and_then(|relayout| relayout.copy_of(change_id, epk)) {
            copy.relocate(change_id, epk, from, to);
        }
        let position = self.range_position(epk);
        self.ranges.get_mut(position).is_some_and(|range| range.feed.relocate(change_id, epk, from, to))
    }

    /// Notes that compaction dropped an old version of an item.
    pub(crate) fn dropped(&mut self, key: &Arc<Key>, on_dead: &mut impl FnMut(Location)) {
        let Some(state) = self.items.get_mut(key) else { return };
        state.stale = state.stale.saturating_sub(1);
        let (live, change_id) = (state.live, state.change_id);
        if live {
            return;
        }
        let entry = self.range_of(&key.epk).and_then(|range| range.feed.find(change_id, &key.epk));
        if entry.is_some_and(|entry| entry.state == RecordState::Tombstone) {
            self.hide_delete(key, change_id, on_dead);
        }
    }

    /// Changes what is kept and how long items live. Readers see it at once; [`purge`](Self::purge) and
    /// [`list_expiring`](Self::list_expiring) do the rest. Returns what is to be dropped without holding a lock, since it
    /// may be much.
    #[must_use]
    pub(crate) fn change_settings(&mut self, history: History, time_to_live: TimeToLive) -> ByTime {
        self.history = history;
        self.expiry.change(time_to_live)
    }

    /// Looks at no more than `limit` entries that a new default time to live concerns. Returns what is left of `limit`.
    pub(crate) fn list_expiring(&mut self, limit: usize) -> usize {
        self.expiry.advance(&self.ranges, limit)
    }

    /// Begins to prepare other ranges: [`advance_relayout`](Self::advance_relayout) fills their feeds.
    pub(crate) fn begin_relayout(&mut self, wanted: &[RangeStart]) {
        self.relayout = Some(Relayout::new(&self.ranges, wanted));
    }

    /// Copies about `limit` entries into the feeds of the ranges that are being prepared. Says whether nothing is left to
    /// copy, so that [`relayout`](Self::relayout) takes next to no time.
    pub(crate) fn advance_relayout(&mut self, limit: usize) -> bool {
        self.relayout.as_mut().is_none_or(|relayout| relayout.advance(&self.ranges, limit))
    }

    /// Gives up what was prepared and returns it. To be dropped without holding a lock, since it may be much.
    pub(crate) fn abandon_relayout(&mut self) -> Vec<FeedLog> {
        self.relayout.take().into_iter().flat_map(Relayout::into_feeds).collect()
    }

    /// Changes the ranges. Those that keep their id keep their feed and the tasks that wait for it. Returns the feeds of the
    /// others: to be dropped without holding a lock, since they may be long.
    pub(crate) fn relayout(&mut self, wanted: Vec<RangeStart>) -> Vec<FeedLog> {
        if !self.relayout.as_ref().is_some_and(|relayout| relayout.is_for(&self.ranges, &wanted)) {
            self.begin_relayout(&wanted);
        }
        self.advance_relayout(usize::MAX);
        let mut feeds = self.relayout.take().into_iter().flat_map(Relayout::into_feeds);
        let mut old: BTreeMap<RangeId, RangeIndex> =
            std::mem::take(&mut self.ranges).into_iter().map(|range| (range.physical.id.clone(), range)).collect();
        for start in wanted {
            let stays = old.get(&start.physical.id).is_some_and(|range| start.is_start_of(range));
            let range = match stays.then(|| old.remove(&start.physical.id)).flatten() {
                Some(mut kept) => {
                    kept.reach(start.lsn);
                    kept.horizon.raise_to(&start.horizon);
                    kept
                }
                None => {
                    let feed = feeds.next().unwrap_or_default();
                    let lsn = feed.last().map_or(0, |last| last.change_id.lsn).max(start.lsn);
                    RangeIndex::new(RangeStart { lsn, ..start }, feed)
                }
            };
            self.ranges.push(range);
        }
        self.ranges.sort_by(|a, b| a.physical.range.cmp(&b.physical.range));
        self.ends = RangeEnds::of(&self.ranges);
        if !old.is_empty() {
            self.expiry.restart();
        }
        old.into_values().map(|range| range.feed).collect()
    }

    /// Wakes readers that wait for changes in the range of this key.
    pub(crate) fn wake(&self, epk: &Epk, lsn: u64) {
        if let Some(range) = self.range_of(epk) {
            range.newest.send_replace(lsn);
        }
    }

    /// Every record that is not dead, for accounts of live bytes.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.ranges.iter().flat_map(|range| range.feed.all()).filter(|entry| entry.state != RecordState::Dead)
    }
}
