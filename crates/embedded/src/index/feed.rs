//! The feed of one physical range: its records in LSN order.

use changefeed_core::Epk;

use super::{Entry, Location, RecordState, position::Position};
use crate::format::record::ChangeId;

/// Dead entries of a chunk are swept out when they outnumber the others, but not before there are this many.
const SWEEP_MINIMUM: usize = 64;

/// A chunk holds at most so many entries: a change in the middle of the feed moves no more than these.
const CHUNK: usize = 1024;

/// A count looks into at most so many chunks of which only some entries may be recent enough.
const MIXED_CHUNKS: usize = 10;

/// Entries in the order of LSN, key and place in the batch. An LSN has one transaction, and so one key, unless ranges
/// that had counted apart were merged. New entries come at the end; dead ones are skipped and swept out chunk by chunk, so
/// that no single change takes time in proportion to the length of the feed.
#[derive(Debug, Default)]
pub(crate) struct FeedLog {
    /// None of them is empty.
    chunks: Vec<Chunk>,
    /// The LSN that each chunk begins with, apart: a search goes through these first.
    firsts: Vec<u64>,
}

/// Neighbouring entries.
#[derive(Debug, Default)]
struct Chunk {
    entries: Vec<Entry>,
    /// The LSNs of the entries, apart: a search goes through these, and then through the few that share one.
    lsns: Vec<u64>,
    dead: usize,
    /// How many entries no reader sees.
    hidden: usize,
    /// How many entries are items as they are now.
    latest: usize,
    /// No entry was written before this time, and none after the other one; nothing of an empty chunk.
    written: Option<(u64, u64)>,
}

impl Chunk {
    fn of(entries: Vec<Entry>) -> Self {
        let mut chunk = Self { entries, ..Self::default() };
        chunk.survey();
        chunk
    }

    /// Notes again where the entries are and how many of each kind there are.
    fn survey(&mut self) {
        self.lsns.clear();
        self.lsns.extend(self.entries.iter().map(|entry| entry.change_id.lsn));
        let count = |is_counted: fn(&Entry) -> bool| self.entries.iter().filter(|entry| is_counted(entry)).count();
        self.dead = count(|entry| entry.state == RecordState::Dead);
        self.hidden = count(|entry| entry.state.is_hidden());
        self.latest = count(Entry::is_item);
        let times = self.entries.iter().map(|entry| entry.timestamp);
        self.written = times.clone().min().zip(times.max());
    }

    fn insert(&mut self, at: usize, entry: Entry) {
        self.latest += usize::from(entry.is_item());
        self.hidden += usize::from(entry.state.is_hidden());
        self.dead += usize::from(entry.state == RecordState::Dead);
        let (oldest, newest) = self.written.unwrap_or((entry.timestamp, entry.timestamp));
        self.written = Some((oldest.min(entry.timestamp), newest.max(entry.timestamp)));
        self.lsns.insert(at, entry.change_id.lsn);
        self.entries.insert(at, entry);
    }

    fn set_state(&mut self, at: usize, state: RecordState) -> Entry {
        let entry = &mut self.entries[at];
        debug_assert!(entry.state != RecordState::Dead);
        self.hidden += usize::from(state.is_hidden());
        self.hidden -= usize::from(entry.state.is_hidden());
        self.dead += usize::from(state == RecordState::Dead);
        self.latest -= usize::from(entry.is_item());
        entry.state = state;
        self.latest += usize::from(entry.is_item());
        entry.clone()
    }

    /// Throws dead entries out if they are the majority; says whether it did.
    fn sweep(&mut self) -> bool {
        if self.dead < SWEEP_MINIMUM || self.dead * 2 < self.entries.len() {
            return false;
        }
        self.entries.retain(|entry| entry.state != RecordState::Dead);
        if self.entries.capacity() > 4 * self.entries.len().max(SWEEP_MINIMUM) {
            self.entries.shrink_to(2 * self.entries.len());
        }
        self.survey();
        true
    }
}

/// Where an entry stands, or would stand: its chunk and its place in it.
type At = (usize, usize);

impl FeedLog {
    /// From entries in order. Dead ones are left out.
    pub(crate) fn from_sorted(entries: Vec<Entry>) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.order() < b.order()));
        let mut log = Self::default();
        let mut entries = entries.into_iter().filter(|entry| entry.state != RecordState::Dead).peekable();
        while entries.peek().is_some() {
            log.chunks.push(Chunk::of(entries.by_ref().take(CHUNK).collect()));
        }
        log.firsts.extend(log.chunks.iter().filter_map(|chunk| chunk.lsns.first()));
        log
    }

    /// Adds an entry after all others.
    pub(crate) fn push(&mut self, entry: Entry) {
        debug_assert!(self.last().is_none_or(|last| last.order() < entry.order()));
        if self.chunks.last().is_none_or(|last| last.entries.len() >= CHUNK) {
            self.chunks.push(Chunk::default());
            self.firsts.push(entry.change_id.lsn);
        }
        if let Some(last) = self.chunks.last_mut() {
            last.insert(last.entries.len(), entry);
        }
    }

    /// Adds an entry at its place, which may be between others.
    pub(crate) fn insert(&mut self, entry: Entry) {
        let (mut chunk, mut at) = self.seek(entry.change_id.lsn, |other| other.order() > entry.order());
        if chunk >= self.chunks.len() {
            return self.push(entry);
        }
        if self.chunks[chunk].entries.len() >= CHUNK {
            let upper = Chunk::of(self.chunks[chunk].entries.split_off(CHUNK / 2));
            self.chunks[chunk].survey();
            self.firsts.insert(chunk + 1, upper.lsns[0]);
            self.chunks.insert(chunk + 1, upper);
            if at > CHUNK / 2 {
                (chunk, at) = (chunk + 1, at - CHUNK / 2);
            }
        }
        self.chunks[chunk].insert(at, entry);
        self.firsts[chunk] = self.chunks[chunk].lsns[0];
    }

    pub(crate) fn last(&self) -> Option<&Entry> {
        self.chunks.last()?.entries.last()
    }

    /// All entries after `position`, dead ones included.
    pub(crate) fn after(&self, position: &Position) -> impl Iterator<Item = &Entry> + Clone {
        self.from(self.first_after(position))
    }

    /// All entries after one with this order, whether it is still there or not.
    pub(crate) fn after_order(&self, order: (u64, &Epk, u16)) -> impl Iterator<Item = &Entry> + Clone {
        self.from(self.seek(order.0, |entry| entry.order() > order))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Entry> + Clone {
        self.from((0, 0))
    }

    fn from(&self, (chunk, at): At) -> impl Iterator<Item = &Entry> + Clone {
        let (near, far) =
            self.chunks[chunk..].split_first().map_or((&[][..], &[][..]), |(near, far)| (&near.entries[at..], far));
        near.iter().chain(far.iter().flat_map(|chunk| &chunk.entries))
    }

    /// How many entries after `position` that were written at `since` or later some reader may see. None if that cannot
    /// be said soon, since older and newer entries alternate.
    pub(crate) fn shown_after(&self, position: &Position, since: u64) -> Option<usize> {
        self.count_after(position, since, |entry| !entry.state.is_hidden(), |chunk| chunk.entries.len() - chunk.hidden)
    }

    /// How many of them are items as they are now, expired or not.
    pub(crate) fn latest_after(&self, position: &Position, since: u64) -> Option<usize> {
        self.count_after(position, since, Entry::is_item, |chunk| chunk.latest)
    }

    /// Takes whole chunks where it can. Time follows the LSN, unless ranges were merged or the clock was set back, so
    /// that hardly more than one chunk has entries of both sides of `since`.
    fn count_after(
        &self,
        position: &Position,
        since: u64,
        one: fn(&Entry) -> bool,
        all: fn(&Chunk) -> usize,
    ) -> Option<usize> {
        let (chunk, at) = self.first_after(position);
        let Some((near, far)) = self.chunks[chunk..].split_first() else { return Some(0) };
        let count = |entries: &[Entry]| entries.iter().filter(|entry| entry.timestamp >= since && one(entry)).count();
        let (mut counted, mut mixed) = (count(&near.entries[at..]), 0);
        for chunk in far {
            let (oldest, newest) = chunk.written.unwrap_or_default();
            if oldest >= since {
                counted += all(chunk);
            } else if newest >= since {
                mixed += 1;
                if mixed > MIXED_CHUNKS {
                    return None;
                }
                counted += count(&chunk.entries);
            }
        }
        Some(counted)
    }

    fn first_after(&self, position: &Position) -> At {
        self.seek(position.lsn, |entry| position.is_before(entry.change_id.lsn, &entry.key.epk))
    }

    /// The first entry with a higher LSN, or with this one and past what is looked for.
    fn seek(&self, lsn: u64, is_past: impl Fn(&Entry) -> bool) -> At {
        let lower = self.firsts.partition_point(|first| *first < lsn);
        let same = self.firsts[lower..].partition_point(|first| *first == lsn);
        let same = self.chunks[lower..lower + same].partition_point(|chunk| !is_past(&chunk.entries[0]));
        let next = lower + same;
        let Some(chunk) = next.checked_sub(1).and_then(|before| self.chunks.get(before)) else { return (next, 0) };
        let lower = chunk.lsns.partition_point(|other| *other < lsn);
        let same = chunk.lsns[lower..].partition_point(|other| *other == lsn);
        let at = lower + chunk.entries[lower..lower + same].partition_point(|entry| !is_past(entry));
        if at < chunk.entries.len() { (next - 1, at) } else { (next, 0) }
    }

    pub(crate) fn find(&self, change_id: ChangeId, epk: &Epk) -> Option<&Entry> {
        self.position(change_id, epk).map(|(chunk, at)| &self.chunks[chunk].entries[at])
    }

    /// Sets what a record still means; returns it as it is then.
    pub(crate) fn set_state(&mut self, change_id: ChangeId, epk: &Epk, state: RecordState) -> Option<Entry> {
        let (chunk, at) = self.position(change_id, epk)?;
        let entry = self.chunks[chunk].set_state(at, state);
        if self.chunks[chunk].sweep() {
            self.join(chunk);
        }
        Some(entry)
    }

    pub(crate) fn relocate(&mut self, change_id: ChangeId, epk: &Epk, from: Location, to: Location) -> bool {
        let Some((chunk, at)) = self.position(change_id, epk) else { return false };
        let entry = &mut self.chunks[chunk].entries[at];
        if entry.location != from {
            return false;
        }
        entry.location = to;
        entry.state != RecordState::Dead
    }

    /// Settles a chunk that has lost entries: an empty one goes, a small one joins a neighbour that has room.
    fn join(&mut self, chunk: usize) {
        let length = |at: usize| self.chunks.get(at).map_or(usize::MAX, |chunk| chunk.entries.len());
        let own = length(chunk);
        if own > CHUNK / 4 {
            self.firsts[chunk] = self.chunks[chunk].lsns[0];
            return;
        }
        let before = chunk.checked_sub(1).filter(|before| length(*before) <= CHUNK / 2);
        let first = before.or_else(|| (length(chunk + 1) <= CHUNK / 2).then_some(chunk));
        if own == 0 {
            self.chunks.remove(chunk);
            self.firsts.remove(chunk);
        } else if let Some(first) = first {
            let upper = self.chunks.remove(first + 1);
            self.firsts.remove(first + 1);
            self.chunks[first].entries.extend(upper.entries);
            self.chunks[first].survey();
            self.firsts[first] = self.chunks[first].lsns[0];
        } else {
            self.firsts[chunk] = self.chunks[chunk].lsns[0];
        }
    }

    fn position(&self, change_id: ChangeId, epk: &Epk) -> Option<At> {
        let wanted = (change_id.lsn, epk, change_id.op);
        let (chunk, at) = self.seek(change_id.lsn, |entry| entry.order() >= wanted);
        (self.chunks.get(chunk)?.entries[at].order() == wanted).then_some((chunk, at))
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
        let change_id = ChangeId { lsn, op: 0 };
        let (kind, previous) = (RecordKind::Put, ChangeId::default());
        let header =
            RecordHeader { kind, container: 1, change_id, previous, document_number: 0, timestamp: lsn, ttl: 0 };
        let key = Arc::new(Key::new(Epk::MIN, ItemId::new("x").unwrap()));
        Entry::new(&header, key, Location { segment: 1, offset: 0, bytes: 0 })
    }

    fn check(log: &FeedLog, newest: u64) {
        assert!(log.chunks.iter().all(|chunk| !chunk.entries.is_empty() && chunk.entries.len() <= CHUNK));
        assert!(log.chunks.iter().map(|chunk| chunk.lsns[0]).eq(log.firsts.iter().copied()));
        assert!(log.all().is_sorted_by(|a, b| a.order() < b.order()));
        for lsn in [0, 1, 7, 1022, 1023, 1024, 1025, 2048, 2900, newest - 1, newest, newest + 1] {
            let position = &Position::after(lsn);
            for since in [0, 1, 1000, 1500, newest, newest + 1] {
                let recent = || log.after(position).filter(|entry| entry.timestamp >= since);
                let shown = recent().filter(|entry| !entry.state.is_hidden()).count();
                assert_eq!(log.shown_after(position, since), Some(shown), "after {lsn} since {since}");
                let latest = recent().filter(|entry| entry.is_item()).count();
                assert_eq!(log.latest_after(position, since), Some(latest), "after {lsn} since {since}");
            }
        }
    }

    #[test]
    fn shown_entries_are_counted_in_chunks() {
        let mut log = FeedLog::default();
        check(&log, 1);
        for newest in 1..=3000 {
            log.push(entry(newest));
            let state = match newest % 7 {
                0 => RecordState::Dead,
                1 => RecordState::Tombstone,
                2 => RecordState::Superseded { at: 5 },
                _ => RecordState::Newest,
            };
            log.set_state(ChangeId { lsn: newest, op: 0 }, &Epk::MIN, state).unwrap();
        }
        check(&log, 3000);
        for lsn in (1..=3000).filter(|lsn| lsn % 7 > 0 && lsn % 5 > 0) {
            log.set_state(ChangeId { lsn, op: 0 }, &Epk::MIN, RecordState::Dead).unwrap();
            if lsn % 500 == 1 {
                check(&log, 3000);
            }
        }
        assert!(log.all().count() < 1000);
        check(&log, 3000);
        check(&FeedLog::from_sorted(log.all().cloned().collect()), 3000);
    }

    #[test]
    fn a_count_gives_up_if_older_and_newer_entries_alternate() {
        let written = |lsn, timestamp| Entry { timestamp, ..entry(lsn) };
        let count = |chunks: usize| {
            let entries = (1..=(chunks * CHUNK) as u64).map(|lsn| written(lsn, lsn % 2));
            let log = FeedLog::from_sorted(entries.collect());
            assert_eq!(log.latest_after(&Position::after(0), 0), Some(chunks * CHUNK));
            log.latest_after(&Position::after(0), 1)
        };
        // The chunk that a count begins in is always looked at.
        assert_eq!(count(MIXED_CHUNKS + 1), Some((MIXED_CHUNKS + 1) * CHUNK / 2));
        assert_eq!(count(MIXED_CHUNKS + 2), None);
    }

    #[test]
    fn changes_of_merged_ranges_that_share_an_lsn_are_told_apart() {
        let at = |lsn, key: u8, op| {
            let mut one = entry(lsn);
            one.key = Arc::new(Key::new(Epk::from_bytes(&[key]), ItemId::new("x").unwrap()));
            one.change_id.op = op;
            one
        };
        let all = [(1, 1, 0), (2, 1, 0), (2, 1, 1), (2, 5, 0), (2, 5, 1), (2, 9, 0), (3, 1, 0)];
        let log = FeedLog::from_sorted(all.iter().map(|(lsn, key, op)| at(*lsn, *key, *op)).collect());
        for (lsn, key, op) in all {
            let found = log.find(ChangeId { lsn, op }, &Epk::from_bytes(&[key])).unwrap();
            assert_eq!((found.change_id.lsn, found.key.epk.as_bytes(), found.change_id.op), (lsn, &[key][..], op));
        }
        assert!(log.find(ChangeId { lsn: 2, op: 0 }, &Epk::from_bytes(&[6])).is_none());
        assert!(log.find(ChangeId { lsn: 2, op: 2 }, &Epk::from_bytes(&[5])).is_none());
        let after = |lsn, key: u8| log.after(&Position { lsn, inside: Some(Epk::from_bytes(&[key])) }).count();
        assert_eq!([after(2, 0), after(2, 1), after(2, 4), after(2, 5), after(2, 9)], [6, 4, 4, 2, 1]);
        assert_eq!(log.after(&Position::after(2)).count(), 1);
    }

    #[test]
    fn entries_find_their_place_between_others_and_leave_small_chunks() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut lsns: Vec<u64> = (1..=9000).collect();
        random.shuffle(&mut lsns);
        let mut log = FeedLog::default();
        lsns.iter().for_each(|lsn| log.insert(entry(*lsn)));
        check(&log, 9000);
        assert!(log.all().map(|entry| entry.change_id.lsn).eq(1..=9000));
        random.shuffle(&mut lsns);
        for lsn in lsns.drain(20..) {
            log.set_state(ChangeId { lsn, op: 0 }, &Epk::MIN, RecordState::Dead).unwrap();
        }
        check(&log, 9000);
        assert!(log.chunks.len() < 9, "{} chunks for 20 entries", log.chunks.len());
        for lsn in lsns {
            assert!(log.find(ChangeId { lsn, op: 0 }, &Epk::MIN).unwrap().is_item());
        }
    }
}
