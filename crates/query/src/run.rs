//! Running a query over items that the caller pushes, one page at a time.

use crate::collect::{Groups, Keyed, Stream, descends, emit, room, tie_key};
use crate::context::{Context, Halt, MAX_ROW_BYTES};
use crate::cursor::Cursor;
use crate::error::SqlError;
use crate::eval::{self, Env, Group};
use crate::json;
use crate::plan::distinct_type;
use crate::query::Bound;
use crate::row::Row;
use crate::value::Value;

/// The memory limit of aggregates without groups, such as the texts of MAX.
const TOTAL_BYTES: usize = 32 * 1024 * 1024;

/// Whether the run can use more items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Push the next item.
    More,
    /// The page is complete; the item just pushed was used.
    Done,
}

/// The rows of one page.
#[derive(Debug)]
pub struct Page {
    /// JSON text of each row.
    pub rows: Vec<Vec<u8>>,
    /// Give it to [`Bound::start`] for the next page; none after the last.
    pub continuation: Option<String>,
    /// Rows of the next pages that are sorted already. [`Run::finish`] makes those pages of it, without
    /// any item; the continuation does the same from the beginning.
    pub ahead: Option<Run>,
}

/// One page of a query in the making.
#[derive(Debug)]
pub struct Run {
    bound: Bound,
    max_items: usize,
    now: i64,
    /// Rows still to skip, and to return if the query limits them.
    skip: u64,
    take: Option<u64>,
    /// The start of this page.
    origin: Cursor,
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
    /// `now_millis` (since 1970) is the time of GetCurrentTimestamp and similar functions.
    ///
    /// # Errors
    /// The continuation is damaged or belongs to another query.
    pub fn start(&self, continuation: Option<&str>, max_items: usize, now_millis: i64) -> Result<Run, SqlError> {
        let select = &self.inner.select;
        let (skip, take) = match (&select.top, &select.offset_limit) {
            (Some(top), _) => (0, Some(top.number())),
            (_, Some((offset, limit))) => (offset.number(), Some(limit.number())),
            _ => (0, None),
        };
        let origin = match continuation.filter(|text| !text.is_empty()) {
            Some(text) => Cursor::read(text, &self.inner.fingerprint)?,
            None => Cursor { q: self.inner.fingerprint.clone(), s: skip, t: take, ..Cursor::default() },
        };
        let (skip, take) = (origin.s, origin.t);
        let mode = self.mode(&origin)?;
        Ok(Run { bound: self.clone(), max_items: max_items.max(1), now: now_millis, skip, take, origin, mode })
    }

    fn mode(&self, cursor: &Cursor) -> Result<Mode, SqlError> {
        let select = &self.inner.select;
        let floor = cursor.key()?;
        Ok(if !select.reads_items() {
            Mode::Constant
        } else if !select.group_by.is_empty() {
            Mode::Groups(Groups { floor, ..Groups::default() })
        } else if select.is_grouped() {
            Mode::Total(Box::new(Group::new(select, Vec::new())))
        } else if select.distinct || !select.order_by.is_empty() {
            let resume = self.inner.resume.as_ref().map(|resume| {
                let mut key = resume.key(select);
                if let Some(rid) = resume.rid.as_ref().filter(|_| !select.distinct) {
                    tie_key(rid, descends(select), &mut key);
                }
                (key, resume.exclude)
            });
            let elsewhere = select.distinct && !select.order_by.is_empty() && distinct_type(select) != "Ordered";
            let firsts = elsewhere.then(Default::default);
            Mode::Keyed(Keyed { floor, resume, firsts, ..Keyed::default() })
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

impl Run {
    /// The position after which the listing starts; none is its beginning.
    #[must_use]
    pub fn begin_after(&self) -> Option<&str> {
        match &self.mode {
            Mode::Stream(stream) => stream.begin_after.as_deref(),
            _ => None,
        }
    }

    /// Returns `true` if further items can change the page.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        match &self.mode {
            Mode::Constant => false,
            _ if self.take == Some(0) => false,
            Mode::Stream(stream) => !stream.overflow,
            Mode::Keyed(keyed) => !keyed.sorted,
            _ => true,
        }
    }

    /// Returns `true` if a page may end before every item was pushed. Sorted and aggregated pages may not: a caller that runs out of
    /// time keeps the run, or begins again with [`Run::origin`].
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        matches!(self.mode, Mode::Stream(_) | Mode::Constant)
    }

    /// Returns `true` if the page is full. Further items only determine whether it is the last page.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(&self.mode, Mode::Stream(stream) if stream.is_full(self.max_items))
    }

    /// Returns the approximate size of the run in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.mode {
            Mode::Constant => 0,
            Mode::Stream(stream) => stream.bytes,
            Mode::Keyed(keyed) => keyed.bytes + keyed.firsts_bytes,
            Mode::Groups(groups) => groups.bytes,
            Mode::Total(group) => group.bytes(),
        }
    }

    /// The continuation that makes this page again, from its beginning.
    ///
    /// # Errors
    /// The continuation would be too long.
    pub fn origin(&self) -> Result<String, SqlError> {
        self.origin.write()
    }

    /// Returns `true` if the run is one of this query with these parameters.
    #[must_use]
    pub fn is_of(&self, bound: &Bound) -> bool {
        self.bound.inner.fingerprint == bound.inner.fingerprint
    }

    /// Changes how many rows the page has at most.
    pub fn set_max_items(&mut self, max_items: usize) {
        self.max_items = max_items.max(1);
    }

    /// Takes one item. Once it has answered [`Flow::Done`], further items are ignored.
    ///
    /// # Errors
    /// The item is not JSON, or takes too much: more than 250000 values made by joins and subqueries, 64 MiB of copied
    /// text, a row of more than 4 MiB.
    pub fn push(&mut self, row: Row<'_>) -> Result<Flow, SqlError> {
        self.push_until(row, &|| false)
    }

    /// Takes one item, like [`Run::push`]. `stop` is asked now and then; if it returns true the item is given up, and the
    /// run with it.
    ///
    /// # Errors
    /// Those of [`Run::push`], and if `stop` returned true.
    pub fn push_until(&mut self, row: Row<'_>, stop: &dyn Fn() -> bool) -> Result<Flow, SqlError> {
        if !self.wants_more() {
            return Ok(Flow::Done);
        }
        let unusable = |why: &str| SqlError::new(format!("the item at {:?} cannot be queried: {why}", row.position));
        let body = json::check(row.body).map_err(unusable)?;
        let cx = Context::new(Value::raw(body), self.now, stop);
        let select = &self.bound.inner.select;
        let mut fits = true;
        match &mut self.mode {
            Mode::Constant => {}
            Mode::Stream(stream) => stream.push(select, row, &cx, self.max_items, &mut self.skip, &mut self.take),
            Mode::Keyed(keyed) => {
                fits = keyed.push(select, row, &cx, room(self.max_items, self.skip, self.take), self.skip);
            }
            Mode::Groups(groups) => groups.push(select, &cx, room(self.max_items, self.skip, self.take)),
            Mode::Total(group) => {
                eval::each(select, &Env::Empty, &cx, &mut |env| {
                    group.add(select, env, &cx);
                    true
                });
                fits = group.bytes() <= TOTAL_BYTES;
            }
        }
        if let Some(halt) = cx.halted() {
            return Err(unusable(halt.message()).unsupported());
        }
        if !fits {
            return Err(SqlError::new(
                "the query has to remember too many values: filter, or sort by what DISTINCT selects",
            ));
        }
        Ok(if self.wants_more() { Flow::More } else { Flow::Done })
    }

    /// Ends the page. `at_end`: every item of the listing was pushed, the last one included; if the run wanted no more
    /// before the listing ended, pass `false`; otherwise the remaining items are skipped.
    ///
    /// # Errors
    /// The query orders, groups or aggregates and not every item was pushed, the next continuation would be too long, or
    /// a row has more than 4 MiB.
    pub fn finish(self, at_end: bool) -> Result<Page, SqlError> {
        let done = !self.wants_more();
        let Run { bound, max_items, now, mut skip, mut take, mode, origin } = self;
        let select = &bound.inner.select;
        if !at_end && !done && !matches!(mode, Mode::Stream(_)) {
            return Err(SqlError::new(
                "a query with ORDER BY, DISTINCT, GROUP BY or aggregates needs every item of its range",
            ));
        }
        let mut cursor = Cursor { q: bound.inner.fingerprint.clone(), k: origin.k, ..Cursor::default() };
        let cx = Context::new(Value::Undefined, now, &|| false);
        let mut ahead = None;
        let (rows, more) = match mode {
            Mode::Constant => {
                let rows = eval::rows(select, &Env::Empty, &cx, usize::MAX);
                let rows: Vec<_> = rows.iter().map(|row| row.json().into_bytes()).collect();
                (rows, false)
            }
            Mode::Total(group) => {
                let row = group.project(select, &Env::Empty, &cx);
                let shown = row.is_defined() && skip == 0 && take != Some(0);
                (if shown { vec![row.json().into_bytes()] } else { Vec::new() }, false)
            }
            Mode::Stream(stream) => {
                // An item of which a page before used a part may be gone: then nothing is left of it.
                let more = !at_end || stream.overflow;
                cursor.a = stream.after;
                (cursor.p, cursor.n) = stream.partial.map_or((None, 0), |(position, rows)| (Some(position), rows));
                (stream.rows, more)
            }
            Mode::Keyed(mut keyed) => {
                let rows = emit(&mut keyed.best, Some, max_items, &mut skip, &mut take, &mut cursor);
                let more = keyed.more || !keyed.best.is_empty();
                if !keyed.best.is_empty() {
                    keyed.bytes = keyed.best.iter().map(|(key, row)| key.len() + row.len()).sum();
                    (keyed.sorted, keyed.firsts, keyed.firsts_bytes) = (true, None, 0);
                    ahead = Some(keyed);
                }
                (rows, more)
            }
            Mode::Groups(mut groups) => {
                let project = |group: Group| {
                    let row = group.project(select, &Env::Empty, &cx);
                    row.is_defined().then(|| row.json().into_bytes())
                };
                let rows = emit(&mut groups.best, project, max_items, &mut skip, &mut take, &mut cursor);
                (rows, groups.more || !groups.best.is_empty())
            }
        };
        match cx.halted() {
            Some(Halt::Values) => {
                return Err(SqlError::new("the query makes more than 250000 values: filter inside its subqueries"));
            }
            Some(halt) => return Err(SqlError::new(format!("the query cannot be answered: {}", halt.message()))),
            None if rows.first().is_some_and(|row| row.len() > 2 * MAX_ROW_BYTES) => {
                return Err(SqlError::new(format!("the query cannot be answered: {}", Halt::Row.message())));
            }
            None => {}
        }
        (cursor.s, cursor.t) = (skip, take);
        let continuation = if more && take != Some(0) { Some(cursor.write()?) } else { None };
        let ahead = ahead.filter(|_| continuation.is_some()).map(|keyed| Run {
            bound: bound.clone(),
            max_items,
            now,
            skip,
            take,
            origin: cursor,
            mode: Mode::Keyed(keyed),
        });
        Ok(Page { rows, continuation, ahead })
    }
}
