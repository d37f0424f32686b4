//! Running a query over items that the caller pushes, one page at a time.

use std::collections::BTreeMap;

use crate::ast::Select;
use crate::base64;
use crate::cursor::Cursor;
use crate::error::SqlError;
use crate::eval::{Context, Env};
use crate::json;
use crate::order;
use crate::query::Bound;
use crate::subquery::{self, Group};
use crate::value::Value;

/// A page is cut when its rows reach this size; what Cosmos DB allows is 4 MiB with everything around.
const PAGE_BYTES: usize = 3 * 1024 * 1024;
/// Rows that are only skipped may take more room than a page, or each page would skip little.
const SKIP_BYTES: usize = 32 * 1024 * 1024;
/// Groups held for one page.
const PAGE_GROUPS: usize = 20_000;
/// What an entry of a map costs beside its bytes.
const ENTRY_BYTES: usize = 64;

/// One item of the listing.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Where the item stands in the listing: any text, unique per item. It comes back from [`Run::begin_after`].
    pub position: &'a str,
    /// The item's `_rid`, unique per item; orders rows whose sort values are equal.
    pub rid: &'a str,
    /// The item as JSON, system properties included.
    pub body: &'a [u8],
}

/// Whether the run can use more items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Push the next item.
    More,
    /// The page is complete; the item just pushed was used.
    Done,
}

/// The rows of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// JSON text of each row.
    pub rows: Vec<Vec<u8>>,
    /// Give it to [`Bound::start`] for the next page; none after the last.
    pub continuation: Option<String>,
}

/// One page of a query in the making.
#[derive(Debug)]
pub struct Run<'q> {
    bound: &'q Bound,
    max_items: usize,
    now: i64,
    /// Rows still to skip, and to return if the query limits them.
    skip: u64,
    take: Option<u64>,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    /// No FROM clause: one row without items.
    Constant,
    Stream(Stream),
    Keyed(Keyed),
    Groups(Groups),
    /// Aggregates over everything.
    Total(Box<Group>),
}

/// Rows in the order of the listing.
#[derive(Debug, Default)]
struct Stream {
    rows: Vec<Vec<u8>>,
    bytes: usize,
    begin_after: Option<String>,
    after: Option<String>,
    /// An item of which the first rows are used.
    partial: Option<(String, u64)>,
}

/// Rows in the order of a key: only the best of the page are kept.
#[derive(Debug, Default)]
struct Keyed {
    floor: Option<Vec<u8>>,
    /// Where an SDK resumes, and whether rows at that very place are left out.
    resume: Option<(Vec<u8>, bool)>,
    best: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
    /// Rows beyond the page exist.
    more: bool,
}

#[derive(Debug, Default)]
struct Groups {
    floor: Option<Vec<u8>>,
    best: BTreeMap<Vec<u8>, Group>,
    more: bool,
}

impl Bound {
    /// Starts one page of at most `max_items` rows: the first, or the one after `continuation`.
    ///
    /// `now_millis` (since 1970) is what GetCurrentTimestamp and its like return.
    ///
    /// # Errors
    /// The continuation is damaged or belongs to another query.
    pub fn start(&self, continuation: Option<&str>, max_items: usize, now_millis: i64) -> Result<Run<'_>, SqlError> {
        let select = &self.select;
        let (mut skip, mut take) = match (&select.top, &select.offset_limit) {
            (Some(top), _) => (0, Some(top.number())),
            (_, Some((offset, limit))) => (offset.number(), Some(limit.number())),
            _ => (0, None),
        };
        let cursor = match continuation.filter(|text| !text.is_empty()) {
            Some(text) => {
                let cursor = Cursor::read(text, &self.fingerprint)?;
                (skip, take) = (cursor.s, cursor.t);
                cursor
            }
            None => Cursor::default(),
        };
        let mode = self.mode(&cursor)?;
        Ok(Run { bound: self, max_items: max_items.max(1), now: now_millis, skip, take, mode })
    }

    fn mode(&self, cursor: &Cursor) -> Result<Mode, SqlError> {
        let select = &self.select;
        let floor = cursor.key()?;
        Ok(if select.from.is_empty() {
            Mode::Constant
        } else if !select.group_by.is_empty() {
            Mode::Groups(Groups { floor, ..Groups::default() })
        } else if select.is_grouped() {
            Mode::Total(Box::new(Group::new(select, Vec::new())))
        } else if select.distinct || !select.order_by.is_empty() {
            let resume = self.resume.as_ref().map(|resume| {
                let mut key = resume.key(select);
                if let Some(rid) = resume.rid.as_ref().filter(|_| !select.distinct) {
                    tie_key(rid, descends(select), &mut key);
                }
                (key, resume.exclude)
            });
            Mode::Keyed(Keyed { floor, resume, ..Keyed::default() })
        } else {
            Mode::Stream(Stream {
                begin_after: cursor.a.clone(),
                after: cursor.a.clone(),
                partial: cursor.p.clone().map(|position| (position, cursor.n)),
                ..Stream::default()
            })
        })
    }
}

impl Run<'_> {
    /// The position after which the listing starts; none is its beginning.
    #[must_use]
    pub fn begin_after(&self) -> Option<&str> {
        match &self.mode {
            Mode::Stream(stream) => stream.begin_after.as_deref(),
            _ => None,
        }
    }

    /// Whether pushing can still change the page.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        match &self.mode {
            Mode::Constant => false,
            _ if self.take == Some(0) => false,
            Mode::Stream(stream) => !stream.is_full(self.max_items),
            _ => true,
        }
    }

    /// Takes one item. Once it has answered [`Flow::Done`], further items are ignored.
    ///
    /// # Errors
    /// The item is not JSON, or its joins make more than a million combinations.
    pub fn push(&mut self, row: Row<'_>) -> Result<Flow, SqlError> {
        if !self.wants_more() {
            return Ok(Flow::Done);
        }
        let unusable = |why: &str| SqlError::new(format!("the item at {:?} cannot be queried: {why}", row.position));
        let body = json::check(row.body).map_err(unusable)?;
        let cx = Context::new(Value::raw(body), self.now);
        let select = &self.bound.select;
        match &mut self.mode {
            Mode::Constant => {}
            Mode::Stream(stream) => stream.push(select, row, &cx, self.max_items, &mut self.skip, &mut self.take),
            Mode::Keyed(keyed) => keyed.push(select, row, &cx, room(self.max_items, self.skip, self.take), self.skip),
            Mode::Groups(groups) => groups.push(select, &cx, room(self.max_items, self.skip, self.take)),
            Mode::Total(group) => {
                subquery::each(select, &Env::Empty, &cx, &mut |env| {
                    group.add(select, env, &cx);
                    true
                });
            }
        }
        if cx.is_exhausted() {
            return Err(unusable("its joins make more than a million combinations: filter inside the join"));
        }
        Ok(if self.wants_more() { Flow::More } else { Flow::Done })
    }

    /// Ends the page. `at_end`: every item of the listing was pushed.
    ///
    /// # Errors
    /// The query orders, groups or aggregates and not every item was pushed, or the next continuation would be too
    /// long.
    pub fn finish(self, at_end: bool) -> Result<Page, SqlError> {
        let done = !self.wants_more();
        let Run { bound, max_items, now, mut skip, mut take, mode } = self;
        let select = &bound.select;
        if !at_end && !done && !matches!(mode, Mode::Stream(_)) {
            return Err(SqlError::new(
                "a query with ORDER BY, DISTINCT, GROUP BY or aggregates needs every item of its range",
            ));
        }
        let mut cursor = Cursor { q: bound.fingerprint.clone(), ..Cursor::default() };
        let (rows, more) = match mode {
            Mode::Constant => {
                let cx = Context::new(Value::Undefined, now);
                let rows = subquery::rows(select, &Env::Empty, &cx, usize::MAX);
                (rows.iter().map(|row| row.json().into_bytes()).collect(), false)
            }
            Mode::Total(group) => {
                let cx = Context::new(Value::Undefined, now);
                let row = group.project(select, &Env::Empty, &cx);
                let shown = row.is_defined() && skip == 0 && take != Some(0);
                (if shown { vec![row.json().into_bytes()] } else { Vec::new() }, false)
            }
            Mode::Stream(stream) => {
                let more = !at_end || stream.partial.is_some();
                cursor.a = stream.after;
                (cursor.p, cursor.n) = stream.partial.map_or((None, 0), |(position, rows)| (Some(position), rows));
                (stream.rows, more)
            }
            Mode::Keyed(keyed) => {
                let entries = keyed.best.into_iter();
                let (rows, more) = emit(entries, Some, max_items, &mut skip, &mut take, &mut cursor);
                (rows, more || keyed.more)
            }
            Mode::Groups(groups) => {
                let cx = Context::new(Value::Undefined, now);
                let project = |group: Group| {
                    let row = group.project(select, &Env::Empty, &cx);
                    row.is_defined().then(|| row.json().into_bytes())
                };
                let entries = groups.best.into_iter();
                let (rows, more) = emit(entries, project, max_items, &mut skip, &mut take, &mut cursor);
                (rows, more || groups.more)
            }
        };
        (cursor.s, cursor.t) = (skip, take);
        let continuation = if more && take != Some(0) { Some(cursor.write()?) } else { None };
        Ok(Page { rows, continuation })
    }
}

/// How many rows the page can use, those to be skipped included.
fn room(max_items: usize, skip: u64, take: Option<u64>) -> usize {
    let take = take.map_or(usize::MAX, |take| usize::try_from(take).unwrap_or(usize::MAX));
    max_items.min(take).saturating_add(usize::try_from(skip).unwrap_or(usize::MAX))
}

/// Turns sorted entries into rows until the page is full; says whether entries are left.
fn emit<T>(
    entries: impl Iterator<Item = (Vec<u8>, T)>,
    row_of: impl Fn(T) -> Option<Vec<u8>>,
    max_items: usize,
    skip: &mut u64,
    take: &mut Option<u64>,
    cursor: &mut Cursor,
) -> (Vec<Vec<u8>>, bool) {
    let mut rows = Vec::new();
    let mut bytes = 0;
    let mut last = None;
    let mut more = false;
    for (key, entry) in entries {
        if rows.len() >= max_items || bytes >= PAGE_BYTES || *take == Some(0) {
            more = true;
            break;
        }
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
    cursor.k = last.map(|key| base64::encode(&key));
    (rows, more)
}

impl Stream {
    fn is_full(&self, max_items: usize) -> bool {
        self.rows.len() >= max_items || self.bytes >= PAGE_BYTES
    }

    fn push<'a>(
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
        let complete = subquery::each(select, &Env::Empty, cx, &mut |env| {
            index += 1;
            if index <= used {
                return true;
            }
            if self.is_full(max_items) || *take == Some(0) {
                index -= 1;
                return false;
            }
            let value = subquery::project(select, env, cx);
            if !value.is_defined() {
                return true;
            }
            if *skip > 0 {
                *skip -= 1;
                return true;
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
fn descends(select: &Select) -> bool {
    select.order_by.first().is_some_and(|item| item.descending)
}

/// Appends the key of a rid: by the number of its document, as SDKs compare rids, or by its text if it has none.
fn tie_key(rid: &str, descending: bool, key: &mut Vec<u8>) {
    let start = key.len();
    let decoded = base64::decode_rid(rid).filter(|bytes| matches!(bytes.len(), 16 | 20));
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
    fn push<'a>(&mut self, select: &'a Select, row: Row<'_>, cx: &Context<'a>, room: usize, skip: u64) {
        let mut tie = Vec::new();
        if !select.distinct {
            tie_key(row.rid, descends(select), &mut tie);
        }
        let budget = if skip > 0 { SKIP_BYTES } else { PAGE_BYTES };
        let mut index = 0u32;
        subquery::each(select, &Env::Empty, cx, &mut |env| {
            let mut key = subquery::sort_key(select, env, cx);
            let mut value = None;
            if select.distinct {
                let row = subquery::project(select, env, cx);
                key.extend(order::shorten(subquery::distinct_key(&row)));
                value = Some(row);
            }
            key.extend_from_slice(&tie);
            if !self.resumes(&key) {
                return true;
            }
            if !select.distinct {
                key.extend_from_slice(&index.to_be_bytes());
                index += 1;
            }
            if self.admits(&key, room) {
                let value = value.unwrap_or_else(|| subquery::project(select, env, cx));
                if value.is_defined() {
                    self.insert(key, value.json().into_bytes(), room, budget);
                }
            }
            true
        });
    }

    /// Whether a row is not before the place where an SDK resumes.
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
        let beyond = self.best.len() >= room && self.best.last_key_value().is_none_or(|(last, _)| key > last);
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
    fn push<'a>(&mut self, select: &'a Select, cx: &Context<'a>, room: usize) {
        let room = room.min(PAGE_GROUPS);
        subquery::each(select, &Env::Empty, cx, &mut |env| {
            let (values, key) = subquery::group_key(select, env, cx);
            let key = order::shorten(key);
            if self.floor.as_ref().is_some_and(|floor| key <= *floor) {
                return true;
            }
            if let Some(group) = self.best.get_mut(&key) {
                group.add(select, env, cx);
                return true;
            }
            if self.best.len() >= room && self.best.last_key_value().is_none_or(|(last, _)| key > *last) {
                self.more = true;
                return true;
            }
            let mut group = Group::new(select, values.iter().map(Value::owned).collect());
            group.add(select, env, cx);
            self.best.insert(key, group);
            if self.best.len() > room {
                self.best.pop_last();
                self.more = true;
            }
            true
        });
    }
}
