//! Choosing the entries of one page of changes. Pure: the page is read from disk afterwards, without any lock.

use changefeed_core::{FeedRange, ItemId, Mode, Operation};

use super::{
    Entry, Fate, Location,
    container::{ContainerIndex, History, RangeIndex},
};
use crate::format::record::{Place, RecordKind};

/// How many entries are looked at under the lock before others get their turn.
const SCAN_LIMIT: usize = 50_000;

/// Room is made for at most so many changes at once, however many are asked for.
const USUAL_ITEMS: usize = 100;

/// How many bytes a page holds at most, previous images included, transactions apart: as much as Azure Cosmos DB sends in
/// one response.
const PAGE_BYTES: u64 = 4 * 1024 * 1024;

/// What a server puts around each image.
const CHANGE_BYTES: u64 = 256;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) range: &'a FeedRange,
    pub(crate) after: u64,
    pub(crate) mode: Mode,
    pub(crate) not_before: u64,
    pub(crate) max_items: usize,
    pub(crate) now: u64,
}

/// One change to be read from disk.
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    pub(crate) id: ItemId,
    pub(crate) place: Place,
    /// The document number of the item.
    pub(crate) ordinal: u64,
    pub(crate) timestamp: u64,
    pub(crate) operation: Operation,
    pub(crate) current: Option<Location>,
    pub(crate) previous: Option<(Place, Option<Location>)>,
}

/// The outcome of one look at the index.
#[derive(Debug)]
pub(crate) enum Selection {
    /// These changes, and the LSN after which to go on.
    Page(Vec<Picked>, u64),
    /// Nothing so far: look again from this LSN on.
    Unfinished(u64),
    /// All-versions history after the wanted position is no longer complete.
    Expired,
}

/// Looks for the next page of `range`, one of the physical ranges of `container`.
pub(crate) fn select(container: &ContainerIndex, range: &RangeIndex, wanted: &Wanted<'_>) -> Selection {
    let entries = range.feed.after(wanted.after);
    if wanted.mode == Mode::AllVersions && history_is_cut(container, wanted, entries.first().map(|e| e.timestamp)) {
        return Selection::Expired;
    }
    let whole = wanted.range.contains_range(&range.physical.range);
    let mut picked: Vec<Picked> = Vec::with_capacity(wanted.max_items.min(entries.len()).min(USUAL_ITEMS));
    // Sharing an id writes to its place in memory, and each such write waits for the one before: look at all of them
    // first, which the processor does side by side.
    let near = entries.iter().take(wanted.max_items);
    std::hint::black_box(near.filter_map(|entry| entry.key.id.as_bytes().first()).fold(0_u8, |all, one| all ^ one));
    let mut bytes: u64 = 0;
    for (scanned, entry) in entries.iter().enumerate() {
        let last = picked.last().map(|picked| picked.place.lsn);
        if let Some(last) = last
            && picked.len() >= wanted.max_items
            && entry.place.lsn != last
        {
            return Selection::Page(picked, last);
        }
        if scanned >= SCAN_LIMIT && picked.is_empty() && entries[scanned - 1].place.lsn < entry.place.lsn {
            return Selection::Unfinished(entries[scanned - 1].place.lsn);
        }
        if entry.timestamp < wanted.not_before || !whole && !wanted.range.contains(&entry.key.epk) {
            continue;
        }
        let Some(operation) = shown_as(container, entry, wanted) else { continue };
        let current = (entry.kind == RecordKind::Put).then_some(entry.location);
        let previous = (wanted.mode == Mode::AllVersions && entry.previous.lsn > 0).then(|| {
            let older = range.feed.find(entry.previous).filter(|older| older.fate != Fate::Dead);
            (entry.previous, older.map(|older| older.location))
        });
        let images = current.into_iter().chain(previous.and_then(|(_, location)| location));
        let needed: u64 = images.map(|location| u64::from(location.bytes) + CHANGE_BYTES).sum();
        // A transaction is never cut, and a change that is larger than a page has one for itself.
        if let Some(last) = last
            && bytes + needed > PAGE_BYTES
            && entry.place.lsn != last
        {
            return Selection::Page(picked, last);
        }
        bytes += needed;
        let id = entry.key.id.clone();
        let Entry { place, ordinal, timestamp, .. } = *entry;
        picked.push(Picked { id, place, ordinal, timestamp, operation, current, previous });
    }
    Selection::Page(picked, container.newest)
}

fn shown_as(container: &ContainerIndex, entry: &Entry, wanted: &Wanted<'_>) -> Option<Operation> {
    match (wanted.mode, entry.fate, entry.kind) {
        (Mode::LatestVersion, Fate::Newest, RecordKind::Put) => {
            (!container.is_expired(entry, wanted.now)).then_some(Operation::Write)
        }
        (Mode::AllVersions, Fate::Newest | Fate::Superseded { .. }, kind) => match kind {
            RecordKind::Put if entry.previous.lsn == 0 => Some(Operation::Create),
            RecordKind::Put => Some(Operation::Replace),
            RecordKind::Delete => Some(Operation::Delete),
            RecordKind::Expire => Some(Operation::Expire),
            RecordKind::Floor => None,
        },
        _ => None,
    }
}

/// How many changes of the wanted kind come after `lsn`.
pub(crate) fn count(container: &ContainerIndex, range: &RangeIndex, wanted: &Wanted<'_>, lsn: u64) -> u64 {
    let whole = wanted.range.contains_range(&range.physical.range) && wanted.not_before == 0;
    if whole && wanted.mode == Mode::AllVersions {
        return range.feed.shown_after(lsn) as u64;
    }
    if whole {
        // Expired items are deleted within half a second, so there are few.
        let is_here = |entry: &&Entry| entry.place.lsn > lsn && range.physical.range.contains(&entry.key.epk);
        let expired = container.expired(wanted.now).filter_map(|key| container.item(key)).filter(is_here).count();
        return range.feed.latest_after(lsn).saturating_sub(expired) as u64;
    }
    let shown = range.feed.after(lsn).iter().filter(|entry| {
        entry.timestamp >= wanted.not_before
            && wanted.range.contains(&entry.key.epk)
            && shown_as(container, entry, wanted).is_some()
    });
    shown.count() as u64
}

/// The tally of the position after `lsn` for readers of the keys `wanted`, a part of `range` or all of it.
pub(crate) fn tally(range: &RangeIndex, wanted: &FeedRange, lsn: u64) -> u64 {
    let total = range.tally.total(wanted);
    let waiting = if wanted.contains_range(&range.physical.range) {
        range.feed.shown_after(lsn)
    } else {
        let (near, far) = {
            let entries = range.feed.after(lsn);
            entries.split_at(entries.len().min(SCAN_LIMIT))
        };
        let waits = |entry: &&Entry| !entry.fate.is_hidden() && wanted.contains(&entry.key.epk);
        // Of what lies too far ahead, everything counts.
        near.iter().filter(waits).count() + far.len()
    };
    total.saturating_sub(waiting as u64)
}

/// Whether a change after the wanted position has left retention. What the clock says counts, not what was purged:
/// otherwise the answer would depend on when the store last tidied up.
fn history_is_cut(container: &ContainerIndex, wanted: &Wanted<'_>, oldest: Option<u64>) -> bool {
    let History::Milliseconds(retention) = container.history else { return true };
    wanted.after < container.purged || oldest.is_some_and(|at| at.saturating_add(retention) < wanted.now)
}
