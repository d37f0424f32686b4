//! What the result of a call means: retries, bisecting, dead letters. Pure.

use std::time::Duration;

use super::{
    Delivery,
    batch::{Batch, Items},
    outage::{Detection, FailedItem},
    report::{Report, Retrying},
    step::Pause,
};
use crate::delegate::{BatchResult, DelegateError, ItemResult, Returned};

impl Delivery {
    /// The call under way has returned or failed.
    pub(crate) fn finished(&mut self, result: Result<Returned, DelegateError>, now: Duration) -> Report {
        let Some(batch) = self.current.take() else { return Report::default() };
        match result {
            Ok(Returned { result, unparsed: None }) => self.returned(batch, result, now),
            Ok(Returned { result, unparsed: Some(error) }) => {
                let (head, tail) = batch.split_at(error.item().unwrap_or_default());
                // What is left of the delivered items comes before what did not parse.
                let waiting = std::mem::take(&mut self.batches);
                let returned = self.returned(head, result, now);
                let (left, pause) = (std::mem::replace(&mut self.batches, waiting), self.pause.take());
                let failed = self.failed(tail, error.at(0), now);
                left.into_iter().rev().for_each(|batch| self.batches.push_front(batch));
                self.pause = self.pause.max(pause);
                returned.merge(failed)
            }
            Err(error) => self.failed(batch, error, now),
        }
    }

    fn returned(&mut self, batch: Batch, result: BatchResult, now: Duration) -> Report {
        match result {
            BatchResult::Done => {
                self.succeeded();
                Report::default()
            }
            BatchResult::Each(results) => self.each(batch, results, now),
        }
    }

    /// One result for each item; items without one are delivered again, together.
    fn each(&mut self, batch: Batch, results: Vec<ItemResult>, now: Duration) -> Report {
        let counted = batch.per_item || batch.items.len() == 1;
        // A result is about its item: failed attempts of a batch of several say nothing about it.
        let failures = if counted { batch.failures + 1 } else { 1 };
        let given = results.len().min(batch.items.len());
        let mut retry = Retry { failures, ..Retry::default() };
        for (item, result) in batch.items.iter().zip(results) {
            self.item(item, result, &mut retry, now);
        }
        let (_, without) = batch.items.split_at(given);
        if !without.is_empty() {
            // Some results are progress; none at all is a failure.
            let failures = if given == 0 { batch.failures + 1 } else { 0 };
            self.batches.push_front(Batch { items: without, failures, per_item: false });
            if given == 0 {
                retry.failures = failures;
                retry.pause = retry.pause.max(Some(Duration::ZERO));
            }
        }
        self.retry(retry)
    }

    fn item(&mut self, item: usize, result: ItemResult, retry: &mut Retry, now: Duration) {
        let limit = self.policy.attempts;
        match result {
            ItemResult::Done | ItemResult::Skip => self.succeeded(),
            ItemResult::DeadLetter { reason } if limit.is_some() => {
                self.letters.push_back(FailedItem { item, attempts: retry.failures, errors: vec![reason] });
            }
            ItemResult::DeadLetter { reason } => {
                retry.error = Some(format!("no dead-letter container is set: {reason}"));
                retry.pause = retry.pause.max(Some(Duration::ZERO));
                retry.items.push(item..item + 1);
            }
            ItemResult::Retry { .. } if !retry.outage && limit.is_some_and(|limit| retry.failures >= limit) => {
                let attempts = retry.failures;
                let errors = vec![format!("the delegate asked for a retry {attempts} times")];
                let failed = FailedItem { item, attempts, errors };
                if let Detection::Outage(items) = self.outage.failed_alone(failed, now) {
                    retry.outage = true;
                    retry.items = retry
                        .items
                        .iter()
                        .chain(items)
                        .collect::<std::collections::BTreeSet<_>>()
                        .into_iter()
                        .collect();
                }
            }
            ItemResult::Retry { after } => {
                retry.pause = retry.pause.max(Some(after));
                retry.items.push(item..item + 1);
            }
        }
    }

    /// Delivers the items that asked for it again, in one batch, after a pause.
    fn retry(&mut self, retry: Retry) -> Report {
        let Retry { items, failures, pause, error, outage } = retry;
        let count = items.len();
        if outage {
            self.batches.push_front(Batch::fresh(items));
            return self.wait_for_outage(format!("the delegate asked for a retry of {count} items again and again"));
        }
        if !items.is_empty() {
            self.batches.push_front(Batch { items, failures, per_item: true });
        }
        let Some(at_least) = pause else { return Report::default() };
        self.pause = Some(Pause { failures, at_least });
        let reason = error.clone().unwrap_or_else(|| format!("the delegate asked for a retry of {count} items"));
        Report {
            error: error.map(DelegateError::new),
            retrying: Some(Retrying { failures, reason }),
            outage: None,
            attempts: Some(failures),
        }
    }

    /// The delegate failed: retries, bisects, or takes the item for a failed one.
    fn failed(&mut self, batch: Batch, error: DelegateError, now: Duration) -> Report {
        let (failures, limit) = (batch.failures + 1, self.policy.attempts);
        let named = error.item().filter(|item| *item < batch.items.len());
        let exhausted = limit.is_some_and(|limit| failures >= limit || error.is_permanent());
        let reason = format!("{error:?}");
        let mut report = Report { retrying: Some(Retrying { failures, reason: reason.clone() }), ..Report::default() };
        let errors: Vec<String> = error.chain().collect();
        let permanent = error.is_permanent();
        report.error = Some(error);
        let (done, rest) = batch.items.split_at(named.unwrap_or(0));
        if !done.is_empty() {
            self.succeeded();
        }
        match (exhausted, rest.len(), named) {
            (true, 1, _) | (true, _, Some(_)) => {
                let (item, rest) = rest.split_at(1);
                self.batches.push_front(Batch::fresh(rest));
                let Some(item) = item.first() else { return report };
                let failed = FailedItem { item, attempts: failures, errors };
                let unparsed = crate::planted!(UnparsedDeadLettered => true; self.policy.dead_letter_unparsed);
                if permanent && unparsed {
                    self.letters.push_back(failed);
                } else if let Detection::Outage(items) = self.outage.failed_alone(failed, now) {
                    self.regroup(items);
                    let outage = self.wait_for_outage(reason);
                    report = Report { error: report.error, ..outage };
                }
            }
            (true, length, None) => {
                // Each half gets one more attempt before it is cut again.
                let failures = limit.unwrap_or(1) - 1;
                self.narrowed = rest.first().map(|first| (first, length / 2));
                self.cut(Batch { items: rest, failures, per_item: false }, length / 2);
            }
            (false, ..) => {
                self.batches.push_front(Batch { items: rest, failures, per_item: batch.per_item });
                self.pause = Some(Pause { failures, at_least: Duration::ZERO });
                report.attempts = Some(failures);
            }
        }
        report
    }

    /// An item succeeded: those that failed alone before it are dead letters.
    fn succeeded(&mut self) {
        self.letters.extend(self.outage.succeeded());
    }

    /// Puts items that were held back to those that wait, in order, in as few batches as possible.
    fn regroup(&mut self, held: Vec<usize>) {
        let mut all: Vec<usize> = held;
        all.extend(self.batches.drain(..).flat_map(|batch| batch.items.iter().collect::<Vec<_>>()));
        all.sort_unstable();
        self.batches.push_back(Batch::fresh(all.into_iter().collect::<Items>()));
    }

    /// Outage: reports it, resets the attempt count, backs off.
    fn wait_for_outage(&mut self, reason: String) -> Report {
        let failures = self.outage.detected().saturating_mul(self.policy.attempts.unwrap_or(1));
        self.pause = Some(Pause { failures, at_least: Duration::ZERO });
        Report { outage: Some(reason), attempts: Some(0), ..Report::default() }
    }
}

/// Items of one batch that are retried.
#[derive(Default)]
struct Retry {
    items: Items,
    failures: u32,
    pause: Option<Duration>,
    error: Option<String>,
    outage: bool,
}
