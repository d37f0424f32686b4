//! What decides about retries and dead letters.

/// What decides about retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Attempts before failed items are searched for; `None` without a dead-letter container: retried without limit.
    pub(crate) attempts: Option<u32>,
    /// Whether the user stores progress.
    pub(crate) manual: bool,
    /// Whether items that do not parse are dead-lettered without outage detection.
    pub(crate) dead_letter_unparsed: bool,
}
