//! Labels of metrics.

use ::metrics::{Counter, Label, counter};

use crate::lease::prefix::LeaseToken;

/// The label that every metric of a processor has.
pub(crate) fn labels(processor: &str) -> Vec<Label> {
    vec![Label::new("processor", processor.to_owned())]
}

/// The labels of a series of one lease.
pub(crate) fn lease_labels(processor: &str, lease: &LeaseToken) -> Vec<Label> {
    vec![Label::new("processor", processor.to_owned()), Label::new("lease", lease.to_string())]
}

/// A counter for each value of a label. All are there from the beginning, so that the first increase is seen.
pub(crate) struct Values<const N: usize>([(&'static str, Counter); N]);

impl<const N: usize> Values<N> {
    pub(crate) fn new(name: &'static str, processor: &str, label: &'static str, values: [&'static str; N]) -> Self {
        Self(values.map(|value| {
            let mut labels = labels(processor);
            labels.push(Label::from_static_parts(label, value));
            (value, counter!(name, labels))
        }))
    }

    /// Counts one with this value, which must be one of those.
    pub(crate) fn count(&self, value: &str) {
        if let Some((_, counter)) = self.0.iter().find(|(known, _)| *known == value) {
            counter.increment(1);
        }
    }
}
