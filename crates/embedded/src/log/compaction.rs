//! Compaction: rewriting segments without the records that mean nothing any more. Order is kept, so the log stays
//! the feed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use changefeed_core::{Epk, ItemId, Result};
use parking_lot::Mutex;

use super::{Segment, damaged_record, io_error, recovery};
use crate::{
    commit::{Committer, append_watermark},
    format::{
        frame::{FrameHeader, FrameKind, HEADER_BYTES},
        record::{ChangeId, RecordKind},
        segment::{self, Span},
    },
    index::{Key, Location, container::ContainerIndex, range::Watermark},
    inner::Inner,
    log::writer::FrameBuffer,
    metrics::Stopwatch,
    state::State,
    vfs::VfsFile,
};

const TEMPORARY_NAME: &str = "compact.tmp";

/// Frames of a compacted segment are about this long, with a sync after each: many small syncs hold up commits less
/// than a large one.
const FRAME_BYTES: usize = 1024 * 1024;

/// How much may be dead before something is rewritten, in percent. Less means more rewriting, more means more disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// Of all sealed segments together.
    pub(crate) overall: u64,
    /// Of a single segment, whatever the others look like.
    pub(crate) single: u64,
    /// On a full disk one segment is rewritten at a time.
    pub(crate) alone: Option<Alone>,
}

/// Which segments can be rewritten on a full disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone {
    /// So many bytes must be dead, unless all of them are.
    pub(crate) least_dead: u64,
    /// There is room for so many that are not.
    pub(crate) most_live: u64,
}

impl Tolerance {
    /// While commits go on: rewriting competes with them.
    pub(crate) const BUSY: Self = Self { overall: 40, single: 75, alone: None };

    /// When there is nothing else to do.
    pub(crate) const IDLE: Self = Self { overall: 10, single: 30, alone: None };

    /// On a full disk: the segment with least in it.
    pub(crate) const fn alone(alone: Alone) -> Self {
        Self { alone: Some(alone), ..Self::IDLE }
    }
}

/// What the choice looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight {
    pub(crate) used: u64,
    pub(crate) dead: u64,
}

impl Weight {
    fn live(self) -> u64 {
        self.used.saturating_sub(self.dead)
    }

    fn dead_percent(self) -> u64 {
        (self.dead * 100).checked_div(self.used).unwrap_or(0)
    }
}

/// How long segments are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    /// Of a segment of a large store: what is rewritten together becomes no longer.
    pub(crate) longest: u64,
    /// Of a new segment: shorter while the store is small.
    pub(crate) new: u64,
}

/// Which neighbours to rewrite into one, of sealed segments in the order of the log; none if all is well. Pure.
pub(crate) fn choose(sealed: &[Weight], lengths: Lengths, tolerance: Tolerance) -> Option<std::ops::Range<usize>> {
    let used: u64 = sealed.iter().map(|weight| weight.used).sum();
    let dead: u64 = sealed.iter().map(|weight| weight.dead).sum();
    let by_dead_percent = |at: &usize| (sealed[*at].dead_percent(), std::cmp::Reverse(*at));
    if let Some(Alone { least_dead, most_live }) = tolerance.alone {
        let can_be_rewritten = |at: &usize| {
            let (dead, live) = (sealed[*at].dead, sealed[*at].live());
            live <= most_live && (dead >= least_dead || dead > 0 && live == 0)
        };
        return (0..sealed.len()).filter(can_be_rewritten).max_by_key(by_dead_percent).map(|at| at..at + 1);
    }
    let worst = (0..sealed.len()).max_by_key(by_dead_percent);
    let crowded = dead * 100 > used * tolerance.overall;
    let worst = worst.filter(|at| {
        let percent = sealed[*at].dead_percent();
        percent >= tolerance.single || (crowded && percent > 0)
    });
    // Against those that are begun now: in a small store all are short, and would be rewritten with every new one.
    let small = |weight: &Weight| weight.live() < lengths.new / 4;
    let pair = || sealed.windows(2).position(|pair| pair.iter().all(small));
    let (first, mut last) = match (worst, pair()) {
        (Some(worst), _) => (worst, worst),
        (None, Some(first)) => (first, first + 1),
        (None, None) => return None,
    };
    let mut live: u64 = sealed[first..=last].iter().map(|weight| weight.live()).sum();
    while let Some(next) = sealed.get(last + 1)
        && live + next.live() <= lengths.longest
        && (small(next) || next.dead_percent() >= tolerance.overall)
    {
        live += next.live();
        last += 1;
    }
    Some(first..last + 1)
}

/// Whether there is anything to rewrite.
pub(crate) fn is_due(inner: &Inner, tolerance: Tolerance) -> bool {
    !chosen_segments(inner, tolerance).is_empty()
}

fn chosen_segments(inner: &Inner, tolerance: Tolerance) -> Vec<Segment> {
    let state = inner.state.read();
    let sealed: Vec<&Segment> = state.segments.0.values().filter(|segment| segment.sealed).collect();
    let weights: Vec<_> = sealed.iter().map(|segment| Weight { used: segment.used, dead: segment.dead }).collect();
    // What is damaged goes first: as long as it is there, only newer records prove that it is not needed.
    let is_damaged = |segment: &&Segment| state.damaged.iter().any(|(damaged, _)| *damaged == segment.span.first);
    let damaged = sealed.iter().position(is_damaged).map(|at| at..at + 1);
    let longest = inner.segment_bytes.saturating_sub(64 * 1024);
    let lengths = Lengths { longest, new: longest.min(inner.segment_bytes_for(state.segments.used_bytes())) };
    let chosen = damaged.or_else(|| choose(&weights, lengths, tolerance)).unwrap_or_default();
    sealed[chosen].iter().map(|segment| (*segment).clone()).collect()
}

/// Rewrites what [`choose`] chooses. Says whether there was anything to do.
pub(crate) fn compact_once(inner: &Inner, committer: &Mutex<Committer>, tolerance: Tolerance) -> Result<bool> {
    let inputs = chosen_segments(inner, tolerance);
    if inputs.is_empty() {
        return Ok(false);
    }
    let begun = Stopwatch::start();
    let rewritten = rewrite(inner, committer, &inputs);
    if rewritten.is_err() {
        // Half a segment is of no use, and the disk may be full. If it stays, the next attempt overwrites it.
        drop(inner.vfs.remove(TEMPORARY_NAME));
    }
    let used = rewritten?;
    let before: u64 = inputs.iter().map(|segment| segment.used).sum();
    inner.health.metrics.compacted(before.saturating_sub(used), begun.elapsed());
    Ok(true)
}

/// Returns how many bytes are left.
fn rewrite(inner: &Inner, committer: &Mutex<Committer>, inputs: &[Segment]) -> Result<u64> {
    let mut rewrite = Rewrite::begin(inner, committer, inputs)?;
    for input in inputs {
        rewrite.copy(input)?;
    }
    rewrite.finish(inputs)
}

/// A record of an input segment.
struct Found<'a> {
    kind: RecordKind,
    container: u32,
    epk: Epk,
    id: &'a str,
    change_id: ChangeId,
    /// Its document number.
    number: u64,
    location: Location,
}

/// A record that is in the new segment.
struct Moved {
    container: u32,
    epk: Epk,
    change_id: ChangeId,
    from: Location,
    to: Location,
}

/// A record that is not.
struct Dropped {
    kind: RecordKind,
    container: u32,
    key: Arc<Key>,
    lsn: u64,
    number: u64,
}

struct Rewrite<'a> {
    inner: &'a Inner,
    committer: &'a Mutex<Committer>,
    span: Span,
    file: Arc<dyn VfsFile>,
    offset: u64,
    next_frame: u32,
    frame: FrameBuffer,
    used: u64,
    moved: Vec<Moved>,
    dropped: Vec<Dropped>,
    /// What the inputs say about records that were dropped before, with their containers.
    watermarks: Vec<(u32, Watermark)>,
    /// Whether records were dropped that cannot be read.
    has_dropped_damage: bool,
}

impl<'a> Rewrite<'a> {
    fn begin(inner: &'a Inner, committer: &'a Mutex<Committer>, inputs: &[Segment]) -> Result<Self> {
        let first = inputs.first().map_or(1, |segment| segment.span.first);
        let last = inputs.last().map_or(first, |segment| segment.span.last);
        let span = Span { first, last };
        let create = || {
            let file = inner.vfs.create(TEMPORARY_NAME)?;
            file.write_at(0, &segment::encode_header(span, segment::WHOLE))?;
            Ok(file)
        };
        let file = create().map_err(|error| io_error("begin a compacted segment", error))?;
        Ok(Self {
            inner,
            committer,
            span,
            file,
            offset: segment::HEADER_BYTES as u64,
            next_frame: 1,
            frame: FrameBuffer::new(),
            used: 0,
            moved: Vec::new(),
            dropped: Vec::new(),
            watermarks: Vec::new(),
            has_dropped_damage: false,
        })
    }

    fn copy(&mut self, input: &Segment) -> Result<()> {
        let bytes = recovery::read_file(input)?;
        let mut found = Vec::new();
        let mut scratch = Segment::new(input.span, Arc::clone(&input.file));
        let (watermarks, mut damaged) = (&mut self.watermarks, BTreeSet::new());
        let known = self.inner.state.read().damaged.clone();
        recovery::read_segment(&mut scratch, &bytes, false, &mut |location, record| {
            let header = &record.header;
            if !record.is_whole && !known.contains(&(location.segment, location.offset)) {
                // Nothing that it says can be trusted.
                damaged.insert(location.offset);
                return;
            }
            if header.kind == RecordKind::Watermark {
                let (epk, lsn, purged) = (Epk::from_bytes(record.epk), header.change_id.lsn, header.previous.lsn);
                watermarks.push((header.container, Watermark { epk, lsn, purged, number: header.document_number }));
            } else {
                let (kind, container, change_id) = (header.kind, header.container, header.change_id);
                let (epk, id, number) = (Epk::from_bytes(record.epk), record.id, header.document_number);
                found.push(Found { kind, container, epk, id, change_id, number, location });
            }
        })?;
        if !damaged.is_empty() {
            self.drop_damaged(input.span, &damaged)?;
        }
        for chunk in found.chunks(512) {
            let needed: Vec<bool> = {
                let state = self.inner.state.read();
                chunk.iter().map(|found| is_needed(&state, found)).collect()
            };
            for (found, needed) in chunk.iter().zip(needed) {
                let at = found.location.offset as usize;
                match bytes.get(at..at + found.location.bytes as usize) {
                    Some(record) if needed => self.keep(found, record)?,
                    _ => self.drop_record(found),
                }
            }
        }
        Ok(())
    }

    fn drop_record(&mut self, found: &Found<'_>) {
        if let Ok(id) = ItemId::new(found.id) {
            let key = Arc::new(Key::new(found.epk.clone(), id));
            let Found { kind, container, number, change_id: ChangeId { lsn, .. }, .. } = *found;
            self.dropped.push(Dropped { kind, container, key, lsn, number });
        }
    }

    /// Leaves out records that were damaged while the store was open, if nobody needs them. The index was made when they
    /// were whole, and knows where everything lies that is needed.
    fn drop_damaged(&mut self, span: Span, offsets: &BTreeSet<u32>) -> Result<()> {
        let state = self.inner.state.read();
        let is_damaged = |location: &Location| location.segment == span.first && offsets.contains(&location.offset);
        let mut needed = state.indexes.values().flat_map(ContainerIndex::entries).map(|entry| entry.location);
        if let Some(location) = needed.find(is_damaged) {
            return Err(damaged_record(span, location));
        }
        tracing::warn!(
            segment = span.file_name(),
            records = offsets.len(),
            "compaction drops damaged, replaced records"
        );
        self.has_dropped_damage = true;
        Ok(())
    }

    fn keep(&mut self, found: &Found<'_>, record: &[u8]) -> Result<()> {
        let offset = self.offset + self.frame.bytes.len() as u64;
        let to = Location { segment: self.span.first, offset: offset as u32, bytes: found.location.bytes };
        self.frame.bytes.extend_from_slice(record);
        self.frame.records += 1;
        let (container, change_id, from) = (found.container, found.change_id, found.location);
        self.moved.push(Moved { container, epk: found.epk.clone(), change_id, from, to });
        if self.frame.payload() >= FRAME_BYTES { self.flush(FrameKind::Data) } else { Ok(()) }
    }

    fn flush(&mut self, kind: FrameKind) -> Result<()> {
        self.used += self.frame.payload() as u64;
        let payload = self.frame.payload() as u32;
        let (records, number) = (self.frame.records, self.next_frame);
        let header = FrameHeader { kind, payload, records, number, synced: number - 1 };
        self.frame.bytes[..HEADER_BYTES].copy_from_slice(&header.encode(self.span.first));
        self.frame.bytes.resize(header.total_bytes() as usize, 0);
        let written = self.file.write_at(self.offset, &self.frame.bytes).and_then(|()| self.file.sync());
        written.map_err(|error| io_error("write a compacted segment", error))?;
        self.offset += header.total_bytes();
        self.next_frame += 1;
        self.frame.clear();
        Ok(())
    }

    fn finish(mut self, inputs: &[Segment]) -> Result<u64> {
        let dropped = self.dropped.iter().map(|dropped| {
            let (lsn, number) = (dropped.lsn, dropped.number);
            (dropped.container, Watermark { epk: dropped.key.epk.clone(), lsn, purged: 0, number })
        });
        let gone = std::mem::take(&mut self.watermarks).into_iter().chain(dropped);
        let watermarks = {
            let state = self.inner.state.read();
            // What damaged records said of LSNs and history, nobody can read: so everything that is known is written down.
            if self.has_dropped_damage { all_watermarks(&state) } else { necessary(&state, gone) }
        };
        for (container, watermark) in watermarks {
            append_watermark(&mut self.frame, container, &watermark);
        }
        if !self.frame.is_empty() {
            self.flush(FrameKind::Data)?;
        }
        self.flush(FrameKind::Seal)?;
        self.switch_files()?;
        let (inner, name, used) = (self.inner, self.span.file_name(), self.used);
        self.install(inputs);
        for old in inputs.iter().map(|input| input.span.file_name()).filter(|old| *old != name) {
            // A file that stays is found to be covered, and removed, when the folder is next opened.
            drop(inner.vfs.remove(&old));
        }
        Ok(used)
    }

    fn switch_files(&self) -> Result<()> {
        // What replaced the dropped records must be on disk before they go, also in relaxed mode. The committer syncs,
        // because a failure is reported once, and only to whoever asks first.
        let mut committer = self.committer.lock();
        committer.sync()?;
        let vfs = &self.inner.vfs;
        let switched = vfs.rename(TEMPORARY_NAME, &self.span.file_name()).and_then(|()| vfs.sync_folder());
        // If nobody knows which of the two files is there, nothing may be built on either.
        switched.map_err(|error| committer.fail("put a compacted segment in place", error))
    }

    fn install(self, inputs: &[Segment]) {
        let mut state = self.inner.state.write();
        let State { segments, recent, indexes, damaged, .. } = &mut *state;
        recent.forget(self.span);
        damaged.retain(|(segment, _)| !(self.span.first..=self.span.last).contains(segment));
        if damaged.is_empty() {
            self.inner.health.damage_is_gone();
        }
        for input in inputs {
            segments.0.remove(&input.span.first);
        }
        let mut made = Segment::new(self.span, self.file);
        made.used = self.used;
        made.sealed = true;
        segments.0.insert(self.span.first, made);
        for Moved { container, epk, change_id, from, to } in self.moved {
            let index = indexes.get_mut(&container);
            if !index.is_some_and(|index| index.moved(&epk, change_id, from, to)) {
                segments.mark_dead(to);
            }
        }
        for dropped in self.dropped.into_iter().filter(|dropped| dropped.kind == RecordKind::Put) {
            if let Some(index) = indexes.get_mut(&dropped.container) {
                index.dropped(&dropped.key, &mut |location| segments.mark_dead(location));
            }
        }
    }
}

fn is_needed(state: &State, found: &Found<'_>) -> bool {
    state.indexes.get(&found.container).is_some_and(|index| index.needs(&found.epk, found.change_id))
}

/// What is used up and gone in each part of each range.
fn all_watermarks(state: &State) -> Vec<(u32, Watermark)> {
    let ranges = state
        .indexes
        .iter()
        .flat_map(|(container, index)| index.ranges().iter().map(move |range| (*container, index.number, range)));
    let parts = ranges.flat_map(|(container, number, range)| {
        range.horizon.parts().iter().map(move |part| {
            let epk = part.range.min_inclusive().clone();
            (container, Watermark { epk, lsn: range.lsn, purged: part.lsn, number })
        })
    });
    parts.collect()
}

/// Of what is known of dropped records, one watermark for each part of a range, where no other record says the same: where
/// the last LSN of a range, the last document number of a container or history is gone.
fn necessary(state: &State, gone: impl Iterator<Item = (u32, Watermark)>) -> Vec<(u32, Watermark)> {
    let mut watermarks: BTreeMap<(u32, usize, usize), Watermark> = BTreeMap::new();
    for (container, watermark) in gone {
        let Some(index) = state.indexes.get(&container) else { continue };
        let at = index.range_position(&watermark.epk);
        let Some(range) = index.ranges().get(at) else { continue };
        let part = range.horizon.position(&watermark.epk);
        let purged = range.horizon.parts().get(part).map_or(0, |part| part.lsn);
        let sum = watermarks.entry((container, at, part)).or_insert_with(|| Watermark { purged, ..watermark.clone() });
        sum.lsn = sum.lsn.max(watermark.lsn);
        sum.number = sum.number.max(watermark.number);
    }
    let is_last = |index: &ContainerIndex, at: usize, watermark: &Watermark| {
        let is_last_lsn = index.ranges().get(at).is_some_and(|range| watermark.lsn >= range.lsn);
        is_last_lsn || watermark.number >= index.number || watermark.purged > 0
    };
    let needed = watermarks.into_iter().filter(|((container, at, _), watermark)| {
        state.indexes.get(container).is_some_and(|index| is_last(index, *at, watermark))
    });
    needed.map(|((container, ..), watermark)| (container, watermark)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(list: &[(u64, u64)]) -> Vec<Weight> {
        list.iter().map(|(used, dead)| Weight { used: *used, dead: *dead }).collect()
    }

    const LENGTHS: Lengths = Lengths { longest: 100, new: 100 };

    const TOLERANCE: Tolerance = Tolerance { overall: 18, single: 50, alone: None };

    #[test]
    fn nothing_is_rewritten_while_little_is_dead() {
        assert_eq!(choose(&[], LENGTHS, TOLERANCE), None);
        assert_eq!(choose(&weights(&[(100, 10), (100, 25)]), LENGTHS, TOLERANCE), None);
    }

    #[test]
    fn the_worst_segment_is_rewritten_with_neighbours_that_fit() {
        let chosen = |list: &[(u64, u64)]| choose(&weights(list), LENGTHS, TOLERANCE);
        assert_eq!(chosen(&[(100, 10), (100, 60), (100, 50), (100, 0)]), Some(1..3));
        assert_eq!(chosen(&[(100, 30), (100, 0)]), None);
        assert_eq!(chosen(&[(100, 40), (100, 0)]), Some(0..1));
    }

    #[test]
    fn on_a_full_disk_the_segment_with_least_in_it_is_rewritten_alone() {
        let alone = Tolerance::alone(Alone { least_dead: 20, most_live: 90 });
        let chosen = |list: &[(u64, u64)]| choose(&weights(list), LENGTHS, alone);
        assert_eq!(chosen(&[(100, 60), (100, 95), (100, 60)]), Some(1..2));
        assert_eq!(chosen(&[(100, 19), (100, 20), (5, 0)]), Some(1..2));
        assert_eq!(chosen(&[(100, 19), (10, 10)]), Some(1..2));
        // What is left would not fit.
        assert_eq!(chosen(&[(1000, 900)]), None);
        // Nothing would be freed by making one of two small ones.
        assert_eq!(chosen(&[(100, 19), (5, 0), (5, 0)]), None);
    }

    #[test]
    fn small_neighbours_become_one() {
        assert_eq!(choose(&weights(&[(100, 0), (10, 0), (20, 0), (90, 0)]), LENGTHS, TOLERANCE), Some(1..3));
    }

    #[test]
    fn the_segments_of_a_small_store_are_not_rewritten_only_because_they_are_short() {
        let lengths = Lengths { longest: 1000, new: 50 };
        assert_eq!(choose(&weights(&[(60, 5), (50, 0), (50, 10), (40, 0)]), lengths, Tolerance::BUSY), None);
        assert_eq!(choose(&weights(&[(60, 5), (10, 0), (11, 0)]), lengths, Tolerance::BUSY), Some(1..3));
    }

    #[test]
    fn choosing_comes_to_an_end() {
        for tolerance in [TOLERANCE, Tolerance::BUSY, Tolerance::IDLE] {
            let mut segments = weights(&[(100, 30), (90, 80), (100, 19), (10, 9), (70, 0), (20, 20), (100, 55)]);
            let mut rounds = 0;
            while let Some(chosen) = choose(&segments, LENGTHS, tolerance) {
                let live = segments[chosen.clone()].iter().map(|weight| weight.live()).sum();
                segments.splice(chosen, [Weight { used: live, dead: 0 }]);
                rounds += 1;
                assert!(rounds < 20, "still choosing: {segments:?}");
            }
        }
    }
}
