//! Whether items are to blame for failures, or the world is. Pure: takes what became of items, in order, and says which
//! of them are dead letters.
//!
//! A run of items that fail alone is judged by what comes after it: if an item succeeds, the world is well and the run
//! is to blame; if the run grows longer than a limit, the world is down and nobody is.

use std::{collections::VecDeque, ops::Range, time::Duration};

/// An item that failed alone, as often as allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspect {
    /// Its place in the page.
    pub(crate) item: usize,
    /// How often it was tried.
    pub(crate) attempts: u32,
    /// Why it failed, outermost first.
    pub(crate) errors: Vec<String>,
}

/// The judge of one page.
#[derive(Debug)]
pub(crate) struct Blame {
    /// How many items in a row may become dead letters.
    limit: usize,
    /// For how long an outage is believed in.
    patience: Duration,
    /// Dead letters since the last success, on earlier pages too.
    buried: usize,
    /// Items that failed after them, to be judged.
    suspects: Vec<Suspect>,
    /// When an outage was first found, on our monotonic clock.
    outage_since: Option<Duration>,
}

/// What a failure means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// What comes next decides.
    Open,
    /// It is an outage: these items, held until now, are to be tried again.
    Outage(Vec<usize>),
}

impl Blame {
    /// The judge of a page, given how many dead letters came right before it.
    pub(crate) fn new(limit: usize, patience: Duration, buried: usize) -> Self {
        Self { limit, patience, buried, suspects: Vec::new(), outage_since: None }
    }

    /// How many dead letters there were since the last success.
    pub(crate) fn buried(&self) -> usize {
        self.buried
    }

    /// An item succeeded: those that failed before it are to blame.
    pub(crate) fn succeeded(&mut self) -> Vec<Suspect> {
        (self.buried, self.outage_since) = (0, None);
        std::mem::take(&mut self.suspects)
    }

    /// An item failed alone.
    pub(crate) fn failed(&mut self, suspect: Suspect, now: Duration) -> Finding {
        let item = suspect.item;
        self.suspects.push(suspect);
        if self.buried + self.suspects.len() <= self.limit {
            return Finding::Open;
        }
        let since = *self.outage_since.get_or_insert(now);
        if now.saturating_sub(since) >= self.patience {
            return Finding::Open;
        }
        let held = std::mem::take(&mut self.suspects);
        debug_assert!(held.last().is_some_and(|last| last.item == item));
        Finding::Outage(held.into_iter().map(|suspect| suspect.item).collect())
    }

    /// Nothing comes next that could decide: a run within the limit is to blame.
    pub(crate) fn settle(&mut self) -> Vec<Suspect> {
        self.buried += self.suspects.len();
        std::mem::take(&mut self.suspects)
    }
}

/// Items that are to be tried again and stretches that still wait, in order, as few stretches as possible.
pub(crate) fn regroup(items: &[usize], waiting: impl Iterator<Item = Range<usize>>) -> VecDeque<Range<usize>> {
    let mut stretches: VecDeque<Range<usize>> = VecDeque::new();
    for next in items.iter().map(|item| *item..item + 1).chain(waiting).filter(|stretch| !stretch.is_empty()) {
        match stretches.back_mut() {
            Some(last) if last.end == next.start => last.end = next.end,
            _ => stretches.push_back(next),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn suspect(item: usize) -> Suspect {
        Suspect { item, attempts: 5, errors: vec!["down".to_owned()] }
    }

    fn items(suspects: &[Suspect]) -> Vec<usize> {
        suspects.iter().map(|suspect| suspect.item).collect()
    }

    #[test]
    fn a_run_is_to_blame_once_an_item_after_it_succeeds() {
        let mut blame = Blame::new(3, HOUR, 0);
        assert_eq!(blame.failed(suspect(4), HOUR), Finding::Open);
        assert_eq!(blame.failed(suspect(5), HOUR), Finding::Open);
        assert_eq!(items(&blame.succeeded()), [4, 5]);
        assert!(blame.settle().is_empty() && blame.buried() == 0);
    }

    #[test]
    fn a_longer_run_is_an_outage_and_nobody_is_to_blame() {
        let mut blame = Blame::new(3, HOUR, 0);
        for item in 0..3 {
            assert_eq!(blame.failed(suspect(item), HOUR), Finding::Open);
        }
        assert_eq!(blame.failed(suspect(3), HOUR), Finding::Outage(vec![0, 1, 2, 3]));
        assert!(blame.succeeded().is_empty(), "the world is well again, and so are they");
    }

    #[test]
    fn lone_items_are_to_blame_until_there_were_too_many_in_a_row() {
        let mut row = 0;
        for page in 0..5 {
            let mut blame = Blame::new(3, HOUR, row);
            let finding = blame.failed(suspect(0), HOUR);
            assert_eq!(finding, if page < 3 { Finding::Open } else { Finding::Outage(vec![0]) });
            assert_eq!(blame.settle().len(), usize::from(page < 3));
            row = blame.buried();
        }
        let mut blame = Blame::new(3, HOUR, row);
        blame.succeeded();
        assert_eq!(blame.buried(), 0);
    }

    #[test]
    fn an_outage_that_does_not_end_is_none() {
        let mut blame = Blame::new(1, HOUR, 1);
        assert_eq!(blame.failed(suspect(0), HOUR), Finding::Outage(vec![0]));
        assert_eq!(blame.failed(suspect(0), HOUR + HOUR / 2), Finding::Outage(vec![0]));
        assert_eq!(blame.failed(suspect(0), 2 * HOUR), Finding::Open);
        assert_eq!(blame.failed(suspect(1), 2 * HOUR), Finding::Open);
        assert_eq!(items(&blame.settle()), [0, 1]);
    }

    #[test]
    fn what_lies_side_by_side_is_tried_together_again() {
        let regrouped = |items: &[usize], waiting: &[(usize, usize)]| -> Vec<(usize, usize)> {
            let stretches = regroup(items, waiting.iter().map(|(start, end)| *start..*end));
            stretches.into_iter().map(|stretch| (stretch.start, stretch.end)).collect()
        };
        assert_eq!(regrouped(&[2, 3, 4], &[(5, 5), (5, 8), (8, 20)]), [(2, 20)]);
        assert_eq!(regrouped(&[2, 4], &[(7, 8)]), [(2, 3), (4, 5), (7, 8)]);
        assert_eq!(regrouped(&[2], &[]), [(2, 3)]);
    }
}
