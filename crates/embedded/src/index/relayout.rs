//! New ranges for a container, by a split or merge, whose feeds are copied in slices: writes, reads and compaction go on
//! between two slices, and no lock is held for longer than a slice takes.

use std::collections::BTreeMap;

use changefeed_core::{Epk, FeedRange};

use super::{
    Entry, RecordState,
    feed::FeedLog,
    range::{RangeIndex, RangeStart},
};
use crate::format::record::ChangeId;

/// The feeds of new ranges, as far as they are copied from those of the ranges that they replace.
///
/// What is copied is kept up to date: whoever changes an entry of the old ranges changes its copy, too, and an entry that
/// comes in at an order that was passed already is added to the copies. That happens in a merge, where the range that has
/// not come so far goes on below the LSNs of the other one.
#[derive(Debug)]
pub(super) struct Relayout {
    /// Where the ranges that go stand among the ranges of the container.
    sources: Vec<usize>,
    /// The key ranges and feeds of the new ones, in key order.
    targets: Vec<(FeedRange, FeedLog)>,
    /// Everything of the sources up to here has its copy, unless it is dead.
    copied: Option<(u64, Epk, u16)>,
    /// How many entries have come in behind what is copied since the last slice.
    grown: usize,
}

impl Relayout {
    /// Nothing copied yet. Ranges that keep id and keys are not concerned.
    pub(super) fn new(ranges: &[RangeIndex], wanted: &[RangeStart]) -> Self {
        let starts: BTreeMap<_, _> = wanted.iter().map(|start| (&start.physical.id, start)).collect();
        let stays = |range: &RangeIndex| starts.get(&range.physical.id).is_some_and(|start| start.is_start_of(range));
        let sources = (0..).zip(ranges).filter(|(_, range)| !stays(range)).map(|(position, _)| position).collect();
        let targets = new_ranges(ranges, wanted).map(|range| (range.clone(), FeedLog::default())).collect();
        Self { sources, targets, copied: None, grown: 0 }
    }

    /// Whether it is about these ranges.
    pub(super) fn is_for(&self, ranges: &[RangeIndex], wanted: &[RangeStart]) -> bool {
        new_ranges(ranges, wanted).eq(self.targets.iter().map(|(range, _)| range))
    }

    /// Copies about `limit` entries, and more if many came in since the last slice: otherwise it might never end. Says
    /// whether everything is copied.
    pub(super) fn advance(&mut self, ranges: &[RangeIndex], limit: usize) -> bool {
        let limit = limit.saturating_add(2 * std::mem::take(&mut self.grown));
        let copied = self.copied.clone();
        let feeds = self.sources.iter().filter_map(|position| ranges.get(*position)).map(|range| {
            let rest: Box<dyn Iterator<Item = &Entry>> = match &copied {
                Some((lsn, epk, op)) => Box::new(range.feed.after_order((*lsn, epk, *op))),
                None => Box::new(range.feed.all()),
            };
            rest
        });
        let mut feeds: Vec<_> = feeds.collect();
        let mut heads: Vec<Option<&Entry>> = feeds.iter_mut().map(Iterator::next).collect();
        let (mut left, mut last) = (limit, None);
        let is_complete = loop {
            let next = heads.iter().enumerate().filter_map(|(at, head)| Some((at, (*head)?)));
            let Some((at, entry)) = next.min_by(|(_, a), (_, b)| a.order().cmp(&b.order())) else { break true };
            if left == 0 {
                break false;
            }
            heads[at] = feeds[at].next();
            left -= 1;
            last = Some(entry);
            if entry.state != RecordState::Dead
                && let Some(feed) = target(&mut self.targets, &entry.key.epk)
            {
                feed.push(entry.clone());
            }
        };
        if let Some(last) = last {
            self.copied = Some((last.change_id.lsn, last.key.epk.clone(), last.change_id.op));
        }
        is_complete
    }

    /// Takes note of an entry that came in.
    pub(super) fn add(&mut self, entry: &Entry) {
        if !self.targets.iter().any(|(range, _)| range.contains(&entry.key.epk)) {
            return;
        }
        match self.copy_of(entry.change_id, &entry.key.epk) {
            Some(feed) => feed.insert(entry.clone()),
            None => self.grown += 1,
        }
    }

    /// The feed that has the copy of an entry; none if it is not copied yet, or not concerned.
    pub(super) fn copy_of(&mut self, change_id: ChangeId, epk: &Epk) -> Option<&mut FeedLog> {
        let (lsn, last, op) = self.copied.as_ref()?;
        if (change_id.lsn, epk, change_id.op) > (*lsn, last, *op) {
            return None;
        }
        target(&mut self.targets, epk)
    }

    /// The feeds of the new ranges, in key order.
    pub(super) fn into_feeds(self) -> impl Iterator<Item = FeedLog> {
        self.targets.into_iter().map(|(_, feed)| feed)
    }
}

/// The keys of the ranges that are wanted but not there.
fn new_ranges<'a>(ranges: &'a [RangeIndex], wanted: &'a [RangeStart]) -> impl Iterator<Item = &'a FeedRange> {
    let ranges: BTreeMap<_, _> = ranges.iter().map(|range| (&range.physical.id, range)).collect();
    let is_new =
        move |start: &&RangeStart| !ranges.get(&start.physical.id).is_some_and(|range| start.is_start_of(range));
    wanted.iter().filter(is_new).map(|start| &start.physical.range)
}

fn target<'a>(targets: &'a mut [(FeedRange, FeedLog)], epk: &Epk) -> Option<&'a mut FeedLog> {
    targets.iter_mut().find(|(range, _)| range.contains(epk)).map(|(_, feed)| feed)
}

#[cfg(test)]
mod tests {
    use std::{ops::ControlFlow, sync::Arc};

    use changefeed_core::{ItemId, PhysicalRange, RangeId, TimeToLive};

    use super::*;
    use crate::{
        format::record::{RecordHeader, RecordKind},
        index::{
            Key, Location,
            container::{ContainerIndex, History},
            horizon::Horizon,
            position::Position,
        },
    };

    fn start(id: u64, min: u8, max: u8, lsn: u64) -> RangeStart {
        let range = FeedRange::new(Epk::from_bytes(&[min]), Epk::from_bytes(&[max])).unwrap();
        let horizon = Horizon::new(range.clone(), 0);
        RangeStart { physical: PhysicalRange { id: RangeId::from(id), range, parents: Vec::new() }, lsn, horizon }
    }

    /// Keys whose EPKs have these first bytes are the ones that exist.
    const KEYS: std::ops::Range<u8> = 1..101;

    /// Does the same to two indexes, of which one prepares another layout meanwhile.
    struct Pair {
        random: fastrand::Rng,
        plain: ContainerIndex,
        preparing: ContainerIndex,
        /// The records that were written, and where they lie.
        records: Vec<(Arc<Key>, ChangeId, Location)>,
        now: u64,
    }

    impl Pair {
        fn new(seed: u64, ranges: &[RangeStart], history: History) -> Self {
            let index = || ContainerIndex::new(ranges.to_vec(), history, TimeToLive::Off);
            let random = fastrand::Rng::with_seed(seed);
            Self { random, plain: index(), preparing: index(), records: Vec::new(), now: 0 }
        }

        fn both(&mut self, mut change: impl FnMut(&mut ContainerIndex)) {
            change(&mut self.plain);
            change(&mut self.preparing);
        }

        fn step(&mut self) {
            self.now += 1;
            match self.random.u32(0..10) {
                0 => self.compact(),
                1 => {
                    let now = self.now;
                    self.both(|index| {
                        index.purge(now, 50, &mut |_| {});
                    });
                }
                2 => self.write(RecordKind::Delete),
                _ => self.write(RecordKind::Put),
            }
        }

        /// A transaction of a few items of one key.
        fn write(&mut self, kind: RecordKind) {
            // Most writes are to the first half, so that ranges come to different LSNs.
            let first = if self.random.u8(0..4) > 0 { self.random.u8(1..51) } else { self.random.u8(KEYS) };
            let epk = Epk::from_bytes(&[first]);
            let lsn = self.plain.range_of(&epk).unwrap().lsn + 1;
            for op in 0..self.random.u16(1..4) {
                let key = Arc::new(Key::new(epk.clone(), ItemId::new(op.to_string()).unwrap()));
                let old = self.plain.items.get(&key).filter(|state| state.live).map(|state| state.change_id);
                if kind == RecordKind::Delete && old.is_none() {
                    continue;
                }
                let change_id = ChangeId { lsn, op };
                let header = RecordHeader {
                    kind,
                    container: 1,
                    change_id,
                    previous: old.unwrap_or_default(),
                    document_number: self.records.len() as u64,
                    timestamp: self.now,
                    ttl: 0,
                };
                let location = Location { segment: 1, offset: self.records.len() as u32, bytes: 1 };
                self.records.push((Arc::clone(&key), change_id, location));
                self.both(|index| index.apply(Entry::new(&header, Arc::clone(&key), location), &mut |_| {}));
            }
        }

        /// Moves some records, and drops those that are dead.
        fn compact(&mut self) {
            for _ in 0..20 {
                if self.records.is_empty() {
                    return;
                }
                let at = self.random.usize(0..self.records.len());
                let (key, change_id, from) = self.records[at].clone();
                let to = Location { segment: from.segment + 1, ..from };
                let needed = self.plain.needs(&key.epk, change_id);
                assert_eq!(self.preparing.needs(&key.epk, change_id), needed);
                if needed {
                    self.records[at].2 = to;
                    self.both(|index| assert!(index.moved(&key.epk, change_id, from, to)));
                } else {
                    self.records.swap_remove(at);
                }
            }
        }

        fn change_ranges(&mut self, wanted: &[RangeStart]) {
            let ends: Vec<u64> = self.plain.ranges().iter().map(|range| range.lsn).collect();
            let newest = ends.into_iter().max().unwrap();
            let wanted: Vec<_> = wanted.iter().map(|start| RangeStart { lsn: newest, ..start.clone() }).collect();
            self.both(|index| drop(index.relayout(wanted.clone())));
        }

        fn check(&self) {
            let entries = |index: &ContainerIndex| -> Vec<_> {
                let shown = |entry: &Entry| (entry.change_id, Arc::clone(&entry.key), entry.state, entry.location);
                index.entries().map(shown).collect()
            };
            assert_eq!(entries(&self.preparing), entries(&self.plain));
            for (a, b) in self.preparing.ranges().iter().zip(self.plain.ranges()) {
                assert_eq!((&a.physical, a.lsn), (&b.physical, b.lsn));
                for lsn in (0..=a.lsn).step_by(97) {
                    let position = Position::after(lsn);
                    assert_eq!(a.feed.shown_after(&position, 0), b.feed.shown_after(&position, 0));
                    assert_eq!(a.feed.latest_after(&position, 0), b.feed.latest_after(&position, 0));
                }
            }
        }
    }

    /// Writes, prepares `after` in small slices while writing, and changes the ranges when all is prepared or given up.
    fn relayout_while_writing(seed: u64, before: &[RangeStart], after: &[RangeStart], history: History) {
        let mut pair = Pair::new(seed, before, history);
        (0..3000).for_each(|_| pair.step());
        pair.preparing.begin_relayout(after);
        let prepared = (0..1000).try_for_each(|_| {
            (0..pair.random.u32(0..40)).for_each(|_| pair.step());
            if pair.preparing.advance_relayout(30) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(prepared.is_break(), "preparing never caught up");
        // The committer ends it at once, but nothing may depend on that.
        (0..50).for_each(|_| pair.step());
        pair.change_ranges(after);
        pair.check();
        (0..500).for_each(|_| pair.step());
        pair.check();
    }

    const HISTORIES: [History; 2] = [History::Off, History::Milliseconds(700)];

    #[test]
    fn a_range_that_is_split_while_it_is_written_to_gives_the_same_as_one_that_rests() {
        for (seed, history) in (0..10).flat_map(|seed| HISTORIES.map(|history| (seed, history))) {
            let after = [start(1, 0, 30, 0), start(2, 30, 200, 0)];
            relayout_while_writing(seed, &[start(0, 0, 200, 0)], &after, history);
        }
    }

    #[test]
    fn ranges_that_are_merged_while_they_are_written_to_give_the_same_as_ranges_that_rest() {
        for (seed, history) in (0..10).flat_map(|seed| HISTORIES.map(|history| (seed, history))) {
            let before = [start(0, 0, 51, 0), start(1, 51, 80, 0), start(2, 80, 200, 0)];
            let after = [start(3, 0, 80, 0), start(2, 80, 200, 0)];
            relayout_while_writing(seed, &before, &after, history);
        }
    }

    #[test]
    fn what_was_prepared_for_other_ranges_is_not_used() {
        let mut pair = Pair::new(3, &[start(0, 0, 200, 0)], History::Off);
        (0..2000).for_each(|_| pair.step());
        pair.preparing.begin_relayout(&[start(1, 0, 30, 0), start(2, 30, 200, 0)]);
        pair.preparing.advance_relayout(100);
        (0..100).for_each(|_| pair.step());
        pair.change_ranges(&[start(1, 0, 60, 0), start(2, 60, 200, 0)]);
        pair.check();
        pair.preparing.begin_relayout(&[start(3, 0, 200, 0)]);
        pair.preparing.advance_relayout(100);
        assert!(!pair.preparing.abandon_relayout().is_empty());
        (0..100).for_each(|_| pair.step());
        pair.check();
    }
}
