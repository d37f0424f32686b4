//! Reading: pages, read-ahead, empty pages, failures.

use std::sync::Arc;

use changefeed_core::{Continuation, ErrorKind, StartFrom};

use super::{Feed, LeaseState, Work};
use crate::{
    lease::{
        document::{Status, one_line},
        events::{Effect, Moment, Page},
        signals::Progress,
    },
    notification::{Failure, Notification},
};

impl LeaseState {
    /// Goes on with the work, no signal being there. Returns whether there may be more to do at once.
    pub(super) fn go_on(&mut self, moment: Moment<'_>, effects: &mut Vec<Effect>) -> bool {
        match &self.work {
            Work::Next => match self.feed.ahead.take() {
                Some(page) => {
                    self.take_page(page, moment, effects);
                    true
                }
                None => {
                    match self.feed.end.take() {
                        Some(end) => self.wait(end, effects),
                        None => {
                            self.work = Work::Reading;
                            self.read_next(effects);
                        }
                    }
                    false
                }
            },
            Work::Delivering(_) => self.deliver(moment, effects),
            _ => false,
        }
    }

    /// Begins to read the page after the current position, unless that is being done.
    pub(super) fn read_next(&mut self, effects: &mut Vec<Effect>) {
        if !self.feed.reading {
            self.feed.reading = true;
            let max_items =
                self.memory.isolation.as_ref().map_or(self.settings.max_items, |isolation| isolation.window());
            let (from, likely_last) = (self.feed.position.clone(), self.feed.caught_up);
            effects.push(Effect::Read { from, max_items, likely_last });
        }
    }

    /// Whether the next page may be read while this one is delivered: not if names must be compared with those of it, or if
    /// it would be empty.
    pub(super) fn may_read_ahead(&self) -> bool {
        let Feed { ahead, end, .. } = &self.feed;
        self.memory.isolation.is_none() && self.memory.search.is_none() && ahead.is_none() && end.is_none()
    }

    /// A read has ended.
    pub(super) fn read(&mut self, page: Page, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        self.feed.reading = false;
        match (&self.work, page) {
            (Work::Reading, page) => self.take_page(page, moment, effects),
            // The split need not wait for the page under way to be finished.
            (_, Page::Gone) => self.signals.range_gone = true,
            (_, page) => self.feed.ahead = Some(page),
        }
    }

    fn take_page(&mut self, page: Page, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        match page {
            Page::Changes { count, continuation, last } => {
                (self.feed.failures, self.memory.split_failures) = (0, 0);
                self.feed.end = last.then(|| continuation.clone());
                self.begin_page(count, continuation, moment, effects);
            }
            Page::Empty(continuation) => {
                (self.feed.failures, self.memory.split_failures) = (0, 0);
                self.wait(continuation, effects);
            }
            Page::Gone => {
                self.signals.range_gone = true;
                self.work = Work::Next;
            }
            Page::Failed(error) => {
                self.feed.failures = self.feed.failures.saturating_add(1);
                let throttled = error.kind() == ErrorKind::Throttled;
                let text = one_line(&format!("{error:?}"));
                self.writes.set_status(Some(Status::ReadFailing { throttled, error: text }));
                let pause = self.settings.store_retry.after(self.feed.failures, moment.random);
                let pause = pause.max(error.retry_after().unwrap_or_default());
                self.work = Work::ReadPause(moment.now + pause);
                self.notify_error(Failure::Feed(Arc::new(error)), effects);
            }
        }
    }

    /// Nothing new: remembers the position and waits for changes.
    fn wait(&mut self, continuation: Continuation, effects: &mut Vec<Effect>) {
        self.feed.position = StartFrom::Continuation(continuation.clone());
        if !std::mem::replace(&mut self.feed.caught_up, true) {
            effects.push(Effect::Notify(Notification::CaughtUp(self.token.clone())));
        }
        self.writes.set_status(None);
        if self.writes.is_stored(self.feed.page) && self.writes.continuation() != Some(continuation.token()) {
            self.feed.page += 1;
            let progress = Progress { page: self.feed.page, continuation: continuation.token().to_owned() };
            self.writes.defer_checkpoint(progress);
        }
        self.work = Work::Waiting;
        effects.push(Effect::Wait(continuation));
    }
}
