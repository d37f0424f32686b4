//! Rounds, medians, percentiles. The machine is shared and noisy, so baseline and subject take turns.

use std::time::{Duration, Instant};

use crate::Result;

/// What one round measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round<T> {
    /// Of the raw thing.
    pub(crate) baseline: T,
    /// Of the store.
    pub(crate) subject: T,
}

/// Runs both in turn; which goes first changes from round to round. Each gets the number of the round.
pub(crate) fn interleaved<T>(
    rounds: usize,
    mut baseline: impl FnMut(usize) -> Result<T>,
    mut subject: impl FnMut(usize) -> Result<T>,
) -> Result<Vec<Round<T>>> {
    (0..rounds)
        .map(|round| {
            if round % 2 == 0 {
                let baseline = baseline(round)?;
                Ok(Round { baseline, subject: subject(round)? })
            } else {
                let subject = subject(round)?;
                Ok(Round { baseline: baseline(round)?, subject })
            }
        })
        .collect()
}

/// Repeats `pass` until `length` is over and returns passes per second.
pub(crate) fn passes_per_second(length: Duration, mut pass: impl FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    let mut passes = 0.0;
    while start.elapsed() < length {
        pass()?;
        passes += 1.0;
    }
    Ok(passes / start.elapsed().as_secs_f64())
}

/// The middle and the ends of what the rounds gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one number.
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (first, last) = (sorted.first(), sorted.last());
        Self {
            median: median(&sorted),
            min: *first.expect("invariant: there is at least one round"),
            max: *last.expect("invariant: there is at least one round"),
        }
    }
}

/// The result of one row.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    /// The row it belongs to.
    pub(crate) row: &'static str,
    /// What the store gave, in the row's unit.
    pub(crate) value: Spread,
    /// What the row's baseline gave, in the same unit.
    pub(crate) baseline: Spread,
    /// The store's share of the baseline, round by round.
    pub(crate) ratio: Spread,
    /// What else the reader should know; may be empty.
    pub(crate) note: String,
}

impl Measurement {
    /// What the rounds gave, by `value` of what they measured.
    pub(crate) fn of<T>(row: &'static str, rounds: &[Round<T>], value: impl Fn(&T) -> f64) -> Self {
        Self {
            row,
            value: Spread::of(rounds.iter().map(|round| value(&round.subject))),
            baseline: Spread::of(rounds.iter().map(|round| value(&round.baseline))),
            ratio: Spread::of(rounds.iter().map(|round| value(&round.subject) / value(&round.baseline))),
            note: String::new(),
        }
    }

    /// Adds what else the reader should know.
    #[must_use]
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// How long each of many operations took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    /// Sorts what was measured.
    pub(crate) fn new(mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        Self(latencies)
    }

    /// The smallest latency that `percent` per cent of the operations did not exceed; zero if there were none.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// The longest.
    pub(crate) fn max(&self) -> Duration {
        self.percentile(100)
    }
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([7.0]), Spread { median: 7.0, min: 7.0, max: 7.0 });
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let of = |count: u64| Latencies::new((1..=count).rev().map(Duration::from_millis).collect());
        for (count, percent, wanted) in
            [(100, 50, 50), (100, 99, 99), (100, 100, 100), (10, 99, 10), (1, 1, 1), (3, 50, 2)]
        {
            assert_eq!(of(count).percentile(percent), Duration::from_millis(wanted), "p{percent} of {count}");
        }
        assert_eq!(of(0).percentile(99), Duration::ZERO);
        assert_eq!(of(7).max(), Duration::from_millis(7));
    }

    #[test]
    fn baseline_and_subject_change_places_from_round_to_round() {
        let order = std::cell::RefCell::new(String::new());
        let step = |name: char| order.borrow_mut().push(name);
        let rounds = interleaved(
            3,
            |round| {
                step('b');
                Ok(round)
            },
            |round| {
                step('s');
                Ok(round * 10)
            },
        )
        .unwrap();
        assert_eq!(*order.borrow(), "bssbbs");
        assert_eq!(
            rounds.iter().map(|round| (round.baseline, round.subject)).collect::<Vec<_>>(),
            [(0, 0), (1, 10), (2, 20)]
        );
    }

    #[test]
    fn the_ratio_is_the_median_of_the_ratios_of_the_rounds() {
        let rounds = [(10.0, 5.0), (100.0, 90.0), (20.0, 12.0)].map(|(baseline, subject)| Round { baseline, subject });
        let measurement = Measurement::of("row", &rounds, |value| *value);
        assert_eq!(measurement.ratio, Spread { median: 0.6, min: 0.5, max: 0.9 });
        assert_eq!(measurement.value.median, 12.0);
        assert_eq!(measurement.baseline.median, 20.0);
    }
}
