//! COUNT, SUM, AVG, MIN, MAX and their state.

use std::cmp::Ordering;

use crate::value::{Type, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aggregate {
    Count,
    Sum,
    Avg,
    Min,
    Max,
}

impl Aggregate {
    pub(crate) fn of(name: &str) -> Option<Self> {
        [Self::Count, Self::Sum, Self::Avg, Self::Min, Self::Max]
            .into_iter()
            .find(|aggregate| aggregate.name().eq_ignore_ascii_case(name))
    }

    /// The name in queries.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Count => "COUNT",
            Self::Sum => "SUM",
            Self::Avg => "AVG",
            Self::Min => "MIN",
            Self::Max => "MAX",
        }
    }

    /// The name in query plans.
    pub(crate) fn plan_name(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Sum => "Sum",
            Self::Avg => "Average",
            Self::Min => "Min",
            Self::Max => "Max",
        }
    }
}

/// One aggregate over the rows seen so far. Undefined values do not count.
#[derive(Debug, Clone)]
pub(crate) struct Accumulator {
    kind: Aggregate,
    count: u64,
    sum: f64,
    best: Value<'static>,
    /// A value that the aggregate is not defined for was seen.
    spoiled: bool,
}

impl Accumulator {
    pub(crate) fn new(kind: Aggregate) -> Self {
        Self { kind, count: 0, sum: 0.0, best: Value::Undefined, spoiled: false }
    }

    pub(crate) fn add(&mut self, value: &Value<'_>) {
        if !value.is_defined() {
            return;
        }
        self.count += 1;
        match self.kind {
            Aggregate::Count => {}
            Aggregate::Sum | Aggregate::Avg => match value.as_number() {
                Some(n) => self.sum += n,
                None => self.spoiled = true,
            },
            Aggregate::Min => self.keep(value, Ordering::Less),
            Aggregate::Max => self.keep(value, Ordering::Greater),
        }
    }

    fn keep(&mut self, value: &Value<'_>, wanted: Ordering) {
        if value.kind() >= Type::Array {
            self.spoiled = true;
        } else {
            let order = value.kind().cmp(&self.best.kind()).then(value.compare(&self.best).unwrap_or(Ordering::Equal));
            if !self.best.is_defined() || order == wanted {
                self.best = value.owned();
            }
        }
    }

    /// Bytes of the value that is kept.
    pub(crate) fn bytes(&self) -> usize {
        self.best.text_bytes()
    }

    pub(crate) fn result(&self) -> Value<'static> {
        match self.kind {
            _ if self.spoiled => Value::Undefined,
            Aggregate::Count => Value::number(self.count as f64),
            Aggregate::Sum => Value::number(self.sum),
            Aggregate::Avg => Value::number(self.sum / self.count as f64),
            Aggregate::Min | Aggregate::Max => self.best.clone(),
        }
    }
}
