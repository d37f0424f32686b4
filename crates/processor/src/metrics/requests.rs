//! Metrics of requests to the stores of a host: how many, how long, and what they were charged.

use std::time::Duration;

use ::metrics::{Counter, Histogram, Label, counter, histogram};
use changefeed_core::{Error, ErrorKind, Response, Result};
use parking_lot::Mutex;

use super::{labels::labels, names};

/// Which of the host's containers a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreRole {
    Monitored,
    Leases,
    DeadLetters,
}

impl StoreRole {
    fn label(self) -> &'static str {
        match self {
            Self::Monitored => "monitored",
            Self::Leases => "leases",
            Self::DeadLetters => "dead_letters",
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    FeedRanges,
    ReadChanges,
    ReadItem,
    Write,
    ListItems,
    TimeToLive,
}

const OPERATIONS: [(Operation, &str); 6] = [
    (Operation::FeedRanges, "feed_ranges"),
    (Operation::ReadChanges, "read_changes"),
    (Operation::ReadItem, "read_item"),
    (Operation::Write, "write"),
    (Operation::ListItems, "list_items"),
    (Operation::TimeToLive, "time_to_live"),
];

/// How a request ended. A conflict is usual between hosts and no failure.
const RESULTS: [&str; 4] = ["ok", "conflict", "throttled", "failed"];

/// The metrics of requests to one container.
pub(crate) struct RequestMetrics([OperationMetrics; OPERATIONS.len()]);

struct OperationMetrics {
    operation: Operation,
    results: [Counter; RESULTS.len()],
    units: RequestUnits,
    seconds: Histogram,
}

/// A counter of request units. Stores charge fractions of them, counters have none: the rest is kept for the next charge.
struct RequestUnits {
    counter: Counter,
    rest: Mutex<f64>,
}

impl RequestUnits {
    fn new(counter: Counter) -> Self {
        Self { counter, rest: Mutex::new(0.0) }
    }

    fn add(&self, charge: f64) {
        if charge > 0.0 {
            self.counter.increment(whole(&mut self.rest.lock(), charge));
        }
    }
}

impl RequestMetrics {
    pub(super) fn new(processor: &str, role: StoreRole) -> Self {
        Self(OPERATIONS.map(|(operation, name)| {
            let of = |more: Option<Label>| {
                let mut labels = labels(processor);
                labels.push(Label::from_static_parts("container", role.label()));
                labels.push(Label::from_static_parts("operation", name));
                labels.extend(more);
                labels
            };
            let result = |value| Label::from_static_parts("result", value);
            OperationMetrics {
                operation,
                results: RESULTS.map(|value| counter!(names::REQUESTS, of(Some(result(value))))),
                units: RequestUnits::new(counter!(names::REQUEST_UNITS, of(None))),
                seconds: histogram!(names::REQUEST_SECONDS, of(None)),
            }
        }))
    }

    /// Records a request that took this long.
    pub(crate) fn record<T>(&self, operation: Operation, answer: &Result<Response<T>>, took: Duration) {
        let Some(metrics) = self.0.iter().find(|metrics| metrics.operation == operation) else { return };
        let (result, charge) = match answer {
            Ok(response) => ("ok", response.request_charge),
            Err(error) => (result_of(error), error.request_charge()),
        };
        metrics.seconds.record(took.as_secs_f64());
        if let Some((_, counter)) = RESULTS.iter().zip(&metrics.results).find(|(known, _)| **known == result) {
            counter.increment(1);
        }
        metrics.units.add(charge);
    }
}

/// The whole units of a charge and the rest before it; leaves the rest after it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and far below 2^64")]
fn whole(rest: &mut f64, charge: f64) -> u64 {
    let sum = *rest + charge;
    *rest = sum.fract();
    sum.trunc() as u64
}

fn result_of(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::PreconditionFailed
        | ErrorKind::ItemNotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::RangeGone
        | ErrorKind::RangeNotFound => "conflict",
        ErrorKind::Throttled => "throttled",
        _ => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn races_between_hosts_are_conflicts_and_no_failures() {
        let result = |kind| result_of(&Error::new(kind, "no"));
        assert_eq!(result(ErrorKind::PreconditionFailed), "conflict");
        assert_eq!(result(ErrorKind::RangeGone), "conflict");
        assert_eq!(result(ErrorKind::Throttled), "throttled");
        assert_eq!(result(ErrorKind::Timeout), "failed");
    }

    #[test]
    fn fractions_of_request_units_add_up() {
        let mut rest = 0.0;
        let counted: Vec<u64> = [0.25, 0.5, 2.25, 10.5].map(|charge| whole(&mut rest, charge)).to_vec();
        assert_eq!((counted, rest), (vec![0, 0, 3, 10], 0.5));
    }
}
