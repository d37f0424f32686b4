//! What decides about retries and dead letters.

/// What decides about retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Attempts before failed items are searched for; `None` without a dead-letter container: retried without limit.
    pub(crate) attempts: Option<u32>,
    /// Whether the user stores progress.
    pub(crate) manual: bool,
    /// Whether items that do not parse are dead-lettered without outage detection.
    pub(crate) dead_letter_unparsed: bool,
    /// Crashes during the delivery of one item alone that make it a dead letter.
    pub(crate) crashes: u32,
}

#[cfg(test)]
impl Default for Policy {
    fn default() -> Self {
        Self { attempts: None, manual: false, dead_letter_unparsed: false, crashes: 2 }
    }
}
