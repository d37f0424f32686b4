//! One page of a query: items are listed and evaluated in slices of time, until the page is complete or its time is over.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Backend, ItemPage, ListItems};
use changefeed_query::{Flow, Page, Row, Run};

use super::{refused, workers::Cancelled};
use crate::{net::timer::Deadline, open::Open, problem::Answer, render};

/// After so long other queries have their turn.
const SLICE: Duration = Duration::from_millis(20);

/// How long a single item may take. It cannot be continued in another page, so a longer one is refused.
const ITEM_TIME: Duration = Duration::from_secs(2);

/// How many items are read from the store at once.
const BATCH: usize = 500;

/// A query under way.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) run: Run,
    listing: ListItems,
    /// Items that were read and not looked at yet, last one first, each with its position.
    waiting: Vec<(changefeed_core::Item, String)>,
    /// Whether the listing has ended.
    listed: bool,
    pub(super) charge: f64,
}

/// What a slice came to.
#[derive(Debug)]
pub(super) enum Progress {
    /// The page is complete.
    Done(Page, f64),
    /// There is more to do.
    More(Scan),
}

impl Scan {
    /// A scan of the keys in `range`; none: there is nothing to be found.
    pub(super) fn new(run: Run, range: Option<changefeed_core::FeedRange>, id_prefix: String) -> Self {
        let listing = ListItems {
            id_prefix,
            rid: None,
            after: run.begin_after().map(str::to_owned),
            max_items: BATCH,
            cursors: true,
            range: range.clone().unwrap_or_else(changefeed_core::FeedRange::full),
        };
        Self { run, listing, waiting: Vec::new(), listed: range.is_none(), charge: 0.0 }
    }

    /// The same for pages of another size.
    pub(super) fn resized(mut self, max_items: usize) -> Self {
        self.run.set_max_items(max_items);
        self
    }

    /// About how many bytes it holds.
    pub(super) fn bytes(&self) -> usize {
        self.run.bytes() + self.waiting.iter().map(|(item, _)| item.body.len()).sum::<usize>()
    }

    /// Goes on for a slice of time, on a thread that may be blocked.
    pub(super) fn advance(mut self, open: &Arc<Open>, cancelled: &Cancelled) -> Answer<Progress> {
        let slice = Deadline::after(SLICE);
        let backend = open.container.backend();
        loop {
            if !self.run.wants_more() {
                return self.finish(false);
            }
            if slice.is_over() || cancelled.is_set() {
                return Ok(Progress::More(self));
            }
            let Some((item, position)) = self.waiting.pop() else {
                if self.listed {
                    return self.finish(true);
                }
                self.list(&**backend, open)?;
                continue;
            };
            let body = render::item(&item, &open.link);
            let rid = item.rid.to_string();
            let deadline = Deadline::after(ITEM_TIME);
            let stop = || cancelled.is_set() || deadline.is_over();
            let row = Row { position: &position, rid: &rid, body: &body };
            if self.run.push_until(row, &stop).map_err(|error| refused(&error))? == Flow::Done {
                return self.finish(false);
            }
        }
    }

    fn list(&mut self, backend: &dyn Backend, open: &Open) -> Answer<()> {
        let read = tokio::runtime::Handle::current().block_on(backend.list_items(self.listing.clone()))?;
        self.charge += read.request_charge;
        let ItemPage { items, cursors, next } = read.into_value();
        open.remember(items.iter());
        self.waiting = items.into_iter().zip(cursors).rev().collect();
        match next {
            Some(next) => self.listing.after = Some(next),
            None => self.listed = true,
        }
        Ok(())
    }

    /// Ends the page here: it is complete, or a page that can be continued anywhere has used up its time.
    pub(super) fn finish(self, at_end: bool) -> Answer<Progress> {
        let page = self.run.finish(at_end).map_err(|error| refused(&error))?;
        Ok(Progress::Done(page, self.charge))
    }
}
