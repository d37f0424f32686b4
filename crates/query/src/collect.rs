//! Collectors of a page: rows in the order of the listing, the first rows by sort key, or groups.

use std::collections::BTreeMap;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};

use crate::ast::Select;
use crate::context::Context;
use crate::cursor::Cursor;
use crate::eval::{self, Env, Group};
use crate::order;
use crate::row::Row;
use crate::value::Value;

/// A page ends when its rows reach this size; the limit of Cosmos DB is 4 MiB for the whole response.
const PAGE_BYTES: usize = 3 * 1024 * 1024;
/// Rows that are only skipped may take more room than a page, or each page would skip little.
const SKIP_BYTES: usize = 32 * 1024 * 1024;
/// Rows of a sorted query that are kept for the pages after this one, so that not every page sorts everything again.
const AHEAD_ROWS: usize = 10_000;
/// The size of those rows.
const AHEAD_BYTES: usize = 8 * 1024 * 1024;
/// Groups held for one page.
const PAGE_GROUPS: usize = 20_000;
/// The size of all groups.
const GROUP_BYTES: usize = 32 * 1024 * 1024;
/// The size of the keys of distinct rows that are sorted by something else.
const DISTINCT_BYTES: usize = 64 * 1024 * 1024;
/// The overhead of an entry of a map.
const ENTRY_BYTES: usize = 64;

/// Rows in the order of the listing.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) rows: Vec<Vec<u8>>,
    pub(crate) bytes: usize,
    pub(crate) begin_after: Option<String>,
    pub(crate) after: Option<String>,
    /// An item of which the first rows are used.
    pub(crate) partial: Option<(String, u64)>,
    /// A row was found that the page has no room for.
    pub(crate) overflow: bool,
}

/// Rows in the order of a key: only the best of the page are kept.
#[derive(Debug, Default)]
pub(crate) struct Keyed {
    pub(crate) floor: Option<Vec<u8>>,
    /// Where an SDK resumes, and whether rows at that very place are left out.
    pub(crate) resume: Option<(Vec<u8>, bool)>,
    pub(crate) best: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) bytes: usize,
    /// Rows beyond those that are kept exist.
    pub(crate) more: bool,
    /// All items were pushed: the rows are sorted and complete.
    pub(crate) sorted: bool,
    /// The place of each distinct row, by hash, where rows are distinct by something else than they are sorted by.
    pub(crate) firsts: Option<BTreeMap<u128, Vec<u8>>>,
    pub(crate) firsts_bytes: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) floor: Option<Vec<u8>>,
    pub(crate) best: BTreeMap<Vec<u8>, Group>,
    pub(crate) bytes: usize,
    pub(crate) more: bool,
}

/// Returns the number of rows that the page can use, including those to skip.
pub(crate) fn room(max_items: usize, skip: u64, take: Option<u64>) -> usize {
    let take = take.map_or(usize::MAX, |take| usize::try_from(take).unwrap_or(usize::MAX));
    max_items.min(take).saturating_add(usize::try_from(skip).unwrap_or(usize::MAX))
}

/// Takes rows out of sorted entries until the page is full.
pub(crate) fn emit<T>(
    entries: &mut BTreeMap<Vec<u8>, T>,
    row_of: impl Fn(T) -> Option<Vec<u8>>,
    max_items: usize,
    skip: &mut u64,
    take: &mut Option<u64>,
    cursor: &mut Cursor,
) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    let mut bytes = 0;
    let mut last = None;
    while rows.len() < max_items && bytes < PAGE_BYTES && *take != Some(0) {
        let Some((key, entry)) = entries.pop_first() else { break };
        last = Some(key);
        let Some(row) = row_of(entry) else { continue };
        if *skip > 0 {
            *skip -= 1;
            continue;
        }
        if let Some(take) = take {
            *take -= 1;
        }
        bytes += row.len();
        rows.push(row);
    }
    if let Some(key) = last {
        cursor.k = Some(URL_SAFE_NO_PAD.encode(&key));
    }
    rows
}

impl Stream {
    pub(crate) fn is_full(&self, max_items: usize) -> bool {
        self.rows.len() >= max_items || self.bytes >= PAGE_BYTES
    }

    pub(crate) fn push<'a>(
        &mut self,
        select: &'a Select,
        row: Row<'_>,
        cx: &Context<'a>,
        max_items: usize,
        skip: &mut u64,
        take: &mut Option<u64>,
    ) {
        let used = match self.partial.take() {
            Some((position, rows)) if position == row.position => rows,
            _ => 0,
        };
        let mut index = 0;
        let complete = eval::each(select, &Env::Empty, cx, &mut |env| {
            index += 1;
            if index <= used {
                return true;
            }
            let value = eval::project(select, env, cx);
            if !value.is_defined() {
                return true;
            }
            if *skip > 0 {
                *skip -= 1;
                return true;
            }
            if self.is_full(max_items) || *take == Some(0) {
                // Only now is it known that another page is needed: rows before this one may have been the last.
                self.overflow = true;
                index -= 1;
                return false;
            }
            if let Some(take) = take {
                *take -= 1;
            }
            let text = value.json().into_bytes();
            self.bytes += text.len();
            self.rows.push(text);
            true
        });
        if complete {
            self.after = Some(row.position.to_owned());
        } else {
            self.partial = Some((row.position.to_owned(), index));
        }
    }
}

/// Ties go in the direction of the first ORDER BY expression, as SDKs expect.
pub(crate) fn descends(select: &Select) -> bool {
    select.order_by.first().is_some_and(|item| item.descending)
}

/// The bytes of a rid: standard base64 with padding, `-` or `/` for 63.
fn decode_rid(rid: &str) -> Option<Vec<u8>> {
    STANDARD_NO_PAD.decode(rid.trim_end_matches('=').replace('-', "/")).ok()
}

/// Appends the key of a rid: by the number of its document, as SDKs compare rids, or by its text if it has none.
pub(crate) fn tie_key(rid: &str, descending: bool, key: &mut Vec<u8>) {
    let start = key.len();
    let decoded = decode_rid(rid).filter(|bytes| matches!(bytes.len(), 16 | 20));
    let number = decoded.and_then(|bytes| bytes.get(8..16)?.try_into().ok()).map(u64::from_le_bytes);
    match number {
        Some(number) => {
            key.push(1);
            key.extend_from_slice(&number.to_be_bytes());
        }
        None => key.push(2),
    }
    order::encode_text(rid, key);
    if descending {
        key[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

impl Keyed {
    /// Takes the rows of one item; false if there are too many distinct ones to be remembered.
    pub(crate) fn push<'a>(
        &mut self,
        select: &'a Select,
        row: Row<'_>,
        cx: &Context<'a>,
        room: usize,
        skip: u64,
    ) -> bool {
        let mut tie: Option<Vec<u8>> = None;
        let budget = if skip > 0 { SKIP_BYTES } else { AHEAD_BYTES };
        let room = room.max(AHEAD_ROWS.min(room.saturating_mul(16)));
        let mut index = 0u32;
        eval::each(select, &Env::Empty, cx, &mut |env| {
            let mut key = eval::sort_key(select, env, cx);
            let mut value = None;
            if select.distinct {
                let row = eval::project(select, env, cx);
                let distinct = eval::distinct_key(&row, cx);
                if !self.is_first(&key, &distinct) {
                    return true;
                }
                key.extend(order::shorten(distinct));
                value = Some(row);
            }
            if !select.distinct {
                key.extend_from_slice(tie.get_or_insert_with(|| {
                    let mut tie = Vec::new();
                    tie_key(row.rid, descends(select), &mut tie);
                    tie
                }));
            }
            if !self.resumes(&key) {
                return true;
            }
            if !select.distinct {
                key.extend_from_slice(&index.to_be_bytes());
                index += 1;
            }
            if self.admits(&key, room) {
                let value = value.unwrap_or_else(|| eval::project(select, env, cx));
                if value.is_defined() {
                    self.insert(key, value.json().into_bytes(), room, budget);
                }
            }
            true
        });
        self.firsts_bytes <= DISTINCT_BYTES
    }

    /// Returns `true` if no equal row is known to precede this one. An equal row that follows it is removed.
    fn is_first(&mut self, key: &[u8], distinct: &[u8]) -> bool {
        let Some(firsts) = &mut self.firsts else { return true };
        let hash = order::fnv1a_128(distinct);
        match firsts.get_mut(&hash) {
            Some(first) if first.as_slice() <= key => first.as_slice() == key,
            Some(first) => {
                let mut later = std::mem::replace(first, key.to_vec());
                later.extend(order::shorten(distinct.to_vec()));
                if let Some(row) = self.best.remove(&later) {
                    self.bytes -= cost(&later, &row);
                }
                true
            }
            None => {
                self.firsts_bytes += key.len() + ENTRY_BYTES;
                firsts.insert(hash, key.to_vec());
                true
            }
        }
    }

    /// Returns `true` if a row is not before the place where an SDK resumes.
    fn resumes(&self, key: &[u8]) -> bool {
        match &self.resume {
            None => true,
            Some((from, exclude)) if key.starts_with(from) => !*exclude,
            Some((from, _)) => key > from.as_slice(),
        }
    }

    fn admits(&mut self, key: &[u8], room: usize) -> bool {
        if self.floor.as_deref().is_some_and(|floor| key <= floor) || self.best.contains_key(key) {
            return false;
        }
        let beyond =
            self.best.len() >= room && self.best.last_key_value().is_none_or(|(last, _)| key > last.as_slice());
        self.more |= beyond;
        !beyond
    }

    /// Keeps a row, and drops the last ones that the page has no room for.
    fn insert(&mut self, key: Vec<u8>, row: Vec<u8>, room: usize, budget: usize) {
        self.bytes += cost(&key, &row);
        self.best.insert(key, row);
        while let Some(last) = self.best.last_entry() {
            let size = cost(last.key(), last.get());
            if self.best.len() <= room && self.bytes - size < budget {
                break;
            }
            self.best.pop_last();
            self.bytes -= size;
            self.more = true;
        }
    }
}

fn cost(key: &[u8], row: &[u8]) -> usize {
    key.len() + row.len() + ENTRY_BYTES
}

impl Groups {
    pub(crate) fn push<'a>(&mut self, select: &'a Select, cx: &Context<'a>, room: usize) {
        let room = room.min(PAGE_GROUPS);
        eval::each(select, &Env::Empty, cx, &mut |env| {
            let (values, key) = eval::group_key(select, env, cx);
            let key = order::shorten(key);
            if self.floor.as_ref().is_some_and(|floor| key <= *floor) {
                return true;
            }
            if let Some(group) = self.best.get_mut(&key) {
                let before = group.bytes();
                group.add(select, env, cx);
                self.bytes = (self.bytes + group.bytes()).saturating_sub(before);
                self.shrink(room);
                return true;
            }
            if self.best.len() >= room && self.best.last_key_value().is_none_or(|(last, _)| key > *last) {
                self.more = true;
                return true;
            }
            let mut group = Group::new(select, values.iter().map(Value::owned).collect());
            group.add(select, env, cx);
            self.bytes += key.len() + group.bytes() + ENTRY_BYTES;
            self.best.insert(key, group);
            self.shrink(room);
            true
        });
    }

    /// Drops the last groups that the page has no room for; one stays in any case.
    fn shrink(&mut self, room: usize) {
        while self.best.len() > room || self.bytes > GROUP_BYTES && self.best.len() > 1 {
            let Some((key, group)) = self.best.pop_last() else { return };
            self.bytes = self.bytes.saturating_sub(key.len() + group.bytes() + ENTRY_BYTES);
            self.more = true;
        }
    }
}

#[cfg(test)]
mod rid_tests {
    use super::*;

    #[test]
    fn rids_are_read_in_both_spellings() {
        let expected = decode_rid("ADyiAIABAAEIAAAAAAAAAA==").unwrap();
        assert_eq!(expected[8..], [8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode_rid("a-+="), decode_rid("a/+="));
        assert_eq!(decode_rid("A"), None);
    }
}
