//! What is shown: measurements, how they are sorted and filtered. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use changefeed::{Explanation, Lag};
use changefeed_core::Timestamp;
use serde::Serialize;

use crate::{exit::Exit, explain::needs_attention, inspect::state};

/// Rates are means over so much time: hosts write checkpoints now and then.
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Look {
    #[serde(skip)]
    pub(super) at: Timestamp,
    pub(super) total: u64,
    pub(super) leases: Vec<Row>,
    /// Documents that cannot be read.
    pub(super) broken: Vec<String>,
    /// What the stores say of themselves.
    pub(super) store_problems: Vec<String>,
}

/// One lease.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) lease: String,
    pub(super) state: &'static str,
    pub(super) owner: Option<String>,
    pub(super) changes: u64,
    pub(super) estimated: bool,
    pub(super) behind_seconds: u64,
    /// The LSN of the checkpoint, where it is known.
    #[serde(skip)]
    pub(super) checkpoint: Option<u64>,
    /// How many LSNs the checkpoint has passed in a second: one for each write or transaction. None before the second
    /// measurement, and after a seek to an earlier position.
    pub(super) handled_per_second: Option<f64>,
    /// How much the lag grows in a second; none before the second measurement.
    pub(super) lag_per_second: Option<f64>,
    /// What `changefeed explain` says.
    pub(super) status: String,
    pub(super) needs_attention: bool,
}

impl Row {
    /// The rate to sort by.
    fn rate(&self) -> f64 {
        self.handled_per_second.unwrap_or(0.0)
    }
}

impl Look {
    pub(super) fn new(at: Timestamp, lag: Lag, explained: Vec<Explanation>, store_problems: Vec<String>) -> Self {
        let mut sentences: BTreeMap<String, (String, bool)> = explained
            .into_iter()
            .map(|found| (found.lease.to_string(), (found.sentence, needs_attention(found.cause))))
            .collect();
        let row = |lease: changefeed::LeaseLag| {
            let token = lease.lease.to_string();
            let (status, needs_attention) = sentences.remove(&token).unwrap_or_default();
            Row {
                lease: token,
                state: state(lease.state),
                owner: lease.owner,
                changes: lease.changes,
                estimated: lease.estimated,
                behind_seconds: lease.behind.as_secs(),
                checkpoint: lease.checkpoint.map(changefeed_core::Lsn::get),
                handled_per_second: None,
                lag_per_second: None,
                status,
                needs_attention,
            }
        };
        let leases = lag.leases.into_iter().map(row).collect();
        Self { at, total: lag.changes, leases, broken: lag.broken, store_problems }
    }

    /// Unhealthy if a lease or a store needs attention, as `changefeed explain` has it.
    pub(super) fn exit(&self) -> Exit {
        let bad = !(self.broken.is_empty() && self.store_problems.is_empty())
            || self.leases.iter().any(|row| row.needs_attention);
        if bad { Exit::Unhealthy } else { Exit::Good }
    }

    fn since(&self, before: &Self) -> Duration {
        Duration::from_millis(self.at.as_millis().saturating_sub(before.at.as_millis()))
    }

    pub(super) fn hosts(&self) -> usize {
        self.leases.iter().filter_map(|row| row.owner.as_deref()).collect::<BTreeSet<_>>().len()
    }

    /// How many writes and transactions the checkpoints of all leases have passed in a second, as far as it is known.
    pub(super) fn handled_per_second(&self) -> Option<f64> {
        self.leases.iter().filter_map(|row| row.handled_per_second).reduce(|sum, rate| sum + rate)
    }

    /// How much the lag of all leases grows in a second.
    pub(super) fn lag_per_second(&self) -> Option<f64> {
        self.leases.iter().map(|row| row.lag_per_second).sum()
    }
}

/// What lines are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Lease,
    Changes,
    Handled,
    Behind,
    Owner,
    State,
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Changes => "changes",
            Self::Handled => "handled",
            Self::Behind => "behind",
            Self::Owner => "owner",
            Self::State => "state",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Lease => Self::Changes,
            Self::Changes => Self::Handled,
            Self::Handled => Self::Behind,
            Self::Behind => Self::Owner,
            Self::Owner => Self::State,
            Self::State => Self::Lease,
        }
    }
}

/// Everything that the picture depends on.
#[derive(Debug)]
pub(super) struct View {
    pub(super) name: String,
    /// Whether there are keys to press.
    pub(super) live: bool,
    pub(super) look: Option<Look>,
    /// Earlier measurements, oldest first: rates are those since the oldest.
    earlier: VecDeque<Look>,
    pub(super) error: Option<String>,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) held: bool,
    pub(super) scrolled: usize,
    filter: String,
    typing: bool,
}

impl View {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            live: false,
            look: None,
            earlier: VecDeque::new(),
            error: None,
            sort: Sort::default(),
            reversed: false,
            held: false,
            scrolled: 0,
            filter: String::new(),
            typing: false,
        }
    }

    /// The view of a terminal, with keys to press.
    pub(super) fn live(name: &str) -> Self {
        let mut view = Self::new(name);
        view.live = true;
        view
    }

    /// Takes a measurement, or why there is none. A picture that is held stays.
    pub(super) fn take(&mut self, look: Result<Look, String>) {
        if self.held {
            return;
        }
        match look {
            Ok(mut look) => {
                self.earlier.extend(self.look.take());
                while self.earlier.len() > 1 && self.earlier.front().is_some_and(|old| look.since(old) > RATE_WINDOW) {
                    self.earlier.pop_front();
                }
                if let Some(before) = self.earlier.front() {
                    set_rates(&mut look, before);
                }
                (self.look, self.error) = (Some(look), None);
            }
            Err(error) => self.error = Some(error),
        }
    }

    /// The lines that pass the filter, in order.
    pub(super) fn rows(&self) -> Vec<&Row> {
        let Some(look) = &self.look else { return Vec::new() };
        let wanted = self.filter.to_lowercase();
        let passes = |text: &str| text.to_lowercase().contains(&wanted);
        let mut rows: Vec<&Row> = look
            .leases
            .iter()
            .filter(|row| {
                passes(&row.lease)
                    || passes(row.state)
                    || passes(&row.status)
                    || row.owner.as_deref().is_some_and(passes)
            })
            .collect();
        match self.sort {
            Sort::Lease => {}
            Sort::Changes => rows.sort_by_key(|row| std::cmp::Reverse(row.changes)),
            Sort::Handled => rows.sort_by(|a, b| b.rate().total_cmp(&a.rate())),
            Sort::Behind => rows.sort_by_key(|row| std::cmp::Reverse(row.behind_seconds)),
            Sort::Owner => rows.sort_by_key(|row| row.owner.clone()),
            Sort::State => rows.sort_by_key(|row| row.state),
        }
        if self.reversed {
            rows.reverse();
        }
        rows
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    pub(super) fn is_typing(&self) -> bool {
        self.typing
    }

    pub(super) fn begin_typing(&mut self) {
        self.typing = true;
    }

    pub(super) fn end_typing(&mut self) {
        self.typing = false;
    }

    pub(super) fn type_char(&mut self, char: char) {
        self.filter.push(char);
        self.scrolled = 0;
    }

    pub(super) fn untype(&mut self) {
        self.filter.pop();
    }

    pub(super) fn clear_filter(&mut self) {
        self.filter.clear();
        self.typing = false;
    }

    pub(super) fn sort_by_next(&mut self) {
        self.sort = self.sort.next();
    }

    pub(super) fn reverse(&mut self) {
        self.reversed = !self.reversed;
    }

    pub(super) fn hold(&mut self) {
        self.held = !self.held;
    }

    pub(super) fn scroll(&mut self, lines: isize) {
        let last = self.rows().len().saturating_sub(1);
        self.scrolled = self.scrolled.saturating_add_signed(lines).min(last);
    }
}

fn set_rates(look: &mut Look, before: &Look) {
    let seconds = look.since(before).as_secs_f64();
    if seconds == 0.0 {
        return;
    }
    let old: BTreeMap<&str, &Row> = before.leases.iter().map(|row| (row.lease.as_str(), row)).collect();
    for row in &mut look.leases {
        let Some(old) = old.get(row.lease.as_str()) else { continue };
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = |new: u64, old: u64| (new as f64 - old as f64) / seconds;
        row.lag_per_second = Some(rate(row.changes, old.changes));
        row.handled_per_second = match (row.checkpoint, old.checkpoint) {
            (Some(new), Some(old)) if new >= old => Some(rate(new, old)),
            _ => None,
        };
    }
}
