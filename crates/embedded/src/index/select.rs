//! Choosing the entries of one page of changes. Pure: the page is read from disk afterwards, without any lock.

use changefeed_core::{FeedRange, ItemId, Mode, Operation};

use super::{
    Entry, Location, RecordState,
    container::{ContainerIndex, History},
    position::Position,
    range::RangeIndex,
};
use crate::format::record::{ChangeId, RecordKind};

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
pub(crate) struct PageRequest<'a> {
    pub(crate) range: &'a FeedRange,
    pub(crate) after: Position,
    pub(crate) mode: Mode,
    pub(crate) not_before: u64,
    pub(crate) max_items: usize,
    pub(crate) now: u64,
}

/// One change to be read from disk.
#[derive(Clone, Debug)]
pub(crate) struct SelectedChange {
    pub(crate) id: ItemId,
    pub(crate) change_id: ChangeId,
    /// The document number of the item.
    pub(crate) document_number: u64,
    pub(crate) timestamp: u64,
    pub(crate) operation: Operation,
    pub(crate) current: Option<Location>,
    pub(crate) previous: Option<(ChangeId, Option<Location>)>,
}

/// The outcome of one look at the index.
#[derive(Debug)]
pub(crate) enum Selection {
    /// These changes, and where to go on.
    Page(Vec<SelectedChange>, Position),
    /// Nothing so far: look again from here on.
    Unfinished(Position),
    /// All-versions history after the requested position is no longer complete.
    Expired,
}

/// Looks for the next page of `range`, one of the physical ranges of `container`.
pub(crate) fn select(container: &ContainerIndex, range: &RangeIndex, request: &PageRequest<'_>) -> Selection {
    if request.mode == Mode::AllVersions && history_is_cut(container, range, request) {
        return Selection::Expired;
    }
    let entries = range.feed.after(&request.after);
    let whole = request.range.contains_range(&range.physical.range);
    let mut page = Page::new(request, entries.size_hint().0);
    // Sharing an id writes to its place in memory, and each such write waits for the one before: look at all of them
    // first, which the processor does side by side.
    let near = entries.clone().take(request.max_items);
    std::hint::black_box(near.filter_map(|entry| entry.key.id.as_bytes().first()).fold(0_u8, |all, one| all ^ one));
    let mut before = 0;
    for (scanned, entry) in entries.enumerate() {
        let lsn_before = std::mem::replace(&mut before, entry.change_id.lsn);
        if page.is_full(0) && page.last_lsn() != Some(entry.change_id.lsn) {
            return page.end_before(entry);
        }
        if scanned >= SCAN_LIMIT && lsn_before < entry.change_id.lsn {
            let position = Position::after(lsn_before);
            // A page that has something is shorter then, rather than the wait of others longer.
            let has_some = !page.selected.is_empty();
            return if has_some { Selection::Page(page.selected, position) } else { Selection::Unfinished(position) };
        }
        if !whole && !request.range.contains(&entry.key.epk) {
            continue;
        }
        if request.mode == Mode::AllVersions && has_left(container, entry, request.now) {
            return Selection::Expired;
        }
        if entry.timestamp < request.not_before {
            continue;
        }
        let Some(operation) = shown_as(container, entry, request) else { continue };
        let current = (entry.kind == RecordKind::Put).then_some(entry.location);
        let previous = (request.mode == Mode::AllVersions && entry.previous.lsn > 0).then(|| {
            let older =
                range.feed.find(entry.previous, &entry.key.epk).filter(|older| older.state != RecordState::Dead);
            (entry.previous, older.map(|older| older.location))
        });
        let images = current.into_iter().chain(previous.and_then(|(_, location)| location));
        let needed: u64 = images.map(|location| u64::from(location.bytes) + CHANGE_BYTES).sum();
        if page.is_full(needed) && page.may_end_before(entry) {
            return page.end_before(entry);
        }
        let id = entry.key.id.clone();
        let Entry { change_id, document_number, timestamp, .. } = *entry;
        page.add(
            entry,
            SelectedChange { id, change_id, document_number, timestamp, operation, current, previous },
            needed,
        );
    }
    Selection::Page(page.selected, Position::after(range.lsn))
}

/// A page that is being filled.
struct Page<'a> {
    selected: Vec<SelectedChange>,
    bytes: u64,
    max_items: usize,
    last: Option<&'a Entry>,
    /// Where the changes of the last LSN begin.
    lsn_begins: usize,
}

impl<'a> Page<'a> {
    fn new(request: &PageRequest<'_>, waiting: usize) -> Self {
        let selected = Vec::with_capacity(request.max_items.min(waiting).min(USUAL_ITEMS));
        Self { selected, bytes: 0, max_items: request.max_items, last: None, lsn_begins: 0 }
    }

    /// Whether there is no room for another change of so many bytes. One that is larger than a page has one for itself.
    fn is_full(&self, needed: u64) -> bool {
        self.selected.len() >= self.max_items || !self.selected.is_empty() && self.bytes + needed > PAGE_BYTES
    }

    /// Whether the page, which has something, may end before an entry: a transaction is never cut.
    fn may_end_before(&self, entry: &Entry) -> bool {
        self.last.is_some_and(|last| last.change_id.lsn != entry.change_id.lsn || last.key.epk != entry.key.epk)
    }

    /// The page as it is. An LSN is cut only if its changes alone are more than a page: otherwise all of them are left
    /// to the next one.
    fn end_before(mut self, next: &Entry) -> Selection {
        let Some(last) = self.last else { return Selection::Page(self.selected, Position::after(0)) };
        if last.change_id.lsn != next.change_id.lsn {
            return Selection::Page(self.selected, Position::after(last.change_id.lsn));
        }
        self.selected.truncate(if self.lsn_begins > 0 { self.lsn_begins } else { self.selected.len() });
        let position = match self.selected.last() {
            Some(before) if before.change_id.lsn != last.change_id.lsn => Position::after(before.change_id.lsn),
            _ => Position { lsn: last.change_id.lsn, inside: Some(last.key.epk.clone()) },
        };
        Selection::Page(self.selected, position)
    }

    fn last_lsn(&self) -> Option<u64> {
        self.last.map(|last| last.change_id.lsn)
    }

    fn add(&mut self, entry: &'a Entry, selected: SelectedChange, bytes: u64) {
        if self.last.is_none_or(|last| last.change_id.lsn != entry.change_id.lsn) {
            self.lsn_begins = self.selected.len();
        }
        self.selected.push(selected);
        self.bytes += bytes;
        self.last = Some(entry);
    }
}

fn shown_as(container: &ContainerIndex, entry: &Entry, request: &PageRequest<'_>) -> Option<Operation> {
    match (request.mode, entry.state, entry.kind) {
        (Mode::LatestVersion, RecordState::Newest, RecordKind::Put) => {
            (!container.is_expired(entry, request.now)).then_some(Operation::Write)
        }
        (Mode::AllVersions, RecordState::Newest | RecordState::Superseded { .. }, kind) => match kind {
            RecordKind::Put if entry.previous.lsn == 0 => Some(Operation::Create),
            RecordKind::Put => Some(Operation::Replace),
            RecordKind::Delete => Some(Operation::Delete),
            RecordKind::Expire => Some(Operation::Expire),
            RecordKind::Watermark => None,
        },
        _ => None,
    }
}

/// More expired items than this, or more entries of a part of a range, are not counted under the lock.
const COUNT_LIMIT: usize = 10_000;

/// How many changes of the requested kind come after `position`. None if that cannot be said soon: many items have just
/// expired, the container got another time to live, or a part of a range is asked for and the range has many entries after
/// `position`.
pub(crate) fn count(
    container: &ContainerIndex,
    range: &RangeIndex,
    request: &PageRequest<'_>,
    position: &Position,
) -> Option<u64> {
    let counted = if !request.range.contains_range(&range.physical.range) {
        count_part(container, range, request, position)?
    } else if request.mode == Mode::AllVersions {
        range.feed.shown_after(position, request.not_before)?
    } else {
        // Expired items are deleted within half a second, so there are few in most cases.
        let expired = || container.expiry.expired(request.now);
        if !container.expiry.is_complete() || expired().nth(COUNT_LIMIT).is_some() {
            return None;
        }
        let is_here = |entry: &&Entry| {
            entry.timestamp >= request.not_before
                && position.is_before(entry.change_id.lsn, &entry.key.epk)
                && range.physical.range.contains(&entry.key.epk)
        };
        let expired = expired().filter_map(|key| container.item(key)).filter(is_here).count();
        range.feed.latest_after(position, request.not_before)?.saturating_sub(expired)
    };
    Some(counted as u64)
}

/// Counts entry by entry: no number is kept for a part of a range.
fn count_part(
    container: &ContainerIndex,
    range: &RangeIndex,
    request: &PageRequest<'_>,
    position: &Position,
) -> Option<usize> {
    let mut counted = 0;
    for (looked, entry) in range.feed.after(position).enumerate() {
        if looked == COUNT_LIMIT {
            return None;
        }
        let is_counted = entry.timestamp >= request.not_before
            && shown_as(container, entry, request).is_some()
            && request.range.contains(&entry.key.epk);
        counted += usize::from(is_counted);
    }
    Some(counted)
}

/// Whether a change after the requested position is known to have left retention.
fn history_is_cut(container: &ContainerIndex, range: &RangeIndex, request: &PageRequest<'_>) -> bool {
    container.history == History::Off || request.after.complete() < range.horizon.over(request.range)
}

/// Whether a change has left retention. What the clock says counts, not what was purged: otherwise the answer would
/// depend on when the store last tidied up.
fn has_left(container: &ContainerIndex, entry: &Entry, now: u64) -> bool {
    matches!(container.history, History::Milliseconds(retention) if entry.timestamp.saturating_add(retention) < now)
}
