//! Delivery of one page: which items are delivered together, retried, isolated or dead-lettered, in which order.
//!
//! [`Delivery`] is pure: results of calls go in, the next step comes out. [`call`] runs one call of the delegate,
//! [`dead_letter`] holds the options.

pub(crate) mod batch;
pub(crate) mod call;
pub(crate) mod crash_isolation;
pub(crate) mod dead_letter;
pub(crate) mod dead_letter_writer;
pub(crate) mod outage;
mod policy;
mod report;
mod retry;
mod step;
mod trace;

use std::collections::VecDeque;

use self::{
    batch::{Batch, Items},
    crash_isolation::{CrashIsolation, ItemAction},
    outage::{FailedItem, OutageDetector},
};
pub(crate) use self::{
    policy::Policy,
    report::{Report, Retrying},
    step::{Call, Pause, Step},
};
use crate::lease::document::Search;

/// The delivery of one page.
#[derive(Debug)]
pub(crate) struct Delivery {
    policy: Policy,
    count: usize,
    batches: VecDeque<Batch>,
    /// The batch that is being delivered.
    current: Option<Batch>,
    /// Items to be dead-lettered before anything else happens.
    letters: VecDeque<FailedItem>,
    pub(crate) outage: OutageDetector,
    pause: Option<Pause>,
    /// Names of the items, in isolation only.
    names: Option<Vec<String>>,
    /// The mark that the lease has.
    marked: Option<(usize, usize)>,
    /// A batch that was narrowed: to be stored in the lease with the next write.
    narrowed: Option<(usize, usize)>,
}

impl Delivery {
    /// A page of `count` items after `failures` failed attempts.
    pub(crate) fn new(policy: Policy, count: usize, failures: u32, outage: OutageDetector) -> Self {
        let batches = [Batch { items: Items::range(0..count), failures, per_item: false }].into();
        Self {
            policy,
            count,
            batches,
            current: None,
            letters: VecDeque::new(),
            outage,
            pause: None,
            names: None,
            marked: None,
            narrowed: None,
        }
    }

    /// Continues the search of an earlier owner for an item that fails.
    pub(crate) fn resume_search(mut self, search: &Search, names: &[String]) -> Self {
        let Some(first) =
            search.first.as_ref().and_then(|first| names.iter().position(|name| Search::is_name_of(first, name)))
        else {
            return self;
        };
        let end = (first + search.window).min(self.count);
        let narrowed = Batch {
            items: Items::range(first..end),
            failures: self.policy.attempts.unwrap_or(1).saturating_sub(1),
            per_item: false,
        };
        let before = Batch::fresh(Items::range(0..first));
        self.batches = [before, narrowed, Batch::fresh(Items::range(end..self.count))].into();
        self
    }

    /// Delivers in the small batches of crash isolation.
    pub(crate) fn isolate(mut self, isolation: &CrashIsolation, names: Vec<String>) -> Self {
        self.batches.clear();
        let mut deliver = Items::default();
        for (index, name) in names.iter().enumerate() {
            match isolation.action_for(name) {
                ItemAction::Deliver => deliver.push(index..index + 1),
                ItemAction::Skip => {}
                ItemAction::DeadLetter(crashes) => {
                    let reason = format!("the process crashed {crashes} times while this item was delivered");
                    self.letters.push_back(FailedItem { item: index, attempts: crashes, errors: vec![reason] });
                    self.outage.count_dead_letter();
                }
            }
        }
        while !deliver.is_empty() {
            let (window, rest) = deliver.split_at(isolation.window());
            self.batches.push_back(Batch::fresh(window));
            deliver = rest;
        }
        self.names = Some(names);
        self
    }

    /// Whether items are delivered in isolation.
    pub(crate) fn is_isolated(&self) -> bool {
        self.names.is_some()
    }

    /// How many items the page has.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether some items need not be delivered any more. Those of the current batch may have to be, whether its call has
    /// begun or not.
    pub(crate) fn has_handled(&self) -> bool {
        let waiting = self.batches.iter().chain(&self.current).map(|batch| batch.items.len());
        waiting.sum::<usize>() < self.count
    }

    /// The name of an item, in isolation only.
    pub(crate) fn name(&self, item: usize) -> Option<&str> {
        self.names.as_ref()?.get(item).map(String::as_str)
    }

    /// What to do next.
    pub(crate) fn next(&mut self, isolation: Option<&CrashIsolation>) -> Step {
        loop {
            if let Some(letter) = self.letters.front() {
                return Step::DeadLetter(letter.clone());
            }
            if let Some(pause) = self.pause.take() {
                return Step::Pause(pause);
            }
            let Some(batch) = self.batches.pop_front() else {
                let failed = self.outage.settle();
                if failed.is_empty() {
                    return Step::Done;
                }
                self.letters.extend(failed);
                continue;
            };
            crate::planted!(RetryOneByOne => if batch.per_item && batch.items.len() > 1 { self.cut(batch, 1); continue });
            let Some(first) = batch.items.first() else { continue };
            let last = self.batches.iter().all(|batch| batch.items.is_empty());
            if last && self.policy.manual && self.outage.holds_items() {
                // In the last call the user may store that the page was handled: nothing may be undecided then.
                self.batches.push_front(batch);
                self.letters.extend(self.outage.settle());
                continue;
            }
            let extent = (first, batch.items.len());
            if let (Some(isolation), Some(name)) = (isolation, self.name(first))
                && self.marked != Some(extent)
            {
                let mark = isolation.mark(name, extent.1);
                self.marked = Some(extent);
                self.batches.push_front(batch);
                return Step::Mark(mark);
            }
            let call = Call { items: batch.items.clone(), attempt: batch.failures + 1, last };
            self.current = Some(batch);
            return Step::Call(call);
        }
    }

    /// Delivers the first `count` items of a batch next, and the rest after them.
    fn cut(&mut self, batch: Batch, count: usize) {
        let (head, tail) = batch.split_at(count);
        self.batches.push_front(tail);
        self.batches.push_front(head);
    }

    /// The first of the dead letters to be written was written. Returns its index.
    pub(crate) fn dead_lettered(&mut self) -> Option<usize> {
        self.letters.pop_front().map(|letter| letter.item)
    }

    /// The call was dropped and its result is unknown: delivers its items again.
    pub(crate) fn dropped(&mut self) {
        if let Some(batch) = self.current.take() {
            self.batches.push_front(batch);
        }
    }

    /// The batch that was narrowed since the last question: index of its first item, and its length.
    pub(crate) fn take_narrowed(&mut self) -> Option<(usize, usize)> {
        self.narrowed.take()
    }
}

#[cfg(test)]
mod tests;
