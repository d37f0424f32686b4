//! One page of a query: lists and evaluates items in time slices, until the page is complete or its time is over.

use std::{sync::Arc, time::Duration};

use changefeed_core::{ItemPage, ListItems};
use changefeed_query::{Flow, Page, Row, Run};

use crate::{
    containers::handle::ContainerHandle, error::ApiResult, handlers::workers::Cancelled, net::timeouts::Deadline,
    wire::render,
};

/// The length of a time slice; then another query runs.
const SLICE: Duration = Duration::from_millis(20);

/// The time limit of a single item. A page cannot end within an item, so a query that takes longer is refused.
const ITEM_TIME: Duration = Duration::from_secs(2);

/// The number of items that are read from the store at once.
const BATCH: usize = 500;

/// A running query.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) run: Run,
    listing: ListItems,
    /// Items that were read and not evaluated yet, last one first, each with its position.
    waiting: Vec<(changefeed_core::Item, String)>,
    /// Whether the listing has ended.
    listed: bool,
    pub(super) charge: f64,
}

/// The result of a time slice.
#[derive(Debug)]
pub(super) enum Progress {
    /// The page is complete.
    Done(Page, f64),
    /// The time slice is over, the page is not complete.
    More(Scan),
}

impl Scan {
    /// Creates a scan of `range`; none is an empty range.
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

    /// Changes the page size.
    pub(super) fn resized(mut self, max_items: usize) -> Self {
        self.run.set_max_items(max_items);
        self
    }

    /// Returns its approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.run.bytes() + self.waiting.iter().map(|(item, _)| item.body.len()).sum::<usize>()
    }

    /// Runs for one time slice, on a thread that may block.
    pub(super) fn advance(mut self, handle: &Arc<ContainerHandle>, cancelled: &Cancelled) -> ApiResult<Progress> {
        let slice = Deadline::after(SLICE);
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
                self.list(handle)?;
                continue;
            };
            let body = render::item(&item, &handle.link);
            let rid = item.rid.to_string();
            let deadline = Deadline::after(ITEM_TIME);
            let stop = || cancelled.is_set() || deadline.is_over();
            let row = Row { position: &position, rid: &rid, body: &body };
            if self.run.push_until(row, &stop)? == Flow::Done {
                return self.finish(false);
            }
        }
    }

    fn list(&mut self, handle: &ContainerHandle) -> ApiResult<()> {
        let read = tokio::runtime::Handle::current().block_on(handle.list_items(self.listing.clone()))?;
        self.charge += read.request_charge;
        let ItemPage { items, cursors, next } = read.into_value();
        handle.remember(items.iter());
        self.waiting = items.into_iter().zip(cursors).rev().collect();
        match next {
            Some(next) => self.listing.after = Some(next),
            None => self.listed = true,
        }
        Ok(())
    }

    /// Ends the page: it is complete, or its time is over and it can be continued anywhere.
    pub(super) fn finish(self, at_end: bool) -> ApiResult<Progress> {
        let page = self.run.finish(at_end)?;
        Ok(Progress::Done(page, self.charge))
    }
}
