//! Running a query over items that the caller pushes, one page at a time.

use crate::collect::{Groups, Keyed, Stream, descends, emit, room, tie_key};
use crate::cursor::Cursor;
use crate::error::SqlError;
use crate::eval::{Context, Env};
use crate::json;
use crate::query::Bound;
use crate::subquery::{self, Group};
use crate::value::Value;

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
    /// Nothing is read from items.
    Constant,
    Stream(Stream),
    Keyed(Keyed),
    Groups(Groups),
    /// Aggregates over everything.
    Total(Box<Group>),
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
        Ok(if !select.reads_items() {
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
    /// The item is not JSON, or joins and subqueries make more than 250000 values of it.
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
            return Err(unusable("its joins or subqueries make more than 250000 values: filter inside the join"));
        }
        Ok(if self.wants_more() { Flow::More } else { Flow::Done })
    }

    /// Ends the page. `at_end`: every item of the listing was pushed, the last one included; if the run wanted no more
    /// before the listing ended, say false, or the rest is never seen.
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
                if cx.is_exhausted() {
                    return Err(SqlError::new("the query makes more than 250000 values: filter inside its subqueries"));
                }
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
