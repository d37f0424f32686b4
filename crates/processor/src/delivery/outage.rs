//! Outage detection: whether items fail, or what the delegate depends on. Pure.
//!
//! Items that failed alone are held until something decides: an item after them that succeeds makes them dead letters;
//! a run of failed items longer than a limit is an outage, and all of them are retried.

use std::time::Duration;

/// An item that failed alone, as often as allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedItem {
    /// Its index in the page.
    pub(crate) item: usize,
    /// How often it was delivered.
    pub(crate) attempts: u32,
    /// The error and its causes, outermost first.
    pub(crate) errors: Vec<String>,
}

/// Detects outages of one lease, over all its pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutageDetector {
    /// How many items in a row may become dead letters.
    limit: usize,
    /// After an outage of this length its items become dead letters; `None`: never.
    ends_after: Option<Duration>,
    /// Dead letters since the last success.
    dead_lettered: usize,
    /// Items that failed after them.
    failed_alone: Vec<FailedItem>,
    /// When the current outage was detected, on this host's monotonic clock.
    since: Option<Duration>,
    /// How often it was detected since the last success.
    detected: u32,
}

/// What a failure means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Detection {
    /// Held: what comes next decides.
    Held,
    /// An outage: these items, held until now, are retried.
    Outage(Vec<usize>),
}

impl OutageDetector {
    pub(crate) fn new(limit: usize, ends_after: Option<Duration>) -> Self {
        Self { limit, ends_after, ..Self::default() }
    }

    /// An item succeeded: returns the items that failed alone before it, to be dead-lettered.
    pub(crate) fn succeeded(&mut self) -> Vec<FailedItem> {
        (self.dead_lettered, self.since, self.detected) = (0, None, 0);
        std::mem::take(&mut self.failed_alone)
    }

    /// An item failed alone.
    pub(crate) fn failed_alone(&mut self, failed: FailedItem, now: Duration) -> Detection {
        self.failed_alone.push(failed);
        if self.dead_lettered + self.failed_alone.len() <= self.limit {
            return Detection::Held;
        }
        let since = *self.since.get_or_insert(now);
        if self.ends_after.is_some_and(|ends_after| now.saturating_sub(since) >= ends_after) {
            return Detection::Held;
        }
        self.detected = self.detected.saturating_add(1);
        Detection::Outage(self.discard())
    }

    /// The page ends: returns the items that are held, to be dead-lettered.
    pub(crate) fn settle(&mut self) -> Vec<FailedItem> {
        self.dead_lettered += self.failed_alone.len();
        std::mem::take(&mut self.failed_alone)
    }

    /// The page is given up: the items that are held are delivered again. Returns their indices.
    pub(crate) fn discard(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.failed_alone).into_iter().map(|failed| failed.item).collect()
    }

    /// An item becomes a dead letter for another reason, without a success since.
    pub(crate) fn count_dead_letter(&mut self) {
        self.dead_lettered += 1;
    }

    pub(crate) fn holds_items(&self) -> bool {
        !self.failed_alone.is_empty()
    }

    /// How often the current outage was detected.
    pub(crate) fn detected(&self) -> u32 {
        self.detected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn failed(item: usize) -> FailedItem {
        FailedItem { item, attempts: 5, errors: vec!["down".to_owned()] }
    }

    fn items(failed: &[FailedItem]) -> Vec<usize> {
        failed.iter().map(|failed| failed.item).collect()
    }

    #[test]
    fn failed_items_are_dead_lettered_once_an_item_after_them_succeeds() {
        let mut detector = OutageDetector::new(3, None);
        assert_eq!(detector.failed_alone(failed(4), HOUR), Detection::Held);
        assert_eq!(detector.failed_alone(failed(5), HOUR), Detection::Held);
        assert_eq!(items(&detector.succeeded()), [4, 5]);
        assert!(detector.settle().is_empty());
    }

    #[test]
    fn a_longer_run_is_an_outage_and_nothing_is_dead_lettered() {
        let mut detector = OutageDetector::new(3, None);
        for item in 0..3 {
            assert_eq!(detector.failed_alone(failed(item), HOUR), Detection::Held);
        }
        assert_eq!(detector.failed_alone(failed(3), HOUR), Detection::Outage(vec![0, 1, 2, 3]));
        assert!(detector.succeeded().is_empty());
    }

    #[test]
    fn single_items_are_dead_lettered_until_there_were_too_many_in_a_row() {
        let mut detector = OutageDetector::new(3, None);
        for page in 0..5 {
            let detection = detector.failed_alone(failed(0), HOUR);
            assert_eq!(detection, if page < 3 { Detection::Held } else { Detection::Outage(vec![0]) });
            assert_eq!(detector.settle().len(), usize::from(page < 3));
        }
        detector.succeeded();
        assert_eq!(detector.failed_alone(failed(0), HOUR), Detection::Held);
    }

    #[test]
    fn an_outage_never_ends_in_dead_letters_unless_an_option_says_so() {
        for (ends_after, at_last) in [(None, Detection::Outage(vec![0])), (Some(HOUR), Detection::Held)] {
            let mut detector = OutageDetector::new(1, ends_after);
            assert_eq!(detector.failed_alone(failed(0), HOUR), Detection::Held);
            detector.settle();
            assert_eq!(detector.failed_alone(failed(0), HOUR), Detection::Outage(vec![0]));
            assert_eq!(detector.failed_alone(failed(0), HOUR + HOUR / 2), Detection::Outage(vec![0]));
            assert_eq!(detector.failed_alone(failed(0), 2 * HOUR), at_last);
        }
    }
}
